"""The benchmark's own results file, written of episodes that were played here. Its metrics, its viewer and the checker
of its leaderboard read it. The shape is that of `tau2.data_model.simulation.Results` in the package.

What nobody measured is null: the time of a message, and what a message cost alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from typing import Any

from toolorchestra.envs.domains.tau2.domain import load_domain
from toolorchestra.envs.domains.tau2.package import Release
from toolorchestra.envs.domains.tau2.users import STOPPED

_IMPLEMENTATIONS = {"none": "dummy_user", "llm": "user_simulator", "scripted": "scripted_user", "replay": "replay_user"}
"""Kinds of users, as results call them. The package tells by the first, beside the agent's, that there was no user."""
_ALONE, _AGENT = "llm_agent_solo", "toolorchestra"
_DESCRIBED = ("kind", "model", "guidelines", "recording")
"""What else a user's description holds are arguments of its model."""
_DEFAULT_BASIS = ["DB", "COMMUNICATE"]
_BARE, _PYDANTIC = "errors.pydantic.dev/", "pydantic"


@dataclass(frozen=True)
class PlayedConversation:
    """An episode as an evaluation keeps it."""

    sim_id: str
    task_id: str
    """The benchmark's own."""
    trial: int
    seed: int
    reward: float
    evidence: Mapping[str, Any]
    """The outcome's."""
    messages: Sequence[Mapping[str, Any]]
    """The conversation, as Tau2World.whole_conversation() gives them."""
    seconds: float
    agent_usd: float
    user_usd: float


@dataclass(frozen=True)
class ResultsHead:
    """What is the same for all episodes of a file."""

    domain: str
    release: Release
    begun: datetime
    """The time of the run; nobody kept when each of its episodes began."""
    revision: str
    trials: int
    seed: int | None
    model: str
    """The agent's."""
    user: Mapping[str, Any]
    """The user, as the outcome's evidence describes it."""
    max_steps: int | None
    max_errors: int | None

    @property
    def alone(self) -> bool:
        return bool(self.user["kind"] == "none")


def results(head: ResultsHead, tasks: Sequence[Mapping[str, Any]], played: Sequence[PlayedConversation]) -> Any:
    """A whole file, to be written as JSON. `tasks` are rows of the release's tasks.json."""
    by_id = {str(task["id"]): task for task in tasks}
    return {
        "timestamp": head.begun.isoformat(),
        "info": _info(head),
        "tasks": list(tasks),
        "simulations": [simulation(one, by_id[one.task_id], head.begun) for one in played],
    }


def _info(head: ResultsHead) -> dict[str, Any]:
    """A limit that was not set is 0: the format wants a number."""
    arguments = {key: value for key, value in head.user.items() if key not in _DESCRIBED}
    return {
        "git_commit": head.revision or "unknown",
        "num_trials": head.trials,
        "max_steps": head.max_steps or 0,
        "max_errors": head.max_errors or 0,
        "user_info": {
            "implementation": _IMPLEMENTATIONS[head.user["kind"]],
            "llm": head.user.get("model"),
            "llm_args": arguments or None,
            "global_simulation_guidelines": None,
        },
        "agent_info": {"implementation": _ALONE if head.alone else _AGENT, "llm": head.model, "llm_args": None},
        "environment_info": {
            "domain_name": head.domain,
            "policy": load_domain(head.domain, head.release, head.alone).policy,
            "tool_defs": None,
        },
        "seed": head.seed,
    }


def simulation(played: PlayedConversation, task: Mapping[str, Any], begun: datetime) -> dict[str, Any]:
    """One played episode as the benchmark's `SimulationRun`: times, costs, reward with its checks, messages."""
    ended = played.evidence["termination"]
    return {
        "id": played.sim_id,
        "task_id": played.task_id,
        "timestamp": begun.isoformat(),
        "start_time": begun.isoformat(),
        "end_time": (begun + timedelta(seconds=played.seconds)).isoformat(),
        "duration": played.seconds,
        "termination_reason": "max_steps" if ended == "cut_off" else ended,  # by a limit that the benchmark has not
        "agent_cost": played.agent_usd,
        "user_cost": played.user_usd,
        "reward_info": reward_info(played.reward, played.evidence, task.get("evaluation_criteria")),
        "messages": list(_messages(played.messages)),
        "trial": played.trial,
        "seed": played.seed,
    }


def reward_info(reward: float, evidence: Mapping[str, Any], criteria: Mapping[str, Any] | None) -> dict[str, Any]:
    """How an episode was graded, from its outcome's evidence and its task's criteria."""
    ended = evidence["termination"]
    if ended not in STOPPED:
        return {"reward": reward, "reward_basis": None, "info": {"note": f"ended early: {ended}"}}
    if criteria is None:
        return {"reward": reward, "reward_basis": None, "info": {"note": "no evaluation criteria"}}
    parts = evidence["parts"]
    made: dict[str, Any] = {
        "reward": reward,
        "reward_basis": criteria.get("reward_basis") or _DEFAULT_BASIS,
        "reward_breakdown": parts,
    }
    if "DB" in parts:
        made["db_check"] = {"db_match": parts["DB"] == 1.0, "db_reward": parts["DB"]}
    if evidence["user"]["kind"] == "replay":  # a recorded run may bring criteria of its own
        return made
    for name, wanted, told, check in _CHECKS:
        if told in evidence:
            pairs = zip(criteria.get(wanted) or (), evidence[told], strict=True)
            made[name] = [check(one, bool(met)) for one, met in pairs]
    return made


_CHECKS: tuple[tuple[str, str, str, Callable[[Any, bool], dict[str, Any]]], ...] = (
    ("action_checks", "actions", "actions",
     lambda one, met: {"action": one, "action_match": met, "action_reward": float(met)}),
    ("env_assertions", "env_assertions", "assertions",
     lambda one, met: {"env_assertion": one, "met": met, "reward": float(met)}),
    ("communicate_checks", "communicate_info", "communicated",
     lambda one, met: {"info": one, "met": met, "justification": ""}),
    ("nl_assertions", "nl_assertions", "judged",
     lambda one, met: {"nl_assertion": one, "met": met, "justification": ""}),
)  # fmt: skip
"""A check's name in the file, in the task's criteria and in the evidence; and its row."""


def _messages(kept: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for turn, message in enumerate(kept):
        content = message["content"]
        if message.get("error"):
            content = _with_pydantics_version(content)
        yield {**message, "content": content, "turn_idx": turn, "timestamp": None}


def _with_pydantics_version(text: str) -> str:
    """A tool's error as the package's own domain says it here: its evaluator plays the calls again and compares texts,
    and episodes keep these without the version that pydantic prints into them."""
    if _BARE not in text:
        return text
    major, minor, *_ = metadata.version(_PYDANTIC).split(".")
    return text.replace(_BARE, f"{_BARE}{major}.{minor}/")
