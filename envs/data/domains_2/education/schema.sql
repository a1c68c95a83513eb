CREATE TABLE programmes (
  programme_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, degree TEXT NOT NULL CHECK (degree IN ('bachelor', 'master')),
  credits_needed INTEGER NOT NULL CHECK (credits_needed > 0), price_per_credit REAL NOT NULL CHECK (price_per_credit > 0));
CREATE TABLE lecturers (
  lecturer_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL UNIQUE, office TEXT NOT NULL, office_hour TEXT NOT NULL);
CREATE TABLE rooms (
  room_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL CHECK (kind IN ('quiet', 'group', 'media')),
  seats INTEGER NOT NULL CHECK (seats > 0));
CREATE TABLE courses (
  course_id TEXT NOT NULL UNIQUE, code TEXT NOT NULL UNIQUE, title TEXT NOT NULL UNIQUE,
  credits INTEGER NOT NULL CHECK (credits BETWEEN 1 AND 12), prerequisite_id TEXT REFERENCES courses (course_id));
CREATE TABLE sections (
  section_id TEXT NOT NULL UNIQUE, course_id TEXT NOT NULL REFERENCES courses (course_id),
  lecturer_id TEXT NOT NULL REFERENCES lecturers (lecturer_id), term TEXT NOT NULL CHECK (term IN ('2025-autumn', '2026-winter')),
  weekday TEXT NOT NULL CHECK (weekday IN ('Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday')), starts TEXT NOT NULL,
  begins_on TEXT NOT NULL, capacity INTEGER NOT NULL CHECK (capacity > 0),
  taken INTEGER NOT NULL CHECK (taken >= 0 AND taken <= capacity), UNIQUE (course_id, term, weekday, starts));
CREATE INDEX sections_course ON sections (course_id);
CREATE TABLE exams (
  exam_id TEXT NOT NULL UNIQUE, section_id TEXT NOT NULL UNIQUE REFERENCES sections (section_id), on_date TEXT NOT NULL,
  starts TEXT NOT NULL, hall TEXT NOT NULL);
CREATE TABLE students (
  student_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE,
  matriculation TEXT NOT NULL UNIQUE, pin TEXT NOT NULL, programme_id TEXT NOT NULL REFERENCES programmes (programme_id),
  semester INTEGER NOT NULL CHECK (semester BETWEEN 1 AND 12), credits_earned INTEGER NOT NULL CHECK (credits_earned >= 0),
  balance REAL NOT NULL CHECK (balance >= 0));
CREATE TABLE enrolments (
  enrolment_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  section_id TEXT NOT NULL REFERENCES sections (section_id), tuition REAL NOT NULL CHECK (tuition >= 0),
  failed_before INTEGER NOT NULL CHECK (failed_before >= 0), mark INTEGER CHECK (mark BETWEEN 0 AND 100),
  refund REAL NOT NULL CHECK (refund >= 0 AND refund <= tuition),
  status TEXT NOT NULL CHECK (status IN ('enrolled', 'withdrawn', 'passed', 'failed')));
CREATE INDEX enrolments_student ON enrolments (student_id);
CREATE UNIQUE INDEX enrolments_once ON enrolments (student_id, section_id) WHERE status = 'enrolled';
CREATE TABLE waiting (
  waiting_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  section_id TEXT NOT NULL REFERENCES sections (section_id), joined_at TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('waiting', 'left', 'placed')));
CREATE INDEX waiting_student ON waiting (student_id);
CREATE INDEX waiting_section ON waiting (section_id);
CREATE TABLE exam_entries (
  entry_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  exam_id TEXT NOT NULL REFERENCES exams (exam_id), mark INTEGER CHECK (mark BETWEEN 0 AND 100),
  status TEXT NOT NULL CHECK (status IN ('registered', 'withdrawn', 'sat', 'regrading')));
CREATE INDEX exam_entries_student ON exam_entries (student_id);
CREATE TABLE fees (
  fee_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  kind TEXT NOT NULL CHECK (kind IN ('tuition', 'residence', 'library', 'laboratory', 'sports')),
  amount REAL NOT NULL CHECK (amount > 0), paid REAL NOT NULL CHECK (paid >= 0), due_on TEXT NOT NULL,
  deferrals INTEGER NOT NULL CHECK (deferrals >= 0), status TEXT NOT NULL CHECK (status IN ('open', 'overdue', 'settled')));
CREATE INDEX fees_student ON fees (student_id);
CREATE TABLE room_bookings (
  booking_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  room_id TEXT NOT NULL REFERENCES rooms (room_id), on_date TEXT NOT NULL,
  slot TEXT NOT NULL CHECK (slot IN ('08:00', '10:00', '13:00', '15:00', '17:00')),
  status TEXT NOT NULL CHECK (status IN ('booked', 'cancelled', 'used')));
CREATE INDEX room_bookings_student ON room_bookings (student_id);
CREATE UNIQUE INDEX room_bookings_once ON room_bookings (room_id, on_date, slot) WHERE status = 'booked';
CREATE TABLE documents (
  document_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  kind TEXT NOT NULL CHECK (kind IN ('transcript', 'enrolment_proof', 'diploma')), copies INTEGER NOT NULL CHECK (copies BETWEEN 1 AND 5),
  delivery TEXT NOT NULL CHECK (delivery IN ('pickup', 'post')), price REAL NOT NULL CHECK (price >= 0),
  status TEXT NOT NULL CHECK (status IN ('ordered', 'ready', 'handed_out')));
CREATE TABLE leaves (
  leave_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  term TEXT NOT NULL CHECK (term IN ('2026-autumn', '2027-winter')), reason TEXT NOT NULL CHECK (reason IN ('illness', 'work', 'family', 'research')),
  status TEXT NOT NULL CHECK (status IN ('granted', 'revoked')), UNIQUE (student_id, term));
CREATE TABLE handoffs (
  handoff_id TEXT NOT NULL UNIQUE, student_id TEXT NOT NULL REFERENCES students (student_id),
  reason TEXT NOT NULL CHECK (reason IN ('welfare', 'appeal', 'disability', 'misconduct', 'visa')), at TEXT NOT NULL);
