"""The first row of several, where the request names another: `inform: [list_loans.0.price]` is right only if the row
at that place is the one that the user speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolorchestra.envs.domains.toolscale.grading import mentions
from toolorchestra.synth.formats.intent_templates import plain
from toolorchestra.synth.lint.ground import Finding, Ground, PlayedIntent

_PATH = re.compile(r"(\w+)\.(\d+)\.(\w+)")
_PICKS = re.compile(
    r"\b(?:first|last|next|latest|newest|oldest|earliest|earlier|soonest|cheapest|dearest|most|least|highest|lowest|"
    r"biggest|largest|smallest|best|top|closest|nearest|shortest|longest|quickest|fastest|only|recent|current|upcoming|"
    r"any|either|fewest|greatest|cheaper|sooner|soon|possible|whichever|some|strongest|weakest|warmest|coldest)\b",
    re.IGNORECASE,
)
"""Words by which a request picks one of several things without naming it."""
_ID = "_id"
_SMALL = 100


class _Pick(NamedTuple):
    """A row that an intent takes by its place."""

    path: str
    rows: Sequence[Mapping[str, Any]]
    place: int
    field: str


def check(ground: Ground) -> Iterator[Finding]:
    """One finding for each path of each intent: the worst of its samples."""
    for name, played in ground.played.items():
        worst: dict[str, Finding] = {}
        for one in played:
            for pick in _picks(one):
                finding = _finding(name, one, pick)
                if finding and (pick.path not in worst or finding.certain > worst[pick.path].certain):
                    worst[pick.path] = finding
        yield from worst.values()


def _picks(one: PlayedIntent) -> Iterator[_Pick]:
    paths = [*one.entry.get("inform", []), *_in_arguments(one.entry["actions"])]
    for path in dict.fromkeys(paths):
        if match := _PATH.fullmatch(path):
            tool, place, field = match[1], int(match[2]), match[3]
            result = next((c.value for c in reversed(one.called) if c.name == tool), None)
            rows = [row for row in result if field in row] if isinstance(result, list) else []
            if len(rows) > 1 and place < len(rows):
                yield _Pick(path, rows, place, field)


def _in_arguments(actions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in actions:
        for arguments in row.values():
            for value in (arguments or {}).values():
                if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}":
                    yield value[1:-1]


def _finding(name: str, one: PlayedIntent, pick: _Pick) -> Finding | None:
    scores = [_named(row, pick.rows, one) for row in pick.rows]
    best, own = max(scores), scores[pick.place]
    field = pick.field
    others = [place for place, score in enumerate(scores) if score == best and place != pick.place]
    differ = [place for place in others if pick.rows[place][field] != pick.rows[pick.place][field]]
    if not differ:
        return None
    other, what = differ[0], f"{pick.path} of {len(pick.rows)} rows"
    picks = all(_PICKS.search(said) for said in one.said)
    if own < best and not (picks and best == 1):
        seen = f"{what} is {pick.rows[pick.place][field]!r}, and the request {one.said[0]!r:.160} names row {other}"
        expected = f"{pick.rows[other][field]!r}; take the row that is named, or draw requests with one row alone"
        return Finding("another row", "intents.yaml", f"intent {name}", seen, expected, certain=True)
    if picks:
        return None
    seen = f"{what}: nothing in {one.said[0]!r:.160} tells row {pick.place} from row {other}"
    expected = "words that say which one, or a draw of requests with one row alone"
    return Finding("another row", "intents.yaml", f"intent {name}", seen, expected)


def _named(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], one: PlayedIntent) -> int:
    """How much of what tells a row from the others stands in the request, or is an id that its draw gave."""
    drawn = {value for name, value in one.values.items() if name.endswith(_ID)}
    score = 0
    for name, value in row.items():
        if not isinstance(value, str | int | float) or all(other.get(name) == value for other in rows):
            continue
        if name.endswith(_ID):
            score += value in drawn
        elif one.values.get(name) == value or not _counts(value):
            score += mentions(one.said[0], plain(value))
    return score


def _counts(value: Any) -> bool:
    """Small whole numbers stand in a request by chance, and for other things."""
    return isinstance(value, int) and abs(value) < _SMALL
