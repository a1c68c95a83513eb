CREATE TABLE regions (
  region_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, coast INTEGER NOT NULL CHECK (coast IN (0, 1)));
CREATE TABLE stations (
  station_id TEXT NOT NULL UNIQUE, region_id TEXT NOT NULL REFERENCES regions (region_id), name TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL CHECK (kind IN ('automatic', 'staffed')), elevation INTEGER NOT NULL, archive_from TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('online', 'degraded', 'offline')));
CREATE TABLE forecasts (
  forecast_id TEXT NOT NULL UNIQUE, region_id TEXT NOT NULL REFERENCES regions (region_id), on_date TEXT NOT NULL,
  low REAL NOT NULL, high REAL NOT NULL, rain_mm REAL NOT NULL CHECK (rain_mm >= 0), wind_kmh INTEGER NOT NULL,
  summary TEXT NOT NULL, confidence TEXT NOT NULL CHECK (confidence IN ('low', 'medium', 'high')),
  UNIQUE (region_id, on_date), CHECK (low <= high));
CREATE TABLE warnings (
  warning_id TEXT NOT NULL UNIQUE, region_id TEXT NOT NULL REFERENCES regions (region_id),
  hazard TEXT NOT NULL CHECK (hazard IN ('storm', 'frost', 'snow', 'flood', 'fog')),
  level TEXT NOT NULL CHECK (level IN ('yellow', 'orange', 'red')), starts_at TEXT NOT NULL, ends_at TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'planned', 'expired')));
CREATE TABLE readings (
  reading_id TEXT NOT NULL UNIQUE, station_id TEXT NOT NULL REFERENCES stations (station_id), on_date TEXT NOT NULL,
  mean_temperature REAL NOT NULL, rain_mm REAL NOT NULL, gust_kmh REAL NOT NULL, UNIQUE (station_id, on_date));
CREATE TABLE plans (
  plan_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, monthly_fee REAL NOT NULL CHECK (monthly_fee >= 0),
  calls INTEGER NOT NULL, alert_slots INTEGER NOT NULL, archive_factor REAL NOT NULL);
CREATE TABLE accounts (
  account_id TEXT NOT NULL UNIQUE, organisation TEXT NOT NULL, contact TEXT NOT NULL, email TEXT NOT NULL UNIQUE,
  service_code TEXT NOT NULL, sector TEXT NOT NULL CHECK (sector IN ('farming', 'events', 'shipping', 'building', 'energy')),
  plan_id TEXT NOT NULL REFERENCES plans (plan_id), plan_since TEXT NOT NULL, next_plan_id TEXT REFERENCES plans (plan_id),
  calls_used INTEGER NOT NULL CHECK (calls_used >= 0), extra_calls INTEGER NOT NULL CHECK (extra_calls >= 0),
  credit REAL NOT NULL CHECK (credit >= 0), status TEXT NOT NULL CHECK (status IN ('active', 'suspended')));
CREATE TABLE alerts (
  alert_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  region_id TEXT NOT NULL REFERENCES regions (region_id),
  hazard TEXT NOT NULL CHECK (hazard IN ('storm', 'frost', 'snow', 'flood', 'fog')),
  from_level TEXT NOT NULL CHECK (from_level IN ('yellow', 'orange', 'red')),
  channel TEXT NOT NULL CHECK (channel IN ('sms', 'email', 'push')),
  status TEXT NOT NULL CHECK (status IN ('active', 'muted', 'ended')), muted_until TEXT,
  CHECK ((status = 'muted') = (muted_until IS NOT NULL)));
CREATE INDEX alerts_account ON alerts (account_id);
CREATE TABLE sensors (
  sensor_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  model TEXT NOT NULL CHECK (model IN ('rain gauge', 'wind vane', 'thermometer', 'soil probe')),
  region_id TEXT NOT NULL REFERENCES regions (region_id), serial TEXT NOT NULL UNIQUE, calibrated_on TEXT NOT NULL,
  battery INTEGER NOT NULL CHECK (battery BETWEEN 0 AND 100),
  status TEXT NOT NULL CHECK (status IN ('running', 'faulty', 'retired')), lease_monthly REAL NOT NULL CHECK (lease_monthly >= 0),
  lease_until TEXT, CHECK ((lease_monthly > 0) = (lease_until IS NOT NULL)));
CREATE INDEX sensors_account ON sensors (account_id);
CREATE TABLE visits (
  visit_id TEXT NOT NULL UNIQUE, sensor_id TEXT NOT NULL REFERENCES sensors (sensor_id),
  kind TEXT NOT NULL CHECK (kind IN ('calibration', 'repair', 'battery')), on_date TEXT NOT NULL,
  cost REAL NOT NULL CHECK (cost >= 0), status TEXT NOT NULL CHECK (status IN ('planned', 'done', 'cancelled')));
CREATE INDEX visits_sensor ON visits (sensor_id);
CREATE TABLE orders (
  order_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  station_id TEXT NOT NULL REFERENCES stations (station_id), from_date TEXT NOT NULL, to_date TEXT NOT NULL,
  format TEXT NOT NULL CHECK (format IN ('csv', 'json')), price REAL NOT NULL CHECK (price >= 0),
  status TEXT NOT NULL CHECK (status IN ('preparing', 'delivered', 'cancelled')), CHECK (from_date <= to_date));
CREATE INDEX orders_account ON orders (account_id);
CREATE TABLE reports (
  report_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  region_id TEXT NOT NULL REFERENCES regions (region_id), on_date TEXT NOT NULL,
  purpose TEXT NOT NULL CHECK (purpose IN ('insurance', 'contract', 'research')), fee REAL NOT NULL CHECK (fee >= 0),
  status TEXT NOT NULL CHECK (status IN ('ordered', 'issued')), UNIQUE (account_id, region_id, on_date));
CREATE TABLE invoices (
  invoice_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  subject TEXT NOT NULL CHECK (subject IN ('plan', 'calls', 'archive', 'report', 'visit', 'lease')), month TEXT NOT NULL,
  amount REAL NOT NULL CHECK (amount >= 0), status TEXT NOT NULL CHECK (status IN ('open', 'overdue', 'paid', 'credited')),
  due_on TEXT NOT NULL, source TEXT);
CREATE INDEX invoices_account ON invoices (account_id);
CREATE TABLE outages (
  outage_id TEXT NOT NULL UNIQUE, service TEXT NOT NULL CHECK (service IN ('api', 'sms', 'push')), on_date TEXT NOT NULL UNIQUE,
  hours REAL NOT NULL CHECK (hours > 0));
CREATE TABLE credits (
  credit_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  outage_id TEXT NOT NULL REFERENCES outages (outage_id), amount REAL NOT NULL, UNIQUE (account_id, outage_id));
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id),
  reason TEXT NOT NULL CHECK (reason IN ('danger', 'court', 'press', 'device_hazard', 'data_protection')), at TEXT NOT NULL);
