"""Compare policies on an environment: `python scripts/evaluate.py --env HLE-v0 FRAMES-v0 --tasks 300`.

With real backends: `--endpoints FILE --index FOLDER --sandbox landlock --policy chat`, recorded (`--record FILE`) and
replayed (`--replay FILE`); docs/real-tools.md says how.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.configuration.option_types import count, dollars, pairs
from toolorchestra.agents.evaluation import endpoint_evaluation
from toolorchestra.agents.evaluation.evaluate import Record, plays, summarise, table
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.datasets import Dataset
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.money.ledger import SpendCap
from toolorchestra.envs.registration import full_id, ids
from toolorchestra.envs.sandbox.kinds import KINDS, UNSAFE
from toolorchestra.envs.tools.backends import Backing, read

REAL = ("endpoints", "index", "web", "sandbox", "judge", "record", "replay", "cache", "dataset")


def main() -> int:
    args = _parser().parse_args()
    if args.unsafe_exec:
        args.sandbox = UNSAFE
    real = any(getattr(args, name) for name in REAL)
    made_backing = None
    cap = SpendCap(args.spend_cap) if args.spend_cap is not None else None
    try:
        env_ids = [_question_env(name) for name in args.env or ["HLE-v0", "FRAMES-v0"]]
        if real:
            made_backing = _backing(args)
        for env in env_ids:
            for split in args.split or (["all"] if args.dataset else ["train", "validation", "test"]):
                made = _factory(args, env, split, backends=made_backing, spend_cap=cap)
                if real:
                    asyncio.run(_live(args, made, f"{env} {split}"))
                else:
                    _simulated(args, made, f"{env} {split}")
    except (ConfigError, gym.error.Error) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        if made_backing is not None:
            made_backing.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", action="extend", help="default: HLE-v0 and FRAMES-v0")
    parser.add_argument("--split", nargs="+", action="extend", help="default: all three; of a data set: all")
    parser.add_argument(
        "--policy",
        nargs="+",
        action="extend",
        help=f"simulated: {', '.join(NAMES)}; real: {', '.join(endpoint_evaluation.NAMES)}",
    )
    parser.add_argument("--tasks", type=count, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tools", default="paper", help="tool configuration: paper, plain or a JSON file")
    parser.add_argument("--prices", default="paper-2025-11", help="price sheet: a name or a JSON file")
    parser.add_argument("--simulated", default="", metavar="FILE", help="simulated models of your own, beside ours")
    group = parser.add_argument_group("real backends")
    group.add_argument("--endpoints", default="", metavar="FILE", help="backends file (TOML or JSON)")
    group.add_argument("--index", default="", metavar="FOLDER", help='index folder, or "embedded"')
    group.add_argument("--web", action="store_true", help="web search by Tavily, key in $TAVILY_API_KEY")
    group.add_argument("--sandbox", default="", choices=[k for k in KINDS if k != UNSAFE])
    group.add_argument("--unsafe-exec", action="store_true", help="run programs of models with your own rights")
    group.add_argument(
        "--judge", nargs="+", action="extend", default=[], metavar="MODEL", help="models that grade; all must say right"
    )
    group.add_argument("--record", default="", metavar="FILE")
    group.add_argument("--replay", default="", metavar="FILE")
    group.add_argument("--cache", default="", metavar="FILE")
    group.add_argument("--dataset", default="", metavar="FILE or NAME@REVISION", help="real questions")
    group.add_argument(
        "--field", nargs="+", action="extend", default=[], metavar="FIELD=COLUMN", help="what a data set calls a field"
    )
    group.add_argument("--orchestrator", default="qwen3-8b", help="price sheet item of the policy's own model")
    group.add_argument("--history", default="full", choices=["full", "state"])
    group.add_argument("--turns", type=count, default=50)
    group.add_argument("--spend-cap", type=dollars, metavar="USD", help="for the whole run")
    group.add_argument("--at-once", type=count, default=64, help="episodes side by side")
    return parser


def _question_env(name: str) -> str:
    """The full id of an environment that asks questions: the policies here play no other."""
    valid = [env_id for env_id in ids() if _asks(env_id)]
    try:
        env_id = full_id(name)
    except ConfigError:
        raise ConfigError(no_such("question environment", name, valid)) from None
    if not _asks(env_id):
        raise ConfigError(f"{env_id} is no question environment; evaluate.py plays those alone: {', '.join(valid)}")
    return env_id


def _asks(env_id: str) -> bool:
    """Question sources are those that take a tool configuration."""
    source = gym.spec(env_id).kwargs.get("source", "")
    return "tools" in inspect.signature(resolve_name(source)).parameters if source else False


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
        more["dataset"] = Dataset(args.dataset, pairs("--field", args.field))
    return factory(
        **gym.spec(env).kwargs,
        **more,
        split=split,
        tools=args.tools,
        prices=args.prices,
        simulated=args.simulated,
        preference="none",
        orchestrator=args.orchestrator,
        history=args.history,
        max_turns=args.turns,
        spend_cap=spend_cap,
    )


def _simulated(args: argparse.Namespace, made: EpisodeFactory, title: str) -> None:
    started = time.perf_counter()
    policies = {name: baseline(name, args.seed) for name in args.policy or NAMES}
    records: dict[str, list[Record]] = {}
    stopped = False
    try:
        for name, policy in policies.items():
            played = records[name] = []
            for record in plays(made, policy, args.tasks, args.seed):
                played.append(record)
    except KeyboardInterrupt:
        stopped = True
    print(f"{title}: {args.tasks} tasks, prices {args.prices}, SIMULATED, {time.perf_counter() - started:.1f} s")
    _show(records, [], args.tasks, stopped=stopped)
    if stopped:
        raise KeyboardInterrupt


async def _live(args: argparse.Namespace, made: EpisodeFactory, title: str) -> None:
    tasks = made.source.ids(made.settings.split)[: args.tasks] if args.dataset else args.tasks
    policies = {name: endpoint_evaluation.policy(name, made, args.seed) for name in args.policy or ["cheap"]}
    records: dict[str, list[Record]] = {}
    notes: list[str] = []
    stopped = False
    for name, policy in policies.items():
        started, done = time.perf_counter(), {}
        try:
            await endpoint_evaluation.evaluate(made, policy, args.seed, tasks, args.at_once, done)
        except asyncio.CancelledError:
            stopped = True
        played = endpoint_evaluation.in_order(done)
        records[name] = [p.record for p in played]
        notes += _notes(name, played, time.perf_counter() - started)
        if stopped:
            break
    wanted = tasks if isinstance(tasks, int) else len(tasks)
    print(f"{title}: {wanted} tasks, prices {args.prices}{'' if args.endpoints else ', models SIMULATED'}")
    _show(records, notes, wanted, stopped=stopped)
    if stopped:
        raise asyncio.CancelledError


def _notes(name: str, played: Sequence[endpoint_evaluation.PlayedEpisode], seconds: float) -> list[str]:
    """What a live policy spent, and what failed."""
    usd = sum(p.nano_usd for p in played) / 1e9
    failed = [p for p in played if p.failure and not p.record.cut]
    return [
        f"{name}: {usd:.9f} $ in all, {seconds:.1f} s, digest {endpoint_evaluation.whole_digest(played)}",
        *(f"  failed {p.record.task_id}: {p.failure[:200]}" for p in failed[:5]),
    ]


def _show(records: Mapping[str, Sequence[Record]], notes: Sequence[str], tasks: int, *, stopped: bool) -> None:
    unstarted = {name: 0 if stopped else tasks - len(played) for name, played in records.items()}
    shown = table([summarise(name, played, unstarted[name]) for name, played in records.items()])
    print(shown, *notes, sep="\n")
    if stopped:
        print("stopped; played: " + ", ".join(f"{name} {len(played)} of {tasks}" for name, played in records.items()))
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
