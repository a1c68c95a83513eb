"""Compare policies: `python scripts/evaluate.py --help`. The same as `toolorchestra evaluate`."""

import sys

from toolorchestra.agents.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
