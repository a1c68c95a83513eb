"""Owns the checks of the offline interpreter: useful programs come out right, hostile ones end soon and small."""

from __future__ import annotations

import ast
import math
import time
import tracemalloc
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolorchestra.envs.sandbox import Execution
from toolorchestra.envs.sandbox.arithmetic import (
    MOST_BITS,
    MOST_CHARACTERS,
    MOST_STEPS,
    NOMINAL_SECONDS,
    ArithmeticInterpreter,
)

MOST_SECONDS = 5.0
MOST_BYTES = 100_000_000


def run(code: str) -> Execution:
    """Runs it through the product's own interpreter; it never suspends, so a plain send drives it."""
    coroutine = ArithmeticInterpreter().run(code)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


def printed(code: str) -> str:
    done = run(code)
    assert (done.exit_status, done.stderr) == (0, ""), done
    return done.stdout.rstrip("\n")


def refusal(code: str) -> str:
    done = run(code)
    assert done.exit_status == 1, done
    assert done.stderr
    return done.stderr


USEFUL = {
    "print(1 + 2 * 3)": "7",
    "print(7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2)": "3 -4 1 2 3.5",
    "print(sum(range(1, 101)))": "5050",
    "print(sum([n * n for n in range(10) if n % 2 == 0]))": "120",
    "print(sum(n for n in range(100) if n % 3 == 0 and n % 5 == 2 or n == 99))": "396",
    "print(len([p for p in range(2, 50) if all(p % d for d in range(2, p))]))": "15",
    "print([(a, b) for a in range(1, 4) for b in range(a, 4) if a + b == 4])": "[(1, 3), (2, 2)]",
    "(a, b), c = [1, 2], 3\nprint(a + b + c)": "6",
    "print(pow(7, 10**9, 11), pow(3, -1, 7))": f"{pow(7, 10**9, 11)} 5",
    "print(factorial(20), comb(10, 3), perm(5, 2))": f"{math.factorial(20)} 120 20",
    "print(floor(-1.5), ceil(1.2), round(2.567, 2), round(2.5), round(1234, -2))": "-2 2 2.57 2 1200",
    "print(divmod(17, 5), abs(-3), min(4, 2), max([1, 9, 3]))": "(3, 2) 3 2 9",
    "print(1 < 2 < 3, 1 < 2 > 5, 3 in [1, 2], 3 not in (1, 2), 'a' in 'cat')": "True False False True True",
    "print(2.0 in range(5), 2.5 in range(10**12))": "True False",
    "print([10, 20, 30][1], 'abc'[-1], range(10**12)[5])": "20 c 5",
    "print(2 * pi > 6, e > 2.7)": "True True",
    "print(10 ** 1000 % 7, 3 ** 2500 % 10)": f"{10**1000 % 7} {3**2500 % 10}",
    "print(len(range(10**12)))": str(10**12),
    "print('a' * 3, [0] * 3, 2 * (1,))": "aaa [0, 0, 0] (1, 1)",
    "print('é', '数')": "é 数",
}


@pytest.mark.parametrize("code", USEFUL)
def test_useful(code: str) -> None:
    assert printed(code) == USEFUL[code]


def test_execution_form() -> None:
    done = run("print(1)\nprint(2)\nnope")
    assert done == Execution("1\n2\n", "NotSupported: the name 'nope' is not defined", 1, NOMINAL_SECONDS)


