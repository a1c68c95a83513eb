"""Are gym.make's keyword arguments what they are annotated as? A wrong one is refused here, not at the first call."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from toolorchestra.envs.base.errors import ConfigError

_PLAIN: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool)),
    str: ("a text", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
}


def check(made: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first argument that is not what `made` says it takes. Plain types, callables, the
    project's own classes and unions of these are looked at; whoever annotates something else checks it himself."""
    if not arguments or (hints := _hints(made if inspect.isfunction(made) else made.__init__)) is None:
        return
    for name, value in arguments.items():
        wanted = [_wanted(hint) for hint in _alternatives(hints.get(name, Any))]
        if any(one is None or one[1](value) for one in wanted):
            continue
        words = " or ".join(one[0] for one in wanted if one is not None)
        raise ConfigError(f"{name} must be {words}, got {value!r:.80} ({type(value).__name__})")


@lru_cache(maxsize=256)
def _hints(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """Annotations; None where they have names that exist for type checkers alone. Reading them takes longer than a
    reset, so it is done once."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return None


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _wanted(hint: Any) -> tuple[str, Callable[[Any], bool]] | None:
    """In words, and the test; None: anything goes."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is Callable:
        return "a callable", callable
    if inspect.isclass(hint) and hint.__module__.startswith("toolorchestra") and not getattr(hint, "_is_protocol", 0):
        return f"a {hint.__name__}", lambda value: isinstance(value, hint)
    return None
