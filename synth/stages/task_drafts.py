"""Drafts tasks: a walk over intents that fit one person, its gold calls run as it goes, and the scenario in words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.domains.toolscale.database import DatabaseSession
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall
from toolorchestra.envs.domains.toolscale.state_digest import digest
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.intent_templates import Caller, Rejected, Templates, action, informed, named, text
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.proof.similarity import FINAL, JOINTS
from toolorchestra.synth.stages.hard_requests import HardRequests, parts, weight

Shape = dict[str, Any]
SIZES: Mapping[int, float] = {1: 0.14, 2: 0.22, 3: 0.24, 4: 0.22, 5: 0.18}
"""How many requests a task has, and how often."""
BOUNDS = (2, 4, 6, 8)
"""Difficulty 1 has at most 2 gold calls, 2 at most 4, 3 at most 6, 4 at most 8, and 5 more."""


TRAIN, TEST, HELD_OUT = "train", "test", "heldout"
MOST_HELD_OUT = 3
"""Requests of a task of the split `heldout`: few intents are held out."""
TAKES_BACK = {
    "corrects": "You have mixed something up. When you are asked to confirm, or are told a result, say: {then!r}",
    "changes_mind": "When you are asked to confirm, or are told a result, you change your mind. Say: {then!r}",
    "negotiates": "When this is refused, ask for less: {then!r}",
}
LEAST_WORDINGS = 3
"""Wordings of a request from which on the last is kept for tests."""


@dataclass
class _Draft:
    """What a draft has so far."""

    hard: HardRequests
    made: list[Called]
    identify: int
    """How many of the calls identify the user."""
    requests: list[Shape] = field(default_factory=list)
    others: list[tuple[list[int], Sequence[Any], Mapping[str, Any], str]] = field(default_factory=list)
    """Other ways to settle a request: the places of its calls, the calls, what fills them, and where they stand."""


class Drafter:
    """Drafts tasks of one domain; the same generator gives the same drafts."""

    def __init__(self, spec: Spec, bench: DomainPlayer, rng: random.Random) -> None:
        self.spec = spec
        self.bench = bench
        self.rng = rng
        self.templates = Templates(spec, bench.domain)
        self._used: Counter[str] = Counter()

    def draft(self, split: str = TRAIN) -> Shape:
        """One draft, for the split `test` or `heldout`, or for the others. Raises Rejected."""
        size = self.rng.choices(list(SIZES), weights=list(SIZES.values()))[0]
        if split == HELD_OUT:
            size = min(size, MOST_HELD_OUT)
        person = self.rng.choice(self.templates.people)
        intents = self._walk(person, size, split)
        alone = all(intent.get("public") for intent in intents)
        return self.compose(None if alone else person, intents, split)

    def _walk(self, person: Caller, size: int, split: str) -> list[Mapping[str, Any]]:
        """Intents in a row: rarely used ones first, none twice, a transfer only at the end."""
        fitting = [*self.templates.fitting(person), *(i for i in self.spec.intents if i.get("public"))]
        kept = set(self.spec.head.get("held_out_intents", ()))
        pool = [i for i in fitting if weight(i) > 0 and (i["intent"] in kept) == (split == HELD_OUT)]
        chosen: list[Mapping[str, Any]] = []
        for _ in range(min(size, len(pool))):
            last = len(chosen) == size - 1
            open_ = [i for i in pool if i not in chosen and (last or i.get("ending", "serve") != "transfer")]
            if not open_:
                break
            weights = [weight(i) / (1 + self._used[i["intent"]]) ** 2 for i in open_]
            intent = self.rng.choices(open_, weights=weights)[0]
            chosen.append(intent)
        if len(chosen) < size:
            raise Rejected("too few intents fit")
        return chosen

    def kept(self, shape: Shape) -> None:
        """Remember what a kept task used, so that the rarer intents come next."""
        self._used.update(request["intent"] for request in shape["toolscale"]["requests"])

    def compose(self, person: Caller | None, intents: Sequence[Mapping[str, Any]], split: str = TRAIN) -> Shape:
        """The draft of one person's requests, in this order. Raises Rejected."""
        way = self.rng.choice(self.spec.head["user"]["ways"]) if person else {"facts": [], "actions": []}
        values = person.values if person else {}
        with self.bench.session() as session:
            made = self._run(session, way["actions"], values, "user.ways")
            draft = _Draft(HardRequests(self.bench, self.templates), made, len(made))
            for intent in intents:
                self._ask(draft, session, intent, person, split)
            state = digest(session)
        actions = [called.action for called in draft.made]
        paths = [self._otherwise(actions, *other) for other in draft.others]
        caller = self.spec.head.get("process", {}).get("caller", self.spec.head["user"]["key"])
        shape = _shape(self._scenario(way, values, draft.requests, intents), actions, draft.requests)
        shape["toolscale"] = {
            "split": split if split in (TEST, HELD_OUT) else TRAIN,
            "difficulty": 1 + sum(len(actions) > bound for bound in BOUNDS),
            "end_states": list(dict.fromkeys([state, *(self.bench.play(path).state for path in paths)])),
            "alternatives": [_rows(path) for path in paths],
            "facts": [*_facts(way["facts"], values), *_facts(way.get("unknown", []), values)],
            "requests": draft.requests,
            "identify": draft.identify,
            "cost": {"calls": len(actions), "requests": len(draft.requests)},
            "caller": str(named(values, caller, "domain.yaml: process.caller")) if person else "",
            **draft.hard.shape(draft.requests, draft.made),
        }
        return shape

    def _ask(
        self, draft: _Draft, session: DatabaseSession, intent: Mapping[str, Any], person: Caller | None, split: str
    ) -> None:
        """Add an intent's requests, their gold calls made."""
        places.at(f"intents.yaml: intent {intent['intent']!r}")
        filled = self.templates.instance(intent, person, self.rng)
        for part in parts(intent, filled):
            where = f"intent {part['intent']}"
            called = self._run(session, part["actions"], filled, where)
            numbers = list(range(len(draft.made), len(draft.made) + len(called)))
            draft.others += [(numbers, path, filled, where) for path in part.get("otherwise", [])]
            inform = informed(part.get("inform", []), called, where)
            request = _request(self._worded(part, split), filled, numbers, inform)
            draft.hard.note(part, filled, request, [c.action for c in draft.made], called)
            draft.made += called
            draft.requests.append(request)

    def _run(
        self, session: DatabaseSession, rows: Sequence[Any], values: Mapping[str, Any], where: str
    ) -> list[Called]:
        """Fill in and make one call after the other, since one may need what another gave."""
        done: list[Called] = []
        for row in rows:
            filled = action(row, values, done, where)
            try:
                done.append(self.bench.call(session, filled))
            except ToolError as err:
                seen = f"{where}: {filled.name}({dict(filled.arguments)}): {err}"
                raise Rejected("gold call refused", seen, where.removeprefix("intent ")) from None
        return done

    def _otherwise(
        self,
        made: Sequence[GoldCall],
        numbers: Sequence[int],
        rows: Sequence[Any],
        values: Mapping[str, Any],
        where: str,
    ) -> tuple[GoldCall, ...]:
        """The gold path with one request settled in another way."""
        before, after = made[: numbers[0]], made[numbers[-1] + 1 :]
        with self.bench.session() as session:
            for earlier in before:
                self.bench.call(session, earlier)
            other = [called.action for called in self._run(session, rows, values, f"{where}.otherwise")]
        return (*before, *other, *after)

    def _worded(self, part: Mapping[str, Any], split: str) -> Mapping[str, Any]:
        """A request with the wordings of a split."""
        said = {**part, "say": self._wordings(part["say"], split)}
        if first := part.get("first"):
            said["first"] = {**first, **{key: self._wordings(first[key], split) for key in ("say", "then")}}
        return said

    def _wordings(self, say: Sequence[str], split: str) -> Sequence[str]:
        """A request's wordings: the last of three or more is said in tests alone, and the others never there. Intents
        that are held out are said nowhere else, so all of theirs may be."""
        if split == HELD_OUT or len(say) < LEAST_WORDINGS:
            return say
        return say[-1:] if split == TEST else say[:-1]

    def _joined(self, more: Sequence[str]) -> list[str]:
        """The requests after the first, each behind words that join it to the one before. Only the last is said to be
        the final one."""
        joints = [self.rng.choice(JOINTS) for _ in more]
        joints[:-1] = [JOINTS[1] if joint == FINAL else joint for joint in joints[:-1]]
        return [joint + said for joint, said in zip(joints, more, strict=True)]

    def _scenario(
        self, way: Mapping[str, Any], values: Mapping[str, Any], requests: list[Any], intents: Sequence[Any]
    ) -> Shape:
        said = [self.rng.choice(request.get("first", request)["say"]) for request in requests]
        reason = " ".join([said[0], *self._joined(said[1:])])
        facts = [*_facts(way["facts"], values), *(f for r in requests for f in r["facts"])]
        known = "; ".join(dict.fromkeys(f"your {f['label']} is {f['value']}" for f in facts if f.get("value")))
        unknown = "; ".join(dict.fromkeys(f"your {f['label']}" for f in facts + _facts(way.get("unknown", []), values)
                                          if not f.get("value")))  # fmt: skip
        extra = [intent["instructions"] for intent in intents if intent.get("instructions")]
        extra += [f"If a request is refused, object once: {r['pushback']!r}" for r in requests if r.get("pushback")]
        taken_back = [r["first"] for r in requests if "first" in r]
        extra += [TAKES_BACK[first["kind"]].format(then=first["then"][0]) for first in taken_back]
        persona = self.rng.choice(self.spec.head["personas"])
        first = "Ask for one thing at a time, in the order given." if len(requests) > 1 else "You want this one thing."
        return {
            "persona": persona,
            "instructions": {
                "domain": self.spec.name,
                "reason_for_call": reason,
                "known_info": f"You know this: {known}." if known else None,
                "unknown_info": f"You do not know {unknown}." if unknown else None,
                "task_instructions": " ".join(
                    [first, *extra, "Confirm what you asked for, then end the conversation."]
                ),
            },
        }


