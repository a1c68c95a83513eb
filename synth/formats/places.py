"""The part of a spec that is worked on, for whoever has to say what took too much."""

from __future__ import annotations

from collections.abc import Callable

MOST = 300
"""Characters of a place."""
_listener: list[Callable[[str], None]] = []


def told(listener: Callable[[str], None]) -> None:
    """Tell somebody of each place from now on."""
    _listener[:] = [listener]


def at(place: str) -> None:
    """Say what is worked on from now."""
    if _listener:
        _listener[0](place[:MOST])
