"""Templates of a domain's texts: `{name}` is filled in as text. What they can make is bounded beforehand."""

from __future__ import annotations

import re
from functools import lru_cache
from string import Formatter

MOST_TEMPLATE = 4_000
"""Characters of a template."""
MOST_WIDTH = 60
"""Of a value in it: `{title:>20}` has the width 20."""
_NUMBER = re.compile(r"\d+")


@lru_cache(maxsize=16_384)
def wrong_with(template: str) -> str:
    """Why a template may not be filled; "" where it may."""
    if len(template) > MOST_TEMPLATE:
        return f"a text of {len(template)} characters, at most {MOST_TEMPLATE} are allowed"
    try:
        for _, name, form, _ in Formatter().parse(template):
            if name is not None and not re.fullmatch(r"\w*", name):
                return f"{{{name}}}: a template names a value, as in {{title}}"
            if "{" in (form or "") or any(int(n[:9]) > MOST_WIDTH for n in _NUMBER.findall(form or "")):
                return f"{{{name}:{form}}}: a width of at most {MOST_WIDTH} is allowed"
    except ValueError as err:
        return str(err)
    return ""
