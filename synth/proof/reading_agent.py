"""A scripted agent of fair skill: it reads what a model would (schemas, results, the user's words) and nothing else.

It identifies the user with a tool that says so, finds the tool whose words are nearest to the wish, fills its arguments
from the words or from lists that it looks up, asks for a yes before a change, and tells what came of it. It neither
computes nor weighs conditions, takes one page of a list, and does not read the policy's rules. A learner does the same
and knows the wishes of the training split beside: it follows the tools that settled the most similar one. No model is
behind them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTask
from toolorchestra.envs.domains.toolscale.oracle import CLOSING
from toolorchestra.synth.proof.task_checks import DomainPlayer

MOST_LOOKUPS = 4
"""Reads for one wish before it gives up."""
MOST_PLANS = 3
"""Proposals for one wish."""
KINDS_WEIGHT = 0.5
"""Of ids, days and numbers in the wish that a tool takes, beside words."""
_READS = ("find_", "get_", "list_", "quote_", "search_", "check_", "track_")
_ID = re.compile(r"\b[A-Z]{2}-?\d+\b")
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b")
_TIME = re.compile(r"\b\d\d:\d\d\b")
_NUMBER = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\d)")
_NAMES = re.compile(r"(?<![.!?:] )(?<!^)\b[A-Z]\w+(?: [A-Z]\w+)*")
_YEAR = re.compile(r"\b\d{4}\b")
_PHONE = re.compile(r"\+?\d[\d -]{5,}\d")
_WORD = re.compile(r"[a-z0-9]{3,}")
_STOPS = frozenset(
    "the and for you your please want need with that this have has from would like can could are".split()
)
_MAIL = re.compile(r"[\w.%+-]+@[\w.-]+\w")
_UNKNOWN = re.compile(r"don't|do not|can't|no idea", re.IGNORECASE)
_YES = re.compile(r"\b(?:yes|correct|confirmed|proceed|go on)\b", re.IGNORECASE)
_LABELS = ("my", "the", "it", "s", "is", "for", "sure", "of", "on", "file", "and")


Memory = Sequence[tuple[frozenset[str], tuple[str, ...]]]
"""Words of wishes, and the tools that settled them."""


@dataclass(frozen=True)
class ReadingAgent:
    """A solver; see the module."""

    name: str = "reader"
    learnt: bool = False
    """Whether it remembers the wishes of the training split and which tools settled them."""

    def begin(self, bench: DomainPlayer, _task: SqlTask, _seed: int) -> ReadingPlay:
        """One episode. It is told nothing of the task."""
        return ReadingPlay(_memory(bench.domain) if self.learnt else ())


@lru_cache(maxsize=16)
def _memory(domain: SqlDomain) -> Memory:
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for task in domain.tasks.values():
        if task.split == "train":
            for request in task.requests:
                tools = tuple(task.actions[number].name for number in request.actions)
                for say in (*request.say, *(request.first.say if request.first else ())):
                    found[frozenset(stems(say))] = tools
    return tuple(found.items())


READER, LEARNER = ReadingAgent(), ReadingAgent("learner", learnt=True)
"""SIMULATED policies."""


class ReadingPlay:
    """One episode, read as it comes."""

    def __init__(self, memory: Memory = ()) -> None:
        self._script = self._moves()
        self._memory = memory
        self._tools: dict[str, Mapping[str, Any]] = {}
        self._words: dict[str, frozenset[str]] = {}
        self._heard: list[str] = []
        self._result: Any = None
        self._error = ""
        self._known: dict[str, Any] = {}
        self._rows: list[dict[str, Any]] = []
        self._failed: set[str] = set()

    async def move(self, observation: Any) -> str:
        """The next turn after an observation; "" when the agent has nothing left to say."""
        if not self._tools:
            self._meet(observation["tools"])
        self._take_in(observation["messages"])
        return next(self._script, "")

    def _meet(self, schemas: Sequence[Mapping[str, Any]]) -> None:
        for schema in schemas:
            tool = schema["function"]
            self._tools[tool["name"]] = tool
            options = (o for part in _parts(tool).values() for o in part.get("enum", ()) if isinstance(o, str))
            text = " ".join([tool["name"], tool.get("description", ""), *options]).replace("_", " ")
            self._words[tool["name"]] = frozenset(stems(text))

    def _take_in(self, messages: Sequence[Mapping[str, str]]) -> None:
        self._error, self._result = "", None
        said = []
        for message in reversed(messages):
            if message["role"] == "assistant":
                break
            if message["role"] == "tool":
                self._read(message["content"])
            else:
                said.append(message["content"])
        if said:
            self._heard.append(" ".join(reversed(said)))

    def _read(self, text: str) -> None:
        try:
            self._result = json.loads(text)
        except ValueError:
            self._error = text
            return
        for row in _records(self._result):
            self._rows.append(row)

    # -- what it does ----------------------------------------------------------------------------------------------

    def _moves(self) -> Iterator[str]:
        wish = self._heard[-1]
        yield from self._identify()
        for _ in range(40):
            yield from self._settle(wish)
            wish = self._heard[-1]

    def _identify(self) -> Iterator[str]:
        ways = [tool for tool in self._tools.values() if _identifies(tool)]
        asked = {name: part for tool in ways for name, part in _parts(tool).items()}
        labels = [_label(name, part) for name, part in asked.items()]
        yield f"To verify your identity, could you tell me your {', '.join(labels)}?"
        parts = zip(asked.items(), labels, strict=True)
        told = {name: _answer(self._heard[-1], part, label) for (name, part), label in parts}
        for tool in ways:
            arguments = {name: _typed(told[name], part) for name, part in _parts(tool).items() if told[name]}
            if len(arguments) == len(_parts(tool)):
                yield render_call(tool["name"], arguments)
                if not self._error:
                    self._known.update(self._result or {})
                    break

    def _settle(self, wish: str) -> Iterator[str]:
        told: list[str] = []
        agreed = False
        for name in self._recalled(wish) or [self._nearest(wish)]:
            arguments: dict[str, Any] = {}
            for _ in range(MOST_PLANS):
                arguments = yield from self._planned(name, wish)
                if missing := self._filled(self._tools[name], wish)[1]:
                    yield f"Could you tell me the {' and the '.join(one.replace('_', ' ') for one in missing)}?"
                    wish = f"{wish} {self._heard[-1]}"
                    continue
                if agreed or name.startswith(_READS):
                    break
                listed = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in arguments.items())
                yield f"I am going to do this: {name.replace('_', ' ')} with {listed}. Do you confirm (yes/no)?"
                agreed = _YES.search(self._heard[-1]) is not None
                if agreed:
                    break
                wish = _mended(wish, self._heard[-1])
            yield render_call(name, arguments)
            if self._error:
                yield "I am sorry, but I cannot do this: the policy does not allow it."
                return
            best = max(_records(self._result), key=lambda row: _shared(row, wish), default={})
            told += [f"{key.replace('_', ' ')}: {value}" for key, value in best.items() if not isinstance(value, list)]
        yield f"This is what came of it: {', '.join(told)}. That has been settled. {CLOSING}"

    def _recalled(self, wish: str) -> list[str]:
        """The tools that settled the most similar wish in training."""
        own = stems(wish)
        best = max(self._memory, key=lambda one: len(own & one[0]) / (len(own | one[0]) or 1), default=None)
        return [name for name in best[1] if name in self._tools] if best else []

    def _planned(self, name: str, wish: str) -> Generator[str, None, dict[str, Any]]:
        """The arguments of a call, after the reads that they need."""
        for _ in range(MOST_LOOKUPS):
            arguments, missing = self._filled(self._tools[name], wish)
            lookup = self._lookup(missing, wish) if missing else None
            if lookup is None:
                break
            yield lookup
            if self._error:
                self._failed.add(lookup)
        return arguments

    def _nearest(self, wish: str) -> str:
        """The tool with most rare words in common with the wish."""
        words = stems(wish)
        spread = {word: sum(word in own for own in self._words.values()) for word in words}

        def score(name: str) -> float:
            own = self._words[name]
            shared = sum(math.log(len(self._tools) / spread[word]) for word in words & own)
            return shared / math.sqrt(4 + len(own)) + KINDS_WEIGHT * _kinds_in_common(self._tools[name], wish)

        return max(
            (name for name, tool in self._tools.items() if name != "call_expert" and not _identifies(tool)), key=score
        )

    def _filled(self, tool: Mapping[str, Any], wish: str) -> tuple[dict[str, Any], list[str]]:
        arguments: dict[str, Any] = {}
        missing: list[str] = []
        used: set[Any] = set()
        for name in tool["parameters"].get("required", ()):
            value = self._value(name, _parts(tool)[name], wish, used)
            if value is None:
                missing.append(name)
            else:
                arguments[name] = value
                used.add(value)
        return arguments, missing

    def _value(self, name: str, part: Mapping[str, Any], wish: str, used: set[Any]) -> Any:
        if "enum" in part:
            words = stems(wish)
            return max(part["enum"], key=lambda option: len(words & stems(str(option).replace("_", " "))))
        if name == "page":
            return 1
        if part["type"] in ("integer", "number"):
            found = [number for number in _NUMBER.findall(_ID.sub(" ", wish)) if _typed(number, part) not in used]
            return _typed(found[0], part) if found else None
        if name.endswith("_id"):
            return self._id(name, part, wish, used)
        texts = _texts(part, wish)
        return next((text for text in texts if text not in used), self._known.get(name))

    def _id(self, name: str, part: Mapping[str, Any], wish: str, used: set[Any]) -> Any:
        prefix = _prefix(part)
        if spoken := [one for one in _ID.findall(wish) if one.startswith(prefix) and one not in used and prefix]:
            return spoken[0]
        if name in self._known:
            return self._known[name]
        rows = {row[name]: row for row in self._rows if name in row and row[name] not in used}
        best = max(rows.values(), key=lambda row: _shared(row, wish), default={})
        return best.get(name) if len(rows) == 1 or _shared(best, wish) else None

    def _lookup(self, missing: Sequence[str], wish: str) -> str | None:
        """A read that may show what is missing."""
        wanted = stems(" ".join(name.removesuffix("_id") for name in missing).replace("_", " "))
        made = [row.get("_call") for row in self._rows]
        wanted = {word.rstrip("s") for word in wanted}
        best: tuple[int, str] | None = None
        for name, tool in self._tools.items():
            if not name.startswith(("find_", "list_", "get_", "search_")) or _identifies(tool):
                continue
            shared = len(wanted & {word.rstrip("s") for word in self._words[name]})
            if not shared or (best is not None and shared <= best[0]):
                continue
            for text in ("", *_longer_names(wish)):
                arguments, gaps = self._filled(tool, text or wish)
                call = render_call(name, arguments)
                if not gaps and call not in made and call not in self._failed:
                    best = (shared, call)
                    break
        if best is None:
            return None
        self._rows.append({"_call": best[1]})
        return best[1]


def _parts(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = tool["parameters"].get("properties", {})
    return properties


def stems(text: str) -> set[str]:
    """The beginnings of a text's words."""
    return {word[:5] for word in _WORD.findall(text.lower()) if word not in _STOPS}


