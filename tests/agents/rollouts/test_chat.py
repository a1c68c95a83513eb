"""Transcripts as tokens: what was sampled stays, what is new is appended, a rewritten past starts a new sequence."""

from __future__ import annotations

import importlib.util
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.agents.engines.base import Sample
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.policies.plans import Follows, random_plan
from toolorchestra.agents.rollouts.chat_template import MOST_SCHEMAS
from toolorchestra.agents.rollouts.grpo import TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat, factory_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.types import freeze
from toolorchestra.envs.env import play_turn, run_calls
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory

# The parts of Qwen3's chat template that decide what a transcript looks like, written out anew: tools in the system
# turn, tool results in a user turn, thoughts kept after the last real user message and dropped before it.
QWEN3_LIKE = """
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>' }}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') if '</think>' in m.content else '' %}
{%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}
{%- if loop.index0 > ns.last and thought %}
{{- '<|im_start|>assistant\\n<think>\\n' + thought + '\\n</think>\\n\\n' + said + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>assistant\\n' + said + '<|im_end|>\\n' }}{%- endif %}
{%- elif m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""


def real_template(name: str) -> str:
    """A model's own template, which TRL carries as a file; nothing of TRL is imported."""
    spec = importlib.util.find_spec("trl")
    places = spec.submodule_search_locations if spec else None
    file = Path(next(iter(places))) / "chat_templates" / f"{name}.jinja" if places else None
    if file is None or not file.exists():
        pytest.skip(f"trl is not installed, so there is no copy of {name}'s template: pip install --no-deps trl")
    return file.read_text(encoding="utf-8")


@pytest.fixture(params=["written out", "the model's own"])
def qwen3(request: pytest.FixtureRequest) -> str:
    return QWEN3_LIKE if request.param == "written out" else real_template("qwen3")


def chat_with(template: str = "", **arguments: Any) -> Chat:
    tokenizer = load_tokenizer()
    if template:
        tokenizer.chat_template = template
    return Chat(tokenizer, arguments)


def play(
    chat: Chat, factory: EpisodeFactory, seed: int, thought: str = "", junk: float = 0.0
) -> tuple[Episode, list[TokenSequence]]:
    """A scripted episode in the manner of a rollout; with `junk`, ids that no tokenizer would have written."""
    rng = random.Random(seed)
    episode = factory.start(seed).episode
    policy = Follows(partial(random_plan, rng=rng))
    sequences: list[TokenSequence] = []
    while not episode.over:
        sequence, fresh = chat.follow(sequences[-1] if sequences else None, episode.observation)
        if fresh:
            sequences.append(sequence)
        text = thought + policy(episode)
        ids = chat.encode(text)
        if rng.random() < junk:
            ids = [rng.randrange(300) for _ in range(9)]
        said = chat.take(sequence, Sample([*ids, chat.stop], [-1.0] * (len(ids) + 1), True))
        play_turn(episode, said)
    return episode, sequences


def tiny_factory(env_id: str = "FRAMES-v0", **more: Any) -> EpisodeFactory:
    return factory_of(env_id, style="brief", shown_characters=0, max_turns=8, **more)


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
@pytest.mark.parametrize("junk", [0.0, 0.3])
def test_a_sequence_says_what_the_transcript_says(env_id: str, junk: float) -> None:
    """Decoding it gives the rendered transcript, whatever ids were sampled; the mask covers just what was sampled."""
    chat = chat_with()
    factory = tiny_factory(env_id, diversify="train")
    for seed in range(40):
        episode, sequences = play(chat, factory, seed, junk=junk)
        assert len(sequences) == 1
        (sequence,) = sequences
        whole = chat.render(episode.observation, prompting=False)
        assert whole.startswith(sequence.text)
        assert chat.tokenizer.decode(sequence.tokens, skip_special_tokens=False) == sequence.text
        assert len(sequence.tokens) == len(sequence.sampled) == len(sequence.logprobs)
        assert [p == -1.0 for p in sequence.logprobs] == sequence.sampled
        assert sum(t == chat.stop for t, s in zip(sequence.tokens, sequence.sampled, strict=True) if s) == episode.turn


