"""Texts that Python callers can meet name no option of the command line: WithOption's `command_line` does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.two_texts import options_in
from toolorchestra.envs.base import errors

REPOSITORY = Path(errors.__file__).resolve().parents[2]
WHOLE = ("toolorchestra ", "python scripts/", "pip install", "vllm serve", "ray start", "tensorboard ")
"""Whole commands may be named, with their options."""
ON_THE_COMMAND_LINE = (
    "agents/commands/",
    "agents/configuration/environment_options.py",  # reads --env and --set
    "agents/configuration/environments.py",  # writes them
    "agents/training/sessions.py",  # what a run says before it trains: no error
    *(f"synth/{name}.py" for name in ("export", "lint", "generate", "prove")),
)


def sentences(tree: ast.Module) -> Iterator[str]:
    """Texts with a blank and "--" in them. Without docstrings, and without what `command_line=` is given: one of
    that name, or a text that begins with an option."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and "--" in node.value):
            continue  # nothing of an option in it: unparsing every text would take seconds
        whole: ast.AST = node
        while isinstance(above[whole], ast.JoinedStr | ast.BinOp | ast.IfExp):
            whole = above[whole]
        holder = above[whole]
        text = ast.unparse(whole)
        given = isinstance(holder, ast.keyword) and holder.arg == "command_line"
        if not isinstance(holder, ast.Expr) and not given and not text.lstrip("f'\"").startswith("--") and " " in text:
            yield text


def options_named(code: str) -> list[str]:
    """The texts of a module that name options."""
    return [
        text
        for text in dict.fromkeys(sentences(ast.parse(code)) if "--" in code else ())
        if options_in(text) and not any(command in text for command in WHOLE)
    ]


@pytest.mark.parametrize("package", ["envs", "agents", "synth"])
def test_a_text_for_python_names_no_option(package: str) -> None:
    files = {file.relative_to(REPOSITORY).as_posix(): file for file in sorted((REPOSITORY / package).rglob("*.py"))}
    assert len(files) > 20
    found = {
        name: texts
        for name, file in files.items()
        if not name.startswith(ON_THE_COMMAND_LINE) and (texts := options_named(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ('raise ConfigError("name another with --out")', True),
        ('raise ConfigError("it is there" + ("; --again" if x else ""))', True),
        ('GO_ON = "go on with --resume"', True),
        ('raise ConfigError("give again=True", command_line="the same with --again")', False),
        ('raise ConfigError("`toolorchestra evaluate --out FOLDER` writes them")', False),
        ('def f():\n    """With --again."""', False),
    ],
)
def test_which_texts_are_found(code: str, named: bool) -> None:
    assert bool(options_named(code)) is named
