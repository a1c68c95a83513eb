"""Start the `vllm serve` processes that a TOML names, write their endpoint file, and stop them all on Ctrl-C:

    python scripts/serve_experts.py experts.toml --endpoints endpoints.toml
    python scripts/evaluate.py --endpoints endpoints.toml --policy chat

docs/serving.md has the file's format.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import tomllib
from pathlib import Path

from toolorchestra.agents.serving.expert_servers import endpoint_file, read_servers, serving
from toolorchestra.envs.base.errors import ConfigError, Outage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", type=Path)
    parser.add_argument("--endpoints", type=Path, default=Path("endpoints.toml"), help="written when all answer")
    parser.add_argument("--logs", type=Path, default=Path("runs/servers"))
    parser.add_argument("--start-seconds", type=float, default=900.0, help="how long they may take to answer")
    args = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(ended))
    try:
        servers = read_servers(tomllib.loads(args.servers.read_text(encoding="utf-8")), str(args.servers))
        with serving(servers, args.logs, args.start_seconds, _say) as running:
            args.endpoints.write_text(endpoint_file(running), encoding="utf-8")
            _say(f"{args.endpoints} written; Ctrl-C stops the servers")
            while not ended.wait(1.0):
                for one in running:
                    one.answers()
    except (ConfigError, Outage, OSError, tomllib.TOMLDecodeError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    _say("stopped")
    return 0


def _end(ended: threading.Event) -> None:
    if ended.is_set():
        return
    ended.set()
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
