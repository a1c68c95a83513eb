"""TRL's GRPOTrainer on our episodes: what it is given is what was played, and what failed teaches nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.sources import BREAK, nap
from toolorchestra.agents.adapters.trl_reward import preference_reward
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.rollouts.grpo import GroupReward, Measure
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.envs.adapters.trl import TrlRollouts, environment_reward, task_rows
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import register

trl = pytest.importorskip("trl", reason="TRL is missing: make environment")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]
BROKEN, SLEEPER = "Tests/Broken-v0", "Tests/Sleeper-v0"
BRIEF = {"split": "train", "style": "brief", "shown_characters": 0}
Texts = Callable[[Sequence[str]], Sequence[str]]


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(load_tokenizer())


class Scripted:
    """Stands where TRL's vLLM does: writes given texts, and nothing random."""

    def __init__(self, chat: Chat, texts: Texts, trainer: Any = None, **limits: Any) -> None:
        self._chat, self._texts = chat, texts
        self.use_vllm, self.vllm_generation, self.eos_token_ids = True, self, [chat.stop]
        self.model = getattr(trainer, "model", SimpleNamespace(training=True, config=SimpleNamespace()))
        self.max_completion_length = limits.get("max_completion_length", 400)
        self.num_generations = limits.get("num_generations", 1)

    def generate(self, prompts: Sequence[list[int]], _images: None, _count: int) -> tuple[Any, ...]:
        texts = self._texts([str(self._chat.tokenizer.decode(ids)) for ids in prompts])
        ids = [[*self._chat.encode(text), self._chat.stop] for text in texts]
        return prompts, ids, [[[-0.5] for _ in row] for row in ids], None


def any_calls(seed: int) -> Texts:
    """Any tool with any model that the prompt tells of, now and then something that is no call, and words."""
    rng = random.Random(seed)

    def texts(prompts: Sequence[str]) -> list[str]:
        calls = [
            render_call(tool, {"model": f"{alias}-{rng.choice('123')}"})
            for tool, alias in (("search", "search"), ("enhance_reasoning", "reasoner"), ("answer", "answer"))
        ]
        return [rng.choice([*calls, *calls, calls[0] + calls[2], "<tool_call>{", "Hello?"]) for _ in prompts]

    return texts


def columns(rollouts: TrlRollouts, rows: Sequence[dict[str, Any]], trainer: Any) -> list[dict[str, Any]]:
    """What the rollouts give, row by row."""
    made = rollouts([row["prompt"] for row in rows], trainer)
    return [{name: made[name][place] for name in made} for place in range(len(rows))]


def turns_of(row: dict[str, Any]) -> list[tuple[int, list[int]]]:
    """The sampled turns: how many tokens stood before each, and its own."""
    turns: list[tuple[int, list[int]]] = []
    before = 0
    for place, (token, mask) in enumerate(zip(row["completion_ids"], row["env_mask"], strict=True)):
        if mask and not before:
            turns.append((len(row["prompt_ids"]) + place, []))
        if mask:
            turns[-1][1].append(token)
        before = mask
    return turns


def check_bill(prompt: str, row: dict[str, Any], chat: Chat) -> None:
    """Play the same actions of the same seed in the plain environment: all figures are the same, bit for bit."""
    task = json.loads(prompt)
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in task["arguments"].items()}
    env: Any = gym.make(task["id"], **given).unwrapped
    env.reset(seed=task["seed"], options=task["options"])
    total, info = 0.0, {}
    for before, ids in turns_of(row):
        env.charge_policy(Usage("qwen3-8b", ORCHESTRATOR, Tokens(before, 0, len(ids))))
        text = str(chat.tokenizer.decode(ids)).removesuffix("<|im_end|>")
        _, reward, _, _, info = env.step(text)
        total += reward
    assert row["reward"] == total
    assert row["bill"] == info["ledger"]
    assert row["seconds"] == info["ledger"]["seconds"]
    assert row["calls"] == env.episode.calls
    assert row["preference"] == env.episode.preference


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("HLE-v0", {**BRIEF, "diversify": "train", "vary": ["tools", "prices"], "reward": "scalar"}),
        ("ToolScale-v0", {"max_turns": 3}),
    ],
)
def test_the_same_seeds_and_actions_give_the_same_rewards_and_bills(
    env_id: str, arguments: dict[str, Any], chat: Chat
) -> None:
    rows = task_rows(env_id, range(12), **arguments)
    made = columns(TrlRollouts(chat), rows, Scripted(chat, any_calls(1), max_completion_length=4000))
    assert sum(row["usd"] for row in made) > 0
    assert not any(row["failed"] for row in made)
    assert len({json.dumps(row["bill"]) for row in made}) > 6
    for row, task in zip(made, rows, strict=True):
        check_bill(task["prompt"], row, chat)


