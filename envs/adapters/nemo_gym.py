"""NeMo Gym's resource servers: a cookie is a session. Each call is a request, as its simple_agent and verifiers send
them, or each turn, as its gymnasium_agent does. docs/trainers.md"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from statistics import fmean
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from toolorchestra.envs.adapters.remote_episodes import (
    ENDED,
    RemoteEpisode,
    RemoteEpisodes,
    SessionError,
    answers,
    shown,
)
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.openai_messages import action_of
from toolorchestra.envs.base.types import Observation

COOKIE = "toolorchestra_session"
MOST_ROWS = 10_000
_SIBLING = "_ng_rollout_index"
"""Where NeMo Gym's rows say which repetition of a task this is."""
Handler = Callable[[Request, Mapping[str, Any]], Awaitable[Response]]


class ResourceServer:
    """The requests of NeMo Gym's clients, over the store of episodes."""

    def __init__(self, episodes: RemoteEpisodes) -> None:
        self._episodes = episodes

    def posts(self) -> dict[str, Handler]:
        """The handlers of what is posted, by path; the last takes all other paths for names of tools."""
        named = {"/seed_session": self._seed, "/verify": self._verify, "/reset": self._reset, "/step": self._step}
        return {**named, "/aggregate_metrics": _aggregated, "/{tool}": self._call}

    async def rows(self, request: Request) -> Response:
        """A data set's rows: `GET /rows?env=HLE-v0&tasks=64&seed=0&options={"luck": 1}`."""
        asked = request.query_params
        try:
            first, tasks = int(asked.get("seed", 0)), int(asked.get("tasks", 1))
            options = json.loads(asked.get("options", "{}"))
        except ValueError as err:
            raise ConfigError(f"seed and tasks are whole numbers, options is JSON: {err}") from None
        if not 0 < tasks <= MOST_ROWS:
            raise ConfigError(f"tasks: 1 to {MOST_ROWS:,} expected, got {tasks}")
        rows = []
        for seed in range(first, first + tasks):
            await asyncio.sleep(0)  # rollouts are played meanwhile
            row = {"env": asked.get("env") or next(iter(self._episodes.factories)), "seed": seed, "options": options}
            started = self._episodes.begun(row)[1]
            if started.episode.opening:
                raise ConfigError(f"{row['env']}: its user speaks first; play it by OpenEnv's protocol")
            rows.append(json.dumps({"responses_create_params": _asked(started.observation), **row,
                                    "digest": _digest(started.observation)}))  # fmt: skip
        return PlainTextResponse("".join(f"{row}\n" for row in rows), media_type="application/jsonl")

    async def _started(self, body: Mapping[str, Any]) -> RemoteEpisode:
        """A session for a row. The repetitions of a task have each their own luck, as siblings of a group have."""
        options = body.get("options") or {}
        if body.get(_SIBLING) and isinstance(options, Mapping):
            options = {"luck": body[_SIBLING], **options}
        one = await self._episodes.start({"env": body.get("env"), "seed": body.get("seed"), "options": options})
        if body.get("digest") not in (None, _digest(one.observation)):
            self._episodes.end(one, "reset")
            raise ConfigError(
                "the row's prompt is not this episode's: other arguments, or another version; get /rows anew"
            )
        return one

    async def _seed(self, _request: Request, body: Mapping[str, Any]) -> Response:
        return _with(await self._started(body), JSONResponse({}))

    def _live(self, request: Request) -> RemoteEpisode:
        session = request.cookies.get(COOKIE, "")
        account = self._episodes.account(session)
        if session not in self._episodes.live:
            raise SessionError(409, ENDED, account)
        return self._episodes.live[session]

    async def _call(self, request: Request, body: Mapping[str, Any]) -> Response:
        """A call is a turn, and its answer the tool's."""
        one = self._live(request)
        step = await self._episodes.play(one, action_of([(request.path_params["tool"], body)]))
        said = [message["content"] for message in answers(step)] + [ENDED] * (step.terminated or step.truncated)
        return _with(one, PlainTextResponse("\n\n".join(said)))

    async def _verify(self, request: Request, body: Mapping[str, Any]) -> Response:
        """Play what the agent said last, if the episode waits for it, and tell what the episode is worth. One that its
        agent left is not solved."""
        session = request.cookies.get(COOKIE, "")
        account = self._episodes.account(session)
        if any(body.get(name) != account[name] for name in ("env", "seed") if name in body):
            raise SessionError(
                409, f"this session plays {account['env']}, seed {account['seed']}, not this row", account
            )
        if (one := self._episodes.live.get(session)) is not None:
            if words := _said(_output(body), last=True):
                await self._episodes.play(one, words)
            if session in self._episodes.live:
                one.account["truncated_by"] = "client"
            self._episodes.end(one, "verified")
        figures = {name: account[name] for name in ("reward", "usd", "seconds", "turns", "tool_calls")}
        figures |= {f"usd_{role}": usd for role, usd in account["usd_by_role"].items()}
        figures["outcome"] = account["outcome"]["value"] if account["outcome"] else 0.0
        return JSONResponse({**body, **figures, "bill": account})

    async def _reset(self, _request: Request, body: Mapping[str, Any]) -> Response:
        if "responses_create_params" not in body:
            raise ConfigError("a row of NeMo Gym's has responses_create_params; OpenEnv's clients play at /ws")
        one = await self._started(body)
        return _with(one, JSONResponse({"observation": None, "info": {**one.told, "bill": one.account}}))

    async def _step(self, request: Request, body: Mapping[str, Any]) -> Response:
        one, output = self._live(request), _output(body)
        calls = [item for item in output if item.get("type") == "function_call"]
        words = _said(output)
        action = action_of([(call.get("name"), call.get("arguments")) for call in calls], words) if calls else words
        step = await self._episodes.play(one, action, (body.get("response") or {}).get("usage"))
        heard = answers(step)
        results = [message["content"] for message in heard if message["role"] == "tool"]
        # A turn that cannot be read has one complaint, and each call needs an answer.
        results += results[-1:] * (len(calls) - len(results))
        outputs = [dict(call_id=call["call_id"], output=result) for call, result in zip(calls, results, strict=False)]
        others = [message["content"] for message in heard if message["role"] != "tool" or not calls]
        made = {"observation": "\n\n".join(others) or None, "reward": step.reward}
        made |= {"terminated": step.terminated, "truncated": step.truncated}
        return _with(one, JSONResponse({**made, "info": {"tool_outputs": outputs, "bill": one.account}}))


