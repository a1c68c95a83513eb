"""A reward term of your own: a function that looks at an episode when it ends, and gives a number.

    python reward_term.py
    PYTHONPATH=. toolorchestra train --env FRAMES-v0 reward_terms=reward_term:prompt_answers --out run

`gym.make(id, reward_terms=...)` adds it to the last step's reward, and the trainer to the reward of a group and of the
held-out evaluations: nothing of the package is changed for it. 1 is what the best possible episode earns.
"""

from __future__ import annotations

from typing import Any

import toolorchestra as to

PATIENCE, EACH = 30.0, 0.002


def prompt_answers(episode: Any) -> float:
    """Takes a little off for every second beyond half a minute that the episode has lasted. The episode has its
    transcript (`messages`), `ledger`, `calls`, `turn`, `preference` and `outcome`."""
    return -EACH * max(0.0, episode.ledger.seconds - PATIENCE)


def main() -> None:
    """One episode with a slow expert."""
    env = to.make("FRAMES-v0", split="test", preference="none", reward_terms=prompt_answers)
    env.reset(seed=11)
    _, reward, _, _, info = env.step(to.render_call("answer", {"model": "answer-1"}))
    print(f"{reward:.4f} = {info['outcome']['value']} + {info['reward_terms']}, {info['ledger']['seconds']:.1f} s")


if __name__ == "__main__":
    main()