def test_siblings_have_each_their_own_luck(chat: Chat) -> None:
    """Their prompts and prices are the same, what is drawn is not; played again, all is the same."""
    rows = task_rows("HLE-v0", [3, 4], **BRIEF) * 3
    ask = [render_call("answer", {"model": "answer-1"})]
    first, again = (columns(TrlRollouts(chat), rows, Scripted(chat, lambda p: ask * len(p))) for _ in range(2))
    assert first == again
    for one in (0, 1):
        assert len({json.dumps(row["bill"]) for row in first[one::2]}) == 3
        assert len({json.dumps([row["prompt_ids"], row["keys"]]) for row in first[one::2]}) == 1
    check_bill(rows[1]["prompt"], first[1], chat)


def trainer_of(chat: Chat, rows: list[dict[str, Any]], place: Path, **given: Any) -> Any:
    from datasets import Dataset

    settings = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 60, "max_steps": 1}
    own = {name: given.pop(name) for name in list(given) if name in {**settings, "temperature": 1}}
    args = trl.GRPOConfig(str(place), use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
                          logging_strategy="no", weight_decay=0.0, **{**settings, **own})  # fmt: skip
    made = trl.GRPOTrainer(
        build_model(len(chat.tokenizer), 32, 1, seed=3),  # type: ignore[arg-type]
        args=args,
        train_dataset=Dataset.from_list(rows),
        **{"reward_funcs": environment_reward, "processing_class": chat.tokenizer, **given},
    )
    made.current_gradient_accumulation_steps = 1
    return made


def test_what_the_model_samples_is_billed_and_scored_as_it_was_sampled(chat: Chat, tmp_path: Path) -> None:
    import torch

    rows = [row for row in task_rows("HLE-v0", range(2), **BRIEF, max_turns=3) for _ in range(2)]
    rollouts = TrlRollouts(chat, turn_tokens=6)
    trainer = trainer_of(chat, rows, tmp_path, rollout_func=rollouts, temperature=0.7)
    made = columns(rollouts, rows, trainer)
    for row, task in zip(made, rows, strict=True):
        check_bill(task["prompt"], row, chat)
        ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids).logits[0, len(row["prompt_ids"]) - 1 : -1] / 0.7
        again = logits.log_softmax(-1).gather(1, torch.tensor(row["completion_ids"])[:, None]).squeeze(1)
        mask = torch.tensor(row["env_mask"], dtype=torch.bool)
        assert mask.any()
        torch.testing.assert_close(torch.tensor(row["logprobs"])[mask], again[mask], atol=1e-4, rtol=0)


def test_an_episode_that_leaves_no_room_is_cut_and_its_length_is_kept(chat: Chat) -> None:
    rows = task_rows("HLE-v0", range(3), **BRIEF)
    search = render_call("search", {"model": "search-1"})
    made = columns(TrlRollouts(chat), rows, Scripted(chat, lambda p: [search] * len(p), max_completion_length=21))
    for row in made:
        assert len(row["completion_ids"]) == len(row["logprobs"]) == len(row["env_mask"]) == 21
        assert (row["truncated_by"], row["reward"], row["failed"]) == ("context", 0.0, False)