def _longer_names(wish: str) -> list[str]:
    """Names with the word behind them, as in "the Varnholt kettle"."""
    return [f"x {name} {word}".title() for name, word in re.findall(rf"({_NAMES.pattern}) (\w+)", wish)]


def _prefix(part: Mapping[str, Any]) -> str:
    """How an argument's ids begin, by the example in the schema."""
    found = _ID.search(part.get("description", ""))
    return found[0][:3] if found else ""


def _kinds_in_common(tool: Mapping[str, Any], wish: str) -> int:
    """How many of the ids, days and numbers in a wish a tool has arguments for, less those it needs and has not."""
    ids = [one[:3] for one in _ID.findall(wish)]
    days, numbers = len(_DAY.findall(wish)), len(_NUMBER.findall(_DAY.sub(" ", _ID.sub(" ", wish))))
    found = 0
    for part in (_parts(tool)[name] for name in tool["parameters"].get("required", ())):
        if (prefix := _prefix(part)) and prefix in ids:
            ids.remove(prefix)
            found += 1
        elif part["type"] == "number":
            found += 1 if numbers else -1
            numbers -= 1
        elif "yyyy" in part.get("description", "").lower():
            found += 1 if days else -1
            days -= 1
    return found


def _mended(wish: str, reply: str) -> str:
    """The wish with what the user says instead: the first value of each kind that is new takes the old one's place."""
    for kind in (_MOMENT, _DAY, _TIME, _ID, _NUMBER, _NAMES):
        old = kind.findall(wish)
        new = [value for value in kind.findall(reply) if value not in old]
        named = [value for value in old if value in reply]
        if new and old:
            wish = wish.replace((named or old)[0], new[0])
    return wish


