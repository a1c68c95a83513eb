"""What a chat template shows of a transcript, and how the rest is written so that it is shown too.

Many templates leave out what they have no form for: tools, their results, system messages. So a template is tried out,
on conversations as episodes have them; where it shows too little, the same is written as text in what it does show.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from toolorchestra.agents.engines.tiny import TERSE
from toolorchestra.envs.base.actions import OPEN, THINK, UNTHINK, result_as_text, tools_as_text
from toolorchestra.envs.base.errors import ConfigError

Told = Mapping[str, Any]
"""A message as a template is given it."""
OPENING = "(The conversation begins.)"
"""The user's first words, where a template wants some and nobody has said any."""


@dataclass(frozen=True)
class TemplateForm:
    """How a transcript is given to a template. "native" is what the template has a form of its own for."""

    tools: Literal["native", "text"] = "native"
    """"text": schemas and the grammar of calls, at the end of the system message."""
    results: Literal["native", "text"] = "native"
    """"text": those of one turn as a user's message, each in its <tool_response>."""
    system: Literal["native", "text"] = "native"
    """"text": in front of the first user's message."""
    turns: Literal["native", "alternating"] = "native"
    """"alternating": a user begins, and adjacent messages of the user are one."""
    content: Literal["native", "parts"] = "native"
    """"parts": a content is a list that holds one text."""
    thoughts: Literal["native", "opened"] = "native"
    """"opened": a thought that the prompt opens and the agent closes is opened in the past too."""

    def __str__(self) -> str:
        changed = [_CHANGES[field.name] for field in fields(self) if getattr(self, field.name) != "native"]
        if not changed:
            return "it shows tools, results and system messages by itself"
        return f"for what it does not show, {', '.join(changed)}"

    def tools_given(self, schemas: Sequence[Told]) -> tuple[Sequence[Told] | None, str]:
        """The tools for the template's own form, and those that `messages` writes."""
        return (None, tools_as_text(schemas)) if self.tools == "text" else (schemas or None, "")

    def messages(self, told: Sequence[Told], tools: str = "") -> Sequence[Told]:
        """A transcript without foreign marks, as the template is given it."""
        if self.thoughts == "opened":
            told = [_opened(message) for message in told]
        if tools:
            told = _with_system(told, tools)
        if self.results == "text":
            told = list(_results_as_user(told))
        if self.system == "text":
            told = list(_system_as_user(told))
        if self.turns == "alternating":
            told = list(_alternating(told))
        if self.content == "parts":
            told = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in told]
        return told


_CHANGES = {
    "tools": "tools are text in the system message",
    "results": "results are text of the user",
    "system": "system messages stand in front of the user's",
    "turns": "user and assistant take turns",
    "content": "contents are lists of one text",
    "thoughts": "thoughts that a prompt opens are opened in the past",
}


def _opened(message: Told) -> Told:
    before, closed, _said = message["content"].partition(UNTHINK)
    if message["role"] != "assistant" or not closed or THINK in before:
        return message
    return {**message, "content": f"{THINK}\n{message['content']}"}


def _with_system(told: Sequence[Told], text: str) -> list[Told]:
    if told and told[0]["role"] == "system":
        return [{**told[0], "content": f"{told[0]['content']}\n\n{text}"}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def _results_as_user(told: Sequence[Told]) -> Iterator[Told]:
    for is_result, run in itertools.groupby(told, lambda message: message["role"] == "tool"):
        if is_result:
            yield _user(*(result_as_text(message["content"]) for message in run), between="\n")
        else:
            yield from run


def _system_as_user(told: Sequence[Told]) -> Iterator[Told]:
    waiting: list[str] = []
    for message in told:
        if message["role"] in ("system", "user"):
            waiting.append(message["content"])
        if message["role"] == "user" or (message["role"] != "system" and waiting):
            yield _user(*waiting)
            waiting = []
        if message["role"] not in ("system", "user"):
            yield message
    if waiting:
        yield _user(*waiting)


def _alternating(told: Sequence[Told]) -> Iterator[Told]:
    first = next((message["role"] for message in told if message["role"] != "system"), "user")
    for number, (role, run) in enumerate(itertools.groupby(told, lambda message: message["role"])):
        if first != "user" and number == (told[0]["role"] == "system"):
            yield _user(OPENING)
        if role == "user":
            yield _user(*(message["content"] for message in run))
        else:
            yield from run


def _user(*texts: str, between: str = "\n\n") -> Told:
    return {"role": "user", "content": between.join(texts)}


# -- trying a template out ---------------------------------------------------------------------------------------------

_WORD = "qzx{}xzq"
"""A text that no template holds."""
_IN_SCHEMA = ("name", "about", "price", "argument", "meaning", "choice", "inner")
_TOOL = {
    "type": "function",
    "function": {
        "name": _WORD.format("name"),
        "description": f"{_WORD.format('about')}\n- {_WORD.format('price')}",
        "parameters": {
            "type": "object",
            "properties": {
                _WORD.format("argument"): {
                    "type": "string",
                    "description": _WORD.format("meaning"),
                    "enum": [_WORD.format("choice")],
                },
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {_WORD.format("inner"): {"type": "string"}}},
                },
            },
            "required": [_WORD.format("argument")],
        },
    },
}
_CONVERSATIONS = (
    ("system", "user"),
    ("user", "assistant", "user"),
    ("system", "user", "assistant", "tool", "tool", "assistant", "tool"),
    ("system", "assistant", "user", "assistant", "tool"),
    ("assistant", "user", "user", "assistant", "tool", "user"),
)
"""Orders of roles as episodes have them: several results in a turn, an assistant who speaks first, users who speak
twice."""
_GRAMMAR = re.compile(re.escape(OPEN) + r'\s*\{+\s*"name"')
"""How a call begins. A template that teaches another way to call shows its tools in vain: no such call is read."""


