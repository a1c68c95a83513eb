CREATE TABLE members (
  member_id TEXT NOT NULL UNIQUE, full_name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, birth_year INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('active', 'suspended')));
CREATE TABLE books (
  book_id TEXT NOT NULL UNIQUE, title TEXT NOT NULL UNIQUE, shelf TEXT NOT NULL, copies INTEGER NOT NULL CHECK (copies >= 0));
CREATE TABLE loans (
  loan_id TEXT NOT NULL UNIQUE, member_id TEXT NOT NULL REFERENCES members (member_id),
  book_id TEXT NOT NULL REFERENCES books (book_id), due_on TEXT NOT NULL, renewals INTEGER NOT NULL CHECK (renewals <= 2),
  status TEXT NOT NULL CHECK (status IN ('open', 'returned')));
