"""The quick way to render and encode gives what the tokenizer gives, or is not used."""

from __future__ import annotations

from typing import Any

import pytest

from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.rollouts.quick_tokenizer import CHECKED, SHORT_TURN, QuickTokenizer
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.rollouts.tokens import Chat

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}{{ note }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK = [{"role": role, "content": f"{role} says «ü»"} for role in ("system", "user", "assistant", "tool")]
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]


class Counting:
    """A tokenizer that counts how often it is asked itself."""

    def __init__(self, template: str = CHATML) -> None:
        self.inner = load_tokenizer()
        self.inner.chat_template = template
        self.renders = self.encodes = self.decodes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
        self.renders += 1
        return self.inner.apply_chat_template(*args, **kwargs)

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        self.encodes += 1
        return self.inner.encode(*args, **kwargs)

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        self.decodes += 1
        return self.inner.decode(*args, **kwargs)


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("prompting", [True, False])
def test_it_renders_and_encodes_what_the_tokenizer_does(tools: Any, prompting: bool) -> None:
    tokenizer = Counting()
    quick = QuickTokenizer(tokenizer, {"note": "!"})
    for end in range(1, len(TALK) + 1):
        text = quick.render(TALK[:end], tools, prompting=prompting)
        own = tokenizer.inner.apply_chat_template(
            TALK[:end], tools=tools, add_generation_prompt=prompting, tokenize=False, note="!"
        )
        assert text == own
        assert quick.encode(text) == tokenizer.inner.encode(own, add_special_tokens=False)
    assert (tokenizer.renders, tokenizer.encodes) == (CHECKED, CHECKED)


def test_a_turn_of_few_tokens_is_decoded_once() -> None:
    tokenizer = Counting()
    quick = QuickTokenizer(tokenizer, {})
    text = "<|im_start|>search search<|im_end|>"
    short = tokenizer.inner.encode(text, add_special_tokens=False)
    long = short * (SHORT_TURN // len(short) + 1)
    for _ in range(3):
        assert quick.decode(short) == text
        assert quick.decode(long) == tokenizer.inner.decode(long, skip_special_tokens=False)
    assert tokenizer.decodes == 1 + 3


def test_a_quick_way_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Counting()
    quick = QuickTokenizer(tokenizer, {})
    monkeypatch.setattr(quick, "_rendered", lambda *_: "another text")
    monkeypatch.setattr(quick, "_encoded", lambda _text: [1, 2])
    for _ in range(5):
        assert quick.render(TALK, None, prompting=True).startswith("<|im_start|>system")
        assert quick.encode("search") == tokenizer.inner.encode("search", add_special_tokens=False)
    assert (tokenizer.renders, tokenizer.encodes) == (5, 10 - 5)


def test_a_quick_way_that_breaks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Counting()
    quick = QuickTokenizer(tokenizer, {})
    monkeypatch.setattr(quick, "_compiled", object())
    assert [quick.render(TALK, None, prompting=True) for _ in range(3)]
    assert tokenizer.renders == 3


def test_what_a_template_refuses_is_raised_and_says_nothing_of_the_quick_way() -> None:
    tokenizer = Counting("{{ raise_exception('no tools') if messages[-1].role == 'tool' }}" + CHATML)
    quick = QuickTokenizer(tokenizer, {})
    for _ in range(4):
        with pytest.raises(Exception, match="no tools"):
            quick.render(TALK, None, prompting=True)
    for _ in range(4):
        quick.render(TALK[:2], None, prompting=True)
    with pytest.raises(Exception, match="no tools"):
        quick.render(TALK, None, prompting=True)
    assert tokenizer.renders == 4 + CHECKED


def test_a_chat_uses_it_for_episodes() -> None:
    tokenizer = Counting(load_tokenizer().chat_template)
    chat = Chat(tokenizer)
    plain: Any = load_tokenizer()
    whole, before = Chat(plain), tokenizer.renders
    made = factory_of("HLE-v0", style="brief")
    for seed in range(6):
        observation = made.start(seed).episode.observation
        assert chat.render(observation) == whole.render(observation)
    assert tokenizer.renders - before == CHECKED