def _identifies(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("description", "")).startswith("Identify")


def _label(name: str, part: Mapping[str, Any]) -> str:
    """How it asks for an argument: by its name and what the schema says of it."""
    said = re.split(r"[,(;]| on file| of any", part.get("description", ""))[0].lower()
    spoken = name.replace("_", " ").replace("email", "e-mail address").replace("phone", "phone number")
    return spoken if said in spoken or not said else f"{spoken} ({said})"


def _answer(heard: str, part: Mapping[str, Any], label: str) -> str:
    """What the user told of it: the sentence with most of the label's words, without these."""
    words = set(re.findall(r"\w+", label.lower()))
    best, shared = "", 0
    for sentence in re.split(r"(?<=[.])\s+", heard):
        own = len(words & set(re.findall(r"\w+", sentence.lower())))
        if own > shared and not _UNKNOWN.search(sentence):
            best, shared = sentence, own
    shapes = [_MAIL] if "mail" in label else [_DAY, _YEAR] if "birth" in label else [_PHONE] if "phone" in label else []
    for shape in shapes or ([_ID] if _prefix(part) else []):
        found = shape.search(best)
        if found or shape is not _DAY:
            return found[0] if found else ""
    drop = words | set(_LABELS)
    left = [word for word in re.findall(r"[+\w][\w@.+-]*", best.rstrip(".")) if word.lower().strip(".") not in drop]
    return " ".join(word.rstrip(".") for word in left)


