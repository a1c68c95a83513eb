"""A training loop in one file, to be read from top to bottom, for those who write their own trainer.

    python docs/examples/one_file_loop.py --steps 30 --out runs/one-file

A tiny model learns which tool to call, and which expert model behind it, for the questions of HLE-v0: simulated
experts, offline, on a CPU. From this project come the environment, the group reward, and the tiny model's shape and
tokenizer; the rest is plain PyTorch. What agents/training has and this file leaves out:

- A cache of keys and values, several processes, vLLM: here each new token costs a pass over its whole episode.
- Calls that wait. These tools answer at once; for real ones see gymnasium.make_vec, and its send() and recv().
- Chat templates that rewrite the past, and tool results that spell their marks (agents/rollouts/chat_template.py).
- A start from the best of several routes; tools, names and prices that change from task to task; a second world.
- Evaluation on held-out tasks. Here each step draws new tasks out of a million, so the curve is no memory of them.
- Filters of groups, an entropy bonus, a KL term, a falling learning rate, an average of the weights, checkpoints.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

import toolorchestra as to
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.rollouts.grpo import GroupReward, Measure
from toolorchestra.envs.base.preference import GENERAL, Preference
from toolorchestra.envs.money.prices import ORCHESTRATOR, REWARDED_ROLES, Tokens, Usage

TOKENIZER: Any = load_tokenizer()
MOST_TOKENS = 8  # of one turn; a call is four: its tool, its model, its end, the turn's end
# The brief style and no passages: what a tiny model can use. The preference is sampled, the price sheet the paper's.
SETTINGS: dict[str, Any] = {"split": "train", "style": "brief", "shown_characters": 0, "max_turns": 6}

# -- 1. An episode as tokens -------------------------------------------------------------------------------------------


@dataclass
class Rollout:
    """One episode: what the environment says, and exactly the tokens that the model has read and written."""

    env: Any
    observation: Any  # {"messages": [...], "tools": [...]}, in OpenAI's shape
    start: dict[str, Any]  # reset()'s info: the task, the user's preference, the price sheet
    end: dict[str, Any] = field(default_factory=dict)  # the last step()'s info: the bill, the calls, what failed
    outcome: float = 0.0  # the last step()'s reward: 1 for a right answer, nan for an episode that broke
    text: str = ""  # what the tokens say
    tokens: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)  # the mask: the model chose this token; it was not told it
    logprobs: list[float] = field(default_factory=list)  # of chosen tokens, from the moment they were chosen

    def append(self, ids: list[int], logprobs: list[float], sampled: bool, text: str) -> None:
        """Grow at the end, and nowhere else."""
        self.tokens += ids
        self.logprobs += logprobs
        self.sampled += [sampled] * len(ids)
        self.text += text

    def read(self) -> None:
        """Append what is new in the transcript, as the chat template writes it. What was sampled is not tokenised
        again: the same text, split in another way, would be tokens that the model never chose."""
        messages, tools = ([dict(row) for row in self.observation[part]] for part in ("messages", "tools"))
        full = TOKENIZER.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        if not full.startswith(self.text):
            raise ValueError("the chat template has rewritten the past; begin a new sequence (rollouts/rollout.py)")
        ids = TOKENIZER.encode(full[len(self.text) :], add_special_tokens=False)
        self.append(ids, [0.0] * len(ids), False, full[len(self.text) :])

    def write(self, ids: list[int], logprobs: list[float]) -> None:
        """Append the model's turn, and play it."""
        # The policy's own tokens cost money too. Without this line they are estimated from characters.
        self.env.unwrapped.charge_policy(Usage("qwen3-8b", ORCHESTRATOR, Tokens(len(self.tokens), 0, len(ids))))
        text = TOKENIZER.decode(ids)
        self.append(ids, logprobs, True, text)
        self.observation, reward, terminated, truncated, info = self.env.step(text.removesuffix(TOKENIZER.eos_token))
        if terminated or truncated:
            self.end, self.outcome = info, float(reward)


# -- 2. Rolling out ----------------------------------------------------------------------------------------------------

Turn = tuple[list[int], list[float]]  # the tokens of one turn, and their log-probabilities


def play(envs: Sequence[Any], seeds: Sequence[int], speak: Callable[[list[Rollout]], list[Turn]]) -> list[Rollout]:
    """One episode in each environment. Equal seeds give equal tasks, preferences and prices: that makes siblings."""
    rollouts = [Rollout(env, *env.reset(seed=seed)) for env, seed in zip(envs, seeds, strict=True)]
    while playing := [r for r in rollouts if not r.end]:
        for rollout in playing:
            rollout.read()
        for rollout, turn in zip(playing, speak(playing), strict=True):
            rollout.write(*turn)
    return rollouts


