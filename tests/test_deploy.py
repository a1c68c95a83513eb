"""What is shipped to start SkyRL on a cluster, with a program in place of uv."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.paths import REPOSITORY

SKYRL = REPOSITORY / "deploy" / "skyrl"


def test_it_starts_from_any_folder_and_hands_adapters_over_where_every_node_sees_them(tmp_path: Path) -> None:
    """Ray's hook takes the working folder along, and refuses one that does not hold the project. SkyRL's own place for
    adapters is a folder of one node."""
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\npwd\nprintf '%s\\n' \"$@\"\n")
    uv.chmod(0o755)
    found = subprocess.run(
        ["sh", str(SKYRL / "train.sh"), "2x8", "hle", "/shared/data", "mine"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    assert found[0] == str(SKYRL)
    assert f"trainer.policy.model.lora.lora_sync_path={tmp_path}/mine/lora" in found
    assert "data.train_data=['/shared/data/train.parquet']" in found
