"""What a fit finds again of a world that is known, and what training on the fit is worth.

`python scripts/fit_against_truth.py` prints two tables for docs/results/worlds.md. The known world is the stand-in's
(envs/testing/stand_in.py). First, over many recordings of it, how many of its numbers lie in the fit's 95 % intervals.
Then, for each seed, a recording is fitted, a tiny policy is trained on the world of the fit, and another, alike in all
else, on the truth; both play the test's questions in the true world. Differences are paired by seed and question, their
intervals are by a bootstrap of both. SIMULATED.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from toolorchestra.agents.calibration.fit import fit, write
from toolorchestra.agents.calibration.fit_file import read_fit
from toolorchestra.agents.calibration.held_out import Foretold, coverage
from toolorchestra.agents.calibration.recovered import recovered
from toolorchestra.agents.calibration.world_file import make_world, write_world
from toolorchestra.agents.commands import evaluate, train
from toolorchestra.agents.evaluation.rows import read_rows
from toolorchestra.envs.models.fitted import read_world
from toolorchestra.envs.testing.stand_in import EXPERTS, questions, recorded, truth, write_files
from toolorchestra.envs.tools.tool_config import load

TASKS, RUNS, DRAWS = 200, 3, 2_000
QUESTIONS = 6_000
TRAINING = (
    "--model.processes 1 --model.threads 1 --warm-start.demonstrations 1000 --warm-start.steps 150 "
    "--warm-start.margin -0.1 --groups 8 --evaluation-tasks 100 --no-report"
).split()
Table = np.ndarray
"""Accuracy and cents of each question, question x 2."""


def found_again(recordings: int, folder: Path) -> str:
    """The first table."""
    known, told = read_world(truth(), "truth"), defaultdict(list)
    for seed in range(1, recordings + 1):
        for one in recovered(fitted(folder, seed), known):
            told[_group(one.what)].append(one)
    every = [one for group in told.values() for one in group]
    lines = ["| numbers of the known world | in their 95 % intervals | mean width |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(_line(name, group) for name, group in told.items()), _line("all", every)])


def _group(what: str) -> str:
    return "skills of three experts in three families" if what.startswith("skill of") else what


def _line(name: str, group: Sequence[Foretold]) -> str:
    width = np.mean([one.high - one.low for one in group])
    return f"| {name} | {sum(one.covered for one in group)} of {len(group)}, {coverage(group):.0%} | {width:.2f} |"


def fitted(folder: Path, seed: int):  # type: ignore[no-untyped-def]
    """A recording of that seed, fitted and read again."""
    write(fit(recorded(TASKS, RUNS, seed), seed=seed), folder / "experts.json", f"stand-in, recording {seed}")
    return read_fit(folder / "experts.json")


def trained(folder: Path, world: str, seed: int, steps: int) -> Table:
    """A policy trained in a world, as it plays the test's questions in the true one."""
    env = ["--env", "HLE-v0", f"dataset={folder}/questions.jsonl", f"tools={folder}/tools.json"]
    run = folder / f"{world}-{seed}"
    quietly(train.main, [*env, f"world={folder}/{world}.json", *TRAINING, "--steps", str(steps), "--seed", str(seed),
                         "--out", str(run)])  # fmt: skip
    return played(folder, f"checkpoint:{run}", f"{world}-{seed}")


def played(folder: Path, policy: str, name: str) -> Table:
    """Accuracy and cents of each of the test's questions, in the true world."""
    words = (
        f"--env HLE-v0 style=brief shown_characters=0 max_turns=10 world={folder}/truth.json --split test --tasks 1000"
    )
    out = folder / f"play-{name}"
    data = ["--dataset", f"{folder}/questions.jsonl", "--tools", f"{folder}/tools.json", "--out", str(out)]
    quietly(evaluate.main, [*words.split(), *data, "--policy", policy])
    rows = sorted(read_rows(out), key=lambda row: row.task)
    return np.array([(row.right or 0.0, 100 * row.agent_usd) for row in rows])


def quietly(command, words: Sequence[str]) -> None:  # type: ignore[no-untyped-def]
    """Run a command without its words. Its errors are shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = command(words)
    if code:
        raise SystemExit(f"ended with {code}: {' '.join(words)}")


def interval(values: Table) -> str:
    """The mean over seeds and questions, seed x question, with its interval by a bootstrap of both."""
    rng = np.random.default_rng(0)
    seeds, tasks = values.shape
    drawn = [values[rng.integers(seeds, size=seeds)][:, rng.integers(tasks, size=tasks)].mean() for _ in range(DRAWS)]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})"


def compared(seeds: int, steps: int, folder: Path) -> str:
    """The second table."""
    write_files(folder, questions(QUESTIONS))
    tools = load(folder / "tools.json")
    by_world: dict[str, list[Table]] = {"fit": [], "truth": []}
    for seed in range(1, seeds + 1):
        write_world(make_world(fitted(folder, seed), tools), folder / "fit.json")
        for world, made in by_world.items():
            made.append(trained(folder, world, seed, steps))
    plays: Mapping[str, Table] = {
        **{f"trained on the {world}": np.array(made) for world, made in by_world.items()},
        **{f"always {alias}": played(folder, f"always:{alias}", alias)[None] for alias in EXPERTS},
    }
    plays = {**plays, "the fit's less the truth's": np.array(by_world["fit"]) - np.array(by_world["truth"])}
    lines = ["| policy, in the true world | accuracy | ¢ a task |", "| --- | --- | --- |"]
    return "\n".join(
        [*lines, *(f"| {name} | {interval(one[:, :, 0])} | {interval(one[:, :, 1])} |" for name, one in plays.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=50, help="that are fitted for the first table")
    parser.add_argument("--seeds", type=int, default=5, help="trainings on each world for the second table")
    parser.add_argument("--steps", type=int, default=100, help="of each training")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.recordings:
            print(found_again(args.recordings, Path(name)), flush=True)
        if args.seeds:
            print(f"\n{compared(args.seeds, args.steps, Path(name))}")


if __name__ == "__main__":
    main()
