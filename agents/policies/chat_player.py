"""A model behind an endpoint as the orchestrator, with the environment's own observation or the reference's prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.agents.policies.base import Move, PlayerOptions
from toolorchestra.envs.base.types import Message, Transcript
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.domains.source import models_of
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models import ChatModel, ChatRequest, ask
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN, ORCHESTRATOR
from toolorchestra.envs.tools.question_material import QuestionMaterial

Cut = Callable[[str, int], str]
"""The last so many tokens of a text."""
SYSTEM = "You are good at using tools."
OUTPUTS = "\npython code and execution outputs:\n"
RESULT_TOKENS = 12_000
SEARCHING = ("search", "web_search", "local_search")


def last_characters(text: str, tokens: int) -> str:
    """The last tokens, where nobody names a tokenizer: of four characters each."""
    return text[-tokens * CHARACTERS_PER_TOKEN :] if tokens > 0 else ""


class ChatPolicy:
    """A model behind an endpoint as the orchestrator: it sees what the agent may see, and is billed as the agent."""

    simulated = False

    def __init__(self, models: ChatModel, model: str, *, reference: Cut | None = None, name: str = "chat") -> None:
        self._models, self._model, self._reference, self.name = models, model, reference, name

    async def __call__(self, episode: Episode) -> Move:
        messages, tools = self._shown(episode)
        request = ChatRequest(
            self._model,
            "move",
            messages,
            episode.context.seed,
            episode.turn,
            tools=tools,
            images=episode.world.question.images if isinstance(episode.world, QaWorld) else (),
            role=ORCHESTRATOR,
            bill=episode.context.bill,
        )
        done = await ask(self._models, request)
        return Move(done.text, None)  # what it used stands on the episode's bill

    move = __call__

    def _shown(self, episode: Episode) -> tuple[Transcript, Sequence[Mapping[str, Any]]]:
        """The messages and tools that the model is given."""
        seen = episode.observation
        if self._reference is None or not isinstance(episode.world, QaWorld):
            return tuple(seen["messages"]), seen["tools"]
        form = form_of(episode.task_id)
        return form.messages(episode.world, self._reference), form.offered(episode.world, seen["tools"])


CHAT, REFERENCE = "chat", "chat:reference"
NAMED = "chat:"
"""The beginning of a policy whose end names a model, which plays in place of the environment's orchestrator."""
NO_ENDPOINT = "policy 'chat' asks a model: name its endpoint in a file, backends=FILE for gym.make"


def chat_refusal(name: str, factory: EpisodeFactory) -> str:
    """Why no model can play here, or ""."""
    backing = getattr(factory.source, "backing", None)
    if backing is None or backing.wanted.endpoints is None:
        return NO_ENDPOINT
    if (model := model_of(name)) and model != factory.settings.orchestrator:
        return f"policy {name!r} plays where orchestrator={model!r}, and here it is {factory.settings.orchestrator!r}"
    if name == REFERENCE and not isinstance(factory.source, QaSource):
        return f"the reference's prompt is one of questions, and {factory.source.name} asks none; take policy {CHAT!r}"
    return ""


def model_of(name: str) -> str:
    """The model that a policy chat:MODEL names; "" for any other."""
    return name.removeprefix(NAMED) if name.startswith(NAMED) and name != REFERENCE else ""


def chat_player(name: str, factory: EpisodeFactory, options: PlayerOptions) -> ChatPolicy:
    """The environment's orchestrator model, asked through the source's own backends. Where chat_refusal() says why it
    cannot be, there is none."""
    models = models_of(factory.source)
    assert models is not None
    cut = _cut(options.tokenizer) if name == REFERENCE else None
    return ChatPolicy(models(), factory.settings.orchestrator, reference=cut, name=name)


def _cut(tokenizer: str) -> Cut:
    if not tokenizer:
        return last_characters
    from toolorchestra.agents.engines.pretrained import last_tokens

    return last_tokens(tokenizer)


# -- the reference's prompt --------------------------------------------------------------------------------------------
#
# From NVlabs/ToolOrchestra, evaluation/eval_hle.py and evaluation/eval_frames.py, which the released model knows: a
# prompt that is built anew at each turn of the problem, the documents and the outputs; nothing of earlier turns. A test
# holds the wording. Two things differ: programs are not shown, only what they printed, since the environment does not
# keep them; and nobody's answers are, since there an answer ends the task.


@dataclass(frozen=True)
class ReferenceForm:
    """What differs between the reference's two evaluations."""

    document: str
    """How a document is shown."""
    document_characters: int
    total_tokens: int
    """Tokens of documents and outputs together, from their end."""
    less_problem: bool
    """Whether the problem's own tokens go off that."""
    always_heads_outputs: bool
    """Whether the line above the outputs stands there when there are none."""
    request: str
    searches_once: bool
    """Whether search is no longer offered once there are documents."""

    def messages(self, material: QuestionMaterial, cut: Cut) -> Transcript:
        """The prompt of one turn."""
        problem = material.question.text
        asked = f"Problem: {problem}\n\n{self._context(material, cut)}\n\n{self.request}"
        return (Message(role="system", content=SYSTEM), Message(role="user", content=asked))

    def offered(self, material: QuestionMaterial, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The tools of one turn."""
        if not (self.searches_once and material.documents):
            return tools
        return [tool for tool in tools if tool["function"]["name"] not in SEARCHING]

    def _context(self, material: QuestionMaterial, cut: Cut) -> str:
        shown = (f"{p.title}\n{p.text}"[: self.document_characters] for p in material.documents)
        documents = "".join(self.document.format(number, text) for number, text in enumerate(shown, 1))
        outputs = "".join(f"```output\n{result}\n```\n\n" for result in material.results)
        kept = cut(outputs, RESULT_TOKENS)
        if kept and not kept.startswith("```"):
            kept = f"```\n{kept}"
        most = self.total_tokens
        if self.less_problem:
            most -= _count(material.question.text, cut, most)
        if cut(kept, most) != kept:
            return kept  # outputs that fill it all leave no room for documents
        head = OUTPUTS if kept or self.always_heads_outputs else ""
        found = cut(f"{documents}{head}{kept}", most)
        return f"Documents:\n{found}" if documents else found


def _count(text: str, cut: Cut, most: int) -> int:
    """The tokens of a text, by the cut that leaves it whole; `most` at most."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cut(text, middle) == text else (middle + 1, high)
    return low


HLE_FORM = ReferenceForm("Doc {}: {} ...\n\n", 1_200, 27_000, True, False, "Choose an appropriate tool.'", False)
"""Form with the quotation mark that the reference's request ends in."""
FRAMES_FORM = ReferenceForm("Doc {}: {}\n\n", 4_000, 24_000, False, True, "Choose an appropriate tool.", True)


def form_of(task_id: str) -> ReferenceForm:
    """The evaluation that asks such questions; of others the first."""
    return FRAMES_FORM if task_id.startswith("frames") else HLE_FORM