def any_calls(playing: Sequence[Rollout], rng: random.Random) -> list[Turn]:
    """A script: any tool with any of its models, whatever the question."""
    turns = []
    for rollout in playing:
        tool = rng.choice(rollout.observation["tools"])["function"]
        models = tool["parameters"]["properties"]["model"]["enum"]
        call = to.render_call(tool["name"], {"model": rng.choice(models)})
        ids = [*TOKENIZER.encode(call, add_special_tokens=False), TOKENIZER.eos_token_id]
        turns.append((ids, [0.0] * len(ids)))
    return turns


@torch.no_grad()
def sampled_calls(playing: Sequence[Rollout], model: Any, dice: torch.Generator) -> list[Turn]:
    """The model at temperature 1, one token after another."""
    turns: list[Turn] = [([], []) for _ in playing]
    talking = list(range(len(playing)))
    while talking:
        texts = [playing[i].tokens + turns[i][0] for i in talking]
        hidden = model.model(input_ids=padded(texts, 0), use_cache=False).last_hidden_state
        last = torch.tensor([len(text) - 1 for text in texts])
        logprobs = model.lm_head(hidden[torch.arange(len(texts)), last]).log_softmax(-1)
        drawn = torch.multinomial(logprobs.exp(), 1, generator=dice)
        for i, token, logprob in zip(talking, drawn, logprobs.gather(1, drawn), strict=True):
            turns[i][0].append(int(token))
            turns[i][1].append(float(logprob))
        talking = [i for i in talking if turns[i][0][-1] != TOKENIZER.eos_token_id and len(turns[i][0]) < MOST_TOKENS]
    return turns


def padded(rows: Sequence[Sequence[Any]], fill: Any) -> torch.Tensor:
    """Rows of unequal length as one tensor. It is filled on the right, where a causal model does not look."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


# -- 3. Reward and advantage -------------------------------------------------------------------------------------------

# The ends of each group's scale, beside its siblings: nothing at all, and about what always asking the strongest takes.
# Without them the scale is the siblings' own, as in the paper, and the rewards of two steps cannot be compared.
ENDS = (Measure(0.0, 0.0, 0.0, {}), Measure(0.0, 0.12, 200.0, {}))


def cents_of(rollout: Rollout) -> dict[str, float]:
    """The bill by role, from `info`. What judges and simulated users cost is not the policy's to answer for."""
    return {role: 100 * rollout.end["ledger"]["usd_by_role"].get(role, 0.0) for role in REWARDED_ROLES}


def rewards_of(group: Sequence[Rollout]) -> list[float]:
    """The paper's reward under the preference of the group's user, as a share of the most there is; a wrong answer is
    worth 0, however cheap."""
    weights = group[0].start["preference"]["weights"]
    tools = {name: weight for name, weight in weights.items() if name not in GENERAL}
    preference = Preference(**{name: weights[name] for name in GENERAL}, tools=tools)
    measures = [
        Measure(r.outcome, sum(cents_of(r).values()) / 100, r.end["ledger"]["seconds"], r.end["calls"]) for r in group
    ]
    return [s.total / sum(weights.values()) for s in GroupReward(preference, tuple(tools)).score(measures, ENDS) if s]


def advantages_of(rewards: Sequence[float]) -> list[float]:
    """How much better than its siblings each did. Where all are right, this is where the cheaper ones win."""
    mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [(reward - mean) / max(spread, 0.1) for reward in rewards]  # a floor: next to nothing is not made large


# -- 4. Loss and optimiser step ----------------------------------------------------------------------------------------


def scored(model: Any, rollouts: Sequence[Rollout]) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probability of each token after those before it, and the mask: which of them the model chose."""
    tokens = padded([r.tokens for r in rollouts], 0)
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return logprobs, padded([r.sampled for r in rollouts], False)[:, 1:]


def policy_loss(model: Any, rollouts: Sequence[Rollout], advantages: Sequence[float]) -> tuple[torch.Tensor, float]:
    """The clipped policy gradient over the tokens that the model chose. Also how far their log-probabilities are from
    those they were sampled with: before the first update by rounding alone, or these are not the sampled tokens."""
    logprobs, chosen = scored(model, rollouts)
    gap = logprobs - padded([r.logprobs for r in rollouts], 0.0)[:, 1:]
    ratio, advantage = gap.exp(), torch.tensor(advantages)[:, None]
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return -gain[chosen].mean(), float(gap[chosen].detach().abs().mean())


def update(model: Any, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step down a gradient of bounded length."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def imitate(model: Any, shown: Sequence[Rollout], steps: int, rng: random.Random) -> None:
    """A supervised start, from right and wrong episodes alike: it shows how to call, and nothing of whom to call."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(steps):
        logprobs, chosen = scored(model, rng.sample(shown, min(32, len(shown))))
        update(model, optimizer, -logprobs[chosen].mean())


