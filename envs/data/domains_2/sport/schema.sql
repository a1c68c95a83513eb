CREATE TABLE clubs (
  club_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, town TEXT NOT NULL,
  division INTEGER NOT NULL CHECK (division BETWEEN 1 AND 3),
  standing TEXT NOT NULL CHECK (standing IN ('good', 'warned', 'barred')), credit REAL NOT NULL CHECK (credit >= 0));
CREATE TABLE officers (
  officer_id TEXT NOT NULL UNIQUE, club_id TEXT NOT NULL REFERENCES clubs (club_id), full_name TEXT NOT NULL,
  email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE, service_code TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('secretary', 'coach', 'treasurer')), since TEXT NOT NULL);
CREATE INDEX officers_club ON officers (club_id);
CREATE TABLE venues (
  venue_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, town TEXT NOT NULL, seats INTEGER NOT NULL CHECK (seats > 0),
  hourly_rate REAL NOT NULL CHECK (hourly_rate > 0), floor TEXT NOT NULL CHECK (floor IN ('wood', 'rubber')));
CREATE INDEX venues_town ON venues (town);
CREATE TABLE slots (
  slot TEXT NOT NULL UNIQUE CHECK (slot IN ('morning', 'afternoon', 'evening')), place INTEGER NOT NULL,
  starts TEXT NOT NULL, ends TEXT NOT NULL, factor REAL NOT NULL CHECK (factor > 0));
CREATE TABLE referees (
  referee_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, level TEXT NOT NULL CHECK (level IN ('regional', 'national')),
  town TEXT NOT NULL);
CREATE TABLE fixtures (
  fixture_id TEXT NOT NULL UNIQUE, home_club_id TEXT NOT NULL REFERENCES clubs (club_id),
  away_club_id TEXT NOT NULL REFERENCES clubs (club_id), venue_id TEXT NOT NULL REFERENCES venues (venue_id),
  referee_id TEXT NOT NULL REFERENCES referees (referee_id), plays_at TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('scheduled', 'unreported', 'played', 'forfeited')),
  home_goals INTEGER CHECK (home_goals >= 0), away_goals INTEGER CHECK (away_goals >= 0),
  moves INTEGER NOT NULL CHECK (moves BETWEEN 0 AND 2),
  objection TEXT CHECK (objection IN ('conflict_of_interest', 'earlier_incident')), UNIQUE (home_club_id, away_club_id),
  CHECK (home_club_id <> away_club_id), CHECK (status NOT IN ('played', 'forfeited') OR home_goals IS NOT NULL));
CREATE INDEX fixtures_away ON fixtures (away_club_id);
CREATE TABLE players (
  player_id TEXT NOT NULL UNIQUE, club_id TEXT NOT NULL REFERENCES clubs (club_id), full_name TEXT NOT NULL,
  born_on TEXT NOT NULL, position TEXT NOT NULL CHECK (position IN ('goalkeeper', 'back', 'wing', 'pivot')),
  shirt INTEGER CHECK (shirt BETWEEN 1 AND 99),
  licence TEXT NOT NULL CHECK (licence IN ('pending', 'active', 'expired', 'released')), licence_until TEXT,
  medical_until TEXT, UNIQUE (club_id, shirt));
CREATE INDEX players_club ON players (club_id);
CREATE TABLE suspensions (
  suspension_id TEXT NOT NULL UNIQUE, player_id TEXT NOT NULL REFERENCES players (player_id),
  cause TEXT NOT NULL CHECK (cause IN ('red card', 'insult', 'fighting', 'throwing the ball away')),
  matches INTEGER NOT NULL CHECK (matches BETWEEN 1 AND 6), served INTEGER NOT NULL CHECK (served BETWEEN 0 AND matches),
  imposed_on TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('active', 'appealed', 'served', 'lifted')));
CREATE INDEX suspensions_player ON suspensions (player_id);
CREATE TABLE appeals (
  appeal_id TEXT NOT NULL UNIQUE, suspension_id TEXT NOT NULL REFERENCES suspensions (suspension_id),
  ground TEXT NOT NULL CHECK (ground IN ('mistaken_identity', 'new_evidence', 'procedure')),
  deposit REAL NOT NULL CHECK (deposit >= 0),
  status TEXT NOT NULL CHECK (status IN ('open', 'upheld', 'dismissed', 'withdrawn')), filed_at TEXT NOT NULL);
CREATE INDEX appeals_suspension ON appeals (suspension_id);
CREATE TABLE player_transfers (
  transfer_id TEXT NOT NULL UNIQUE, player_id TEXT NOT NULL REFERENCES players (player_id),
  from_club_id TEXT NOT NULL REFERENCES clubs (club_id), to_club_id TEXT NOT NULL REFERENCES clubs (club_id),
  fee REAL NOT NULL CHECK (fee >= 0),
  status TEXT NOT NULL CHECK (status IN ('requested', 'completed', 'refused', 'withdrawn')), asked_on TEXT NOT NULL,
  CHECK (from_club_id <> to_club_id));
CREATE INDEX transfers_from ON player_transfers (from_club_id);
CREATE INDEX transfers_to ON player_transfers (to_club_id);
CREATE INDEX transfers_player ON player_transfers (player_id);
CREATE TABLE fines (
  fine_id TEXT NOT NULL UNIQUE, club_id TEXT NOT NULL REFERENCES clubs (club_id),
  cause TEXT NOT NULL CHECK (cause IN ('late team sheet', 'missing referee fee', 'unsafe hall', 'crowd trouble', 'wrong kit')),
  amount REAL NOT NULL CHECK (amount > 0), due_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'split', 'paid', 'waived')), parts INTEGER NOT NULL CHECK (parts BETWEEN 1 AND 4),
  paid REAL NOT NULL CHECK (paid >= 0));
CREATE INDEX fines_club ON fines (club_id);
CREATE TABLE hall_bookings (
  booking_id TEXT NOT NULL UNIQUE, club_id TEXT NOT NULL REFERENCES clubs (club_id),
  venue_id TEXT NOT NULL REFERENCES venues (venue_id), on_date TEXT NOT NULL, slot TEXT NOT NULL REFERENCES slots (slot),
  price REAL NOT NULL CHECK (price >= 0), status TEXT NOT NULL CHECK (status IN ('booked', 'cancelled', 'used')),
  refund REAL NOT NULL CHECK (refund >= 0));
CREATE INDEX halls_club ON hall_bookings (club_id);
CREATE INDEX halls_venue ON hall_bookings (venue_id, on_date);
CREATE TABLE handovers (
  handover_id TEXT NOT NULL UNIQUE, officer_id TEXT NOT NULL REFERENCES officers (officer_id),
  reason TEXT NOT NULL CHECK (reason IN ('doping', 'match_fixing', 'safeguarding', 'insolvency', 'legal')), at TEXT NOT NULL);
