"""All checks that a task passes, and those of what is hard: what misses the hard part gives 0, and so does what breaks
a rule of process that the policy states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.domain import GoldCall, SqlTask, WrongWay
from toolorchestra.envs.domains.toolscale.process_rules import rules
from toolorchestra.synth.proof.honest_paths import untold
from toolorchestra.synth.proof.task_checks import PLAIN, DomainPlayer, pointless

Check = Callable[[DomainPlayer, SqlTask], str]


def honest(bench: DomainPlayer, task: SqlTask) -> str:
    """The gold path uses an id only after the policy, the user or a result has said it."""
    missing = untold(bench, task, task.actions)
    return f"call {missing[0][0]} uses {missing[0][1]}, which nothing has said" if missing else ""


def missed(bench: DomainPlayer, task: SqlTask) -> str:
    """Another candidate, a number that was only read, the other case or the user's first word gives 0."""
    for way in task.wrong:
        if bench.judged(task, instead(task, way)).value:
            made = "; ".join(f"{call.name}({dict(call.arguments)})" for call in way.calls)
            return f"{task.requests[way.request].intent}: it gives 1 with another {way.kind}: {made}"
    return ""


def instead(task: SqlTask, way: WrongWay) -> list[GoldCall]:
    """The gold path with one request settled wrongly."""
    own = task.requests[way.request].actions
    before = [number for request in task.requests[: way.request] for number in request.actions]
    start = own[0] if own else max(before, default=task.identify - 1) + 1
    return [*task.actions[:start], *way.calls, *task.actions[start + len(own) :]]


def unidentified(bench: DomainPlayer, task: SqlTask) -> str:
    """Gold without the calls that identify gives 0, where it touches what belongs to somebody."""
    if rules(bench.domain) is None or not task.identify or not _needs_identity(bench, task):
        return ""
    return "it gives 1 without identification" if bench.judged(task, task.actions[task.identify :]).value else ""


def _needs_identity(bench: DomainPlayer, task: SqlTask) -> bool:
    rest = task.actions[task.identify :]
    return any(bench.domain.tools[call.name].kind == "write" for call in rest) or bool(
        bench.judged(task, rest).broken  # it reads what belongs to the caller
    )


def curious(bench: DomainPlayer, task: SqlTask) -> str:
    """Gold with one read of another person's record gives 0."""
    if not task.identify or (read := stranger_read(bench, task.caller)) is None:
        return ""
    made = [*task.actions[: task.identify], read, *task.actions[task.identify :]]
    return f"it gives 1 with {read.name}({dict(read.arguments)})" if bench.judged(task, made).value else ""


def stranger_read(bench: DomainPlayer, caller: str) -> GoldCall | None:
    """A read that shows something of another person's; None where no tool takes such an id."""
    for call in _stranger_reads(bench, caller):
        try:
            with bench.session() as session:
                bench.call(session, call)
        except ToolError:
            continue
        return call
    return None


def _stranger_reads(bench: DomainPlayer, caller: str) -> Iterator[GoldCall]:
    stated = rules(bench.domain)
    ways = {name for way in stated.ways for name in way} if stated else set()
    for tool in bench.domain.tools.values():
        needed: Sequence[str] = tool.parameters.get("required", [])
        if not stated or tool.kind != "read" or tool.name in ways or len(needed) != 1:
            continue
        foreign = (v for v in bench.values(needed[0]) if v in stated.owners and stated.owners[v] != caller)
        if (value := next(foreign, None)) is not None:
            yield GoldCall(tool.name, {needed[0]: value})


def unasked(bench: DomainPlayer, task: SqlTask) -> str:
    """Gold with a write that the user has not agreed to gives 0."""
    stated = rules(bench.domain)
    if stated is None or not stated.confirm:
        return ""
    tools = bench.domain.tools
    writes = [c.name for c in task.actions if tools[c.name].kind == "write" and not tools[c.name].transfers]
    if not writes:
        return ""
    verdict = bench.judged(task, task.actions, unasked=writes[:1])
    return f"it gives 1 with {writes[0]} unasked" if verdict.value else ""


CHECKS: Mapping[str, Check] = {
    "honest": honest,  # first, since it costs least
    **PLAIN,
    "pointless": pointless,
    "missed": missed,
    "unidentified": unidentified,
    "curious": curious,
    "unasked": unasked,
}
"""Name -> check, which gives what is wrong or ""."""


def fault(bench: DomainPlayer, task: SqlTask) -> tuple[str, str]:
    """The first check that a task fails and what it saw; two empty texts for a good task."""
    for name, check in CHECKS.items():
        if seen := check(bench, task):
            return name, seen
    return "", ""
