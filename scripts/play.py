"""Play an episode: `python scripts/play.py --help`. The same as `toolorchestra play`."""

import sys

from toolorchestra.agents.commands.play import main

if __name__ == "__main__":
    sys.exit(main())
