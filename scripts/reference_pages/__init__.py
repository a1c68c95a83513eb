"""The reference pages, each made from the code: see scripts/write_reference.py."""
