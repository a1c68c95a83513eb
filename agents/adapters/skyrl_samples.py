"""What SkyRL is given and gives, without importing it: turns sampled by its client, and rollouts as its batch.

A rollout's samples are prompt, response, mask and log-probabilities. Beside them stands what our advantages want.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, util
from typing import Any, Literal, NamedTuple

from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.rollouts.grpo import Measure, TokenSequence, Trajectory
from toolorchestra.agents.training.step_log import mean
from toolorchestra.envs.base.errors import ConfigError, Outage

SERIES = "0.4"
"""What the integration is written for and tested with; its classes are no stable interface of SkyRL's."""


def check_skyrl() -> None:
    """Raise ConfigError with what to do where SkyRL is missing, or of another version."""
    if util.find_spec("skyrl") is None:
        raise ConfigError(
            f"this integration is SkyRL's, and skyrl is not installed here: it wants skyrl {SERIES} on Python 3.12; "
            "deploy/skyrl is a uv project that has it, make test-skyrl an environment without GPU packages"
        )
    found = metadata.version("skyrl")
    if not found.startswith(f"{SERIES}."):
        raise ConfigError(f"this integration is for skyrl {SERIES}, found {found}: pip install 'skyrl=={SERIES}.*'")


# -- turns, sampled by SkyRL's inference client ------------------------------------------------------------------------


class SkyrlTurns:
    """What rollouts of one batch sample with. A trajectory is one session of the client's router."""

    def __init__(
        self, client: Any, model: str | None, sampling: Mapping[str, Any] | None = None, salt: str | None = None
    ) -> None:
        self._client, self._model, self._salt = client, model, salt
        self._sampling: dict[str, Any] = {"max_tokens": 1024, "temperature": 1.0, **(sampling or {})}
        self.max_tokens, self.temperature = int(self._sampling["max_tokens"]), float(self._sampling["temperature"])
        self.scored = self._sampling.get("logprobs") is not None
        """Whether log-probabilities were asked for."""
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds spent in sampling, by trajectory."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """Continue a prompt. What the client raises when no server answers is an Outage."""
        name, started = session.rpartition("/")[0], time.monotonic()
        asked = {
            "prompt_token_ids": [list(prompt)],
            "session_ids": [name],
            "sampling_params": self._sampling,
            "cache_salt": self._salt,
        }
        try:
            got = await self._client.generate(asked, model=self._model)
        except Exception as err:
            if not _no_answer(err):
                raise
            raise Outage(
                f"SkyRL's inference server gave no answer ({type(err).__name__}: {err!s:.300}); is it up, and the vLLM "
                "that this version of SkyRL starts?"
            ) from err
        self.seconds[name] += time.monotonic() - started
        tokens = list(got["response_ids"][0])
        logprobs = (got.get("response_logprobs") or [None])[0]
        if self.scored and len(logprobs or ()) != len(tokens):
            raise Outage(
                f"{len(tokens)} tokens came with {len(logprobs or ())} log-probabilities, though "
                f"sampling_params.logprobs={self._sampling['logprobs']} asks for one each; the "
                "server is of another version than SkyRL's client"
            )
        return Sample(tokens, list(logprobs or [0.0] * len(tokens)), got["stop_reasons"][0] == "stop")

    def release(self, session: str) -> None:
        """The client is told at the trajectory's end: see end()."""

    async def end(self, name: str) -> float:
        """A trajectory is over. Gives the seconds that were spent in sampling it."""
        await self._client.finish_session(name)
        return self.seconds.pop(name, 0.0)


def _no_answer(err: Exception) -> bool:
    """A connection that broke or a refusal of the server, of any HTTP client; nothing that is a bug here."""
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(err).__mro__}
    return isinstance(err, OSError | TimeoutError) or not kinds.isdisjoint(("aiohttp.ClientError", "httpx.HTTPError"))


# -- a rollout as samples ----------------------------------------------------------------------------------------------


SampleForm = Literal["one", "merged", "turns"]
"""One sample a rollout; one for each stretch in which no turn rewrote the past; or one a turn."""


