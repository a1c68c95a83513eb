"""Kill a short training run at random moments, resume it, and compare its weights with an uninterrupted run's.

`python scripts/check_resume.py --kills 20` prints one line a kill and exits with 1 if any weight differs.
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

SETTINGS = (
    "--steps 6 --groups 4 --rollouts 4 --save-every 1 --evaluate-every 3 --evaluation-tasks 4 "
    "--warm-start.steps 150 --warm-start.batch 16 --warm-start.demonstrations 300 --warm-start.least-valid 0.2 "
    "--warm-start.margin -1.0 --advantage.strict-format False --model.hidden 32 --model.processes 1 --model.threads 1"
)


def command(folder: Path) -> list[str]:
    fixed = ["--no-report", "--resume", "--out", str(folder)]
    return [sys.executable, "-m", "toolorchestra", "train", *fixed, *SETTINGS.split()]


def finish(folder: Path) -> None:
    done = subprocess.run(command(folder), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the run in {folder} failed:\n{done.stdout}{done.stderr}")


def weights(folder: Path) -> dict[str, object]:
    import torch

    from toolorchestra.agents.training import checkpoint

    last = checkpoint.latest(folder / "checkpoints")
    if last is None:
        raise SystemExit(f"{folder} has no checkpoint")
    return dict(torch.load(last / "engine.pt", weights_only=True)["weights"])


def steps_taken(folder: Path) -> int:
    """Steps of reinforcement learning that had something to learn from."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return sum(bool(row.get("used")) for row in rows)


def killed_and_resumed(folder: Path, after: float) -> bool:
    """Start, kill -9 after some seconds, resume to the end. True when the kill came before the end."""
    run = subprocess.Popen(command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    hit = run.poll() is None
    run.kill()
    run.wait()
    finish(folder)
    return hit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    import torch

    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        started = time.monotonic()
        finish(Path(place) / "whole")
        length = time.monotonic() - started
        expected = weights(Path(place) / "whole")
        if not steps_taken(Path(place) / "whole"):
            raise SystemExit("the short run took no optimiser step, so it proves nothing; give it more warm start")
        different = 0
        for number in range(args.kills):
            folder, after = Path(place) / f"killed-{number}", rng.uniform(0.3, 0.97) * length
            hit = killed_and_resumed(folder, after)
            got = weights(folder)
            same = got.keys() == expected.keys() and all(torch.equal(got[k], expected[k]) for k in got)  # type: ignore[arg-type]
            different += not same
            moment = f"killed after {after:.1f} of {length:.1f} s" if hit else f"had ended before {after:.1f} s"
            print(f"{number + 1:2d} {moment}: {'identical' if same else 'DIFFERENT'}", flush=True)
    print(f"{args.kills - different} of {args.kills} identical")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