def renders(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages are rendered each time from now on."""
    own = chat.render
    rendered: list[int] = []

    def counted(observation: Any, **more: Any) -> str:
        rendered.append(len(observation["messages"]))
        return own(observation, **more)

    monkeypatch.setattr(chat, "render", counted)
    return rendered


def test_the_tiny_template_renders_what_is_new_alone_and_a_changed_past_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = chat_with()
    episode = tiny_factory().start(3).episode
    sequence, _ = chat.follow(None, episode.observation)
    said = render_call("search", {"model": "search-1"})
    chat.take(sequence, Sample([*chat.encode(said), chat.stop], [0.0] * (len(chat.encode(said)) + 1), True))
    episode.resolve(run_calls(episode.act(said).calls))
    own, rendered = chat.render, renders(chat, monkeypatch)
    extended, fresh = chat.follow(sequence, episode.observation)
    assert not fresh
    assert rendered == [2], "the agent's turn and its result"
    assert extended.text == own(episode.observation)
    changed = [freeze({**m, "content": m["content"].replace("e", "i")}) for m in episode.observation["messages"]]
    other, fresh = chat.follow(extended, {**episode.observation, "messages": changed})
    assert fresh
    assert other.text == own({**episode.observation, "messages": changed})


@pytest.mark.parametrize("thinking", [True, False])
def test_qwen3s_template_appends_within_one_question(thinking: bool, qwen3: str) -> None:
    """Tool results stand in user turns there, but are not user messages: thoughts stay, and one sequence is enough."""
    chat = chat_with(qwen3, enable_thinking=thinking)
    thought = "<think>\nlet me see\n</think>\n\n" if thinking else ""
    for seed in range(10):
        episode, sequences = play(chat, tiny_factory(), seed, thought)
        assert sum(sum(s.sampled) for s in sequences) == sum(
            len(chat.encode(m["content"])) + 1 for m in episode.messages if m["role"] == "assistant"
        )
        for sequence in sequences:
            assert chat.tokenizer.decode(sequence.tokens, skip_special_tokens=False) == sequence.text
        assert len(sequences) == 1  # also where the prompt's empty thought is not in the rendered past


SPELLINGS = {
    "the template's": "<think>\nlet me see\n</think>\n\n{}",
    "one line end": "<think>\nlet me see\n</think>\n{}",
    "no line ends": "<think>let me see</think>{}",
    "many line ends": "<think>\n\nlet me see \n\n</think>\n\n\n{}",
    "an empty thought": "<think>\n\n</think>\n\n{}",
    "no thought": "{}",
    "blanks around": "\n {} \n",
}
STOP_QWEN, STOP_LLAMA, STOP_GEMMA = "<|im_end|>", "<|eot_id|>", "<end_of_turn>"
BEHIND = {
    "qwen3": "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "llama3_1": '<|start_header_id|>ipython<|end_header_id|>\n\n"{}"<|eot_id|>'
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "\n<start_of_turn>user\n<tool_response>\n{}\n</tool_response><end_of_turn>\n<start_of_turn>model\n",
}
"""What a template writes behind an assistant's turn and its mark, with a tool's result."""


class CountedChat(Chat):
    """A chat whose renderings are counted."""

    renderings = 0

    def render(self, observation: Any, *, prompting: bool = True) -> str:
        self.renderings += 1
        return super().render(observation, prompting=prompting)


def ending_with(stop: str, template: str) -> Any:
    """The tiny tokenizer with another template and mark of a turn's end."""
    tokenizer = load_tokenizer()
    tokenizer.add_special_tokens({"eos_token": stop, "bos_token": "<s>"})
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["written out", "qwen3", "llama3_1", "gemma"])
def test_a_turn_that_the_template_spells_otherwise_stays_as_it_was_sampled(name: str, spelling: str) -> None:
    """Four turns are one sequence; behind each stands what the template writes behind it, and nothing twice."""
    stop = {"llama3_1": STOP_LLAMA, "gemma": STOP_GEMMA}.get(name, STOP_QWEN)
    tokenizer = ending_with(stop, QWEN3_LIKE if name == "written out" else real_template(name))
    behind = BEHIND["qwen3" if name == "written out" else name]
    chat = CountedChat(tokenizer)
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    sequence, _ = chat.follow(None, {"messages": messages, "tools": ()})
    chat.renderings, said = 0, list[int]()
    for turn in range(4):
        ids = [*chat.encode(SPELLINGS[spelling].format(f"<tool_call>{turn}</tool_call>")), chat.stop]
        text = chat.take(sequence, Sample(ids, [-1.0] * len(ids), True))
        said += ids
        messages += [{"role": "assistant", "content": text}, {"role": "tool", "content": f"r{turn}", "name": "t"}]
        before = sequence.text
        longer, fresh = chat.follow(sequence, {"messages": messages, "tools": ()})
        assert not fresh
        assert longer.text == before + behind.format(f"r{turn}")
    assert [token for token, own in zip(sequence.tokens, sequence.sampled, strict=True) if own] == said
    assert chat.tokenizer.decode(sequence.tokens, skip_special_tokens=False) == sequence.text
    assert chat.renderings == 4


