"""An episode in a report: what was asked, each turn with its bill, how it was graded. Folded until it is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.reports.report_data import ending_of
from toolorchestra.agents.reports.svg import tag, text_of
from toolorchestra.envs.money.prices import NANO

MOST_CHARACTERS = 700
"""Of one message. The page of trajectories has all of it."""
MOST_TURNS = 12
WORDS = {"right": "✓ right", "wrong": "✗ wrong", "failed": "! failed"}


def cents(nano_usd: float) -> str:
    """An amount in cents, with three digits."""
    return f"{100 * nano_usd / NANO:.3g} ¢"


def episode_html(line: Mapping[str, Any], name: str = "") -> str:
    """The HTML of one episode, from its line in a file that RecordTrajectories wrote."""
    ending = ending_of(line)
    charges = [one for one in line.get("charges") or () if isinstance(one, Mapping)]
    spent = sum(_nano(one) for one in charges)
    head = [tag("b", text_of(name)) if name else "", tag("span", WORDS[ending], class_=f"chip {ending}")]
    head += [tag("span", text_of(_task(line))), tag("b", cents(spent), class_="sum")]
    body = [*_opening(line), *_turns(line, charges), _graded(line)]
    return tag("details", tag("summary", *head), *body, class_="episode")


def _nano(charge: Mapping[str, Any]) -> float:
    return float(charge.get("nano_usd") or 0)


def _task(line: Mapping[str, Any]) -> str:
    return str(line.get("task_id", ""))


def _cut(words: object) -> str:
    text = str(words)
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]} … ({len(text) - MOST_CHARACTERS:,} more characters)"


def _opening(line: Mapping[str, Any]) -> list[str]:
    asked = next((m.get("content", "") for m in line["messages"] if m.get("role") == "user"), "")
    wish = line.get("preference")
    said = wish.get("sentence") if isinstance(wish, Mapping) else ""
    made = [tag("pre", text_of(_cut(asked)), class_="asked")]
    return [*made, tag("p", tag("b", "The user's wish: "), text_of(_cut(said)))] if said else made


def _turns(line: Mapping[str, Any], charges: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each turn: what the agent said, what came back, what it cost, and what was spent so far."""
    messages = [one for one in line["messages"] if isinstance(one, Mapping)]
    starts = [place for place, one in enumerate(messages) if one.get("role") == "assistant"]
    rows, spent = [], 0.0
    for number, start in enumerate(starts, 1):
        end = starts[number] if number < len(starts) else len(messages)
        mine = [one for one in charges if min(len(starts), max(1, int(one.get("turn") or 1))) == number]
        spent += sum(map(_nano, mine))
        if number > MOST_TURNS:
            continue
        said = tag("pre", text_of(_cut(_said(messages[start]))), class_="said")
        came = "".join(tag("pre", text_of(_cut(one.get("content", "")))) for one in messages[start + 1 : end])
        head = f"turn {number}: {cents(sum(map(_nano, mine)))}, {cents(spent)} so far"
        rows.append(tag("li", tag("p", tag("b", head)), said, came, _bill(mine)))
    more = len(starts) - MOST_TURNS
    if more > 0:
        rows.append(tag("li", tag("p", f"{more} more turns, {cents(spent)} in the end.")))
    return [tag("ol", *rows, class_="turns")]


def _said(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    calls = message.get("tool_calls")
    return f"{content}\n{json.dumps(calls)}".strip() if calls else str(content)


def _bill(charges: Sequence[Mapping[str, Any]]) -> str:
    """Who was paid how much in a turn. What cost nothing is left out."""
    paid = [one for one in charges if _nano(one)]
    rows = "".join(
        tag(
            "tr",
            tag("td", text_of(one.get("role", ""))),
            tag("td", text_of(" · ".join(filter(None, (str(one.get("item", "")), str(one.get("tool") or "")))))),
            tag("td", cents(_nano(one))),
        )
        for one in paid
    )
    return tag("table", rows, class_="bill") if rows else ""


def _graded(line: Mapping[str, Any]) -> str:
    failed = line.get("failed")
    if ending_of(line) == "failed":
        why = failed.get("error") or failed if isinstance(failed, Mapping) else "it ended without an outcome"
        return tag("p", tag("b", "It failed: "), text_of(_cut(why)))
    outcome = line["outcome"]
    told = outcome.get("evidence")
    evidence = told if isinstance(told, Mapping) else {}
    pairs = [(name, evidence[name]) for name in ("expected", "answer") if name in evidence]
    words = "; ".join(f"{name}: {_cut(value)}" for name, value in pairs)
    stopped = f" It was stopped by its limit of {line['truncated_by']}." if line.get("truncated_by") else ""
    return tag("p", tag("b", f"Graded {float(outcome.get('value') or 0):g}. "), text_of(words + stopped))
