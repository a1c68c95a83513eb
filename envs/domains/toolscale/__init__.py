"""Domains that are data: a SQLite schema, rows, tools of parameterised SQL, a policy and tasks. See docs/domains.md."""
