CREATE TABLE clinics (
  clinic_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, address TEXT NOT NULL, opens TEXT NOT NULL, closes TEXT NOT NULL,
  blood_tests_until TEXT NOT NULL);
CREATE TABLE doctors (
  doctor_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL UNIQUE, clinic_id TEXT NOT NULL REFERENCES clinics (clinic_id),
  specialty TEXT NOT NULL CHECK (specialty IN ('general practice', 'cardiology', 'dermatology', 'orthopaedics', 'ophthalmology')),
  fee REAL NOT NULL CHECK (fee > 0), video INTEGER NOT NULL CHECK (video IN (0, 1)),
  takes_families INTEGER NOT NULL CHECK (takes_families IN (0, 1)));
CREATE INDEX doctors_specialty ON doctors (specialty);
CREATE TABLE slots (
  slot_id TEXT NOT NULL UNIQUE, doctor_id TEXT NOT NULL REFERENCES doctors (doctor_id), starts_at TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('free', 'taken', 'closed')), UNIQUE (doctor_id, starts_at));
CREATE TABLE pharmacies (
  pharmacy_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, street TEXT NOT NULL, closes TEXT NOT NULL,
  lead_days INTEGER NOT NULL CHECK (lead_days BETWEEN 1 AND 6));
CREATE TABLE patients (
  patient_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  date_of_birth TEXT NOT NULL, family_doctor_id TEXT REFERENCES doctors (doctor_id),
  home_pharmacy_id TEXT REFERENCES pharmacies (pharmacy_id), no_shows INTEGER NOT NULL CHECK (no_shows >= 0));
CREATE TABLE coverages (
  coverage_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL UNIQUE REFERENCES patients (patient_id), insurer TEXT NOT NULL,
  plan TEXT NOT NULL CHECK (plan IN ('basic', 'plus', 'full')), member_no TEXT NOT NULL UNIQUE,
  excess REAL NOT NULL CHECK (excess >= 0), status TEXT NOT NULL CHECK (status IN ('active', 'lapsed')), valid_until TEXT NOT NULL);
CREATE TABLE appointments (
  appointment_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL REFERENCES patients (patient_id),
  slot_id TEXT NOT NULL REFERENCES slots (slot_id),
  kind TEXT NOT NULL CHECK (kind IN ('check_up', 'vaccination', 'follow_up', 'specialist')),
  mode TEXT NOT NULL CHECK (mode IN ('in_person', 'video')),
  status TEXT NOT NULL CHECK (status IN ('booked', 'attended', 'missed', 'cancelled')),
  moves INTEGER NOT NULL CHECK (moves BETWEEN 0 AND 2), late_fee REAL NOT NULL CHECK (late_fee >= 0));
CREATE INDEX appointments_patient ON appointments (patient_id);
CREATE INDEX appointments_slot ON appointments (slot_id);
CREATE TABLE medicines (
  medicine_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, form TEXT NOT NULL, controlled INTEGER NOT NULL CHECK (controlled IN (0, 1)));
CREATE TABLE prescriptions (
  prescription_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL REFERENCES patients (patient_id),
  medicine_id TEXT NOT NULL REFERENCES medicines (medicine_id), doctor_id TEXT NOT NULL REFERENCES doctors (doctor_id),
  repeats_left INTEGER NOT NULL CHECK (repeats_left >= 0), last_issued_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'stopped')), UNIQUE (patient_id, medicine_id));
CREATE TABLE refills (
  refill_id TEXT NOT NULL UNIQUE, prescription_id TEXT NOT NULL REFERENCES prescriptions (prescription_id),
  pharmacy_id TEXT NOT NULL REFERENCES pharmacies (pharmacy_id), ready_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('requested', 'collected', 'cancelled')));
CREATE INDEX refills_prescription ON refills (prescription_id);
CREATE TABLE referrals (
  referral_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL REFERENCES patients (patient_id),
  specialty TEXT NOT NULL CHECK (specialty IN ('cardiology', 'dermatology', 'orthopaedics', 'ophthalmology')),
  expires_on TEXT NOT NULL, extended INTEGER NOT NULL CHECK (extended IN (0, 1)),
  status TEXT NOT NULL CHECK (status IN ('open', 'used', 'expired')), UNIQUE (patient_id, specialty));
CREATE TABLE lab_orders (
  lab_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL UNIQUE REFERENCES patients (patient_id), test TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ordered', 'in_laboratory', 'reported', 'released')),
  signed INTEGER NOT NULL CHECK (signed IN (0, 1)), ready_on TEXT NOT NULL);
CREATE TABLE invoices (
  invoice_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL REFERENCES patients (patient_id), item TEXT NOT NULL,
  issued_on TEXT NOT NULL, amount REAL NOT NULL CHECK (amount > 0), covered REAL NOT NULL CHECK (covered >= 0),
  paid REAL NOT NULL CHECK (paid >= 0), status TEXT NOT NULL CHECK (status IN ('open', 'overdue', 'instalments', 'paid')),
  due_on TEXT NOT NULL, months INTEGER NOT NULL CHECK (months BETWEEN 0 AND 12), CHECK (covered + paid <= amount + 0.005));
CREATE INDEX invoices_patient ON invoices (patient_id);
CREATE TABLE certificates (
  certificate_id TEXT NOT NULL UNIQUE, appointment_id TEXT NOT NULL REFERENCES appointments (appointment_id),
  language TEXT NOT NULL CHECK (language IN ('english', 'german', 'french')), ordered_on TEXT NOT NULL, UNIQUE (appointment_id, language));
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, patient_id TEXT NOT NULL REFERENCES patients (patient_id),
  reason TEXT NOT NULL CHECK (reason IN ('emergency', 'complaint', 'records', 'bereavement', 'unable_to_pay')), at TEXT NOT NULL);
