"""The tables of `python scripts/bench.py --table NAME`, one module each."""
