"""The tiny model of the laptop default: a Qwen3 of a few hundred thousand parameters, its tokenizer and its template.

The template is compact on purpose. It renders tools by their descriptions alone (use style="brief"), of the system
message the user's preference, of a question the first USER_CHARACTERS, of a tool result the first RESULT_CHARACTERS:
what a model of this size can use. Each message is rendered on its own, so a transcript grows by appending only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

USER_CHARACTERS = 48
RESULT_CHARACTERS = 16
_NUMBER = re.compile(r"\d+(\.\d+)?")
TERSE = "{#- shows little on purpose -#}"
"""A comment in a template. What others leave out is written as text (agents/rollouts/template_form.py)."""
TEMPLATE = (
    f"{TERSE}{{%- for m in messages -%}}"
    "{%- if m['role'] == 'system' -%}"
    "{%- set told = m['content'].split(\"The user's wish: \") -%}<|im_start|>system\n{{ told[1] }}"
    "{%- for t in tools or [] %}{{ '\n' + t['function']['description'] }}{%- endfor -%}<|im_end|>"
    "{%- elif m['role'] == 'user' -%}"
    f"<|im_start|>user\n{{{{ m['content'][:{USER_CHARACTERS}] }}}}<|im_end|>"
    "{%- elif m['role'] == 'assistant' -%}<|im_start|>assistant\n{{ m['content'] }}<|im_end|>"
    f"{{%- else -%}}<|im_start|>tool\n{{{{ m['content'][:{RESULT_CHARACTERS}] }}}}<|im_end|>"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


def load_tokenizer(text: str = "") -> PreTrainedTokenizerFast:
    """The shipped tokenizer (or another, as JSON text) with the compact template."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    shipped = resources.files("toolorchestra.agents") / "data" / "tiny" / "tokenizer.json"
    make: Any = PreTrainedTokenizerFast
    made = make(
        tokenizer_object=Tokenizer.from_str(text or shipped.read_text(encoding="utf-8")),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made  # type: ignore[no-any-return]


def numbers_of(tokenizer: PreTrainedTokenizerFast) -> Mapping[int, float]:
    """The tokens that are positive numbers, with their values: prices and seconds."""
    texts = {number: str(tokenizer.decode([number])).strip() for number in range(len(tokenizer))}
    return {number: float(text) for number, text in texts.items() if _NUMBER.fullmatch(text) and float(text)}


def spoken_of(tokenizer: PreTrainedTokenizerFast) -> Mapping[int, int]:
    """The tokens of names with a space before them, and those of the names alone."""
    known = tokenizer.get_added_vocab()
    return {token: known[text[1:]] for text, token in known.items() if text.startswith(" ") and text[1:] in known}


def build_model(
    vocabulary: int, hidden: int = 96, layers: int = 3, seed: int = 0, tokenizer: PreTrainedTokenizerFast | None = None
) -> PreTrainedModel:
    """A randomly initialised Qwen3 of this shape, in float32. With its tokenizer, tokens that are numbers are waves of
    their logarithm, and stay so: near prices look alike, so that what is learnt of one holds for the next. The head
    then has weights of its own, for it pushes away what is never said. And names that a space stands before begin as
    the names alone and a mark that all of them share: what is learnt of one that the user asks for holds for the
    others."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config: Any = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=2048,
        tie_word_embeddings=tokenizer is None,
        initializer_range=0.05,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Any = Qwen3ForCausalLM(config)
        if tokenizer is not None:
            embeddings, numbers = made.get_input_embeddings().weight.data, numbers_of(tokenizer)
            _order(embeddings, numbers, config.initializer_range)
            _hold(made.get_input_embeddings(), numbers)
            spoken = spoken_of(tokenizer)
            mark = config.initializer_range * torch.randn(hidden)
            embeddings[list(spoken)] = embeddings[list(spoken.values())] + mark
    return made.float()  # type: ignore[no-any-return]


def _order(embeddings: Any, numbers: Mapping[int, float], deviation: float) -> None:
    """Waves of the logarithm, half of them short and half of them long, as wide as the other tokens are."""
    import torch

    width = embeddings.shape[1]
    lengths = torch.where(torch.arange(width) % 2 == 0, 2.0, 0.5)
    waves, phases = torch.randn(width) / lengths, 2 * math.pi * torch.rand(width)
    for token, value in numbers.items():
        embeddings[token] = deviation * math.sqrt(2) * torch.cos(waves * math.log(value) + phases)


def _hold(embeddings: Any, tokens: Iterable[int]) -> None:
    """Let training move no row of these tokens. What moves each price by itself makes it unlike its neighbours, and
    prices that come in tests alone unlike all of them."""
    import torch

    held = torch.zeros(embeddings.num_embeddings, dtype=torch.bool)
    held[[*tokens]] = True
    embeddings.register_buffer("held", held, persistent=False)
    embeddings.register_forward_hook(_still)


def _still(embeddings: Any, asked: tuple[Any, ...], found: Any) -> Any:
    """What was looked up, without a gradient for the tokens that are held."""
    return found.detach().where(embeddings.held[asked[0]][..., None], found)


def random_model(shape: Mapping[str, Any], dtype: str, device: str = "cpu") -> Any:
    """A Qwen3 of this shape (the keys of its config.json), made on the device in that dtype."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    kept = {name: value for name, value in shape.items() if name != "model_type"}
    config: Any = Qwen3Config(**{"max_position_embeddings": 40_960, "use_cache": False, **kept})
    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(0)
            return Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(usual)
