"""What an episode was to be expected to come to, where simulated experts answered: what training learns from in place
of what was drawn.

The chance of a right answer follows from all that programs printed, on average over what nobody can see: how hard the
question is beyond its level, and how it suits whom. These are the same in each call of an episode. So where one program
fails the next one is likely to fail, and so is the answer. Two experts who print the same number say more than one who
prints it twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from toolorchestra.agents.policies.plans import question_world
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.base.types import Question, ToolCall
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import Purpose
from toolorchestra.envs.models.simulated import NODES, SHARES, Numbers, Skill, facts_in
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES, Tokens
from toolorchestra.envs.tools.code import PRINTED
from toolorchestra.envs.tools.question_material import gathered

PURPOSES: Mapping[str, Purpose] = {"search": "query", "enhance_reasoning": "code", "answer": "answer", "ask": "answer"}
"""What experts write for each kind of tool."""


class WrittenProgram(NamedTuple):
    """A program that an expert wrote."""

    writer: Skill
    printed: str
    """What it printed, "" for nothing."""
    informed: bool
    """Whether all facts were shown to who wrote it; without them no program is right but by chance."""


def expected_chance(episode: Episode, call: ToolCall) -> float | None:
    """How likely this call's answer is right. None where no simulated expert answers."""
    world = question_world(episode)
    tool = world.toolbox.of_kind("answer")
    offers = tool.offers if tool is not None and tool.name == call.name else ()
    skill = next((world.skills.get(o.model) for o in offers if o.alias == call.arguments.get("model")), None)
    if skill is None:
        return None
    facts = facts_in(world.question, gathered(world))
    if facts < 1.0:
        chance = skill.answer_chance(world.question, facts, "")
    else:
        chance = _chance(skill, world.question, list(programs_run(episode)) if world.question.computable else [])
    return (1 - skill.law.refusals) * chance


def expected_bill(episode: Episode) -> tuple[float, float]:
    """Dollars and seconds of the calls that an episode made, with what each expert's reply takes in the mean in place
    of what it took."""
    world = question_world(episode)
    purposes = {
        offer.alias: PURPOSES[tool.kind] for tool in world.toolbox if tool.kind in PURPOSES for offer in tool.offers
    }
    nano = seconds = 0.0
    for charge in episode.ledger:
        used, purpose, skill = charge.usage, purposes.get(charge.tool), world.skills.get(charge.usage.item)
        if purpose and skill and used.tokens.output:
            tokens = Tokens(used.tokens.input, 0, round(skill.output_tokens[purpose]))
            nano += episode.sheet.price(used.item).nano_usd(used._replace(tokens=tokens))
            seconds += skill.seconds[purpose]
        else:
            nano += charge.nano_usd if charge.role in REWARDED_ROLES else 0
            seconds += charge.seconds
    return nano / NANO, seconds


def _chance(answerer: Skill, question: Question, programs: Sequence[WrittenProgram]) -> float:
    """How likely an answer is right that has all facts, after these programs."""
    printed = [program.printed for program in programs if program.printed]
    wrong_ones = max(1, len(question.decoys))
    possible = dict.fromkeys(printed, 1) | {"": max(0, wrong_ones + 1 - len(set(printed)))}
    right = total = 0.0
    for result, count in possible.items():
        whole, own = SHARES[:, None], np.ones((len(NODES), len(NODES)))
        for writer in dict.fromkeys(program.writer.name for program in programs):
            likely = np.ones((len(NODES), len(NODES)))
            for program in programs:
                if program.writer.name == writer:
                    likely = likely * _likelihood(program, question, result, wrong_ones)
            if writer == answerer.name:
                own = likely
            else:
                whole = whole * (likely @ SHARES)[:, None]
        state = ("right" if printed[-1] == result else "wrong") if printed else ""
        weights = count * whole * own * SHARES
        right += float((weights * answerer.chances(question, state)).sum())
        total += float(weights.sum())
    return right / total if total else 0.0


def _likelihood(program: WrittenProgram, question: Question, result: str, wrong_ones: int) -> Numbers | float:
    """How likely a program prints what it printed, were this the right result. Of programs that do not work half print
    something wrong and half print nothing."""
    works = program.writer.chances(question, None) if program.informed else 0.0
    if program.printed and program.printed == result:
        return works
    return (1 - works) / 2 / (wrong_ones if program.printed else 1)


def programs_run(episode: Episode) -> Iterator[WrittenProgram]:
    """The programs that simulated experts wrote so far, in their order."""
    world = question_world(episode)
    tool = world.toolbox.of_kind("enhance_reasoning")
    writers = {offer.alias: world.skills.get(offer.model) for offer in tool.offers} if tool is not None else {}
    shown, found, calls = 0, len(world.question.attached), list[ToolCall]()
    for message in episode.messages:
        text = str(message["content"])
        if message["role"] == "assistant":
            calls, shown = _calls_of(text), found
        elif message["role"] == "tool" and calls:
            call = calls.pop(0)
            while found < len(world.documents) and world.documents[found].title in text:
                found += 1
            writer = writers.get(str(call.arguments.get("model")))
            if tool is not None and call.name == tool.name and writer is not None:
                printed = text.removeprefix(PRINTED).partition("\n")[0] if text.startswith(PRINTED) else ""
                yield WrittenProgram(writer, printed, _informed(world, shown))


def _informed(world: QaWorld, documents: int) -> bool:
    return facts_in(world.question, "\n".join(passage.text for passage in world.documents[:documents])) == 1.0


def _calls_of(said: str) -> list[ToolCall]:
    """The calls of a turn; none where it cannot be read."""
    try:
        return list(parse(said).calls)
    except ActionError:
        return []
