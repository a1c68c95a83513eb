"""The embedded search is the same on every processor."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.retrieval.bm25 import Bm25, _top

PLAYED = """
import hashlib
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import factory_of

seen = hashlib.sha256()
for env_id in ("ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"):
    for seed in range(4):
        episode = played(factory_of(env_id), baseline("strongest"), seed)
        seen.update(repr((episode.messages, episode.ledger.nano_usd)).encode())
print(seen.hexdigest())
"""


def test_it_does_not_start_jax(tmp_path: Path) -> None:
    """Which would take three quarters of a GPU's memory. A package that is not there for us is there for others."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("")
    (tmp_path / "jax" / "lax.py").write_text("print('started')\ndef top_k(*given): pass\n")
    asked = "from toolorchestra.envs.retrieval.bm25 import library; library(); import jax; print(jax.__name__)"
    where = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "jax\n"


def test_an_index_takes_no_semaphore() -> None:
    """Which tqdm would, and a process that is ended at once would leave it behind, with a warning."""
    asked = (
        "import multiprocessing.synchronize as made\n"
        "made.SemLock.__init__ = lambda *given, **named: print('a semaphore')\n"
        "from toolorchestra.envs.base.types import Passage\n"
        "from toolorchestra.envs.retrieval.bm25 import Bm25\n"
        "print(len(Bm25([Passage('1', 'An owl', 'It hunts at night.')]).find('owl', 1)))\n"
        "import tqdm.auto\n"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize("top_k", [3, 400])
def test_among_equals_the_first_of_the_corpus_come_first(top_k: int) -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        scores = rng.integers(0, 4, 300).astype(np.float32)
        best = sorted(range(300), key=lambda i: (-scores[i], i))
        assert _top(scores, top_k) == [i for i in best if scores[i] > 0][:top_k]


def test_passages_that_say_the_same_come_in_their_order() -> None:
    index = Bm25([Passage(f"p{n}", f"title {n}", "the river floods the valley") for n in range(60)])
    assert [hit.passage.doc_id for hit in index.find("river", 5)] == ["p0", "p1", "p2", "p3", "p4"]


def test_a_query_that_comes_again_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Bm25([Passage(f"p{n}", f"title {n}", "the river floods the valley") for n in range(60)])
    first = index.find("river", 5)
    monkeypatch.setattr(index._index, "get_scores", lambda known: pytest.fail(f"scored again: {known}"))
    again = index.find("river", 5)
    assert again == first
    again.clear()  # a list of the caller's own
    assert index.find("river", 5) == first
    with pytest.raises(pytest.fail.Exception):
        index.find("valley", 5)


def test_an_index_can_be_sent_to_another_process() -> None:
    index = Bm25([Passage(f"p{n}", f"title {n}", "the river floods the valley") for n in range(9)])
    found = index.find("river", 5)
    assert pickle.loads(pickle.dumps(index)).find("river", 5) == found


def test_episodes_are_the_same_without_the_processors_wide_instructions() -> None:
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # type: ignore[call-overload]
    if not found:
        pytest.skip("NumPy found nothing beyond what it was built for, so there is nothing to leave out")
    environments = ({}, {"NPY_DISABLE_CPU_FEATURES": " ".join(found)})
    said = [
        subprocess.run(
            [sys.executable, "-c", PLAYED], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout
        for more in environments
    ]
    assert said[0] == said[1]
    assert len(said[0].strip()) == 64
