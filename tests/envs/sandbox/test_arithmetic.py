"""Owns the checks of the offline interpreter: useful programs come out right, hostile ones end soon and small."""

from __future__ import annotations

import math
import time
import tracemalloc

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


def run(code: str) -> Execution:
    """Runs it through the product's own interpreter; it never suspends, so a plain send drives it. It ends soon and
    says little, whatever it is."""
    coroutine = ArithmeticInterpreter().run(code)
    start = time.thread_time()
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    done: Execution = stopped.value.value
    assert time.thread_time() - start < MOST_SECONDS
    assert done.exit_status == int(bool(done.stderr))
    assert max(len(done.stdout), len(done.stderr)) <= MOST_CHARACTERS
    (done.stdout + done.stderr).encode()
    return done


def printed(code: str) -> str:
    done = run(code)
    assert not done.stderr
    return done.stdout.rstrip("\n")


def refusal(code: str) -> str:
    done = run(code)
    assert done.exit_status == 1, done
    return done.stderr


USEFUL = {
    "print(1 + 2 * 3)": "7",
    "print(7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2)": "3 -4 1 2 3.5",
    "print(sum(range(1, 101)))": "5050",
    "print(sum([n * n for n in range(10) if n % 2 == 0]))": "120",
    "print(sum(n for n in range(100) if n % 3 == 0 and n % 5 == 2 or n == 99))": "396",
    "(a, b), c = [1, 2], 3\nprint(a + b + c)": "6",
    "print(pow(7, 10**9, 11), pow(3, -1, 7))": f"{pow(7, 10**9, 11)} 5",
    "print(factorial(20), comb(10, 3), perm(5, 2))": f"{math.factorial(20)} 120 20",
    "print(divmod(17, 5), abs(-3), min(4, 2), max([1, 9, 3]))": "(3, 2) 3 2 9",
    "print(1 < 2 < 3, 1 < 2 > 5, 3 in [1, 2], 3 not in (1, 2), 'a' in 'cat')": "True False False True True",
    "print(2.0 in range(5), 2.5 in range(10**12))": "True False",
    "print([10, 20, 30][1], 'abc'[-1], range(10**12)[5])": "20 c 5",
    "print(2 * pi > 6, e > 2.7)": "True True",
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
    "print(2**4096)": f"more than {MOST_BITS} bits",
    "factorial(10**6)": "factorial is offered up to 500",
    "comb(10**6, 3)": "comb is offered up to 2000",
    "import os": "`import` is not covered",
    "__import__('os')": "calling `__import__`",
    "(1).__class__": "`attribute`",
    "'%d' % 10**9": "string formatting",
    "(x := 5)": "`namedexpr`",
    "for i in range(3):\n    print(i)": "`for`",
    "x += 1": "`augassign`",
    "1 << 10**9": "LShift",
    "b'x'": "this constant",
    "print(1, end='')": "print with keywords",
    "open('/etc/passwd')": "calling `open`",
    "[1, 2][0:1]": "`slice`",
    "a, b = range(10**12)": "this assignment",
    "round(5, -10**9)": "round is offered up to",
    "sum([[1]] * 100, [])": "sum of what is not numbers",
    "sum(range(10**12))": f"a range of more than {MOST_STEPS} numbers",
    "'a' * 10**9": "a sequence would become too long",
    "'a' * 2.0": "a sequence would become too long",
    "print('a' * 3000, 'b' * 3000)": f"more than {MOST_CHARACTERS} characters of output",
    "[i for i in range(10**12)]": f"more than {MOST_STEPS} steps",
    "#" * (MOST_CHARACTERS + 1): f"a program of more than {MOST_CHARACTERS} characters",
    "0 ** -1": "ZeroDivisionError",
    "float(10 ** 400)": "OverflowError",
    "sqrt(-1)": "ValueError",
    "1 + 'a'": "TypeError",
    "[1][5]": "IndexError",
    "print(": "SyntaxError",
    "print('\ud800')": "UnicodeEncodeError",
    "x = 1\0": "null bytes",
}


@pytest.mark.parametrize("code", REFUSED)
def test_refused_with_reason(code: str) -> None:
    assert REFUSED[code] in refusal(code)


HOSTILE = (
    # Numbers
    "x = 2**4000\n" + "x = x * x\n" * 300,
    "float('9' * 4000)",
    "[pow(3**2500, 2**4000 - 1, 2**4000 + 1) for i in range(4000)]",
    "pow(2, 2**4000, 2**4000)",
    "[gcd(2**4090 - 1, 3**2500) for i in range(10000)]",
    "x = 2**4090\n[str(x) for i in range(10000)]",
    "(2**4000) ** (2**4000)",
    "(-8) ** 0.5 ** 1000000",
    "sum([2**4095] * 300)",
    # Sequences that grow
    "x = 'a' * 4000\n" + "x = x + x\n" * 300,
    "x = [0]\n" + "x = [x, x]\n" * 30 + "print(x)",
    "x = [0]\n" + "x = [x, x]\n" * 12 + "y = [0]\n" + "y = [y, y]\n" * 12 + "print(x == y)",
    "print([[[[0] * 4000] * 4000] * 4000] * 4000)",
    "x = list(range(20000))\n[x for i in range(5000)]",
    "[list(range(20000)) for i in range(5000)]",
    "x = [[0] * 4000 for i in range(6)]\n[max(x) for i in range(5000)]",
    "x = list(range(20000))\n[-1 in x for i in range(5000)]",
    "x = list(range(20000))\ny = list(range(20000))\n[x == y for i in range(5000)]",
    "x = 'a' * 3999\n[(x + 'b') in x for i in range(5000)]",
    "print(sum([[i] for i in range(4000)], []))",
    "[[[0 for a in range(10**9)] for b in range(10**9)] for c in range(10**9)]",
    "[0 " + "for i in range(9) " * 150 + "]",
    "sum(1 for a in range(10**6) for b in range(10**6))",
    "range(10**12) == range(10**12 + 1)",
    "all([range(10**30)])",
    "print('x' * 3999)\nprint('x')",
    # Deep programs
    "(" * 1999 + "1" + ")" * 1999,
    "1" + "+1" * 1990,
    "x = [0]\nx" + "[0]" * 1300,
    "{1:" * 190 + "1 1" + "}" * 190,
    "\\" * 4000,
    "'" * 4000,
    "if 1:\n" + " if 1:\n" * 100,
)


@pytest.mark.parametrize("code", HOSTILE, ids=lambda code: ascii(code[:40]))
def test_hostile_ends_soon(code: str) -> None:
    run(code)


@pytest.mark.parametrize("code", [HOSTILE[0], "print([[[[0] * 4000] * 4000] * 4000] * 4000)"], ids=["large", "nested"])
def test_memory_is_bounded(code: str) -> None:
    tracemalloc.start()
    try:
        assert run(code).exit_status == 1
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


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


@given(_EXPRESSIONS)
def test_arithmetic_is_right(expression: str) -> None:
    done = run(f"print({expression})")
    try:
        expected = eval(expression)
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
    run(code)
