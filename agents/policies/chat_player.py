"""A model behind an endpoint as the orchestrator, with the environment's own observation or the reference's prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.policies.base import Move, PlayerOptions
from toolorchestra.agents.policies.reference_prompt import Cut, form_of, last_characters
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Transcript
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models import ChatModel, ChatRequest, ask
from toolorchestra.envs.money.prices import ORCHESTRATOR


class ChatPolicy:
    """A model behind an endpoint as the orchestrator: it sees what the agent may see, and is billed as the agent."""

    simulated = False

    def __init__(
        self, models: ChatModel, model: str, *, reference: Cut | None = None, name: str = "chat", stream: bool = False
    ) -> None:
        self._models, self._model, self._reference, self.name = models, model, reference, name
        self._stream = stream

    async def __call__(self, episode: Episode) -> Move:
        messages, tools = self._shown(episode)
        request = ChatRequest(
            self._model,
            "move",
            messages,
            episode.context.seed,
            episode.turn,
            tools=tools,
            role=ORCHESTRATOR,
            bill=episode.context.bill,
            stream=self._stream,
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


NO_ENDPOINT = "policy 'chat' asks a model: name its endpoint in a file, backends=FILE for gym.make"


def chat_refusal(factory: EpisodeFactory, options: PlayerOptions) -> str:
    """Why no model can play here, or ""."""
    backing = getattr(factory.source, "backing", None)
    if backing is None or backing.wanted.endpoints is None:
        return NO_ENDPOINT
    if options.prompt == "reference" and not isinstance(factory.source, QaSource):
        return f"the reference's prompt is one of questions, and {factory.source.name} asks none; take prompt=plain"
    return ""


def chat_player(name: str, factory: EpisodeFactory, options: PlayerOptions) -> ChatPolicy:
    """The environment's orchestrator model, asked through the source's own backends."""
    if refused := chat_refusal(factory, options):
        raise ConfigError(refused, command_line="--backends FILE" if refused == NO_ENDPOINT else "")
    source: Any = factory.source
    behind = getattr(source, "behind", None)  # of question sources, with what was put around it
    models = behind.models if behind else source.backing.models
    cut = _cut(options.tokenizer) if options.prompt == "reference" else None
    return ChatPolicy(models, factory.settings.orchestrator, reference=cut, name=name, stream=options.stream)


def _cut(tokenizer: str) -> Cut:
    if not tokenizer:
        return last_characters
    from toolorchestra.agents.engines.pretrained import last_tokens

    return last_tokens(tokenizer)
