"""Train an orchestrator: `python scripts/train_agent.py --help`. The same as `toolorchestra train`."""

import sys

from toolorchestra.agents.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