def _asked(observation: Observation) -> dict[str, Any]:
    """The first observation as a request of OpenAI's Responses. Each call is a turn, so they come one at a time."""
    seen = shown(observation)
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in seen["tools"]]
    said = [{"role": one["role"], "content": one["content"]} for one in seen["messages"]]
    return {"input": said, "tools": tools, "parallel_tool_calls": False}


def _digest(observation: Observation) -> str:
    return hashlib.sha256(json.dumps(_asked(observation), sort_keys=True).encode()).hexdigest()[:16]


def _output(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    response = body.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    return [item for item in output or () if isinstance(item, dict)]


def _said(output: list[dict[str, Any]], *, last: bool = False) -> str:
    """The agent's words; with `last`, those behind the last call alone."""
    if last:
        ends = [place for place, item in enumerate(output, 1) if str(item.get("type")).startswith("function_call")]
        output = output[max(ends, default=0) :]
    parts: list[Any] = []
    for item in output:
        if item.get("type", "message") == "message" and item.get("role") == "assistant":
            content = item.get("content") or ()
            parts += [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
    return "".join(parts)


async def _aggregated(_request: Request, body: Mapping[str, Any]) -> Response:
    """The means of what the rollouts were told."""
    found: dict[str, list[float]] = {}
    for row in body.get("verify_responses") or ():
        for name, value in row.items():
            if isinstance(value, int | float) and name[0] != "_" and name != "seed":
                found.setdefault(f"mean/{name}", []).append(float(value))
    means = {name: fmean(values) for name, values in found.items()}
    key = {name: means[name] for name in ("mean/reward", "mean/outcome", "mean/usd") if name in means}
    return JSONResponse({"group_level_metrics": [], "agent_metrics": means, "key_metrics": key})


def _with(one: RemoteEpisode, response: Response) -> Response:
    """A reply that says the session again: clients keep the cookies of the last reply alone."""
    response.set_cookie(COOKIE, one.session, httponly=True)
    return response
