CREATE TABLE customers (
  customer_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  date_of_birth TEXT NOT NULL, city TEXT NOT NULL,
  tier TEXT NOT NULL CHECK (tier IN ('standard', 'plus', 'premier')),
  status TEXT NOT NULL CHECK (status IN ('active', 'restricted')), joined_on TEXT NOT NULL);
CREATE TABLE accounts (
  account_id TEXT NOT NULL UNIQUE, customer_id TEXT NOT NULL REFERENCES customers (customer_id),
  kind TEXT NOT NULL CHECK (kind IN ('checking', 'savings')), balance REAL NOT NULL CHECK (balance >= 0),
  rate REAL NOT NULL CHECK (rate >= 0), status TEXT NOT NULL CHECK (status IN ('active', 'frozen', 'closed')),
  opened_on TEXT NOT NULL);
CREATE INDEX accounts_customer ON accounts (customer_id);
CREATE TABLE cards (
  card_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id), last4 TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'frozen', 'cancelled')), status_reason TEXT,
  daily_limit INTEGER NOT NULL CHECK (daily_limit BETWEEN 100 AND 10000), replaces TEXT, expires_on TEXT NOT NULL);
CREATE INDEX cards_account ON cards (account_id);
CREATE TABLE transactions (
  transaction_id TEXT NOT NULL UNIQUE, account_id TEXT NOT NULL REFERENCES accounts (account_id), at TEXT NOT NULL,
  amount REAL NOT NULL CHECK (amount > 0), kind TEXT NOT NULL CHECK (kind IN ('purchase', 'deposit', 'fee')),
  merchant TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('posted', 'pending', 'disputed', 'refunded')));
CREATE INDEX transactions_account ON transactions (account_id);
CREATE TABLE payees (
  payee_id TEXT NOT NULL UNIQUE, customer_id TEXT NOT NULL REFERENCES customers (customer_id), name TEXT NOT NULL,
  iban TEXT NOT NULL, verified INTEGER NOT NULL CHECK (verified IN (0, 1)), UNIQUE (customer_id, iban));
CREATE TABLE transfers (
  transfer_id TEXT NOT NULL UNIQUE, from_account_id TEXT NOT NULL REFERENCES accounts (account_id),
  to_account_id TEXT REFERENCES accounts (account_id), payee_id TEXT REFERENCES payees (payee_id),
  amount REAL NOT NULL CHECK (amount > 0), fee REAL NOT NULL CHECK (fee >= 0),
  status TEXT NOT NULL CHECK (status IN ('scheduled', 'completed', 'cancelled')), due_on TEXT NOT NULL,
  CHECK ((to_account_id IS NULL) <> (payee_id IS NULL)));
CREATE INDEX transfers_account ON transfers (from_account_id);
CREATE TABLE disputes (
  dispute_id TEXT NOT NULL UNIQUE, transaction_id TEXT NOT NULL UNIQUE REFERENCES transactions (transaction_id),
  reason TEXT NOT NULL CHECK (reason IN ('not_recognised', 'charged_twice', 'wrong_amount', 'not_received')),
  status TEXT NOT NULL CHECK (status IN ('open', 'won', 'lost', 'withdrawn')), opened_at TEXT NOT NULL);
CREATE TABLE loans (
  loan_id TEXT NOT NULL UNIQUE, customer_id TEXT NOT NULL REFERENCES customers (customer_id),
  kind TEXT NOT NULL CHECK (kind IN ('personal', 'car', 'home')), outstanding REAL NOT NULL CHECK (outstanding >= 0),
  rate REAL NOT NULL, monthly_payment REAL NOT NULL, due_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('current', 'overdue', 'paid_off')),
  deferrals INTEGER NOT NULL CHECK (deferrals BETWEEN 0 AND 2));
CREATE INDEX loans_customer ON loans (customer_id);
CREATE TABLE branches (
  branch_id TEXT NOT NULL UNIQUE, city TEXT NOT NULL, address TEXT NOT NULL, opens TEXT NOT NULL, closes TEXT NOT NULL,
  safe_deposit INTEGER NOT NULL CHECK (safe_deposit IN (0, 1)));
CREATE TABLE appointments (
  appointment_id TEXT NOT NULL UNIQUE, customer_id TEXT NOT NULL REFERENCES customers (customer_id),
  branch_id TEXT NOT NULL REFERENCES branches (branch_id), on_date TEXT NOT NULL,
  topic TEXT NOT NULL CHECK (topic IN ('mortgage', 'investment', 'business', 'general')),
  status TEXT NOT NULL CHECK (status IN ('booked', 'cancelled', 'done')), UNIQUE (customer_id, branch_id, on_date));
CREATE TABLE products (
  product TEXT NOT NULL UNIQUE, rate REAL NOT NULL, minimum REAL NOT NULL, notice_days INTEGER NOT NULL);
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, customer_id TEXT NOT NULL REFERENCES customers (customer_id),
  reason TEXT NOT NULL CHECK (reason IN ('fraud', 'bereavement', 'complaint', 'hardship', 'legal')),
  at TEXT NOT NULL);
