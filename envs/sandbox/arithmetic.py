"""The offline interpreter: a bounded evaluator of arithmetic programs, written as Python. Nothing is ever exec'ed.

It covers assignments, print, arithmetic, comparisons, lists and tuples, indexing, comprehensions over ranges, and the
functions below. Loops, definitions, imports and attributes are refused with a message. Bounded in steps, in the size of
each value, in the cells read and made by all operations together, and in output. It is a calculator, not a sandbox for
Python. Values cannot be changed once made, so a value that was small stays small.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.python_source import parsed_expression, parsed_program
from toolorchestra.envs.sandbox import Execution, harmless

if TYPE_CHECKING:
    from toolorchestra.envs.money.ledger import Bill

MOST_STEPS = 20_000
MOST_BITS = 4096
MOST_CHARACTERS = 4000
MOST_CELLS = 25_000
"""Cells of one value: an element, a character, or 64 bits of a number. What stands in a list twice counts twice."""
MOST_WORK = 500_000
"""Cells that all operations together may read and make."""
NOMINAL_SECONDS = 1.0


class NotCovered(Exception):
    """The program leaves what this interpreter covers."""


def _power(base: Any, exponent: Any) -> Any:
    both_whole = isinstance(base, int) and isinstance(exponent, int)
    if both_whole and abs(base) > 1 and (exponent > MOST_BITS or exponent * math.log2(abs(base)) > MOST_BITS):
        raise NotCovered(f"{base!r:.20}**{exponent!r:.20} is too large; use pow(base, exponent, modulus)")
    return base**exponent


def _times(left: Any, right: Any) -> Any:
    for number, other in ((left, right), (right, left)):
        if isinstance(other, str | list | tuple) and (
            not isinstance(number, int) or number * len(other) > MOST_CHARACTERS
        ):
            raise NotCovered("a sequence would become too long")
    return left * right


def _inside(item: Any, container: Any) -> bool:
    if isinstance(container, range) and not isinstance(item, int):  # range looks through itself for anything else
        return isinstance(item, float) and item.is_integer() and int(item) in container
    return item in container


def _small(function: Callable[..., Any], most: int) -> Callable[[int], Any]:
    def checked(n: int, *rest: int) -> Any:
        if n > most:
            raise NotCovered(f"{function.__name__} is offered up to {most}, got {n!r:.20}")
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
    ast.In: _inside,
    ast.NotIn: lambda a, b: not _inside(a, b),
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def _no(what: str) -> Any:
    raise NotCovered(f"{what} is not covered by the offline interpreter, which evaluates arithmetic only")


def _pow(base: int, exponent: int, modulus: int | None = None) -> Any:
    return _power(base, exponent) if modulus is None else pow(base, exponent, modulus)


def _round(number: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > MOST_BITS:  # round(1, -10**9) would make 10**10**9 first
        raise NotCovered(f"round is offered up to {MOST_BITS} digits, got {digits!r:.20}")
    return round(number, digits)


def _sum(items: Any, start: Any = 0) -> Any:
    if not isinstance(start, int | float | complex):
        _no("sum of what is not numbers")
    return sum(items, start)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "sum": _sum, "round": _round, "len": len, "sorted": sorted, "int": int,
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

    async def run(self, code: str, session: str = "", bill: Bill | None = None) -> Execution:
        """stdout is what was printed; a refusal or an error goes to stderr with exit status 1. Each run is fresh."""
        del session, bill
        run = _ProgramRun()
        wrong = ""
        try:
            if len(code) > MOST_CHARACTERS:
                raise NotCovered(f"a program of more than {MOST_CHARACTERS} characters")
            for statement in parsed_program(code).body:
                run.statement(statement)
        except NotCovered as err:
            wrong = f"NotSupported: {err}"
        except (ArithmeticError, LookupError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError) as err:
            wrong = f"{type(err).__name__}: {err}"
        said, wrong = harmless("".join(run.output)), harmless(wrong[:MOST_CHARACTERS])
        return Execution(said, wrong, int(bool(wrong)), NOMINAL_SECONDS)


def evaluate(expression: str) -> Any:
    """The value of one expression. Raises NotCovered, and what Python raises."""
    return _ProgramRun().value(parsed_expression(expression))


class _ProgramRun:
    """One program's names, output and what it may still use."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(_NAMES)
        self.output: list[str] = []
        self.steps = MOST_STEPS
        self.work = MOST_WORK

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._bind(node.targets[0], self.value(node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) == "print":
            if node.value.keywords:
                _no("print with keywords")
            self._print([self.value(a) for a in node.value.args])
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        else:
            _no(f"`{type(node).__name__.lower()}`")

    def _print(self, values: list[Any]) -> None:
        self._spend(values)
        line = " ".join(map(str, values)) + "\n"
        if sum(map(len, self.output)) + len(line) > MOST_CHARACTERS:
            raise NotCovered(f"more than {MOST_CHARACTERS} characters of output")
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
            raise NotCovered(f"more than {MOST_STEPS} steps")
        reader = getattr(self, f"_{type(node).__name__.lower()}", None)
        if reader is None:
            return _no(f"`{type(node).__name__.lower()}`")
        result = reader(node)
        if isinstance(result, int) and result.bit_length() > MOST_BITS:
            raise NotCovered(f"a number of more than {MOST_BITS} bits")
        return result

    def _spend(self, *values: Any) -> None:
        """Count the cells of what an operation reads or made."""
        for value in values:
            if isinstance(value, str | list | tuple):
                self._work(_cells(value))
            elif isinstance(value, int):
                self._work(1 + value.bit_length() // 64)

    def _work(self, cells: int) -> None:
        self.work -= cells
        if self.work < 0:
            raise NotCovered(f"operations on more than {MOST_WORK} elements")

    def _constant(self, node: ast.Constant) -> Any:
        return node.value if isinstance(node.value, int | float | str) else _no("this constant")

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            raise NotCovered(f"the name {node.id!r} is not defined")
        return self.names[node.id]

    def _binop(self, node: ast.BinOp) -> Any:
        operate = _BINARY.get(type(node.op)) or _no(f"operator {type(node.op).__name__}")
        result = operate(self.value(node.left), self.value(node.right))
        self._spend(result)
        return result

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        operate = _UNARY.get(type(node.op)) or _no(f"operator {type(node.op).__name__}")
        return operate(self.value(node.operand))

    def _boolop(self, node: ast.BoolOp) -> Any:
        result: Any = None
        for part in node.values:
            result = self.value(part)
            if bool(result) != isinstance(node.op, ast.And):
                break
        return result

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            compare = _COMPARE.get(type(op)) or _no(f"comparison {type(op).__name__}")
            self._spend(left, right)
            if not compare(left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _list(self, node: ast.List) -> list[Any]:
        made = [self.value(e) for e in node.elts]
        self._spend(made)
        return made

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._list(node))  # type: ignore[arg-type]

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.value(node.value)[self.value(node.slice)]

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        outside = dict(self.names)
        made = list(self._comprehend(node.elt, node.generators))
        self.names = outside
        self._spend(made)
        return made

    _generatorexp = _listcomp

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
        name = _name(node.func)
        function = _FUNCTIONS.get(name)
        if function is None or node.keywords:
            return _no(f"calling `{ast.unparse(node.func)}`" + (" with keywords" if node.keywords else ""))
        arguments = [self.value(a) for a in node.args]
        for argument in arguments:
            if name != "len" and isinstance(argument, range):
                if len(argument[: MOST_STEPS + 1]) > MOST_STEPS:
                    raise NotCovered(f"a range of more than {MOST_STEPS} numbers")
                self._work(len(argument))
        self._spend(*arguments)
        self._work(_hidden_work(name, arguments))
        result = function(*arguments)
        if isinstance(result, str) and len(result) > MOST_CHARACTERS:
            raise NotCovered("a string would become too long")
        self._spend(result)
        return result


def _cells(value: str | list[Any] | tuple[Any, ...]) -> int:
    """The cells of a sequence and of all in it."""
    if isinstance(value, str):
        if len(value) > MOST_CHARACTERS:
            raise NotCovered("a string would become too long")
        return len(value)
    count = 0
    waiting: list[Any] = [value]
    while waiting:
        for part in waiting.pop():
            count += 1
            if isinstance(part, list | tuple):
                waiting.append(part)
            elif isinstance(part, str):
                count += len(part)
            elif isinstance(part, int):
                count += part.bit_length() // 64
            if count > MOST_CELLS:
                raise NotCovered(f"a value of more than {MOST_CELLS} elements")
    return count


def _hidden_work(name: str, arguments: list[Any]) -> int:
    """What cannot be seen from arguments and result. pow(base, exponent, modulus) multiplies numbers as long as the
    modulus once or more per bit of the exponent."""
    if not all(isinstance(a, int) for a in arguments):
        return 0
    if name in ("factorial", "comb", "perm") and arguments:
        chosen_from: int = arguments[0]
        return min(max(chosen_from, 0), MOST_BITS) // 8
    if name != "pow" or len(arguments) != 3:
        return 0
    _, exponent, modulus = arguments
    limbs: int = 1 + modulus.bit_length() // 64
    bits: int = exponent.bit_length()
    return bits * limbs * limbs // 50


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
