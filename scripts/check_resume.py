"""Kill a short training run at random moments, resume it, and compare its weights with an uninterrupted run's.

`python scripts/check_resume.py --kills 20` prints one line a kill and exits with 1 if any weight differs.

With `--staleness 2` rollouts go on beside the training. Which weights sampled what depends on the clock then, so
weights are not compared. Instead each step must have been taken once, and each group of rollouts learnt from once.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, GROUPS = 6, 4
SETTINGS = (
    f"--steps {STEPS} --groups {GROUPS} --rollouts 4 --save-every 1 --evaluate-every 3 --evaluation-tasks 4 "
    "--warm-start.steps 150 --warm-start.batch 16 --warm-start.demonstrations 300 --warm-start.least-valid 0.2 "
    "--warm-start.margin -1.0 --advantage.strict-format False --model.hidden 32 --model.processes 1 --model.threads 1"
)


def command(folder: Path, staleness: int) -> list[str]:
    fixed = ["--no-report", "--resume", "--out", str(folder)]
    ahead = f"--max-staleness {staleness}" if staleness else ""
    return [sys.executable, "-m", "toolorchestra", "train", *fixed, *SETTINGS.split(), *ahead.split()]


def finish(folder: Path, staleness: int) -> None:
    done = subprocess.run(command(folder, staleness), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the run in {folder} failed:\n{done.stdout}{done.stderr}")


def weights(folder: Path) -> dict[str, object]:
    import torch

    from toolorchestra.agents.training import checkpoint

    last = checkpoint.latest(folder / "checkpoints")
    if last is None:
        raise SystemExit(f"{folder} has no checkpoint")
    return dict(torch.load(last / "engine.pt", weights_only=True)["weights"])


def other_weights(folder: Path, whole: Path) -> str:
    """Whether a weight differs from the uninterrupted run's; "" where none does."""
    import torch

    got, expected = weights(folder), weights(whole)
    same = got.keys() == expected.keys() and all(torch.equal(got[k], expected[k]) for k in got)  # type: ignore[arg-type]
    return "" if same else "OTHER WEIGHTS"


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """What the log says of each step of reinforcement learning."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "train"]


def wrong_groups(folder: Path) -> str:
    """What was lost or doubled; "" where nothing was."""
    rows = steps_of(folder)
    if (steps := [row["step"] for row in rows]) != list(range(STEPS)):
        return f"steps {steps}"
    taken = sorted(number for row in rows for number in row["groups_taken"])
    return "" if taken == list(range(STEPS * GROUPS)) else f"groups {taken}"


def killed_and_resumed(folder: Path, after: float, staleness: int) -> bool:
    """Start, kill -9 after some seconds, resume to the end. True when the kill came before the end."""
    run = subprocess.Popen(command(folder, staleness), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    hit = run.poll() is None
    run.kill()
    run.wait()
    finish(folder, staleness)
    return hit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--staleness", type=int, default=0, help="max_staleness of the runs")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        whole, started = Path(place) / "whole", time.monotonic()
        finish(whole, args.staleness)
        length = time.monotonic() - started
        if not any(row["used"] for row in steps_of(whole)):
            raise SystemExit("the short run took no optimiser step, so it proves nothing; give it more warm start")
        failed = 0
        for number in range(args.kills):
            folder, after = Path(place) / f"killed-{number}", rng.uniform(0.3, 0.97) * length
            hit = killed_and_resumed(folder, after, args.staleness)
            wrong = wrong_groups(folder) if args.staleness else other_weights(folder, whole)
            failed += bool(wrong)
            moment = f"killed after {after:.1f} of {length:.1f} s" if hit else f"had ended before {after:.1f} s"
            print(f"{number + 1:2d} {moment}: {wrong or 'as without'}", flush=True)
    print(f"{args.kills - failed} of {args.kills} as without a kill")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