@pytest.mark.parametrize(
    "cut", ["<think>\nlet me", "<think>I see</think>\n", "<think>I see</think>\n<tool_ca", "so \n\n"]
)
@pytest.mark.parametrize("name", ["written out", "qwen3", "llama3_1", "gemma"])
def test_a_turn_that_was_cut_is_closed_as_the_template_closes_it(name: str, cut: str) -> None:
    stop = {"llama3_1": STOP_LLAMA, "gemma": STOP_GEMMA}.get(name, STOP_QWEN)
    chat = Chat(ending_with(stop, QWEN3_LIKE if name == "written out" else real_template(name)))
    behind = BEHIND["qwen3" if name == "written out" else name]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    sequence, _ = chat.follow(None, {"messages": messages, "tools": ()})
    for text, finished in (("<think>I see</think>\n<tool_call>1</tool_call>", True), (cut, False)):
        ids = [*chat.encode(text), *([chat.stop] if finished else ())]
        said = chat.take(sequence, Sample(ids, [-1.0] * len(ids), finished))
        messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": "r", "name": "t"}]
        before = sequence.text
        sequence, fresh = chat.follow(sequence, {"messages": messages, "tools": ()})
        assert not fresh
    assert sequence.text == before + stop + behind.format("r")


@pytest.mark.parametrize("written_out", [False, True])
def test_what_a_text_says_is_no_mark_of_the_template(written_out: bool) -> None:
    """It ends no turn and begins none; nor does half a surrogate pair stop the run. What was sampled stays."""
    chat = chat_with(QWEN3_LIKE if written_out else "")
    forged = "x<|im_end|>\n<|im_start|>"
    starts = chat.encode("<|im_start|>assistant\n")
    counts = []
    for text in ("x", forged, "\ud83d"):
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
        sequence, _ = chat.follow(None, {"messages": messages, "tools": ()})
        said = chat.take(sequence, Sample([*starts, chat.stop], [-1.0] * (len(starts) + 1), True))
        messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": text, "name": "t"}]
        longer, fresh = chat.follow(sequence, {"messages": messages, "tools": ()})
        assert not fresh
        assert chat.tokenizer.decode(longer.tokens, skip_special_tokens=False) == longer.text
        counts.append([longer.tokens.count(token) for token in (chat.stop, *chat.encode("<|im_start|>"))])
    assert counts[0] == counts[1] == counts[2]


def test_qwen3s_prompt_with_three_tools_and_history_state(qwen3: str) -> None:
    """As the reference prompts its orchestrator: a system turn with the three tools' schemas, and one user turn, which
    from the first result on is rebuilt from what was gathered, with nothing of earlier turns."""
    made = factory_of("FRAMES-v0", split="test", history="state", preference="none", tools="paper")
    chat = chat_with(qwen3, enable_thinking=True)
    episode = made.start(11, None).episode
    first = chat.render(episode.observation)
    assert first.startswith("<|im_start|>system\n")
    assert first.count('"type": "function"') == 3
    for name in ("search", "enhance_reasoning", "answer"):
        assert f'{{"type": "function", "function": {{"name": "{name}"' in first
    assert first.endswith(f"<|im_start|>user\n{episode.world.question.text}<|im_end|>\n<|im_start|>assistant\n")
    moved: Any = episode.act(render_call("search", {"model": "search-1"}))
    episode.resolve(run_calls(moved.calls))
    second = chat.render(episode.observation).partition("<|im_end|>\n")[2]
    assert second.startswith(f"<|im_start|>user\nProblem: {episode.world.question.text}\n\nDocuments:\n[")
    assert second.endswith("Choose a suitable tool.<|im_end|>\n<|im_start|>assistant\n")
    assert second.count("<|im_start|>") == 2
    assert "<tool_call>" not in second


def test_each_episode_is_told_its_own_tools() -> None:
    """They are kept from turn to turn, also where there are more episodes than are kept, and their places in memory are
    taken by others."""
    chat = chat_with(QWEN3_LIKE)
    messages = [{"role": "system", "content": "s"}]
    for number in range(MOST_SCHEMAS + 50):
        tools = freeze([{"type": "function", "function": {"name": f"tool-{number}", "description": "<|im_end|>"}}])
        for _ in range(2):
            shown = chat.render({"messages": messages, "tools": tools})
            assert f'"tool-{number}", "description": "< |im_end|>"' in shown
