"""An episode as text for people: the transcript with the running bill, plain or in colour."""

from __future__ import annotations

from toolorchestra.envs.base.errors import spelled
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.episode.episode import Episode, Step

_COLOURS = {"system": "90", "user": "36", "assistant": "32", "tool": "33", "bill": "35"}
LONGEST = 1200


def _paint(kind: str, text: str, colour: bool) -> str:
    return f"\033[{_COLOURS.get(kind, '0')}m{text}\033[0m" if colour else text


def _message(message: Message, colour: bool, longest: int | None = LONGEST) -> str:
    # The name too: an unknown tool's is whatever the assistant wrote.
    who = message["role"] + (f" {spelled(message['name'])}" if "name" in message else "")
    content = spelled(message["content"])
    if longest is not None and len(content) > longest:
        content = f"{content[:longest]}… ({len(content) - longest} more characters)"
    return _paint(message["role"], f"[{who}]", colour) + f" {content}"


def bill(episode: Episode) -> str:
    """The running bill in one line."""
    ledger = episode.ledger
    roles = ", ".join(f"{role} {usd * 100:.4f}" for role, usd in ledger.usd_by_role().items())
    return (
        f"bill after turn {episode.turn}: {ledger.usd * 100:.4f} ¢ ({roles or 'nothing yet'}), {ledger.seconds:.1f} s"
    )


def opening(episode: Episode, *, colour: bool = False, longest: int | None = LONGEST) -> str:
    """Task, tools and first messages, each cut behind `longest` characters; None cuts none."""
    tools = ", ".join(t.name for t in episode.world.toolbox)
    head = spelled(f"task {episode.task_id}; tools: {tools}; prices: {episode.sheet.sheet_id}")
    return "\n".join([_paint("bill", head, colour), *(_message(m, colour, longest) for m in episode.messages)])


def turn(episode: Episode, step: Step, *, colour: bool = False, longest: int | None = LONGEST) -> str:
    """What one step added, and the bill after it."""
    lines = [_message(m, colour, longest) for m in step.info["new_messages"]]
    lines.append(_paint("bill", bill(episode), colour))
    if step.terminated or step.truncated:
        lines.append(_paint("bill", verdict(episode, step), colour))
    return "\n".join(lines)


def verdict(episode: Episode, step: Step) -> str:
    """How an episode ended, in one line: failed, cut off or done, and with which outcome."""
    if episode.failure:
        return spelled(f"FAILED in {episode.failure.where}: {episode.failure.error}")
    how = f"cut off by {step.info['truncated_by']}" if step.truncated else "done"
    outcome = step.info["outcome"]
    return spelled(f"{how}: outcome {outcome['value']:g}, {dict(outcome['evidence'])}")


def transcript(episode: Episode) -> str:
    """The whole episode so far, plain."""
    lines = [_message(m, False) for m in episode.messages]
    return "\n".join([*lines, bill(episode)])
