"""The domains' `calculate`, bounded: the package evaluates any power, and `9**9**9` never returns."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from toolorchestra.envs.base.python_source import parsed_expression

MOST_CHARACTERS = 200
MOST_BITS = 2048
"""Of any whole number on the way. A float ends at 1024, so only detours through giants are refused."""
_ALLOWED = frozenset("0123456789+-*/(). ")

Number = int | float | complex


def calculate(expression: str) -> str:
    """What the package's tool gives, to the digit, for every expression within the bounds."""
    if not all(character in _ALLOWED for character in expression):
        raise ValueError("Invalid characters in expression")
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"an expression may have {MOST_CHARACTERS} characters, got {len(expression)}; split it")
    tree = parsed_expression(expression.lstrip())  # eval() skips leading spaces too
    return str(round(float(_value(tree)), 2))  # type: ignore[arg-type]  # a complex one raises, as it should


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return +_value(operand)
    raise ValueError(f"numbers, + - * / and parentheses expected, got {ast.unparse(node)[:40]!r}")


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and exponent * math.log2(abs(base)) > MOST_BITS:  # type: ignore[operator]
        raise ValueError(f"{str(base)[:20]}**{str(exponent)[:20]} is too large to calculate; use smaller numbers")
    return base**exponent


def _bounded(number: Number) -> Number:
    if isinstance(number, int) and number.bit_length() > MOST_BITS:
        raise ValueError(f"a number on the way has more than {MOST_BITS} bits; use smaller numbers")
    return number


_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: _power,
}
