"""Whether a transcript that was rendered anew still holds the past of a sequence, and what it adds to it.

A template may write a sampled turn in another form than it was sampled in: it trims it, gives `</think>` two line ends,
leaves out a thought that says nothing. Nothing of the turn is lost then, and its tokens stay as they were sampled.
"""

from __future__ import annotations

import re

from toolorchestra.envs.base.actions import THINK, UNTHINK

_NOTHING = re.compile(rf"(?:\s|{re.escape(THINK)}\s*{re.escape(UNTHINK)})+")
"""What two forms of one text may differ in."""


def new_behind(past: str, now: str) -> str | None:
    """What stands in `now` behind `past`; None where `now` does not begin with it, in whatever form."""
    if now.startswith(past):
        return now[len(past) :]
    essence = _NOTHING.sub("", past)
    if not _NOTHING.sub("", now).startswith(essence):
        return None
    rest = now[_end_of(len(essence), now) :]
    # A turn that was cut in its white space has it already.
    return rest.lstrip() if past[-1:].isspace() else rest


def _end_of(size: int, text: str) -> int:
    """Where the first `size` characters that say something end."""
    at = 0
    for gap in _NOTHING.finditer(text):
        if gap.start() - at >= size:
            break
        size -= gap.start() - at
        at = gap.end()
    return at + size
