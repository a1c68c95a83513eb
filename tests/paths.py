"""Where things lie, wherever a test stands."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"
"""Data beside a clone that is no part of the repository: tests that want it skip where it is missing."""
