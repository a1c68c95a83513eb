"""A call that an episode asks for, what came of it, and how a failure is told."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import WrongSetting
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.tools import Tool, ToolContext, ToolResult


class ReadyCall(NamedTuple):
    """A checked call that a driver has to run."""

    tool: Tool
    arguments: dict[str, Any]
    context: ToolContext


class Failure(NamedTuple):
    """A bug or an outage: neither the agent's doing nor a result. Its episode is marked, never scored."""

    where: str
    error: str
    traceback: str
    setting: str = ""
    """What a backend says is wrong with its settings, where that is the cause: every other episode would fail by it."""

    @property
    def told(self) -> dict[str, str]:
        """The failure as a dict, as it stands in `info["failed"]`."""
        return {"where": self.where, "error": self.error, "traceback": self.traceback}


def error_text(err: BaseException) -> str:
    """Text of an exception, also of one whose own code for it is wrong."""
    try:
        return str(err)
    except Exception as worse:  # noqa: BLE001 - whatever it is, the first exception is the one to be told
        return f"its str() raises {type(worse).__name__}"


def failure(where: str, err: BaseException) -> Failure:
    """Makes a Failure of an exception; `where` says which part of the episode raised it."""
    said = error_text(err)
    setting = said if isinstance(err, WrongSetting) else ""
    return Failure(where, f"{type(err).__name__}: {said}", "".join(traceback.format_exception(err)), setting)


def unreadable(where: str, content: object) -> Failure | None:
    """A result that is no text, if it is none."""
    if isinstance(content, str):
        return None
    return Failure(where, f"TypeError: a result's content is text, got {type(content).__name__}", "")


class FailureGuard:
    """`with FailureGuard("grade") as guard:` keeps an exception of the world's code as `guard.failure`, so that it ends
    one episode and not the batch that it is in."""

    __slots__ = ("failure", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.failure: Failure | None = None

    def __enter__(self) -> FailureGuard:
        return self

    def __exit__(self, kind: object, err: BaseException | None, trace: object) -> bool:
        if not isinstance(err, Exception):
            return False
        self.failure = failure(self.where, err)
        return True


class CallResult(NamedTuple):
    """What came of a call: a result (of a refusal too), or a failure."""

    result: ToolResult
    refused: bool = False
    failure: Failure | None = None
    booked: tuple[Usage, ...] = ()
    """What the call used. The spend cap has counted it."""
