"""SkyRL's Tinker server without uv: python skyrl_server.py --base-model FOLDER --backend jax --port 8123 ...

The server of SkyRL 0.4.0 starts its engine by the `uv run` line that it was started with itself. Here there is none, so
the engine is started by this interpreter.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any


def main() -> None:
    """Serve until the process is ended."""
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    def engine_command(_parent: list[str], config: Any) -> list[str]:
        return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = engine_command
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    given = vars(parser.parse_args())
    port = given.pop("port")
    api.app.state.engine_config = EngineConfig.model_validate(given)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
