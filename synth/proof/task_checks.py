"""The checks that a task passes before it is kept: gold gives 1, and what leaves out, changes or misses something 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

from toolorchestra.envs.domains.toolscale.grading import mentions, rules, touched
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlTask, WrongWay
from toolorchestra.synth.proof.domain_player import DomainPlayer, looks_said, untold


def gold(bench: DomainPlayer, task: SqlTask) -> str:
    """The gold path, and each alternative, runs without a refusal and gives 1."""
    for path in (task.actions, *task.alternatives):
        played = bench.play(path)
        if played.error:
            return f"a gold call is refused: {played.error}"
        verdict = bench.judged(task, path)
        if not verdict.value:
            return f"the gold path gives 0: {verdict}"
    return ""


def nothing(bench: DomainPlayer, task: SqlTask) -> str:
    """Doing nothing gives 0, unless the right answer is to do nothing."""
    return "doing nothing gives 1" if bench.judged(task, ()).value and not task.idle else ""


def told(bench: DomainPlayer, task: SqlTask) -> str:
    """Saying nothing gives 0 where something must be told, and what must be told is not what the user says."""
    if not task.communicate:
        return ""
    words = task.shape["user_scenario"]["instructions"]
    said = f"{words['reason_for_call']} {words.get('known_info') or ''}"
    said = " ".join([said, *(word for r in task.requests if r.first for word in (*r.first.say, *r.first.then, *r.say))])
    for info in task.communicate:
        if mentions(said, info, in_words=False) or looks_said(said, info):  # in words it tells nothing: see grading
            return f"the user's own words hold what must be told: {info}"
    return "saying nothing gives 1" if bench.judged(task, task.actions, silent=True).value else ""


def dropped(bench: DomainPlayer, task: SqlTask) -> str:
    """Leaving out any one gold write gives 0."""
    for number, action in enumerate(task.actions):
        if action.name in bench.domain.writes:
            without = (*task.actions[:number], *task.actions[number + 1 :])
            if bench.judged(task, without).value:
                return f"it gives 1 without {action.name}"
    return ""


def swapped(bench: DomainPlayer, task: SqlTask) -> str:
    """Another value for any argument of a write, or of a read that cannot be left out, gives 0."""
    for number, action in enumerate(task.actions):
        before, after = task.actions[:number], task.actions[number + 1 :]
        left_out = (*before, *after)
        if action.name not in bench.domain.writes and bench.judged(task, left_out, careless=True).value:
            continue
        for name, other in bench.swaps(action):
            if number < task.identify and task.caller and task.caller in touched(bench.play([other]).called):
                continue  # another thing of the caller's own identifies as well
            if bench.judged(task, (*before, other, *after)).value:
                return f"it gives 1 with {action.name}.{name} = {other.arguments[name]!r}"
    return ""


def permuted(bench: DomainPlayer, task: SqlTask) -> str:
    """Reads between two writes in reverse order still give 1."""
    first = task.identify if "process" in bench.domain.manifest else 0  # to identify first may be a rule
    made: list[GoldCall] = list(task.actions[:first])
    reads: list[GoldCall] = []
    for action in task.actions[first:]:
        if action.name not in bench.domain.writes:
            reads.append(action)
        else:
            made += [*reversed(reads), action]
            reads = []
    made += reversed(reads)
    return "" if bench.judged(task, made).value else "its reads in another order give 0"


def _in_parts(task: SqlTask) -> tuple[list[GoldCall], list[list[GoldCall]]]:
    """The gold calls that are for no request, and those for each."""
    owned = {number for request in task.requests for number in request.actions}
    first = [action for number, action in enumerate(task.actions) if number not in owned]
    return first, [[task.actions[number] for number in request.actions] for request in task.requests]


def contradictory(bench: DomainPlayer, task: SqlTask) -> str:
    """No request undoes another: neither is refused because of one before it, nor do two set the same to different
    values, each standing if it comes last. Steps of one matter are no contradiction: they go through in one order only,
    or add up."""
    first, parts = _in_parts(task)
    alone = [_updates(bench, [*first, *path]) for path in parts]
    for one, other in combinations(range(len(parts)), 2):
        mine, theirs = alone[one], alone[other]
        if mine is None or theirs is None:
            continue  # it needs what an earlier request made
        path, next_path = parts[one], parts[other]
        names = [task.requests[number].intent for number in (one, other)]
        both = _updates(bench, [*first, *path, *next_path])
        if both is None:
            return f"{names[1]} is refused because of {names[0]}, and goes through without it"
        back = {}
        if differing := [cell for cell in mine if cell in theirs and mine[cell] != theirs[cell]]:
            back = _updates(bench, [*first, *next_path, *path]) or {}
        for cell in differing:
            if both.get(cell) == theirs[cell] and back.get(cell) == mine[cell]:
                what = f"{names[0]} sets {'.'.join(map(str, cell))} to {mine[cell]!r}"
                return f"{what}, {names[1]} sets it to {theirs[cell]!r}"
    return ""


def pointless(bench: DomainPlayer, task: SqlTask) -> str:
    """No request ends what another has changed, where each could do without the other: who has a season ticket changed
    and then cancels it asks for one thing, not two. The order shows it: once ended, it can be changed no more."""
    first, parts = _in_parts(task)
    with bench.session() as session:
        met = " ".join(called.text for called in bench.made(session, first)[0])
    callers = {*re.findall(r"[\w-]+", met), *(value for action in first for value in action.arguments.values())}
    told = ([c.arguments.values() for c in path if c.name in bench.domain.writes] for path in parts)
    things: list[frozenset[Any]] = [(bench.database.keys & {*chain.from_iterable(values)}) - callers for values in told]
    """The ids of seed rows that the writes of each request are told."""
    for one, other in combinations(range(len(parts)), 2):
        if not things[one] & things[other]:
            continue
        path, next_path = parts[one], parts[other]
        plays = ([*path], [*next_path], [*path, *next_path])
        if any(_updates(bench, [*first, *made]) is None for made in plays):
            continue  # one needs the other: steps of one matter
        if _updates(bench, [*first, *next_path, *path]) is None:
            what = f"{', '.join(map(str, sorted(things[one] & things[other])))}"
            return f"{task.requests[other].intent} ends what {task.requests[one].intent} changed: {what}"
    return ""


def _updates(bench: DomainPlayer, path: Sequence[GoldCall]) -> dict[tuple[str, Any, str], Any] | None:
    """What calls change in rows that were there: by table, key and column. None where one is refused."""
    with bench.session() as session:
        if bench.made(session, path)[1]:
            return None
        cells: dict[tuple[str, Any, str], Any] = {}
        for name, before, now in session.changes():
            if before is not None and now is not None:
                table = bench.domain.tables[name]
                key = before[table.columns.index(table.key)]
                pairs = zip(table.columns, before, now, strict=True)
                cells.update({(name, key, column): new for column, old, new in pairs if new != old})
        return cells


# -- what is hard, and rules of process --------------------------------------------------------------------------------

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
    if rules(bench.domain) is None or not task.identify:
        return ""
    rest = task.actions[task.identify :]
    verdict = bench.judged(task, rest)
    # It changes something, or reads what belongs to the caller.
    touches = any(call.name in bench.domain.writes for call in rest) or verdict.broken
    return "it gives 1 without identification" if touches and verdict.value else ""


def curious(bench: DomainPlayer, task: SqlTask) -> str:
    """Gold with one read of another person's record gives 0."""
    if not task.identify or (read := stranger_read(bench, task.caller)) is None:
        return ""
    made = [*task.actions[: task.identify], read, *task.actions[task.identify :]]
    return f"it gives 1 with {read.name}({dict(read.arguments)})" if bench.judged(task, made).value else ""


