"""Serve an index folder to other processes: `python scripts/serve_index.py indexes/mine --port 8765`.

Beyond this machine (`--host`) only with a token in $TOOLORCHESTRA_INDEX_TOKEN, which the askers set as well.
"""

from __future__ import annotations

import argparse
import sys

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.retrieval import Retriever
from toolorchestra.envs.retrieval.index import load
from toolorchestra.envs.retrieval.remote import IndexServer


def serving(index: Retriever, host: str, port: int) -> IndexServer:
    """The server, bound to its port."""
    try:
        return IndexServer(index, host, port)
    except (OSError, OverflowError) as err:
        raise ConfigError(f"cannot serve at {host}:{port}: {err}; name another with --host or --port") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765)
    args = parser.parse_args()
    try:
        with serving(load(args.folder), args.host, args.port) as server:
            print(f"{args.folder} at {server.url}", flush=True)
            server.serve_forever()
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
