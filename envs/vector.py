"""OrchestraVectorEnv: many episodes at once, none waiting for another.

Two ways to drive it:

- `step` / `step_async` + `step_wait`, as Gymnasium has it: all environments' calls run at the same time, and step_wait
  returns when the last of them is done. Inside there is no other barrier.
- `send` / `recv`, in the manner of EnvPool: `recv` returns the environments that are ready, `send` gives them their
  next actions; a slow tool holds up its own episode alone.

Autoreset is Gymnasium's: NEXT_STEP (default), SAME_STEP (the last observation and info in `final_obs`, `final_info`) or
DISABLED (reset with `options={"reset_mask": ...}`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from toolorchestra.envs.base.actions import not_text
from toolorchestra.envs.base.errors import ConfigError, ResetNeeded, no_such
from toolorchestra.envs.base.spaces import Prose, Transcripts
from toolorchestra.envs.base.types import Observation
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import Started, factory, refuse_unnamed, reset_options
from toolorchestra.envs.money.prices import Usage
from toolorchestra.envs.runtime.background import COLLECTOR, RunningStep, RunningSteps
from toolorchestra.envs.runtime.invoke import any_waits, perform_here
from toolorchestra.envs.vector_infos import gathered

_WAVE = 64
"""Steps that are launched together, so that the first are in the air before the last is acted."""

_NONE: tuple[tuple[Any, ...], ...] = ((),) * 5


class Received(NamedTuple):
    """What `recv` gives: one entry per environment that is ready, in the order in which they became so."""

    env_ids: NDArray[np.int64]
    observations: tuple[Observation, ...]
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    infos: tuple[dict[str, Any], ...]


class _Slot:
    """One environment's place."""

    __slots__ = ("episode", "rng", "running")

    def __init__(self) -> None:
        self.episode: Episode | None = None
        self.running: RunningStep | None = None
        self.rng: np.random.Generator | None = None


class OrchestraVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """The vector environment, as the module's text says. `gym.make_vec(id, num_envs=N,
    vectorization_mode="vector_entry_point")` makes one."""

    def __init__(
        self,
        num_envs: int,
        source: str | TaskSource,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        if not isinstance(num_envs, int) or num_envs < 1:
            raise ConfigError(f"num_envs must be a whole number from 1 up, got {num_envs!r}")
        if render_mode not in (None, "ansi"):
            raise ConfigError(no_such("render mode", render_mode, ("ansi", "None")))
        self.num_envs, self.render_mode = num_envs, render_mode
        modes = [mode.value for mode in AutoresetMode]
        if not isinstance(autoreset_mode, AutoresetMode) and autoreset_mode not in modes:
            raise ConfigError(no_such("autoreset_mode", autoreset_mode, modes))
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": ["ansi"], "autoreset_mode": self.autoreset_mode}
        self.factory = factory(source, **settings)
        self.single_action_space = Prose()
        self.single_observation_space = Transcripts()
        self._running_steps = RunningSteps()
        self._launching: list[RunningStep] = []
        self._ready: dict[int, Step] = {}
        self._slots = [_Slot() for _ in range(num_envs)]
        self._flying = 0
        self._at_work = False

    @cached_property
    def action_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """A text for each environment."""
        return batch_space(self.single_action_space, self.num_envs)

    @cached_property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """An observation of each environment."""
        return batch_space(self.single_observation_space, self.num_envs)

    # -- Gymnasium's own verbs ---------------------------------------------------------------------------------------

    def reset(
        self, *unnamed: Any, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Observation, ...], dict[str, Any]]:
        """Start every episode, or those of `options["reset_mask"]`. What is in flight there is cancelled."""
        refuse_unnamed(unnamed)
        self._refuse_closed("reset()")
        chosen = reset_options(options, ("episode_seed", "reset_mask"))
        self.factory.require_money()
        mask = chosen.pop("reset_mask", None)
        env_ids = range(self.num_envs) if mask is None else self._masked(mask)
        seeds = self._seeds(seed)
        if not self._at_work:
            self._at_work = True
            COLLECTOR.at_work(self.num_envs)
        fresh = {i: self._fresh(i, seeds[i], chosen) for i in env_ids}  # what is refused here changes no episode
        self._cancel(env_ids)
        for i, started in fresh.items():
            self._seat(i, started)
        self._begin(env_ids)
        infos = gathered({i: started.info for i, started in fresh.items()}, self.num_envs)
        return tuple(map(self._observation, range(self.num_envs))), infos

    def step(self, actions: Sequence[str]) -> tuple[Any, ...]:
        """Steps every episode: calls step_async(), then step_wait()."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Sequence[str]) -> None:
        """Give every environment its action: CPU tools run now, the others begin to run."""
        self.send(actions, range(self.num_envs))

    def step_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """The batch, when the last environment is ready."""
        got = self.recv(self.num_envs, timeout)
        order = np.argsort(got.env_ids)
        infos = {int(i): info for i, info in zip(got.env_ids, got.infos, strict=True)}
        return (
            tuple(got.observations[k] for k in order),
            got.rewards[order],
            got.terminations[order],
            got.truncations[order],
            gathered(infos, self.num_envs),
        )

    # -- EnvPool's verbs ---------------------------------------------------------------------------------------------

    def send(
        self,
        actions: Sequence[str],
        env_ids: Sequence[int] | NDArray[np.int64],
        usages: Sequence[Usage | None] | None = None,
    ) -> None:
        """Give some environments their next action, and the policy's own usage where it was counted."""
        wanted = [int(i) for i in env_ids]
        self._check_send(actions, wanted)
        if self.factory.rules.spend_cap is not None:  # here, so that nothing that was played stays untold
            episodes = [self._slots[i].episode for i in wanted]
            if not all(e is not None and e.turn and not e.over for e in episodes):
                self.factory.require_money()
        if usages is not None:
            self._check_usages(usages, wanted)
        try:
            for k, i in enumerate(wanted):
                self._act(i, actions[k], usages[k] if usages is not None else None)
                if len(self._launching) == _WAVE:
                    self._launch()
        finally:
            self._launch()

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> Received:
        """The environments that are ready, at least `min_envs` of them. TimeoutError leaves everything as it was."""
        self._refuse_closed("recv()")
        sent = len(self._ready) + self._flying
        if min_envs > sent:
            raise ResetNeeded(f"recv({min_envs}): only {sent} environments have been sent an action")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._land(0)
        while len(self._ready) < min_envs:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._land(left) and left == 0:
                slow = [i for i, s in enumerate(self._slots) if s.running is not None]
                got = f"{len(self._ready)} of {min_envs} environments were ready in {timeout} s"
                raise TimeoutError(f"{got}; still waiting for {slow[:8]}")
        ready, self._ready = self._ready, {}
        observations, rewards, terminations, truncations, infos = zip(*ready.values(), strict=True) if ready else _NONE
        return Received(
            np.fromiter(ready, np.int64, len(ready)),
            observations,
            np.array(rewards, np.float64),
            np.array(terminations, np.bool_),
            np.array(truncations, np.bool_),
            infos,
        )

    # -- the rest ----------------------------------------------------------------------------------------------------

    @property
    def episodes(self) -> tuple[Episode | None, ...]:
        """The episodes in progress, one for each environment. Read them and do not change them."""
        return tuple(s.episode for s in self._slots)

    def render(self) -> tuple[str, ...] | None:
        """Each transcript with its running bill."""
        if self.render_mode is None:
            return None
        return tuple(render.transcript(s.episode) if s.episode else "(no episode)" for s in self._slots)

    def close_extras(self, **kwargs: Any) -> None:
        """Cancel what is in flight."""
        del kwargs
        self._cancel(range(self.num_envs))
        if self._at_work:
            self._at_work = False
            COLLECTOR.at_work(-self.num_envs)

    def __del__(self) -> None:
        # Gymnasium's own was dropped in 1.4. One that a refused argument left half made has nothing to close.
        if not self.closed and "_slots" in self.__dict__:
            self.close()

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"one seed for each of {self.num_envs} environments is needed, got {len(seed)}")
        return seed

    def _refuse_closed(self, what: str) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(f"{what} of a closed environment; make another one")

    def _fresh(self, i: int, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Started:
        slot = self._slots[i]
        if seed is not None or slot.rng is None:
            slot.rng = seeding.np_random(seed)[0]
        return self.factory.reset(slot.rng, options)  # so environment i equals a single one with its seed

    def _seat(self, i: int, started: Started) -> None:
        self._slots[i].episode = started.episode

    def _start(self, i: int) -> dict[str, Any]:
        started = self._fresh(i)
        self._seat(i, started)
        return started.info

    def _begin(self, env_ids: Sequence[int]) -> None:
        """Run the openings of episodes just started, all at the same time."""
        episodes = [e for i in env_ids if (e := self._slots[i].episode) is not None and e.opening]
        if episodes:
            results = run_calls([ready for e in episodes for ready in e.opening])
            for episode, result in zip(episodes, results, strict=True):
                episode.begin((result,))

    def _masked(self, mask: Any) -> list[int]:
        flags = np.asarray(mask)
        if flags.shape != (self.num_envs,) or flags.dtype != np.bool_ or not flags.any():
            raise ValueError(f"reset_mask is {self.num_envs} booleans with at least one True, got {mask!r:.80}")
        return [int(i) for i in np.flatnonzero(flags)]

    def _check_send(self, actions: Sequence[str], env_ids: Sequence[int]) -> None:
        """Everything that a send can be refused for, before anything is sent: a refused send changes nothing."""
        self._refuse_closed("step() or send()")
        if isinstance(actions, str | bytes) or not isinstance(actions, Sequence | np.ndarray):
            kind = type(actions).__name__
            raise TypeError(f"actions are a list of texts, one for each environment; got {actions!r:.60} ({kind})")
        if len(actions) != len(env_ids):
            raise ValueError(f"one action for each of {len(env_ids)} environments is needed, got {len(actions)}")
        if len(set(env_ids)) != len(env_ids) or (env_ids and not 0 <= min(env_ids) <= max(env_ids) < self.num_envs):
            raise ValueError(f"env_ids are some of 0 to {self.num_envs - 1}, each once; got {list(env_ids)!r:.80}")
        for i, text in zip(env_ids, actions, strict=True):
            slot = self._slots[i]
            episode = slot.episode
            if slot.running is not None or i in self._ready:
                raise ResetNeeded(f"environment {i} has not been received since its last action; recv() it first")
            if episode is None:
                raise ResetNeeded("step() before reset(); call reset() first")
            if episode.over:
                if self.autoreset_mode == AutoresetMode.DISABLED:
                    raise ResetNeeded(f"environment {i} is over; call reset() with it in options['reset_mask'] first")
            elif not isinstance(text, str):
                raise TypeError(not_text(text, f"environment {i} "))

    def _check_usages(self, usages: Sequence[Usage | None], env_ids: Sequence[int]) -> None:
        if len(usages) != len(env_ids):
            raise ValueError(f"one usage or None for each of {len(env_ids)} environments is needed, got {len(usages)}")
        for i, usage in zip(env_ids, usages, strict=True):
            episode = self._slots[i].episode
            if usage is not None and episode is not None:
                episode.sheet.charge(usage)

    def _observation(self, i: int) -> Observation:
        slot = self._slots[i]
        if slot.episode is None:
            raise ResetNeeded(f"environment {i} has not been reset yet; the first reset() may not mask it out")
        return slot.episode.observation

    def _act(self, i: int, text: str, usage: Usage | None) -> None:
        episode = self._slots[i].episode
        if episode is None or episode.over:  # over: NEXT_STEP, see _check_send
            info = self._start(i)
            self._begin((i,))
            self._ready[i] = Step(self._observation(i), 0.0, False, False, info)
            return
        self._move(i, episode, episode.act(text, usage))

    def _move(self, i: int, episode: Episode, moved: Pending | Step) -> None:
        """Go on until the step is done or has to wait."""
        while isinstance(moved, Pending):
            calls = moved.calls
            if any_waits(calls):
                running = self._slots[i].running = RunningStep(i, calls)
                self._launching.append(running)
                self._flying += 1
                return
            moved = episode.resolve([perform_here(ready) for ready in calls])
        if episode.over and self.autoreset_mode == AutoresetMode.SAME_STEP:
            last = {"final_obs": moved.observation, "final_info": moved.info}
            info = self._start(i)
            self._begin((i,))
            moved = moved._replace(observation=self._observation(i), info={**info, **last})
        self._ready[i] = moved

    def _land(self, timeout: float | None) -> bool:
        """Take what has landed, waiting for the first. False when nothing landed in time."""
        self._running_steps.wait(timeout)
        landed = self._running_steps.landed
        some = bool(landed)
        while landed:  # one by one: what is raised here leaves the others for the next call
            running = landed.popleft()
            slot = self._slots[running.slot]
            episode = slot.episode
            if slot.running is running and episode is not None:  # else it was cancelled while landing
                slot.running = None
                self._flying -= 1
                self._move(running.slot, episode, episode.resolve(running.results))
        self._launch()
        return some

    def _launch(self) -> None:
        launching, self._launching = self._launching, []
        self._running_steps.launch(launching)

    def _cancel(self, env_ids: Sequence[int]) -> None:
        slots = [self._slots[i] for i in env_ids]
        cancelled = [s.running for s in slots if s.running is not None]
        self._running_steps.cancel(cancelled)
        self._flying -= len(cancelled)
        for i, slot in zip(env_ids, slots, strict=True):
            slot.running = None
            self._ready.pop(i, None)
