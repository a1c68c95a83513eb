"""Text of strangers (models, servers, programs, files) as a terminal may show it."""

from __future__ import annotations

_KEPT = (9, 10)
"""Tab and newline."""
_LEADING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of writing, so that a line reads otherwise than it is, and lines that end unseen."""
_CONTROL = {c: f"\\x{c:02x}" for c in [*range(32), *range(127, 160)] if c not in _KEPT}
_SPELLED = {**_CONTROL, **{c: f"\\u{c:04x}" for c in _LEADING}}


def spelled(text: str) -> str:
    """The text with every character spelled that steers a terminal, hides what stands there or breaks an encoder."""
    return text.replace("\r\n", "\n").encode("utf-8", "backslashreplace").decode().translate(_SPELLED)


def one_line(text: str) -> str:
    """The same, on one line."""
    return spelled(text).replace("\n", "\\n")
