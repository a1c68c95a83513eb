"""Integrations with other trainers: one file for each library, which the library itself imports."""
