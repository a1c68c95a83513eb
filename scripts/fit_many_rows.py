"""What fitting very many recorded rows takes: `python scripts/fit_many_rows.py --rows 10000000`. SIMULATED rows.

Writes a table of outcomes drawn from known numbers, runs `toolorchestra fit-experts` on it as a program of its own, and
prints time, memory, and the known numbers beside those found.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MODELS, RUNS, FAMILIES = 10, 4, 5
TASK_SD, PAIR_SD, LENGTH_TASK, LENGTH_RUN = 1.0, 0.5, 0.6, 0.5
AT_ONCE = 1_000
HEAD = "task,family,model,run,success,seconds,output_tokens,usd\n"


def lines(tasks: int, seed: int = 0) -> Iterator[str]:
    """The table's text, some tasks at a time."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(0.0, 0.8, (FAMILIES, MODELS))
    shape = (AT_ONCE, MODELS, RUNS)
    yield HEAD
    for first in range(0, tasks, AT_ONCE):
        family = (first + np.arange(AT_ONCE)) % FAMILIES
        hard = rng.standard_normal((AT_ONCE, 1, 1))
        luck = PAIR_SD * rng.standard_normal((AT_ONCE, MODELS, 1))
        right = skill[family][:, :, None] - TASK_SD * hard + luck + rng.standard_normal(shape) > 0
        long = LENGTH_TASK * hard + LENGTH_RUN * rng.standard_normal(shape)
        tokens = np.exp(7.0 + long).astype(int)
        seconds = np.exp(3.0 + long + 0.2 * rng.standard_normal(shape))
        yield "".join(
            f"task-{first + t},family-{family[t]},model-{m},{r},{right[t, m, r]:d},{seconds[t, m, r]:.2f},"
            f"{tokens[t, m, r]},{tokens[t, m, r] * 1e-6 * (m + 1):.6f}\n"
            for t in range(min(AT_ONCE, tasks - first))
            for m in range(MODELS)
            for r in range(RUNS)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    args = parser.parse_args()
    tasks = max(1, args.rows // (MODELS * RUNS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "rows.csv", "w", encoding="utf-8") as file:
            file.writelines(lines(tasks))
        size = (folder / "rows.csv").stat().st_size
        command = [sys.executable, "-m", "toolorchestra", "fit-experts", str(folder / "rows.csv")]
        started = time.monotonic()
        subprocess.run([*command, "--out", str(folder / "fit.json"), "--page", str(folder / "fit.md")], check=True)
        wall, used = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        shared = json.loads((folder / "fit.json").read_text(encoding="utf-8"))["shared"]
    print(f"{tasks * MODELS * RUNS:,} rows of {tasks:,} tasks, {size / 1e6:,.0f} MB of CSV")
    cpu = used.ru_utime + used.ru_stime
    print(f"{wall:.0f} s of wall time, {cpu:.0f} s of CPU, at most {used.ru_maxrss / 1e3:,.0f} MB of memory")
    for what, known in {"task_sd": TASK_SD, "pair_sd": PAIR_SD, "tokens task_sd": LENGTH_TASK}.items():
        value, low, high = shared[what]
        print(f"{what}: {known} drawn, {value:.4f} found ({low:.4f} to {high:.4f})")


if __name__ == "__main__":
    main()
