"""FRAMES-like questions over a generated encyclopaedia."""