def form_of(tokenizer: Any, arguments: Mapping[str, Any]) -> TemplateForm:
    """The form nearest to the template's own in which it shows all there is. Raises ConfigError where there is none."""
    if TERSE in str(tokenizer.chat_template):
        return TemplateForm()
    for form in _FORMS:
        if not (lack := _lacking(tokenizer, arguments, form)):
            return _with_thoughts(tokenizer, arguments, form)
    raise ConfigError(
        f"the chat template of {name_of(tokenizer)} cannot show an episode, not even with tools, results and "
        f"system messages as a user's text: {lack}; set tokenizer.chat_template to one that shows what users and "
        "assistants say"
    )


def name_of(tokenizer: Any) -> str:
    """What a message calls it by."""
    return str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)


_WAYS: Any = itertools.product(
    ("native", "parts"), ("native", "alternating"), ("native", "text"), ("native", "text"), ("native", "text")
)
_FORMS = sorted(
    (TemplateForm(tools, results, system, turns, content) for content, turns, system, results, tools in _WAYS),
    key=lambda form: sum(getattr(form, field.name) != "native" for field in fields(form)),
)
"""All there are, those with the fewest changes first."""


def _lacking(tokenizer: Any, arguments: Mapping[str, Any], form: TemplateForm) -> str:
    """What is not shown under this form, in words; "" when all is."""
    for roles, tools in itertools.product(_CONVERSATIONS, ((), (_TOOL,))):
        said = [_WORD.format(f"{role}{'abcdefg'[number]}") for number, role in enumerate(roles)]
        told = [{"role": role, "content": word} for role, word in zip(roles, said, strict=True)]
        try:
            shown = _shown(tokenizer, arguments, form, told, tools)
        except Exception as err:  # noqa: BLE001 - a template's own complaint has any type
            return f"it says of {', '.join(roles)}: {err!s:.200}"
        if lack := _not_said(shown, roles, said) or (_not_told(shown) if tools else ""):
            return f"of {', '.join(roles)} it leaves out {lack}"
    return ""


def _shown(
    tokenizer: Any, arguments: Mapping[str, Any], form: TemplateForm, told: Sequence[Told], tools: Sequence[Told]
) -> str:
    native, text = form.tools_given(tools)
    return str(
        tokenizer.apply_chat_template(
            form.messages(told, text), tools=native, add_generation_prompt=True, tokenize=False, **dict(arguments)
        )
    )


def _with_thoughts(tokenizer: Any, arguments: Mapping[str, Any], form: TemplateForm) -> TemplateForm:
    """Open thoughts where the prompt opens them, if the past then is as it was prompted and sampled."""
    said = f"{_WORD.format('thought')}\n{UNTHINK}\n\n{_WORD.format('said')}"
    told = [{"role": role, "content": content} for role, content in (("user", "u"), ("assistant", said), ("tool", "r"))]
    past = _shown(tokenizer, arguments, form, told[:1], ()) + said
    for way in (form, replace(form, thoughts="opened")):
        try:
            if new_behind(past, _shown(tokenizer, arguments, way, told, ())) is not None:
                return way
        except Exception:  # noqa: BLE001 - as above
            continue
    return form


def _not_said(shown: str, roles: Sequence[str], said: Sequence[str]) -> str:
    """The role of the first message that is missing, comes before an earlier one, or runs into another result."""
    end, before = 0, ""
    for role, word in zip(roles, said, strict=True):
        at = shown.find(word, end)
        if at < 0 or (role == before == "tool" and not shown[end:at].strip()):
            return role
        end, before = at + len(word), role
    return ""


def _not_told(shown: str) -> str:
    missing = [part for part in _IN_SCHEMA if _WORD.format(part) not in shown]
    if missing:
        return f"a tool's {', '.join(missing)}"
    return "" if _GRAMMAR.search(shown) else f"that a call begins with {OPEN}"


# -- the past, rendered anew -------------------------------------------------------------------------------------------

_NOTHING = re.compile(rf"(?:\s|{re.escape(THINK)}\s*{re.escape(UNTHINK)})+")
"""What two forms of one text may differ in."""


def new_behind(past: str, now: str) -> str | None:
    """What stands in `now` behind `past`; None where `now` does not begin with it, in whatever form.

    A template may write a sampled turn in another form than it was sampled in: it trims it, gives `</think>` two line
    ends, leaves out a thought that says nothing. Nothing of the turn is lost then, and its tokens stay as sampled.
    """
    if now.startswith(past):
        return now[len(past) :]
    essence = _NOTHING.sub("", past)
    if not _NOTHING.sub("", now).startswith(essence):
        return None
    rest = now[_end_of(len(essence), now) :]
    # A turn that was cut in its white space has it already.
    return rest.lstrip() if past[-1:].isspace() else rest


def _end_of(size: int, text: str) -> int:
    """Where the first `size` characters that say something end."""
    at = 0
    for gap in _NOTHING.finditer(text):
        if gap.start() - at >= size:
            break
        size -= gap.start() - at
        at = gap.end()
    return at + size
