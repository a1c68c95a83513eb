CREATE TABLE stations (
  station_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, zone INTEGER NOT NULL CHECK (zone BETWEEN 1 AND 5),
  step_free INTEGER NOT NULL CHECK (step_free IN (0, 1)), counter_until TEXT NOT NULL);
CREATE TABLE routes (
  route_id TEXT NOT NULL UNIQUE, from_station_id TEXT NOT NULL REFERENCES stations (station_id),
  to_station_id TEXT NOT NULL REFERENCES stations (station_id), km INTEGER NOT NULL CHECK (km > 0),
  kind TEXT NOT NULL CHECK (kind IN ('regional', 'express')), bikes INTEGER NOT NULL CHECK (bikes IN (0, 1)),
  UNIQUE (from_station_id, to_station_id), CHECK (from_station_id <> to_station_id));
CREATE TABLE departures (
  departure_id TEXT NOT NULL UNIQUE, route_id TEXT NOT NULL REFERENCES routes (route_id), leaves_at TEXT NOT NULL,
  arrives_at TEXT NOT NULL, second_price REAL NOT NULL CHECK (second_price > 0), first_price REAL NOT NULL,
  second_seats INTEGER NOT NULL CHECK (second_seats >= 0), first_seats INTEGER NOT NULL CHECK (first_seats >= 0),
  status TEXT NOT NULL CHECK (status IN ('on_time', 'delayed', 'cancelled', 'arrived')),
  delay_minutes INTEGER NOT NULL CHECK (delay_minutes >= 0), UNIQUE (route_id, leaves_at));
CREATE INDEX departures_route ON departures (route_id);
CREATE TABLE passengers (
  passenger_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  birth_year INTEGER NOT NULL, home_station_id TEXT NOT NULL REFERENCES stations (station_id),
  level TEXT NOT NULL CHECK (level IN ('basic', 'silver', 'gold')), points INTEGER NOT NULL CHECK (points >= 0),
  blocked INTEGER NOT NULL CHECK (blocked IN (0, 1)));
CREATE TABLE bookings (
  booking_id TEXT NOT NULL UNIQUE, passenger_id TEXT NOT NULL REFERENCES passengers (passenger_id),
  departure_id TEXT NOT NULL REFERENCES departures (departure_id), class INTEGER NOT NULL CHECK (class IN (1, 2)),
  fare TEXT NOT NULL CHECK (fare IN ('saver', 'flex')), seats INTEGER NOT NULL CHECK (seats BETWEEN 1 AND 6),
  paid REAL NOT NULL CHECK (paid >= 0), bike INTEGER NOT NULL CHECK (bike IN (0, 1)),
  meal TEXT NOT NULL CHECK (meal IN ('none', 'standard', 'vegetarian')),
  status TEXT NOT NULL CHECK (status IN ('confirmed', 'cancelled', 'travelled')), refund REAL NOT NULL CHECK (refund >= 0));
CREATE INDEX bookings_passenger ON bookings (passenger_id);
CREATE TABLE claims (
  claim_id TEXT NOT NULL UNIQUE, booking_id TEXT NOT NULL UNIQUE REFERENCES bookings (booking_id), amount REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'paid', 'rejected', 'withdrawn')), made_at TEXT NOT NULL);
CREATE TABLE season_cards (
  season_id TEXT NOT NULL UNIQUE, passenger_id TEXT NOT NULL REFERENCES passengers (passenger_id),
  route_id TEXT NOT NULL REFERENCES routes (route_id), valid_until TEXT NOT NULL, monthly_price REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'ended')), paused_until TEXT);
CREATE INDEX season_passenger ON season_cards (passenger_id);
CREATE TABLE lost_items (
  item_id TEXT NOT NULL UNIQUE, found_at_station_id TEXT NOT NULL REFERENCES stations (station_id), found_on TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('umbrella', 'phone', 'bag', 'jacket', 'book', 'keys')),
  colour TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('stored', 'reserved', 'returned')),
  claimed_by TEXT REFERENCES passengers (passenger_id));
CREATE TABLE assistance (
  assistance_id TEXT NOT NULL UNIQUE, booking_id TEXT NOT NULL UNIQUE REFERENCES bookings (booking_id),
  need TEXT NOT NULL CHECK (need IN ('wheelchair', 'visual', 'hearing', 'luggage')),
  status TEXT NOT NULL CHECK (status IN ('ordered', 'cancelled')));
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, passenger_id TEXT NOT NULL REFERENCES passengers (passenger_id),
  reason TEXT NOT NULL CHECK (reason IN ('accident', 'group_trip', 'fine_appeal', 'legal', 'unblock')), at TEXT NOT NULL);
