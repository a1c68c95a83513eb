"""SkyRL's own server in a process of its own, over a tiny model that speaks the grammar already."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FOUND = importlib.util.find_spec("skyrl") is not None and importlib.util.find_spec("tinker") is not None
collect_ignore_glob = [] if FOUND else ["test_*.py"]
START_SECONDS = 180
BACKEND = {
    "max_lora_adapters": 8,
    "max_lora_rank": 8,
    "train_micro_batch_size": 8,
    "sample_max_num_sequences": 16,
}


class Server:
    """The server. It can be killed and started again with what it had on disk."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(REPOSITORY / "tests" / "tinker" / "skyrl_server.py")]
        command += ["--base-model", str(self.model), "--backend", "jax", "--port", str(self.port)]
        command += ["--database-url", f"sqlite:///{self.folder / 'server.db'}"]
        command += ["--checkpoints-base", str(self.folder / "checkpoints"), "--backend-config", json.dumps(BACKEND)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        for _ in range(START_SECONDS):
            try:
                urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=1).close()
                return
            except OSError:
                time.sleep(1)
        raise AssertionError(f"no server after {START_SECONDS} s: {(self.folder / 'server.log').read_text()[-2000:]}")

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._process = None


@contextmanager
def served(model: Path, folder: Path) -> Iterator[Server]:
    server = Server(model, folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def toolorchestra(*words: object, limit: float = 900) -> str:
    """The command line in a process of its own; what it printed."""
    command = [str(Path(sys.executable).with_name("toolorchestra")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, cwd=REPOSITORY)
    print(done.stdout, done.stderr)
    return f"{done.stdout}{done.stderr}exit {done.returncode}"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Imitated a little, here, and exported: what the server trains further."""
    if made := os.environ.get("TINKER_TEST_MODEL"):  # one that was made before
        return Path(made)
    folder = tmp_path_factory.mktemp("model")
    warm = ["--warm-start.steps", 300, "--warm-start.demonstrations", 300, "--warm-start.routes", 4]
    gate = ["--warm-start.least-valid", 0.2, "--warm-start.margin", -1, "--warm-start.checked", 16]
    few = ["--steps", 1, "--groups", 1, "--evaluation-tasks", 1, "--average", 0, "--no-report"]
    environment = ["--env", "HLE-v0", "style=brief", "shown_characters=0", "max_turns=4"]
    said = toolorchestra("train", "--model.hidden", 32, *warm, *gate, *few, *environment, "--out", folder / "run")
    assert said.endswith("exit 0"), said
    said = toolorchestra("export-model", folder / "run", folder / "model")
    assert said.endswith("exit 0"), said
    return folder / "model"


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(model, tmp_path_factory.mktemp("server")) as made:
        yield made


def pytest_report_header() -> str:
    found = "found" if FOUND else "not installed, so tests/tinker is left out; `make test-tinker` installs it"
    return f"SkyRL's Tinker server: {found}"