def stranger_read(bench: DomainPlayer, caller: str) -> GoldCall | None:
    """A read that shows something of another person's; None where no tool takes such an id."""
    stated = rules(bench.domain)
    if stated is None:
        return None
    ways = frozenset().union(*stated.ways)
    for tool in bench.domain.tools.values():
        needed: Sequence[str] = tool.parameters.get("required", [])
        if tool.kind != "read" or tool.name in ways or len(needed) != 1:
            continue
        owned = (value for value in bench.values(needed[0]) if value in stated.owners)
        foreign = next((value for value in owned if stated.owners[value] != caller), None)
        read = GoldCall(tool.name, {needed[0]: foreign})
        if foreign is not None and not bench.play([read]).error:
            return read
    return None


def unasked(bench: DomainPlayer, task: SqlTask) -> str:
    """Gold with a write that the user has not agreed to gives 0."""
    stated, tools = rules(bench.domain), bench.domain.tools
    writes = [c.name for c in task.actions if c.name in bench.domain.writes and not tools[c.name].transfers]
    if stated is None or not stated.confirm or not writes:
        return ""
    verdict = bench.judged(task, task.actions, unasked=writes[:1])
    return f"it gives 1 with {writes[0]} unasked" if verdict.value else ""


CHECKS: Mapping[str, Check] = {
    "honest": honest,  # first, since it costs least
    "contradictory": contradictory,
    "gold": gold,
    "nothing": nothing,
    "told": told,
    "dropped": dropped,
    "swapped": swapped,
    "permuted": permuted,
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
