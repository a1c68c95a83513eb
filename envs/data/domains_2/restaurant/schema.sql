CREATE TABLE restaurants (
  restaurant_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, quarter TEXT NOT NULL, cuisine TEXT NOT NULL,
  kitchen_until TEXT NOT NULL, closed_weekday INTEGER NOT NULL CHECK (closed_weekday BETWEEN 0 AND 6),
  step_free INTEGER NOT NULL CHECK (step_free IN (0, 1)));
CREATE TABLE dishes (
  dish_id TEXT NOT NULL UNIQUE, restaurant_id TEXT NOT NULL REFERENCES restaurants (restaurant_id), name TEXT NOT NULL,
  course TEXT NOT NULL CHECK (course IN ('starter', 'main', 'dessert')), price REAL NOT NULL CHECK (price > 0),
  vegetarian INTEGER NOT NULL CHECK (vegetarian IN (0, 1)), sold_out INTEGER NOT NULL CHECK (sold_out IN (0, 1)),
  UNIQUE (restaurant_id, name));
CREATE TABLE dish_allergens (
  listing_id TEXT NOT NULL UNIQUE, dish_id TEXT NOT NULL REFERENCES dishes (dish_id),
  allergen TEXT NOT NULL CHECK (allergen IN ('gluten', 'milk', 'eggs', 'nuts', 'fish', 'soy', 'sesame', 'celery')),
  UNIQUE (dish_id, allergen));
CREATE TABLE dining_tables (
  table_id TEXT NOT NULL UNIQUE, restaurant_id TEXT NOT NULL REFERENCES restaurants (restaurant_id),
  seats INTEGER NOT NULL CHECK (seats BETWEEN 2 AND 10), area TEXT NOT NULL CHECK (area IN ('hall', 'terrace', 'gallery')));
CREATE INDEX dining_tables_restaurant ON dining_tables (restaurant_id);
CREATE TABLE guests (
  guest_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  postcode TEXT NOT NULL, street TEXT NOT NULL, card_number TEXT NOT NULL UNIQUE,
  level TEXT NOT NULL CHECK (level IN ('herb', 'spice', 'saffron')), stamps INTEGER NOT NULL CHECK (stamps >= 0),
  no_shows INTEGER NOT NULL CHECK (no_shows >= 0));
CREATE TABLE guest_allergies (
  allergy_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id),
  allergen TEXT NOT NULL CHECK (allergen IN ('gluten', 'milk', 'eggs', 'nuts', 'fish', 'soy', 'sesame', 'celery', 'mustard', 'lupin', 'shellfish')),
  UNIQUE (guest_id, allergen));
CREATE TABLE reservations (
  reservation_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id),
  table_id TEXT NOT NULL REFERENCES dining_tables (table_id), on_date TEXT NOT NULL,
  slot TEXT NOT NULL CHECK (slot IN ('12:00', '14:00', '18:30', '20:30')), party INTEGER NOT NULL CHECK (party BETWEEN 1 AND 10),
  occasion TEXT CHECK (occasion IN ('birthday', 'anniversary', 'business')), deposit REAL NOT NULL CHECK (deposit >= 0),
  refund REAL NOT NULL CHECK (refund >= 0 AND refund <= deposit), moves INTEGER NOT NULL CHECK (moves >= 0),
  status TEXT NOT NULL CHECK (status IN ('booked', 'cancelled', 'kept', 'missed')));
CREATE INDEX reservations_guest ON reservations (guest_id);
CREATE UNIQUE INDEX reservations_table ON reservations (table_id, on_date, slot) WHERE status = 'booked';
CREATE TABLE orders (
  order_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id),
  restaurant_id TEXT NOT NULL REFERENCES restaurants (restaurant_id),
  kind TEXT NOT NULL CHECK (kind IN ('delivery', 'pickup')), due_at TEXT NOT NULL, items REAL NOT NULL CHECK (items >= 0),
  discount REAL NOT NULL CHECK (discount >= 0), fee REAL NOT NULL CHECK (fee >= 0), credit REAL NOT NULL CHECK (credit >= 0),
  total REAL NOT NULL CHECK (total >= 0), refund REAL NOT NULL CHECK (refund >= 0), late_minutes INTEGER NOT NULL CHECK (late_minutes >= 0),
  status TEXT NOT NULL CHECK (status IN ('received', 'preparing', 'on_the_way', 'delivered', 'cancelled')));
CREATE INDEX orders_guest ON orders (guest_id);
CREATE TABLE order_lines (
  line_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL REFERENCES orders (order_id),
  dish_id TEXT NOT NULL REFERENCES dishes (dish_id), quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 12),
  price REAL NOT NULL CHECK (price > 0), UNIQUE (order_id, dish_id));
CREATE TABLE vouchers (
  voucher_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id), balance REAL NOT NULL CHECK (balance >= 0),
  expires_on TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('active', 'used', 'expired')));
CREATE INDEX vouchers_guest ON vouchers (guest_id);
CREATE TABLE compensations (
  compensation_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL UNIQUE REFERENCES orders (order_id),
  problem TEXT NOT NULL CHECK (problem IN ('late', 'cold', 'wrong_dish', 'missing_dish')),
  amount REAL NOT NULL CHECK (amount > 0), granted_at TEXT NOT NULL);
CREATE TABLE evenings (
  evening_id TEXT NOT NULL UNIQUE, restaurant_id TEXT NOT NULL REFERENCES restaurants (restaurant_id),
  title TEXT NOT NULL, on_date TEXT NOT NULL, price REAL NOT NULL CHECK (price > 0),
  places_left INTEGER NOT NULL CHECK (places_left >= 0), UNIQUE (restaurant_id, title));
CREATE TABLE tickets (
  ticket_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id),
  evening_id TEXT NOT NULL REFERENCES evenings (evening_id), places INTEGER NOT NULL CHECK (places BETWEEN 1 AND 6),
  paid REAL NOT NULL CHECK (paid >= 0), refund REAL NOT NULL CHECK (refund >= 0),
  status TEXT NOT NULL CHECK (status IN ('valid', 'cancelled', 'attended')));
CREATE INDEX tickets_guest ON tickets (guest_id);
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, guest_id TEXT NOT NULL REFERENCES guests (guest_id),
  reason TEXT NOT NULL CHECK (reason IN ('illness', 'private_party', 'invoice', 'injury', 'press')), at TEXT NOT NULL);
