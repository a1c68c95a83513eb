"""Task sources and their worlds. One folder holds one benchmark; `source.py` and `world.py` are the protocols."""
