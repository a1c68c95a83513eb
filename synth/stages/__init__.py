"""The stages from a spec to a domain folder of self-consistent tasks, in `pipeline.py`'s order."""
