"""A router trained by Stable-Baselines3, and tried on tasks that it has not seen.

pip install "toolorchestra[sb3]" && python docs/examples/ppo_stable_baselines.py
"""

from __future__ import annotations

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from toolorchestra.envs.adapters.learner_env import RoutingEnv

SETTINGS = {"worlds": ["HLE-v0"], "raising": False}


def main(turns: int = 40_000, episodes: int = 100) -> tuple[float, float]:
    """The mean reward of test episodes, before and after. Actions are drawn, as in training: who always takes the
    likeliest may repeat a call that no longer helps until the turns are used up."""
    envs = make_vec_env(RoutingEnv, 16, seed=0, env_kwargs=SETTINGS)
    tests = make_vec_env(RoutingEnv, env_kwargs={**SETTINGS, "split": "test"})
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=512, gamma=1.0, learning_rate=1e-3, ent_coef=0.01, seed=0)
    before, _ = evaluate_policy(model, tests, episodes, deterministic=False)
    model.learn(turns)
    after, _ = evaluate_policy(model, tests, episodes, deterministic=False)
    print(f"{episodes} test episodes: {before:.3f} before, {after:.3f} after {model.num_timesteps} turns")
    return float(before), float(after)


if __name__ == "__main__":
    main()
