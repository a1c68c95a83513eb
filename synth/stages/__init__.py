"""The stages from a spec to a proven domain folder, in `pipeline.py`'s order."""
