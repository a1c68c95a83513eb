"""verifiers: every environment as a taskset that `vf-eval` evaluates and prime-rl trains on.

verifiers listens between a harness and the model; the harness here plays an episode. See docs/trainers.md.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from gymnasium.utils.seeding import np_random

from toolorchestra.envs.adapters import account_of
from toolorchestra.envs.base.actions import result_as_text
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.marks import STANDARD
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import Started, factory
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.wire import text_of
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.registration import spec_of
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

try:
    import verifiers.v1 as vf
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
except ImportError as err:
    raise ImportError(f"this integration needs verifiers: pip install 'toolorchestra[verifiers]' ({err})") from err


class ToolOrchestraConfig(vf.TasksetConfig):
    environment: str = "FRAMES-v0"
    """FRAMES-v0, HLE-v0, ToolScale-v0, Tau2-v0, or an id of your own as "module:id"."""
    arguments: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Arguments of gym.make: split, preference, prices, max_turns, reward, ..."""
    options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Options of each reset: tools, budget, ..."""
    first_seed: int = 0
    """A task for each seed from here on, without end: vf-eval takes -n of them."""


class ToolOrchestraData(vf.TaskData):
    environment: str
    arguments: dict[str, Any]
    options: dict[str, Any]
    seed: int

    def start(self) -> Started:
        """Start as gym.make(environment, **arguments).reset(seed=seed, options=options) does."""
        if "source" not in (registered := spec_of(self.environment).kwargs):
            raise ConfigError(f"{self.environment!r} is over no task source; see envs.registration.register")
        return factory(**registered | self.arguments).start(int(np_random(self.seed)[0].integers(2**62)), self.options)


class ToolOrchestraTask(vf.Task[ToolOrchestraData]):
    """One seed. The harness leaves its account on the trace, under info["toolorchestra"]."""

    @vf.reward
    async def episode_reward(self, trace: vf.Trace) -> float:
        """The environment's. An episode that verifiers' own limits of turns or tokens cut off is not solved."""
        if trace.is_timeout:
            raise RuntimeError("the time limit ran out; any server may be the cause, so this is no result")
        return float(trace.info["toolorchestra"]["reward"])

    @vf.metric
    async def bill(self, trace: vf.Trace) -> dict[str, float]:
        account = trace.info["toolorchestra"]
        made = {name: account[name] for name in ("usd", "seconds", "turns", "tool_calls")}
        made |= {f"usd_{role}": usd for role, usd in account["usd_by_role"].items()}
        return made | {"outcome": account["outcome"]["value"] if account["outcome"] else 0.0}


class ToolOrchestraTaskset(vf.Taskset[ToolOrchestraTask, ToolOrchestraConfig]):
    INFINITE = True

    def load(self) -> Iterator[ToolOrchestraTask]:
        made = self.config.model_dump(include={"environment", "arguments", "options"})
        for seed in itertools.count(self.config.first_seed):
            bare = ToolOrchestraData(**made, seed=seed, name=f"{self.config.environment}#{seed}")
            _, observation, info = bare.start()
            system, *prompt = to_openai(observation["messages"])
            shown = {"system_prompt": system["content"], "prompt": prompt, "description": info["task_id"]}
            yield ToolOrchestraTask(ToolOrchestraData(**bare.model_dump() | shown), self.config.task)


class ToolOrchestraHarness(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = NEEDS_CONTAINER = False  # the environment runs its own tools
    _gates: ClassVar[WeakKeyDictionary[Any, Gates]] = WeakKeyDictionary()  # of each event loop

    async def launch(self, ctx: Any, trace: Any, _box: Any, endpoint: str, secret: str, _tools: Any, data: Any) -> Any:
        (episode, _, told), gates = data.start(), self._gates.setdefault(asyncio.get_running_loop(), Gates())
        observation = await begin(episode, gates)
        account = trace.info["toolorchestra"] = told | account_of(episode, 0.0)
        messages, tools = to_openai(observation["messages"]), STANDARD.schemas(observation["tools"])
        messages[0]["content"] = data.system_prompt or messages[0]["content"]  # it may be set from outside
        http = DefaultAsyncHttpxClient(verify=endpoint.startswith("https"))  # reading certificates is slow
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=http, timeout=None) as client:
            while not episode.over:
                body = {"messages": messages, "tools": tools} if tools else {"messages": messages}  # as it is: quicker
                reply = await client.chat.completions.create(model=ctx.model, messages=(), extra_body=body)
                said = {"content": "", **reply.choices[0].message.model_dump(exclude_none=True)}
                text = text_of({"choices": [{"message": said}]}, ChatRequest("", "move", ()))
                step = await advance(episode, text, gates, usage_of(reply, episode))
                account |= account_of(episode, account["reward"], step)
                messages += [said, *to_openai(step.info["new_messages"], said.get("tool_calls", ()))[1:]]
                if episode.rules.history == "state":  # the world tells all of it anew
                    messages[1:] = to_openai(step.observation["messages"])[1:]
        if failed := account["failed"]:
            raise RuntimeError(f"the episode failed in {failed['where']}, so it has no result: {failed['error']}")
        if by := account["truncated_by"]:
            trace.stop("max_turns" if by == "turns" else by)
        return vf.ProgramResult(0, "", "")


def to_openai(messages: Iterable[Any], calls: Iterable[Any] = ()) -> list[dict[str, Any]]:
    """The messages in OpenAI's shape. Results of native calls stand under the ids of the calls, in the same order."""
    made, waiting = [], [call["id"] for call in calls]
    for one in STANDARD.told(list(messages), spoken=True):
        if one["role"] != "tool":
            made.append(dict(one))
        elif waiting:
            made.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": one["content"]})
        else:  # of a call that stood in the text
            made.append({"role": "user", "content": result_as_text(one["content"])})
    # A turn that cannot be read gets one complaint for all its calls, and each call needs an answer.
    return made + [{**made[-1], "tool_call_id": one} for one in waiting]


def usage_of(reply: Any, episode: Episode) -> Usage | None:
    """What the policy used, by the server's count. None: the episode estimates it."""
    if not (used := vf.Usage.from_openai(reply.usage)):
        return None
    cached, thought = used.cached_input_tokens or 0, used.reasoning_tokens or 0
    tokens = Tokens(used.prompt_tokens, cached, used.completion_tokens - thought, thought)
    return Usage(episode.rules.orchestrator, ORCHESTRATOR, tokens)
