CREATE TABLE venues (
  venue_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, address TEXT NOT NULL, box_office_until TEXT NOT NULL,
  halls INTEGER NOT NULL CHECK (halls BETWEEN 1 AND 12));
CREATE TABLE titles (
  title_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL CHECK (kind IN ('film', 'series')),
  genre TEXT NOT NULL, age INTEGER NOT NULL CHECK (age IN (0, 6, 12, 16, 18)), minutes INTEGER NOT NULL CHECK (minutes > 0),
  rent_price REAL CHECK (rent_price > 0));
CREATE TABLE screenings (
  screening_id TEXT NOT NULL UNIQUE, venue_id TEXT NOT NULL REFERENCES venues (venue_id),
  title_id TEXT NOT NULL REFERENCES titles (title_id), starts_at TEXT NOT NULL, hall INTEGER NOT NULL,
  format TEXT NOT NULL CHECK (format IN ('standard', '3D', 'original')), seat_price REAL NOT NULL CHECK (seat_price > 0),
  seats_left INTEGER NOT NULL CHECK (seats_left >= 0), status TEXT NOT NULL CHECK (status IN ('on_sale', 'cancelled', 'played')));
CREATE INDEX screenings_title ON screenings (title_id);
CREATE TABLE plans (
  plan TEXT NOT NULL UNIQUE, monthly REAL NOT NULL CHECK (monthly > 0), most_profiles INTEGER NOT NULL, screens INTEGER NOT NULL,
  rental_discount REAL NOT NULL CHECK (rental_discount BETWEEN 0 AND 1));
CREATE TABLE members (
  member_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  club_card TEXT NOT NULL UNIQUE, pin TEXT NOT NULL, birth_date TEXT NOT NULL, stamps INTEGER NOT NULL CHECK (stamps >= 0),
  standing TEXT NOT NULL CHECK (standing IN ('good', 'locked')));
CREATE TABLE subscriptions (
  subscription_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL UNIQUE REFERENCES members (member_id),
  plan TEXT NOT NULL REFERENCES plans (plan), status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'ending')),
  trial INTEGER NOT NULL CHECK (trial IN (0, 1)), renews_on TEXT NOT NULL, paused_until TEXT);
CREATE TABLE profiles (
  profile_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id), name TEXT NOT NULL,
  child INTEGER NOT NULL CHECK (child IN (0, 1)), age_limit INTEGER NOT NULL CHECK (age_limit IN (0, 6, 12, 16, 18)),
  UNIQUE (member_id, name));
CREATE TABLE devices (
  device_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id), name TEXT NOT NULL,
  last_used_on TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('linked', 'signed_out')), UNIQUE (member_id, name));
CREATE TABLE vouchers (
  voucher_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id), code TEXT NOT NULL UNIQUE,
  value REAL NOT NULL CHECK (value > 0), expires_on TEXT NOT NULL, extended INTEGER NOT NULL CHECK (extended IN (0, 1)),
  status TEXT NOT NULL CHECK (status IN ('open', 'used', 'expired')));
CREATE INDEX vouchers_member ON vouchers (member_id);
CREATE TABLE tickets (
  ticket_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id),
  screening_id TEXT NOT NULL REFERENCES screenings (screening_id), adults INTEGER NOT NULL CHECK (adults >= 0),
  reduced INTEGER NOT NULL CHECK (reduced >= 0), paid REAL NOT NULL CHECK (paid >= 0), voucher_id TEXT REFERENCES vouchers (voucher_id),
  exchanged INTEGER NOT NULL CHECK (exchanged IN (0, 1)), status TEXT NOT NULL CHECK (status IN ('valid', 'used', 'refunded')),
  refund REAL NOT NULL CHECK (refund >= 0), CHECK (adults + reduced BETWEEN 1 AND 8));
CREATE INDEX tickets_member ON tickets (member_id);
CREATE TABLE snacks (
  snack_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, price REAL NOT NULL CHECK (price > 0));
CREATE TABLE snack_orders (
  snack_order_id TEXT NOT NULL UNIQUE, ticket_id TEXT NOT NULL REFERENCES tickets (ticket_id),
  snack_id TEXT NOT NULL REFERENCES snacks (snack_id), quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 6), paid REAL NOT NULL);
CREATE INDEX snack_orders_ticket ON snack_orders (ticket_id);
CREATE TABLE rentals (
  rental_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id),
  title_id TEXT NOT NULL REFERENCES titles (title_id), rented_at TEXT NOT NULL, price REAL NOT NULL CHECK (price >= 0),
  started INTEGER NOT NULL CHECK (started IN (0, 1)), status TEXT NOT NULL CHECK (status IN ('running', 'over', 'refunded')));
CREATE INDEX rentals_member ON rentals (member_id);
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id),
  reason TEXT NOT NULL CHECK (reason IN ('account_takeover', 'group_event', 'accessibility', 'injury', 'unlock')), at TEXT NOT NULL);
