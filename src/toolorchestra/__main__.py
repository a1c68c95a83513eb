"""`python -m toolorchestra COMMAND`."""

import sys

from toolorchestra.cli import main

if __name__ == "__main__":
    sys.exit(main())
