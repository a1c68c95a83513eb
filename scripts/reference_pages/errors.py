"""Every error text of the code, by package, so that a search for one that was met finds where it comes from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reference_pages.documented import one_line, page

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("envs", "agents", "synth")
NOT_FOR_USERS = {"AssertionError", "StopIteration", "AttributeError", "NotImplementedError", "KeyError", "RuntimeError"}


class Raised(NamedTuple):
    """One error that the code can raise: its class and its text, with … for what is filled in."""

    kind: str
    text: str


def raised_in(file: Path) -> Iterator[Raised]:
    """The errors of one file, in their order."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
            continue
        kind = node.exc.func
        name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")
        text = one_line(text_of(node.exc.args[0]))
        if name[:1].isupper() and name not in NOT_FOR_USERS and text.replace("…", "").strip(" :;,."):
            yield Raised(name, text)


def text_of(node: ast.expr) -> str:
    """A text with … for each part that is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) if isinstance(value, ast.Constant) else "…" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return text_of(node.body)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "no_such" and node.args:
        return f"no {text_of(node.args[0])} …; … (did you mean …?)"
    return "…"


def errors() -> str:
    parts = []
    for package in PACKAGES:
        for file in sorted((REPOSITORY / package).rglob("*.py")):
            found = list(dict.fromkeys(raised_in(file)))
            if found:
                parts.append(f"## {file.relative_to(REPOSITORY).as_posix()}")
                parts.append("\n".join(f"- {one.kind}: {quoted(one.text)}" for one in found))
    about = (
        "Every text that the code raises as an error, by file. … stands for what is filled in: a name, a number, what came. "
        "Search this page, or the whole site, for a few words of the text that you met. What to do about the common ones is "
        "under [troubleshooting](../troubleshooting.md)."
    )
    return page("Every error message", about, *parts)


def quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
