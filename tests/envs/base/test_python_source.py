"""Reading source that CPython fails to read at its first try."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from toolorchestra.envs.base import python_source
from toolorchestra.envs.base.python_source import parsed_expression, parsed_program


def failing_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    asked: list[str] = []
    real = ast.parse

    def parse(source: str, **options: Any) -> ast.AST:
        asked.append(source)
        if len(asked) <= times:
            raise SystemError("AST constructor recursion depth mismatch (before=147, after=-1547)")
        return real(source, **options)

    monkeypatch.setattr(python_source.ast, "parse", parse)
    return asked


def test_a_mismatch_of_cpython_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = failing_at_first(monkeypatch, times=1)
    assert ast.unparse(parsed_program("x=1")) == "x = 1"
    assert ast.unparse(parsed_expression("1+1")) == "1 + 1"
    assert asked == ["x=1", "x=1", "1+1"]
