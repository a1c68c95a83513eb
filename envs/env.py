"""OrchestraEnv: the gymnasium.Env over one episode at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import gymnasium as gym

from toolorchestra.envs.base.errors import ConfigError, ResetNeeded, no_such
from toolorchestra.envs.base.spaces import Prose, Transcripts
from toolorchestra.envs.base.types import Observation
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.calls import CallResult, ReadyCall
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import factory, refuse_unnamed, reset_options
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.runtime.background import BackgroundLoop
from toolorchestra.envs.runtime.invoke import any_waits, perform_here

_NO_USAGE = (
    'charge_policy takes a Usage, such as Usage("qwen3-8b", "orchestrator", Tokens(input=900, output=60)), both of '
    "toolorchestra.envs.money.prices"
)


class OrchestraEnv(gym.Env[Observation, str]):
    """An orchestration episode as a Gymnasium environment.

    The action is the assistant's text, the observation the transcript so far and the tools' schemas. CPU tools run in
    place; calls that wait for I/O run at the same time on one background loop that all environments share.
    """

    metadata = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012 - gymnasium's own attribute

    def __init__(self, source: str | TaskSource, *, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode not in (None, "ansi", "human"):
            raise ConfigError(no_such("render mode", render_mode, self.metadata["render_modes"]))
        self.render_mode = render_mode
        self.factory = factory(source, **settings)
        self.episode: Episode | None = None
        self._usage: Usage | None = None

    @cached_property
    def action_space(self) -> Prose:  # type: ignore[override]
        """The space of actions, which are texts. Each environment has its own, since seeding a space changes it."""
        return Prose()

    @cached_property
    def observation_space(self) -> Transcripts:  # type: ignore[override]
        """The space of observations: messages and the tools' schemas."""
        return Transcripts()

    def reset(
        self, *unnamed: Any, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode. Options: task_id, preference, prices, tools (names to keep), budget, luck, episode_seed.

        `seed` seeds the generator that the episodes' own seeds are drawn from, here and at every later reset() without
        a seed. `options={"episode_seed": n}` plays the episode of that seed, which `info["episode_seed"]`, a job, a
        trial or a recorded trajectory named, and draws nothing. Another `luck` is the same task with other draws.
        """
        refuse_unnamed(unnamed)
        chosen = reset_options(options, ("episode_seed",))
        self.factory.require_money()
        super().reset(seed=seed)
        started = self.factory.reset(self.np_random, chosen)
        self.episode, self._usage = started.episode, None
        observation = started.observation
        if started.episode.opening:
            observation = started.episode.begin(run_calls(started.episode.opening))
        if self.render_mode == "human":
            print(render.opening(self.episode, colour=True), flush=True)
        return observation, started.info

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one turn of the assistant's: a message, or tool calls that run at the same time."""
        if self.episode is None:
            raise ResetNeeded("step() before reset(); call reset() first")
        moved = play_turn(self.episode, action, self._usage)
        self._usage = None
        if self.render_mode == "human":
            print(render.turn(self.episode, moved, colour=True), flush=True)
        return moved

    def charge_policy(self, usage: Usage) -> None:
        """Bill the next step's own generation by this instead of by an estimate."""
        if not isinstance(usage, Usage):
            raise ConfigError(f"{_NO_USAGE}, got {usage!r:.60}")
        if self.episode is not None:
            self.episode.sheet.charge(usage)  # what cannot be billed is refused here
        self._usage = usage

    def render(self) -> str | None:
        """ "ansi": the transcript with the running bill. "human" prints live and returns nothing."""
        if self.render_mode == "ansi":
            return render.transcript(self.episode) if self.episode else "(no episode)"
        return None

    def close(self) -> None:
        """Forget the episode in progress. The environment can be reset again."""
        self.episode = None


def base_of(env: object, wrapper: str) -> OrchestraEnv:
    """The environment of this package that a wrapper is put around; any other is refused."""
    base = env.unwrapped if isinstance(env, gym.Env) else env
    if isinstance(base, OrchestraEnv):
        return base
    told = f"{wrapper} goes around a ToolOrchestra environment, got {type(base).__name__}"
    if isinstance(base, gym.vector.VectorEnv):
        raise ConfigError(
            f'{told}, a vector of them; use gym.make_vec(id, vectorization_mode="sync", wrappers=[{wrapper}])'
        )
    raise ConfigError(f'{told}; wrap one of those, such as gym.make("ToolOrchestra/HLE-v0")')


def play_turn(episode: Episode, text: str, usage: Usage | None = None) -> Step:
    """One turn of an episode, whose calls are waited for."""
    moved: Pending | Step = episode.act(text, usage)
    while isinstance(moved, Pending):
        moved = episode.resolve(run_calls(moved.calls))
    return moved


def run_calls(calls: Sequence[ReadyCall]) -> Sequence[CallResult]:
    """Run one turn's calls and wait for all of them."""
    if len(calls) == 1 and not calls[0].tool.suspends:  # by far the commonest
        return (perform_here(calls[0]),)
    if not any_waits(calls):
        return [perform_here(ready) for ready in calls]
    background = BackgroundLoop.shared()
    return background.run(background.gates.perform_all(calls))
