"""An episode as text for people: the transcript with the running bill, plain or in colour."""

from __future__ import annotations

from toolorchestra.envs.base.types import Message
from toolorchestra.envs.episode.episode import Episode, Step

_COLOURS = {"system": "90", "user": "36", "assistant": "32", "tool": "33", "bill": "35"}
# What a tool returns may not steer a terminal.
_CONTROL = {c: f"\\x{c:02x}" for c in [*range(32), *range(127, 160)] if c not in (9, 10)}
LONGEST = 1200


def _paint(kind: str, text: str, colour: bool) -> str:
    return f"\033[{_COLOURS.get(kind, '0')}m{text}\033[0m" if colour else text


def _message(message: Message, colour: bool) -> str:
    # The name too: an unknown tool's is whatever the assistant wrote.
    who = message["role"] + (f" {message['name']}".translate(_CONTROL) if "name" in message else "")
    content = message["content"].translate(_CONTROL)
    if len(content) > LONGEST:
        content = f"{content[:LONGEST]}… ({len(content) - LONGEST} more characters)"
    return _paint(message["role"], f"[{who}]", colour) + f" {content}"


def bill(episode: Episode) -> str:
    """The running bill in one line."""
    ledger = episode.ledger
    roles = ", ".join(f"{role} {usd * 100:.4f}" for role, usd in ledger.usd_by_role().items())
    return (
        f"bill after turn {episode.turn}: {ledger.usd * 100:.4f} ¢ ({roles or 'nothing yet'}), {ledger.seconds:.1f} s"
    )


def opening(episode: Episode, *, colour: bool = False) -> str:
    """Task, tools and first messages."""
    tools = ", ".join(t.name for t in episode.world.toolbox)
    head = _paint("bill", f"task {episode.task_id}; tools: {tools}; prices: {episode.sheet.sheet_id}", colour)
    return "\n".join([head, *(_message(m, colour) for m in episode.messages)])


def turn(episode: Episode, step: Step, *, colour: bool = False) -> str:
    """What one step added, and the bill after it."""
    lines = [_message(m, colour) for m in step.info["new_messages"]]
    lines.append(_paint("bill", bill(episode), colour))
    if step.terminated or step.truncated:
        lines.append(_paint("bill", verdict(episode, step), colour))
    return "\n".join(lines)


def verdict(episode: Episode, step: Step) -> str:
    """How it ended."""
    if episode.failure:
        return f"FAILED in {episode.failure.where}: {episode.failure.error}".translate(_CONTROL)
    how = f"cut off by {step.info['truncated_by']}" if step.truncated else "done"
    outcome = step.info["outcome"]
    return f"{how}: outcome {outcome['value']:g}, {dict(outcome['evidence'])}"


def transcript(episode: Episode) -> str:
    """The whole episode so far, plain."""
    lines = [_message(m, False) for m in episode.messages]
    return "\n".join([*lines, bill(episode)])