def _shape(scenario: Shape, made: Sequence[GoldCall], requests: Sequence[Shape]) -> Shape:
    """What tau2's Task has of a task."""
    return {
        "id": "",
        "description": {"purpose": ", ".join(r["intent"].replace("_", " ") for r in requests)},
        "user_scenario": scenario,
        "initial_state": None,
        "evaluation_criteria": {
            "actions": _rows(made),
            "env_assertions": None,
            "communicate_info": list(dict.fromkeys(info for request in requests for info in request["inform"])),
            "nl_assertions": None,
            "reward_basis": ["DB", "COMMUNICATE", "ENTITIES"],
        },
    }


def _request(intent: Mapping[str, Any], values: Mapping[str, Any], numbers: list[int], told: Sequence[str]) -> Shape:
    where = f"intent {intent['intent']}"
    request = {
        "intent": intent["intent"],
        "ending": intent.get("ending", "serve"),
        "say": [text(say, values, where) for say in intent["say"]],
        "facts": [*_facts(intent.get("facts", []), values), *_facts(intent.get("unknown", []), values)],
        "actions": numbers,
        "inform": [*told, *(text(one, values, where) for one in intent.get("tell", []))],
        "pushback": text(intent.get("pushback", ""), values, where),
    }
    if first := intent.get("first"):
        words = {key: [text(say, values, where) for say in first[key]] for key in ("say", "then")}
        request["first"] = {"kind": first["kind"], **words}
    if intent.get("branch"):
        request["branch"] = intent["branch"]
    return request


def _facts(rows: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> list[Shape]:
    facts = []
    for row in rows:
        fact: Shape = {"label": row["label"], "asked": list(row["asked"])}
        if "value" in row:
            try:
                fact["value"] = text(row["value"], values, f"fact {row['label']}")
            except Rejected:  # nobody knows what is NULL
                continue
        facts.append(fact)
    return facts


def _rows(path: Sequence[GoldCall]) -> list[Shape]:
    return [
        {"action_id": f"a{n}", "requestor": "assistant", "name": a.name, "arguments": dict(a.arguments), "info": None}
        for n, a in enumerate(path)
    ]