def _typed(text: str, part: Mapping[str, Any]) -> Any:
    if part["type"] == "integer":
        digits = re.sub(r"\D", "", text.split(".")[0])
        return int(digits) if digits else text
    return float(text) if part["type"] == "number" and _NUMBER.fullmatch(text) else text


def _texts(part: Mapping[str, Any], wish: str) -> list[str]:
    """What of the wish may be this argument: by the words of the schema a time, a day or an address, else names."""
    said = part.get("description", "").lower()
    if "yyyy" in said or "day" in said or "date" in said:
        return (_MOMENT if "hh" in said else _DAY).findall(wish)
    if "hh" in said or "time" in said:
        return _TIME.findall(wish)
    return _MAIL.findall(wish) if "mail" in said else _NAMES.findall(wish)


def _records(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a result, those in lists of it as well."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(part, dict | list):
            yield from _records(part)


def _shared(row: Mapping[str, Any], wish: str) -> int:
    """How many of a record's values stand in the wish."""
    plain = (value for value in row.values() if isinstance(value, str | int | float) and value not in (0, 1, ""))
    texts = [str(value).lower() for value in plain]
    days = [found[0] for text in texts if (found := _DAY.match(text)) and found[0] != text]
    return sum(text in wish.lower() for text in (*texts, *days))