class TrainingSample(NamedTuple):
    """One row of SkyRL's batch."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """1 where a token was sampled and is learnt from."""
    logprobs: list[float]


def samples_of(trajectory: Trajectory, form: SampleForm, filler: int) -> list[TrainingSample]:
    """Give one sample at least, since each rollout has its place in the batch: of one in which nothing was sampled, a
    masked token. Of one whose episode failed every token is masked."""
    if form == "one" and len(trajectory.sequences) > 1:
        raise ConfigError(
            f"the chat template rewrote the past of task {trajectory.task_id} {len(trajectory.sequences) - 1} times, "
            "so it is several samples: set generator.step_wise_trajectories=true"
        )
    made = [
        s for sequence in trajectory.sequences for s in (_turns(sequence) if form == "turns" else _merged(sequence))
    ]
    if trajectory.measure.failed:
        made = [sample._replace(mask=[0] * len(sample.mask)) for sample in made]
    prompt = trajectory.sequences[0].tokens if trajectory.sequences else [filler]
    return made or [TrainingSample(list(prompt), [filler], [0], [0.0])]


def _merged(sequence: TokenSequence) -> Iterator[TrainingSample]:
    """Cut from the first sampled token to the last."""
    if any(sequence.sampled):
        end = len(sequence.sampled) - sequence.sampled[::-1].index(True)
        yield _cut(sequence, sequence.sampled.index(True), end)


def _turns(sequence: TokenSequence) -> Iterator[TrainingSample]:
    begin = None
    for place, sampled in enumerate([*sequence.sampled, False]):
        if sampled and begin is None:
            begin = place
        elif not sampled and begin is not None:
            yield _cut(sequence, begin, place)
            begin = None


def _cut(sequence: TokenSequence, begin: int, end: int) -> TrainingSample:
    mask = [int(sampled) for sampled in sequence.sampled[begin:end]]
    return TrainingSample(sequence.tokens[:begin], sequence.tokens[begin:end], mask, sequence.logprobs[begin:end])


# -- a batch -----------------------------------------------------------------------------------------------------------


PLAYED = "toolorchestra"
"""The key under which a batch has what each sample was made of. SkyRL carries keys that it does not know along."""


class Played(NamedTuple):
    """What samples are made of."""

    trajectory: Trajectory
    label: str
    """Label of its environment."""
    seconds: float
    """Seconds by the wall, from its start to its end."""
    sampling_seconds: float
    """Seconds of them in which its turns were sampled."""
    baselines: Sequence[Measure] = ()


class _Placed(NamedTuple):
    sample: TrainingSample
    played: Played
    trajectory_id: Any
    last: bool


def batch_of(
    played: Sequence[Played], ids: Sequence[Any], form: SampleForm, filler: int, *, scored: bool
) -> dict[str, Any]:
    """A GeneratorOutput. The outcome is the reward of the last token; a failed episode has none and is masked."""
    rows = [
        _Placed(sample, one, which, place == len(samples) - 1)
        for one, which in zip(played, ids, strict=True)
        for samples in (samples_of(one.trajectory, form, filler),)
        for place, sample in enumerate(samples)
    ]
    times = {"llm": [r.played.sampling_seconds for r in rows]}
    times["env"] = [r.played.seconds - r.played.sampling_seconds for r in rows]
    return {
        "prompt_token_ids": [r.sample.prompt for r in rows],
        "response_ids": [r.sample.response for r in rows],
        "rewards": [_rewards(r) for r in rows],
        "loss_masks": [r.sample.mask for r in rows],
        "rollout_logprobs": [r.sample.logprobs for r in rows] if scored else None,
        "stop_reasons": ["length" if r.played.trajectory.truncated_by else "stop" for r in rows],
        "trajectory_ids": [r.trajectory_id for r in rows],
        "is_last_step": None if form == "one" else [r.last for r in rows],
        "trajectory_generation_times": [r.played.seconds for r in rows],
        "trajectory_time_splits": times,
        "env_metrics": [figures(r.played) for r in rows],
        "rollout_metrics": figures_of_all(played),
        "rollout_expert_indices": None,
        PLAYED: [r.played for r in rows],
    }


def _rewards(row: _Placed) -> list[float]:
    """Rewards by token. SkyRL's filter of like rewards leaves those alone: right answers of unlike bills do teach."""
    measure = row.played.trajectory.measure
    value = 0.0 if measure.failed or not row.last else measure.outcome
    return [0.0] * (len(row.sample.response) - 1) + [value]


def figures(one: Played) -> dict[str, Any]:
    """Figures of one rollout: what it came to, its bill by role, its clock."""
    made = one.trajectory
    return {
        "task_id": made.task_id,
        "outcome": made.measure.outcome,
        "usd": made.bill["usd"],
        **{f"usd_{role}": usd for role, usd in made.bill["usd_by_role"].items()},
        "seconds": made.measure.seconds,
        "wall_seconds": one.seconds,
        "turns": made.turns,
        "calls": sum(made.measure.calls.values()),
        "sampled_tokens": made.sampled_tokens,
        "failed": float(made.measure.failed),
        "truncated_by": made.truncated_by,
    }


def figures_of_all(played: Sequence[Played]) -> dict[str, float]:
    """Figures by environment. When SkyRL joins batches, it averages "mean" names and adds the rest."""
    by_label: dict[str, list[Played]] = {}
    for one in played:
        by_label.setdefault(one.label, []).append(one)
    made: dict[str, float] = {}
    for label, some in by_label.items():
        sound = [one.trajectory for one in some if not one.trajectory.measure.failed]
        if sound:
            made |= {
                f"environment/{label}/accuracy_mean": mean([t.measure.outcome for t in sound]),
                f"environment/{label}/cents_mean": 100 * mean([t.measure.usd for t in sound]),
                f"environment/{label}/seconds_mean": mean([t.measure.seconds for t in sound]),
                f"environment/{label}/turns_mean": mean([float(t.turns) for t in sound]),
            }
        made[f"environment/{label}/failed"] = float(len(some) - len(sound))
        made[f"environment/{label}/context_cuts"] = float(sum(t.measure.context_cut for t in sound))
    return made
