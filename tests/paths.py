"""Where things lie, wherever a test stands."""

from pathlib import Path

import toolorchestra

REPOSITORY = Path(__file__).parents[1]
PACKAGE = Path(toolorchestra.__file__).parent
"""Code and data: in a clone links to folders of the repository, in a source distribution the folders themselves."""
SHARED = REPOSITORY.parent / "shared"
"""Data beside a clone that is no part of the repository: tests that want it skip where it is missing."""