REFUSED = {
    "pow(7, 10**9)": "use pow(base, exponent, modulus)",
    "9**9**9": "too large",
    "10**5000": "too large",
    "print(2**4096)": f"more than {MOST_BITS} bits",
    "factorial(10**6)": "factorial is offered up to 500",
    "comb(10**6, 3)": "comb is offered up to 2000",
    "import os": "`import` is not covered",
    "import math\nprint(math.sqrt(2))": "`import` is not covered",
    "__import__('os')": "calling `__import__`",
    "math.sqrt(4)": "calling `math.sqrt`",
    "(1).__class__": "`attribute`",
    "().__class__.__bases__[0].__subclasses__()": "not covered",
    "''.join(['a'])": "calling `''.join`",
    "(lambda: 1)()": "not covered",
    "f = lambda x: x": "`lambda`",
    "f'{1}'": "not covered",
    "'%d' % 10**9": "string formatting",
    "'{}'.format(1)": "not covered",
    "(x := 5)": "`namedexpr`",
    "for i in range(3):\n    print(i)": "`for`",
    "while True: pass": "`while`",
    "def f(): pass": "`functiondef`",
    "x += 1": "`augassign`",
    "{1: 2}": "`dict`",
    "{1, 2}": "`set`",
    "1 << 10**9": "LShift",
    "1 << -1": "LShift",
    "~1": "Invert",
    "b'x'": "this constant",
    "1j": "this constant",
    "None": "this constant",
    "...": "this constant",
    "print(1, end='')": "print with keywords",
    "max([1], key=abs)": "with keywords",
    "x = print": "'print' is not defined",
    "eval('1')": "calling `eval`",
    "open('/etc/passwd')": "calling `open`",
    "exec('1')": "calling `exec`",
    "getattr(1, 'real')": "calling `getattr`",
    "[1, 2][0:1]": "`slice`",
    "print(*[1, 2])": "`starred`",
    "x[0] = 1": "not covered",
    "a = b = 1": "`assign`",
    "a, b = range(10**12)": "this assignment",
    "round(5, -10**9)": "round is offered up to",
    "sum([[1]] * 100, [])": "sum of what is not numbers",
    "sum(range(10**12))": f"a range of more than {MOST_STEPS} numbers",
    "list(range(10**30))": f"a range of more than {MOST_STEPS} numbers",
    "[0] * 10**9": "a sequence would become too long",
    "'a' * 10**9": "a sequence would become too long",
    "'a' * 2.0": "a sequence would become too long",
    "print('a' * 3000, 'b' * 3000)": f"more than {MOST_CHARACTERS} characters of output",
    "[i for i in range(10**12)]": f"more than {MOST_STEPS} steps",
    "#" * (MOST_CHARACTERS + 1): f"a program of more than {MOST_CHARACTERS} characters",
    "1 / 0": "ZeroDivisionError",
    "divmod(1, 0)": "ZeroDivisionError",
    "1 % 0": "ZeroDivisionError",
    "0 ** -1": "ZeroDivisionError",
    "1e200 ** 2": "OverflowError",
    "exp(1000)": "OverflowError",
    "float(10 ** 400)": "OverflowError",
    "int(float('inf'))": "OverflowError",
    "len(range(10**30))": "OverflowError",
    "sqrt(-1)": "ValueError",
    "int('x')": "ValueError",
    "1 + 'a'": "TypeError",
    "len(5)": "TypeError",
    "a, b = 5": "TypeError",
    "range(1.5)": "TypeError",
    "sorted([1, 'a'])": "TypeError",
    "[1][5]": "IndexError",
    "'abc'['a']": "TypeError",
    "print(": "SyntaxError",
    "print 1": "SyntaxError",
    "  x = 1\n y = 2": "IndentationError",
    "print('\ud800')": "UnicodeEncodeError",
    "x = 1\0": "null bytes",
}


@pytest.mark.parametrize("code", REFUSED)
def test_refused_with_reason(code: str) -> None:
    assert REFUSED[code] in refusal(code)


HOSTILE = (
    *REFUSED,
    # Numbers
    "x = 2**4000\n" + "x = x * x\n" * 300,
    "print(str(10**4000))",
    "9" * 3990,
    "int('9' * 4000)",
    "float('9' * 4000)",
    "[pow(3**2500, 2**4000 - 1, 2**4000 + 1) for i in range(4000)]",
    "pow(2, 2**4000, 2**4000)",
    "[comb(2000, 1000) for i in range(10000)]",
    "[factorial(500) for i in range(10000)]",
    "[isqrt(2**4090) for i in range(10000)]",
    "[gcd(2**4090 - 1, 3**2500) for i in range(10000)]",
    "x = 2**4090\n[str(x) for i in range(10000)]",
    "x = '9' * 1200\n[int(x) for i in range(10000)]",
    "lcm(" + ", ".join(f"{n}**300" for n in range(2, 200)) + ")",
    "(2**4000) ** (2**4000)",
    "(2**4000) ** 0.5",
    "2.0 ** (2**4000)",
    "(-8) ** 0.5 ** 1000000",
    "round(2**4000, -4000)",
    "round(1.5, 10**9)",
    "sum([2**4095] * 300)",
    # Sequences that grow
    "x = [0] * 4000\n" + "x = x + x\n" * 300,
    "x = 'a' * 4000\n" + "x = x + x\n" * 300,
    "x = [0]\n" + "x = [x, x]\n" * 300,
    "x = [0]\n" + "x = [x, x]\n" * 30 + "print(x)",
    "x = [0]\n" + "x = [x, x]\n" * 12 + "y = [0]\n" + "y = [y, y]\n" * 12 + "print(x == y)",
    "print([[[[0] * 4000] * 4000] * 4000] * 4000)",
    "str([[[0] * 4000] * 4000] * 4000)",
    "[[[0] * 4000] * 4000] * 4000 == [[[0] * 4000] * 4000] * 4000",
    "sorted([[[0] * 4000] * 4000] * 4000)",
    "(((0,) * 4000,) * 4000,) * 4000",
    "[2**4000] * 4000",
    "['a' * 4000] * 4000",
    "x = list(range(20000))\n[x for i in range(5000)]",
    "x = list(range(20000))\n[sorted(x) for i in range(5000)]",
    "[list(range(20000)) for i in range(5000)]",
    "[sorted(range(20000)) for i in range(5000)]",
    "[[0] * 4000 for i in range(5000)]",
    "x = [[0] * 4000 for i in range(6)]\n[max(x) for i in range(5000)]",
    "x = list(range(20000))\n[-1 in x for i in range(5000)]",
    "x = list(range(20000))\ny = list(range(20000))\n[x == y for i in range(5000)]",
    "[sum(range(20000)) for i in range(5000)]",
    "[max(range(20000)) for i in range(5000)]",
    "[all(range(1, 20000)) for i in range(5000)]",
    "x = 'a' * 3999\n[(x + 'b') in x for i in range(5000)]",
    "print(sum([[i] for i in range(4000)], []))",
    "[[[0 for a in range(10**9)] for b in range(10**9)] for c in range(10**9)]",
    "[0 " + "for i in range(9) " * 150 + "]",
    "sum(1 for a in range(10**6) for b in range(10**6))",
    "0.5 in range(10**12)",
    "'x' in range(10**12)",
    "[] in range(10**12)",
    "range(10**12) == range(10**12 + 1)",
    "sorted([range(10**12)])",
    "max(range(10**12), range(10**12))",
    "all([range(10**30)])",
    "print([range(10**30)] * 100)",
    "print('x' * 3999)\nprint('x')",
    "print([0] * 4000)",
    *("print('" + "x" * 90 + "')\n" + "print(1)\n" * 430,),
    # Deep programs
    "(" * 3999,
    "(" * 1999 + "1" + ")" * 1999,
    "[" * 190 + "1" + "]" * 190,
    "[" * 190 + "1 1" + "]" * 190,
    "-" * 3999 + "1",
    "not " * 990 + "1",
    "1" + "+1" * 1990,
    "2" + "**2" * 1300,
    "x = [0]\nx" + "[0]" * 1300,
    "f" + "()" * 1900,
    "a" + ".b" * 1900,
    "1 if 1 else " * 300 + "1",
    "lambda: " * 490 + "1",
    "(lambda x=" * 190,
    "{1:" * 190 + "1 1" + "}" * 190,
    "f'{" * 150,
    "\\" * 4000,
    "'" * 4000,
    "\n" * 4000,
    "\t\n " * 1300,
    "x\n" * 2000,
    "\u202e" * 100,
    "ﬁ = 1",
    "if 1:\n" + " if 1:\n" * 100,
)


