"""A chat template as transformers compiles it, to be rendered without what transformers does anew at each call."""

from __future__ import annotations

from typing import Any


def compiled_template(tokenizer: Any) -> Any:
    """The template as transformers compiles it; None where it cannot be had, as in other versions of transformers."""
    if not isinstance(tokenizer.chat_template, str) or not hasattr(tokenizer, "special_tokens_map"):
        return None
    try:
        from transformers.utils.chat_template_utils import _compile_jinja_template

        template = _compile_jinja_template(tokenizer.chat_template)
        template.globals = dict(template.globals)  # each rendering copies them, and copying a ChainMap is slow
        return template
    except Exception:  # noqa: BLE001 - a private function: it may be gone, or refuse, in any way
        return None
