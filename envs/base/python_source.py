"""Reading Python source as a tree."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

MOST_TRIES = 3
Tree = TypeVar("Tree", bound=ast.AST)


def parsed_program(source: str) -> ast.Module:
    """What `ast.parse` gives for a program."""
    return _tried_again(lambda: ast.parse(source))


def parsed_expression(source: str) -> ast.expr:
    """What `ast.parse` gives for one expression."""
    return _tried_again(lambda: ast.parse(source, mode="eval").body)


def _tried_again(parse: Callable[[], Tree]) -> Tree:
    """CPython 3.11 raises SystemError for good source where other source is parsed meanwhile, as happens when the
    garbage collector runs somebody's code in between (python/cpython#106905). The next try finds it in order."""
    for _ in range(MOST_TRIES - 1):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