@pytest.mark.parametrize("code", HOSTILE, ids=lambda code: ascii(code[:40]))
def test_hostile_ends_soon(code: str) -> None:
    start = time.perf_counter()
    done = run(code)
    assert time.perf_counter() - start < MOST_SECONDS
    assert done.exit_status in (0, 1)
    assert bool(done.stderr) == bool(done.exit_status)
    assert len(done.stdout) <= MOST_CHARACTERS
    assert len(done.stderr) <= MOST_CHARACTERS
    (done.stdout + done.stderr).encode()


@pytest.mark.parametrize(
    "code",
    [
        "x = [0] * 4000\n" + "x = x + x\n" * 300,
        "print([[[[0] * 4000] * 4000] * 4000] * 4000)",
        "[list(range(20000)) for i in range(5000)]",
        "x = 2**4000\n" + "x = x * x\n" * 300,
    ],
    ids=lambda code: code[:30],
)
def test_memory_is_bounded(code: str) -> None:
    tracemalloc.start()
    try:
        assert run(code).exit_status == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES


def test_runs_are_independent() -> None:
    assert printed("x = 1\nprint(x)") == "1"
    assert "'x' is not defined" in refusal("print(x)")


def test_surrogates_never_get_out() -> None:
    assert printed(r"print('a\ud800b')") == "a?b"
    assert "?" in refusal(r"int('\ud800')") or r"\ud800" in refusal(r"int('\ud800')")


_INTEGERS = st.integers(-50, 50)
_EXPRESSIONS = st.recursive(
    _INTEGERS.map(lambda n: f"({n})"),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=12,
)


def _by_hand(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Expression):
        return _by_hand(node.body)
    if isinstance(node, ast.UnaryOp):
        return -_by_hand(node.operand)
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    assert isinstance(node, ast.BinOp)
    left, right = _by_hand(node.left), _by_hand(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    return Fraction(left // right) if isinstance(node.op, ast.FloorDiv) else left % right


@given(_EXPRESSIONS)
def test_arithmetic_is_right(expression: str) -> None:
    done = run(f"print({expression})")
    try:
        expected = _by_hand(ast.parse(expression, mode="eval"))
    except ZeroDivisionError:
        assert done.stderr.startswith("ZeroDivisionError")
    else:
        assert done.stdout == f"{expected}\n"


_WORDS = """x y = == ( ) [ ] , 0 1 2 10**9 - + * ** // % / range( sum( list( str( int( max( print( sorted( pow(
factorial( in 'a' . __class__ : { } round( 1e308 float('nan') len( all( divmod( lcm( comb( abs( i \\ ' # @ ~ ^ | & <
> !=""".split()
_PHRASES = ["\n", " ", "for i in ", "[i for i in ", "if ", " else ", "not ", " and ", " or ", "lambda "]
_FRAGMENTS = st.sampled_from([*_WORDS, *_PHRASES])


@given(st.one_of(st.text(max_size=200), st.lists(_FRAGMENTS, max_size=40).map("".join)))
def test_never_raises(code: str) -> None:
    done = run(code)
    assert bool(done.stderr) == bool(done.exit_status)
    assert len(done.stdout) <= MOST_CHARACTERS
