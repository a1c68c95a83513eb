"""Compare policies on an environment: `python scripts/evaluate.py --env HLE-v0 FRAMES-v0 --tasks 300`.

With real backends: `--endpoints FILE --index FOLDER --sandbox landlock --policy chat`, recorded (`--record FILE`) and
replayed (`--replay FILE`); docs/real-tools.md says how.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents import live
from toolorchestra.agents.arguments import dollars
from toolorchestra.agents.baselines import NAMES, baseline
from toolorchestra.agents.evaluate import plays, summarise, table
from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.ledger import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.sandbox.others import KINDS, UNSAFE
from toolorchestra.envs.tasks.datasets import Dataset
from toolorchestra.envs.tools.backing import Backing, read

REAL = ("endpoints", "index", "web", "sandbox", "judge", "record", "replay", "cache", "dataset")


def main() -> int:
    args = _parser().parse_args()
    if args.unsafe_exec:
        args.sandbox = UNSAFE
    real = any(getattr(args, name) for name in REAL)
    made_backing = None
    cap = SpendCap(args.spend_cap) if args.spend_cap is not None else None
    try:
        if real:
            made_backing = _backing(args)
        for env in args.env:
            for split in args.split or (["all"] if args.dataset else ["train", "validation", "test"]):
                made = _factory(args, env, split, backends=made_backing, spend_cap=cap)
                if real:
                    asyncio.run(_live(args, made, f"{full_id(env)} {split}"))
                else:
                    _simulated(args, made, f"{full_id(env)} {split}")
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    finally:
        if made_backing is not None:
            made_backing.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["HLE-v0", "FRAMES-v0"], help="question environments")
    parser.add_argument("--split", nargs="+", help="default: all three; of a data set: all")
    parser.add_argument("--policy", nargs="+", help=f"simulated: {', '.join(NAMES)}; real: {', '.join(live.NAMES)}")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tools", default="paper", help="tool configuration: paper, plain or a JSON file")
    parser.add_argument("--prices", default="paper-2025-11", help="price sheet: a name or a JSON file")
    group = parser.add_argument_group("real backends")
    group.add_argument("--endpoints", default="", metavar="FILE", help="backends file (TOML or JSON)")
    group.add_argument("--index", default="", metavar="FOLDER", help='index folder, or "embedded"')
    group.add_argument("--web", action="store_true", help="web search by Tavily, key in $TAVILY_API_KEY")
    group.add_argument("--sandbox", default="", choices=[k for k in KINDS if k != UNSAFE])
    group.add_argument("--unsafe-exec", action="store_true", help="run programs of models with your own rights")
    group.add_argument("--judge", nargs="+", default=[], metavar="MODEL", help="models that grade; all must say right")
    group.add_argument("--record", default="", metavar="FILE")
    group.add_argument("--replay", default="", metavar="FILE")
    group.add_argument("--cache", default="", metavar="FILE")
    group.add_argument("--dataset", default="", metavar="FILE or NAME@REVISION", help="real questions")
    group.add_argument("--field", nargs="+", default=[], metavar="FIELD=COLUMN", help="what a data set calls a field")
    group.add_argument("--orchestrator", default="qwen3-8b", help="price sheet item of the policy's own model")
    group.add_argument("--history", default="full", choices=["full", "state"])
    group.add_argument("--turns", type=int, default=50)
    group.add_argument("--spend-cap", type=dollars, metavar="USD", help="for the whole run")
    group.add_argument("--at-once", type=int, default=64, help="episodes side by side")
    return parser


def _backing(args: argparse.Namespace) -> Backing:
    tapes = {mode: getattr(args, mode) for mode in ("record", "replay", "cache") if getattr(args, mode)}
    if len(tapes) > 1:
        raise ConfigError(f"one cassette at a time; got {', '.join(f'--{mode}' for mode in tapes)}")
    mode, path = next(iter(tapes.items()), ("", ""))
    wanted = read(
        args.endpoints, index=args.index, web=args.web, sandbox=args.sandbox, unsafe_exec=args.unsafe_exec,
        judges=tuple(args.judge), cassette=path, mode=mode
    )  # fmt: skip
    if wanted.judges and wanted.endpoints is None and mode != "replay":
        raise ConfigError(f"the judge {', '.join(wanted.judges)} is a model: name its endpoint: --endpoints FILE")
    return Backing(wanted)


def _factory(
    args: argparse.Namespace, env: str, split: str, *, backends: Backing | None, spend_cap: SpendCap | None
) -> EpisodeFactory:
    more = {}
    if backends is not None:
        more["backends"] = backends
    if args.dataset:
        columns = dict(pair.split("=", 1) for pair in args.field)
        more["dataset"] = Dataset(args.dataset, columns)
    return factory(
        **gym.spec(full_id(env)).kwargs,
        **more,
        split=split,
        tools=args.tools,
        prices=args.prices,
        preference="none",
        orchestrator=args.orchestrator,
        history=args.history,
        max_turns=args.turns,
        spend_cap=spend_cap,
    )


def _simulated(args: argparse.Namespace, made: EpisodeFactory, title: str) -> None:
    started = time.perf_counter()
    policies = {name: baseline(name, args.seed) for name in args.policy or NAMES}
    summaries = []
    for name, policy in policies.items():
        records = list(plays(made, policy, args.tasks, args.seed))
        summaries.append(summarise(name, records, args.tasks - len(records)))
    spent = time.perf_counter() - started
    print(f"{title}: {args.tasks} tasks, prices {args.prices}, SIMULATED, {spent:.1f} s")
    print(table(summaries), flush=True)
    print()


async def _live(args: argparse.Namespace, made: EpisodeFactory, title: str) -> None:
    tasks = made.source.ids(made.settings.split)[: args.tasks] if args.dataset else args.tasks
    count = tasks if isinstance(tasks, int) else len(tasks)
    label = "" if args.endpoints else ", models SIMULATED"
    policies = {name: live.policy(name, made, args.seed) for name in args.policy or ["cheap"]}
    summaries, notes = [], []
    for name, policy in policies.items():
        started = time.perf_counter()
        played = await live.evaluate(made, policy, args.seed, tasks, args.at_once)
        summaries.append(summarise(name, [p.record for p in played], count - len(played)))
        usd = sum(p.nano_usd for p in played) / 1e9
        notes.append(
            f"{name}: {usd:.9f} $ in all, {time.perf_counter() - started:.1f} s, digest {live.whole_digest(played)}"
        )
        failed = [p for p in played if p.failure and not p.record.cut]
        notes += [f"  failed {p.record.task_id}: {p.failure[:200]}" for p in failed[:5]]
    print(f"{title}: {count} tasks, prices {args.prices}{label}")
    print(table(summaries), *notes, sep="\n", flush=True)
    print()


if __name__ == "__main__":
    sys.exit(main())
