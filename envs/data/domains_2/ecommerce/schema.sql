CREATE TABLE shoppers (
  shopper_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  postcode TEXT NOT NULL, level TEXT NOT NULL CHECK (level IN ('basic', 'plus', 'patron')),
  credit REAL NOT NULL CHECK (credit >= 0), on_hold INTEGER NOT NULL CHECK (on_hold IN (0, 1)));
CREATE TABLE products (
  product_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
  category TEXT NOT NULL CHECK (category IN ('kitchen', 'lighting', 'garden', 'bedding', 'workshop', 'supplies')),
  price REAL NOT NULL CHECK (price > 0), bulky INTEGER NOT NULL CHECK (bulky IN (0, 1)),
  sealed INTEGER NOT NULL CHECK (sealed IN (0, 1)), warranty_months INTEGER NOT NULL CHECK (warranty_months >= 0));
CREATE INDEX products_category ON products (category);
CREATE TABLE warehouses (warehouse_id TEXT NOT NULL UNIQUE, city TEXT NOT NULL, packs_until TEXT NOT NULL);
CREATE TABLE stock (
  stock_id TEXT NOT NULL UNIQUE, product_id TEXT NOT NULL REFERENCES products (product_id),
  warehouse_id TEXT NOT NULL REFERENCES warehouses (warehouse_id), on_hand INTEGER NOT NULL CHECK (on_hand >= 0),
  UNIQUE (product_id, warehouse_id));
CREATE TABLE pickup_points (
  point_id TEXT NOT NULL UNIQUE, city TEXT NOT NULL, address TEXT NOT NULL, open_until TEXT NOT NULL,
  keeps_days INTEGER NOT NULL CHECK (keeps_days > 0));
CREATE INDEX points_city ON pickup_points (city);
CREATE TABLE vouchers (
  voucher_id TEXT NOT NULL UNIQUE, shopper_id TEXT NOT NULL REFERENCES shoppers (shopper_id), code TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL CHECK (kind IN ('percent', 'amount')), value REAL NOT NULL CHECK (value > 0),
  least REAL NOT NULL CHECK (least >= 0), valid_until TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'used', 'void')));
CREATE INDEX vouchers_shopper ON vouchers (shopper_id);
CREATE TABLE orders (
  order_id TEXT NOT NULL UNIQUE, shopper_id TEXT NOT NULL REFERENCES shoppers (shopper_id), placed_at TEXT NOT NULL,
  speed TEXT NOT NULL CHECK (speed IN ('standard', 'express', 'pickup')),
  point_id TEXT REFERENCES pickup_points (point_id), goods REAL NOT NULL CHECK (goods >= 0),
  discount REAL NOT NULL CHECK (discount >= 0), shipping REAL NOT NULL CHECK (shipping >= 0),
  paid REAL NOT NULL CHECK (paid >= 0), voucher_id TEXT REFERENCES vouchers (voucher_id),
  status TEXT NOT NULL CHECK (status IN ('open', 'packed', 'shipped', 'delivered', 'cancelled')),
  refunded REAL NOT NULL CHECK (refunded >= 0), CHECK (speed <> 'pickup' OR point_id IS NOT NULL));
CREATE INDEX orders_shopper ON orders (shopper_id);
CREATE TABLE order_items (
  item_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL REFERENCES orders (order_id),
  product_id TEXT NOT NULL REFERENCES products (product_id), quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 10),
  unit_price REAL NOT NULL CHECK (unit_price > 0),
  status TEXT NOT NULL CHECK (status IN ('ordered', 'cancelled', 'returning', 'returned')), UNIQUE (order_id, product_id));
CREATE INDEX items_product ON order_items (product_id);
CREATE TABLE parcels (
  parcel_id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL REFERENCES orders (order_id), carrier TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('planned', 'moving', 'delivered', 'lost', 'void')), expected_on TEXT NOT NULL,
  delivered_on TEXT, CHECK ((status = 'delivered') = (delivered_on IS NOT NULL)));
CREATE INDEX parcels_order ON parcels (order_id);
CREATE TABLE returns (
  return_id TEXT NOT NULL UNIQUE, item_id TEXT NOT NULL REFERENCES order_items (item_id),
  reason TEXT NOT NULL CHECK (reason IN ('changed_mind', 'wrong_item', 'damaged', 'not_as_described')),
  opened INTEGER NOT NULL CHECK (opened IN (0, 1)), refund REAL NOT NULL CHECK (refund >= 0),
  refund_to TEXT NOT NULL CHECK (refund_to IN ('payment', 'credit')),
  status TEXT NOT NULL CHECK (status IN ('announced', 'received', 'refunded', 'withdrawn')), announced_on TEXT NOT NULL);
CREATE INDEX returns_item ON returns (item_id);
CREATE TABLE warranty_cases (
  case_id TEXT NOT NULL UNIQUE, item_id TEXT NOT NULL REFERENCES order_items (item_id),
  fault TEXT NOT NULL CHECK (fault IN ('does_not_start', 'broken_part', 'overheats', 'flickers')),
  remedy TEXT NOT NULL CHECK (remedy IN ('replacement', 'repair')),
  status TEXT NOT NULL CHECK (status IN ('open', 'done', 'rejected')), opened_on TEXT NOT NULL);
CREATE INDEX cases_item ON warranty_cases (item_id);
CREATE TABLE refills (
  refill_id TEXT NOT NULL UNIQUE, shopper_id TEXT NOT NULL REFERENCES shoppers (shopper_id),
  product_id TEXT NOT NULL REFERENCES products (product_id), quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 10),
  every_weeks INTEGER NOT NULL CHECK (every_weeks BETWEEN 2 AND 12), next_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'ended')));
CREATE INDEX refills_shopper ON refills (shopper_id);
CREATE TABLE stock_alerts (
  alert_id TEXT NOT NULL UNIQUE, shopper_id TEXT NOT NULL REFERENCES shoppers (shopper_id),
  product_id TEXT NOT NULL REFERENCES products (product_id), status TEXT NOT NULL CHECK (status IN ('waiting', 'sent')),
  UNIQUE (shopper_id, product_id));
CREATE TABLE escalations (
  escalation_id TEXT NOT NULL UNIQUE, shopper_id TEXT NOT NULL REFERENCES shoppers (shopper_id),
  reason TEXT NOT NULL CHECK (reason IN ('product_safety', 'account_misuse', 'bulk_purchase', 'legal', 'data_request')),
  at TEXT NOT NULL);
