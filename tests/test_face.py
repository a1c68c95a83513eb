"""The public face: every name is there, costs nothing until it is used, and suffices for what the documents show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolorchestra as to
from tests.paths import REPOSITORY
from toolorchestra.agents.commands import new, train
from toolorchestra.agents.training.metrics import read

OWN_NAMES = {
    "toolorchestra.envs.adapters": "integrations, each named by its trainer",
    "toolorchestra.agents.adapters": "the same",
    "toolorchestra.envs.wrappers": "routing for classical agents",
    "toolorchestra.envs.domains.frames.source": "tool.py adds a tool to that benchmark",
    "toolorchestra.envs.tools.search": "the same",
    "toolorchestra.agents.rollouts": "TRL samples with our chat template",
}
"""What an example imports by its own place, and why. The one-file loop shows the inside, and imports it."""
DOCUMENTS = [
    *(file for file in REPOSITORY.glob("docs/**/*.md") if file.name != "synthesis.md"),
    *(file for file in REPOSITORY.glob("docs/examples/**/*.py") if file.name != "one_file_loop.py"),
    REPOSITORY / "README.md",
]


def test_every_public_name_is_there() -> None:
    for name in to.__all__:
        assert getattr(to, name) is not None
    assert len(to.__all__) <= 40
    assert set(to.__all__) <= set(dir(to))
    with pytest.raises(AttributeError, match=r"no public name 'evalute'; valid: Answer.* Did you mean 'evaluate'"):
        _ = to.evalute


def test_documents_import_from_the_face_alone() -> None:
    for file in DOCUMENTS:
        places = re.findall(r"^\s*from (toolorchestra\.[\w.]+) import", file.read_text(encoding="utf-8"), re.M)
        assert [place for place in places if not place.startswith(tuple(OWN_NAMES))] == [], file


def test_an_environment_of_ones_own_plays_and_passes_its_tests(tmp_path: Path) -> None:
    assert new.main(["coin_game", "--out", str(tmp_path / "made")]) == 0
    code = [line for line in (tmp_path / "made" / "coin_game.py").read_text(encoding="utf-8").splitlines() if line]
    assert len(code) <= 25
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(tests, cwd=tmp_path / "made", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    record = [sys.executable, "record.py", "runs.jsonl"]
    done = subprocess.run(record, cwd=tmp_path / "made", capture_output=True, text=True, check=True)
    right = int(re.findall(r"(\d+)% right", done.stdout)[0])
    assert 15 <= right <= 60
    assert new.main(["coin_game", "--out", str(tmp_path / "made")]) == 2
    assert new.main(["Coin-Game", "--out", str(tmp_path / "other")]) == 2


def test_an_environment_of_ones_own_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what its README says, most of it within half of the steps."""
    assert new.main(["coin_game", "--out", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    subprocess.run([sys.executable, "record.py", "runs.jsonl"], env={**os.environ, "PYTHONPATH": "."}, check=True)
    (line,) = [line for line in Path("README.md").read_text().splitlines() if line.startswith("toolorchestra train ")]
    assert train.main([*line.split()[2:], "--no-report"]) == 0
    start, half, end = [
        row["policy/accuracy"] for row in read(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "eval"
    ]
    assert start < 0.6 < 0.8 < half
    assert end > 0.95


def test_policies_play_through_the_environment() -> None:
    env = to.make("HLE-v0", preference="none")
    policy = to.load_policy("strongest")
    with pytest.raises(to.ConfigError, match=r"call env\.reset\(\) first"):
        policy.act(env)
    env.reset(seed=3)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(policy.act(env))
        over = terminated or truncated
    assert info["outcome"]["value"] in (0.0, 1.0)
    policy.close()


def test_evaluate_and_compare_give_figures(tmp_path: Path) -> None:
    summary = to.evaluate("HLE-v0", ["random", to.load_policy("cheapest")], out=tmp_path / "run", tasks=6, max_turns=20)
    assert [row["policy"] for row in summary["policies"]] == ["random", "cheapest"]
    assert to.compare(tmp_path / "run").to_json()
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary


def test_evaluate_keeps_nothing_and_names_no_file_where_no_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert to.evaluate("HLE-v0", "random", tasks=2)["policies"]
    assert "digest" in (said := capsys.readouterr().out)
    assert "page.html" not in said
    assert not list(tmp_path.iterdir())
    with pytest.raises(to.ConfigError, match="goes on with a run's folder: name it, out=FOLDER"):
        to.evaluate("HLE-v0", "random", tasks=2, resume=True)
