CREATE TABLE destinations (
  destination_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
  visa TEXT NOT NULL CHECK (visa IN ('none', 'online', 'embassy')), visa_fee REAL NOT NULL CHECK (visa_fee >= 0),
  passport_months INTEGER NOT NULL CHECK (passport_months IN (0, 3, 6)),
  vaccination TEXT NOT NULL CHECK (vaccination IN ('none', 'yellow fever', 'typhoid', 'hepatitis')));
CREATE TABLE connections (
  connection_id TEXT NOT NULL UNIQUE, destination_id TEXT NOT NULL REFERENCES destinations (destination_id),
  mode TEXT NOT NULL CHECK (mode IN ('flight', 'ferry', 'coach')), from_city TEXT NOT NULL,
  supplement REAL NOT NULL CHECK (supplement >= 0), UNIQUE (destination_id, from_city));
CREATE TABLE tours (
  tour_id TEXT NOT NULL UNIQUE, destination_id TEXT NOT NULL REFERENCES destinations (destination_id),
  theme TEXT NOT NULL CHECK (theme IN ('hiking', 'beach', 'city', 'wildlife', 'sailing')), title TEXT NOT NULL UNIQUE,
  nights INTEGER NOT NULL CHECK (nights BETWEEN 2 AND 21), adults_only INTEGER NOT NULL CHECK (adults_only IN (0, 1)));
CREATE TABLE dates (
  date_id TEXT NOT NULL UNIQUE, tour_id TEXT NOT NULL REFERENCES tours (tour_id), starts_on TEXT NOT NULL,
  price REAL NOT NULL CHECK (price > 0), places_left INTEGER NOT NULL CHECK (places_left >= 0),
  status TEXT NOT NULL CHECK (status IN ('open', 'full', 'withdrawn', 'run')), UNIQUE (tour_id, starts_on));
CREATE TABLE excursions (
  excursion_id TEXT NOT NULL UNIQUE, tour_id TEXT NOT NULL REFERENCES tours (tour_id), name TEXT NOT NULL,
  price REAL NOT NULL CHECK (price > 0), UNIQUE (tour_id, name));
CREATE TABLE clients (
  client_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  date_of_birth TEXT NOT NULL, file_word TEXT NOT NULL, club TEXT NOT NULL CHECK (club IN ('none', 'explorer', 'nomad')),
  voucher REAL NOT NULL CHECK (voucher >= 0), stopped INTEGER NOT NULL CHECK (stopped IN (0, 1)));
CREATE TABLE travellers (
  traveller_id TEXT NOT NULL UNIQUE, client_id TEXT NOT NULL REFERENCES clients (client_id), full_name TEXT NOT NULL,
  date_of_birth TEXT NOT NULL, passport_number TEXT NOT NULL UNIQUE, passport_until TEXT NOT NULL,
  lead INTEGER NOT NULL CHECK (lead IN (0, 1)));
CREATE INDEX travellers_client ON travellers (client_id);
CREATE TABLE trips (
  trip_id TEXT NOT NULL UNIQUE, client_id TEXT NOT NULL REFERENCES clients (client_id),
  date_id TEXT NOT NULL REFERENCES dates (date_id), adults INTEGER NOT NULL CHECK (adults >= 1),
  children INTEGER NOT NULL CHECK (children >= 0), room TEXT NOT NULL CHECK (room IN ('standard', 'superior')),
  board TEXT NOT NULL CHECK (board IN ('breakfast', 'half', 'full')),
  connection_id TEXT REFERENCES connections (connection_id), total REAL NOT NULL CHECK (total >= 0),
  paid REAL NOT NULL CHECK (paid >= 0), status TEXT NOT NULL CHECK (status IN ('option', 'confirmed', 'cancelled', 'completed')),
  option_until TEXT, extended INTEGER NOT NULL CHECK (extended IN (0, 1)), booked_on TEXT NOT NULL,
  cancel_reason TEXT, refund REAL NOT NULL CHECK (refund >= 0), CHECK ((status = 'option') = (option_until IS NOT NULL)));
CREATE INDEX trips_client ON trips (client_id);
CREATE TABLE seats (
  seat_id TEXT NOT NULL UNIQUE, trip_id TEXT NOT NULL REFERENCES trips (trip_id),
  traveller_id TEXT NOT NULL REFERENCES travellers (traveller_id), UNIQUE (trip_id, traveller_id));
CREATE TABLE outings (
  outing_id TEXT NOT NULL UNIQUE, trip_id TEXT NOT NULL REFERENCES trips (trip_id),
  excursion_id TEXT NOT NULL REFERENCES excursions (excursion_id), persons INTEGER NOT NULL CHECK (persons >= 1),
  cost REAL NOT NULL, status TEXT NOT NULL CHECK (status IN ('booked', 'dropped')));
CREATE INDEX outings_trip ON outings (trip_id);
CREATE TABLE insurances (
  insurance_id TEXT NOT NULL UNIQUE, trip_id TEXT NOT NULL UNIQUE REFERENCES trips (trip_id),
  product TEXT NOT NULL CHECK (product IN ('cancellation', 'medical', 'complete')), premium REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'used', 'ended')));
CREATE TABLE visas (
  visa_id TEXT NOT NULL UNIQUE, trip_id TEXT NOT NULL REFERENCES trips (trip_id),
  traveller_id TEXT NOT NULL REFERENCES travellers (traveller_id), fee REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('submitted', 'approved', 'refused')), UNIQUE (trip_id, traveller_id));
CREATE TABLE payments (
  payment_id TEXT NOT NULL UNIQUE, trip_id TEXT NOT NULL REFERENCES trips (trip_id), amount REAL NOT NULL CHECK (amount > 0),
  method TEXT NOT NULL CHECK (method IN ('card', 'voucher')), paid_on TEXT NOT NULL);
CREATE INDEX payments_trip ON payments (trip_id);
CREATE TABLE waitlist (
  entry_id TEXT NOT NULL UNIQUE, client_id TEXT NOT NULL REFERENCES clients (client_id),
  date_id TEXT NOT NULL REFERENCES dates (date_id), persons INTEGER NOT NULL CHECK (persons BETWEEN 1 AND 9),
  status TEXT NOT NULL CHECK (status IN ('waiting', 'offered', 'left')), UNIQUE (client_id, date_id));
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, client_id TEXT NOT NULL REFERENCES clients (client_id),
  reason TEXT NOT NULL CHECK (reason IN ('emergency_abroad', 'lost_papers', 'group', 'legal', 'lift_stop')),
  at TEXT NOT NULL);
