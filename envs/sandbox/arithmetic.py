"""The offline interpreter: a bounded evaluator of arithmetic programs, written as Python. Nothing is ever exec'ed.

It covers assignments, print, arithmetic, comparisons, lists and tuples, indexing, comprehensions over ranges, and the
functions below. Loops, definitions, imports and attributes are refused with a message. Bounded in steps, in the size of
numbers and in output. It is a calculator, not a sandbox for Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolorchestra.envs.sandbox import Execution

MOST_STEPS = 20_000
MOST_BITS = 4096
MOST_CHARACTERS = 4000
NOMINAL_SECONDS = 1.0


class Refused(Exception):
    """The program leaves what this interpreter covers."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base not in (-1, 0, 1):
        if exponent * base.bit_length() > MOST_BITS:
            raise Refused(f"{base!r:.20}**{exponent!r:.20} is too large; use pow(base, exponent, modulus)")
    elif abs(exponent) > MOST_BITS:
        raise Refused("the exponent is too large")
    return base**exponent


def _times(left: Any, right: Any) -> Any:
    for number, other in ((left, right), (right, left)):
        if isinstance(other, str | list | tuple) and (
            not isinstance(number, int) or number * len(other) > MOST_CHARACTERS
        ):
            raise Refused("a sequence would become too long")
    return left * right


def _small(function: Callable[..., Any], most: int) -> Callable[[int], Any]:
    def checked(n: int, *rest: int) -> Any:
        if n > most:
            raise Refused(f"{function.__name__} is offered up to {most}, got {n!r:.20}")
        return function(n, *rest)

    return checked


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda a, b: operator.mod(a, b) if not isinstance(a, str) else _no("string formatting"),
    ast.Pow: _power,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def _no(what: str) -> Any:
    raise Refused(f"{what} is not covered by the offline interpreter, which evaluates arithmetic only")


def _pow(base: int, exponent: int, modulus: int | None = None) -> Any:
    return _power(base, exponent) if modulus is None else pow(base, exponent, modulus)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "sum": sum, "round": round, "len": len, "sorted": sorted, "int": int,
    "float": float, "str": str, "list": list, "divmod": divmod, "all": all, "any": any, "range": range, "pow": _pow,
    "gcd": math.gcd, "lcm": math.lcm, "sqrt": math.sqrt, "isqrt": math.isqrt, "log": math.log, "exp": math.exp,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "floor": math.floor, "ceil": math.ceil,
    "factorial": _small(math.factorial, 500), "comb": _small(math.comb, 2000), "perm": _small(math.perm, 500),
}  # fmt: skip
_NAMES: Mapping[str, Any] = {"pi": math.pi, "e": math.e}


class ArithmeticInterpreter:
    """Runs arithmetic programs, at once and for one nominal second."""

    suspends = False
    item = "code-interpreter"
    describe = "arithmetic only: assignments, print, comprehensions, and math functions without `import`"

    async def run(self, code: str) -> Execution:
        """stdout is what was printed; a refusal or an error goes to stderr with exit status 1."""
        run = _Run()
        try:
            for statement in ast.parse(code[:MOST_CHARACTERS]).body:
                run.statement(statement)
        except Refused as err:
            return Execution("".join(run.output), f"NotSupported: {err}", 1, NOMINAL_SECONDS)
        except (ArithmeticError, LookupError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError) as err:
            return Execution("".join(run.output), f"{type(err).__name__}: {err}", 1, NOMINAL_SECONDS)
        return Execution("".join(run.output), "", 0, NOMINAL_SECONDS)


class _Run:
    """One program's names, output and remaining steps."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(_NAMES)
        self.output: list[str] = []
        self.steps = MOST_STEPS

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._bind(node.targets[0], self.value(node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) == "print":
            self._print([self.value(a) for a in node.value.args])
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        else:
            _no(f"`{type(node).__name__.lower()}`")

    def _print(self, values: list[Any]) -> None:
        line = " ".join(map(str, values)) + "\n"
        if sum(map(len, self.output)) + len(line) > MOST_CHARACTERS:
            raise Refused(f"more than {MOST_CHARACTERS} characters of output")
        self.output.append(line)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple) and len(target.elts) == len(value):
            for part, item in zip(target.elts, value, strict=True):
                self._bind(part, item)
        else:
            _no("this assignment")

    def value(self, node: ast.expr) -> Any:
        self.steps -= 1
        if self.steps < 0:
            raise Refused(f"more than {MOST_STEPS} steps")
        reader = getattr(self, f"_{type(node).__name__.lower()}", None)
        if reader is None:
            return _no(f"`{type(node).__name__.lower()}`")
        result = reader(node)
        if isinstance(result, int) and result.bit_length() > MOST_BITS:
            raise Refused(f"a number of more than {MOST_BITS} bits")
        return result

    def _constant(self, node: ast.Constant) -> Any:
        return node.value if isinstance(node.value, int | float | str) else _no("this constant")

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            raise Refused(f"the name {node.id!r} is not defined")
        return self.names[node.id]

    def _binop(self, node: ast.BinOp) -> Any:
        operate = _BINARY.get(type(node.op)) or _no(f"operator {type(node.op).__name__}")
        return operate(self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operate = _UNARY.get(type(node.op)) or _no(f"operator {type(node.op).__name__}")
        return operate(self.value(node.operand))

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            compare = _COMPARE.get(type(op)) or _no(f"comparison {type(op).__name__}")
            if not compare(left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _list(self, node: ast.List) -> list[Any]:
        return [self.value(e) for e in node.elts]

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.value(e) for e in node.elts)

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.value(node.value)[self.value(node.slice)]

    def _listcomp(self, node: ast.ListComp) -> list[Any]:
        return list(self._comprehend(node.elt, node.generators))

    def _generatorexp(self, node: ast.GeneratorExp) -> list[Any]:
        return list(self._comprehend(node.elt, node.generators))

    def _comprehend(self, element: ast.expr, generators: list[ast.comprehension]) -> Iterator[Any]:
        if not generators:
            yield self.value(element)
            return
        first, *rest = generators
        for item in self.value(first.iter):
            self.steps -= 1
            self._bind(first.target, item)
            if all(self.value(test) for test in first.ifs):
                yield from self._comprehend(element, rest)

    def _call(self, node: ast.Call) -> Any:
        function = _FUNCTIONS.get(_name(node.func))
        if function is None or node.keywords:
            return _no(f"calling `{ast.unparse(node.func)}`" + (" with keywords" if node.keywords else ""))
        arguments = [self.value(a) for a in node.args]
        if any(isinstance(a, range) and len(a) > MOST_STEPS for a in arguments):
            raise Refused(f"a range of more than {MOST_STEPS} numbers")
        result = function(*arguments)
        if isinstance(result, str) and len(result) > MOST_CHARACTERS:
            raise Refused("a string would become too long")
        return result


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