def improve(model: Any, optimizer: Any, groups: Sequence[Sequence[Rollout]], rng: random.Random) -> dict[str, Any]:
    """Rewards, advantages and four updates; the clip bounds what the later ones may do. Gives a line of metrics, which
    holds no time of the clock: the same seed writes the same file."""
    rewards = [rewards_of(group) for group in groups]
    rollouts = [rollout for group in groups for rollout in group]
    pairs = list(zip(rollouts, [a for own in rewards for a in advantages_of(own)], strict=True))
    rng.shuffle(pairs)
    gaps = []
    for part in [pairs[i::4] for i in range(min(4, len(pairs)))]:
        loss, gap = policy_loss(model, *zip(*part, strict=True))
        update(model, optimizer, loss)
        gaps.append(gap)
    by_task, accuracy = [statistics.fmean(own) for own in rewards], statistics.fmean(r.outcome for r in rollouts)
    cents = {role: statistics.fmean(cents_of(r)[role] for r in rollouts) for role in REWARDED_ROLES}
    line = {"reward": statistics.fmean(by_task), "accuracy": accuracy, "cents": sum(cents.values())}
    return {**line, "cents_by_role": cents, "gap": gaps[0], "reward_by_task": by_task}


# -- 5. The loop, and what it shows ------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """A supervised start, then one step after another."""
    parser = argparse.ArgumentParser(description="A training loop in one file.")
    parser.add_argument("--out", type=Path, default=Path("runs/one-file"))
    for name, default in {"steps": 30, "seed": 0, "tasks": 32, "siblings": 8, "imitation-steps": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args(arguments)
    if args.steps < 1 or min(args.tasks, args.siblings) < 2:
        parser.error("a step at least, of two tasks with two siblings: an episode is judged against its siblings")
    torch.set_num_threads(1)  # more help so small a model little, and their number changes the last digits
    rng, dice = random.Random(args.seed), torch.Generator().manual_seed(args.seed)
    model = build_model(len(TOKENIZER), hidden=64, layers=2, seed=args.seed)
    envs = [gym.make("ToolOrchestra/HLE-v0", **SETTINGS) for _ in range(args.tasks * args.siblings)]

    def seeds(count: int) -> list[int]:
        return [rng.randrange(10**9) for _ in range(count)]

    shown = [r for _ in range(4) for r in play(envs, seeds(len(envs)), lambda playing: any_calls(playing, rng))]
    imitate(model, shown, args.imitation_steps, rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    args.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    with (args.out / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(1, args.steps + 1):
            began = time.monotonic()
            of_siblings = [seed for seed in seeds(args.tasks) for _ in range(args.siblings)]
            rollouts = play(envs, of_siblings, lambda playing: sampled_calls(playing, model, dice))
            groups = [rollouts[i : i + args.siblings] for i in range(0, len(envs), args.siblings)]
            # An episode that broke says nothing of the policy: it has no reward, and is not a wrong answer.
            sound = [kept for group in groups if (kept := [r for r in group if not r.end["failed"]])]
            lines.append(line := {"step": step, **improve(model, optimizer, sound, rng)})
            print(json.dumps(line), file=file, flush=True)
            bill = ", ".join(f"{role} {cents:.2f} ¢" for role, cents in line["cents_by_role"].items())
            told = f"step {step}: reward {line['reward']:.3f}, accuracy {line['accuracy']:.0%}, a task costs {bill}"
            print(f"{told}; {time.monotonic() - began:.1f} s", flush=True)
    draw(lines, args.out / "curves.png")
    some = min(5, -(-args.steps // 2))
    print(f"mean reward, first {some} steps: {interval(lines[:some])}; last {some}: {interval(lines[-some:])}")


def interval(lines: Sequence[dict[str, Any]]) -> str:
    """Mean reward of some steps, ± 1.96 standard errors over their tasks (siblings are too alike to be counted one by
    one); and what it is made of."""
    values = [value for line in lines for value in line["reward_by_task"]]
    half = 1.96 * statistics.stdev(values) / len(values) ** 0.5
    accuracy, cents = (statistics.fmean(line[name] for line in lines) for name in ("accuracy", "cents"))
    return f"{statistics.fmean(values):.3f} ± {half:.3f} ({len(values)} tasks, {accuracy:.0%} right, {cents:.2f} ¢)"


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """The curves as a picture, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return print("no picture, since matplotlib is not installed")
    figure = Figure(figsize=(12, 3.5), layout="constrained")
    for axis, name in zip(figure.subplots(1, 3), ("reward", "accuracy", "cents"), strict=True):
        axis.plot([line["step"] for line in lines], [line[name] for line in lines])
        axis.set(title=f"{name}, SIMULATED", xlabel="step", ylim=(0, None))
    figure.savefig(path)
    return print(f"picture: {path}")


if __name__ == "__main__":
    main()