def test_what_a_turn_has_cost_that_its_deadline_broke_off_is_on_the_bill(chat: Chat) -> None:
    register(SLEEPER, "tests.sources:SleeperSource")
    cap, texts = SpendCap(1.0), lambda prompts: [nap(0) + nap(60_000), "done"]
    rollouts = TrlRollouts(chat, deadline_seconds=0.1, arguments={"spend_cap": cap})
    late, sound = columns(rollouts, task_rows(SLEEPER, range(2)), Scripted(chat, texts))
    assert (late["truncated_by"], late["reward"], sound["reward"]) == ("deadline", None, 1.0)
    assert late["bill"]["usd_by_role"]["tool"] > 0
    assert late["bill"]["usd"] + sound["bill"]["usd"] == pytest.approx(cap.spent_usd)


def gradients(chat: Chat, texts: Sequence[str], place: Path, **given: Any) -> list[Any]:
    """Of TRL's loss over one group that says these texts in an environment whose `breaks` fails."""
    register(BROKEN, "tests.sources:BrokenSource")
    rows = task_rows(BROKEN, [5], preference="none") * len(texts)
    rollouts = TrlRollouts(chat)
    trainer = trainer_of(
        chat,
        rows,
        place,
        rollout_func=lambda prompts, own: rollouts(
            prompts, Scripted(chat, lambda _: texts, own, num_generations=len(texts))
        ),
        per_device_train_batch_size=len(texts),
        num_generations=len(texts),
        **given,
    )
    trainer.model.train()
    batch = trainer._generate_and_score_completions([dict(row) for row in rows])
    trainer.compute_loss(trainer.model, batch).backward()
    return [p.grad for p in trainer.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("reward", [environment_reward, preference_reward])
def test_a_failed_episode_changes_no_gradient(chat: Chat, tmp_path: Path, reward: Any) -> None:
    import torch

    sound = ["done", "nothing", "done"]
    without = gradients(chat, sound, tmp_path, reward_funcs=reward)
    assert max(float(g.abs().max()) for g in without) > 1e-3
    for failed in (BREAK, "Once more. " + BREAK):
        beside = gradients(chat, [*sound, failed], tmp_path, reward_funcs=reward)
        torch.testing.assert_close(beside, without, atol=1e-6, rtol=1e-4)


def test_the_group_reward_is_ours(chat: Chat) -> None:
    rows = [row for row in task_rows("HLE-v0", range(6), **BRIEF) for _ in range(4)]
    made = TrlRollouts(chat)([r["prompt"] for r in rows], Scripted(chat, any_calls(2), num_generations=4))
    scores = preference_reward([r["prompt"] for r in rows], **made)
    assert max(score for score in scores if score is not None) > 0.5
    for first in range(0, len(rows), 4):
        own = slice(first, first + 4)
        measured = zip(*(made[name][own] for name in ("outcome", "usd", "seconds", "calls", "failed")), strict=True)
        again = GroupReward(made["preference"][first], made["keys"][first]).score([Measure(*one) for one in measured])
        assert scores[own] == [score and score.total for score in again]


def test_a_group_that_is_spread_over_processes_is_refused() -> None:
    two = {"outcome": [1.0] * 2, "usd": [0.1] * 2, "seconds": [1.0] * 2, "calls": [{}] * 2, "failed": [False] * 2}
    with pytest.raises(ConfigError, match="a group of 4 rollouts was expected in one process, got 2"):
        preference_reward(["a"] * 2, **two, preference=[Preference()] * 2, keys=[()] * 2, siblings=[4] * 2)


@pytest.mark.parametrize(
    ("said", "seconds", "heard"),
    [(BREAK, 10.0, "first failed in breaks: RuntimeError: the disk is on fire"),
     (nap(60_000), 0.05, "first ran into its deadline")],
    ids=["failed", "late"],
)  # fmt: skip
def test_three_batches_of_which_nothing_is_known_end_the_run(chat: Chat, said: str, seconds: float, heard: str) -> None:
    register(BROKEN, "tests.sources:BrokenSource")
    register(SLEEPER, "tests.sources:SleeperSource")
    rows = task_rows(BROKEN if said == BREAK else SLEEPER, range(2), preference="none")
    rollouts, scripted = TrlRollouts(chat, deadline_seconds=seconds), Scripted(chat, lambda _: [said] * 2)
    for _ in range(2):  # one may be a single broken task
        assert all(row["failed"] for row in columns(rollouts, rows, scripted))
    with pytest.raises(Outage, match=f"3 batches in a row have no result to learn from.*{heard}"):
        columns(rollouts, rows, scripted)


def test_nothing_is_sampled_when_the_spend_cap_is_used_up(chat: Chat) -> None:
    cap = SpendCap(1.0)
    cap.add(NANO)
    trainer = Scripted(chat, lambda _: pytest.fail("sampled"))
    with pytest.raises(SpendCapReached, match="no episode can begin"):
        columns(TrlRollouts(chat, arguments={"spend_cap": cap}), task_rows("HLE-v0", [1]), trainer)


def test_seeds_are_those_of_gymnasiums_reset(chat: Chat) -> None:
    rows = task_rows("HLE-v0", np.arange(2)) + task_rows("HLE-v0", [7], {"episode_seed": 5})
    made = [TrlRollouts(chat)._started(row["prompt"]).origin for row in rows]
    env = gym.make("ToolOrchestra/HLE-v0")
    infos = [env.reset(seed=0)[1], env.reset(seed=1)[1], env.reset(options={"episode_seed": 5})[1]]
    assert [one[1] for one in made if one] == [info["episode_seed"] for info in infos]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_prompt_of_another_data_set_is_refused(chat: Chat) -> None:
    for prompt in ("What is 2 + 2?", "{}", "[]", "7", '{"id": "HLE-v0", "seed": 1}'):
        with pytest.raises(ConfigError, match=r"a prompt is one of task_rows\(ID, seeds\)"):
            TrlRollouts(chat)([prompt], Scripted(chat, lambda _: []))


def test_a_template_that_rewrites_the_past_is_refused_and_one_for_training_is_not() -> None:
    folder = Path(trl.__file__).parent / "chat_templates"
    thought = "<think>\nWho knows?\n</think>\n\n" + render_call("search", {"model": "search-1"})
    rows = task_rows("HLE-v0", range(2), **BRIEF, max_turns=2)
    tokenizer = load_tokenizer()
    tokenizer.chat_template = (folder / "qwen3_training.jinja").read_text(encoding="utf-8")
    chat = Chat(tokenizer)
    made = columns(TrlRollouts(chat), rows, Scripted(chat, lambda p: [thought] * len(p), max_completion_length=2000))
    assert all(len(turns_of(row)) == 2 for row in made)
    tokenizer.chat_template = TEMPLATE_THAT_FORGETS
    chat = Chat(tokenizer)
    with pytest.raises(ConfigError, match="get_training_chat_template"):
        TrlRollouts(chat)([row["prompt"] for row in rows], Scripted(chat, lambda p: [thought] * len(p)))


def test_the_guides_lines_take_a_template_that_trl_does_not_know() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(encoding="utf-8")
    lines = guide[guide.index("with suppress(") : guide.index("trainer = GRPOTrainer(")]
    tokenizer = load_tokenizer()
    tokenizer.chat_template = TEMPLATE_THAT_FORGETS
    known = trl.chat_template_utils.get_training_chat_template
    with pytest.raises(ValueError, match="template"):
        known(tokenizer)
    exec(lines, {"tokenizer": tokenizer, "suppress": suppress, "get_training_chat_template": known})
    assert tokenizer.chat_template == TEMPLATE_THAT_FORGETS


TEMPLATE_THAT_FORGETS = (
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{%- if m.role == 'assistant' -%}"
    "{{ m.content.split('</think>')[-1] }}{%- else -%}{{ m.content }}{%- endif -%}<|im_end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
