"""Compare policies on question environments: `toolorchestra evaluate --env HLE-v0 --env FRAMES-v0 --tasks 300`.

A model on τ²-Bench: `toolorchestra evaluate --backends FILE --env Tau2-v0 domain=retail user=NAME`.

With real backends: `--backends FILE index=FOLDER sandbox=landlock --policy chat`, recorded (`record=FILE`) and replayed
(`replay=FILE`); docs/real-tools.md says how. The exit code is 1 where an episode failed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

from toolorchestra.agents.commands.console import DONE, FAILED, check_folder, command, say
from toolorchestra.agents.commands.evaluation_setup import EvaluateOptions, backend_words, contests_of, wanted_of
from toolorchestra.agents.evaluation.estimate import estimated
from toolorchestra.agents.evaluation.rows import SUMMARY, EvaluationRow, simulated_in
from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun, digest_of_run, left_out, planned_of, simulated
from toolorchestra.agents.evaluation.statistics import TaskTally, share_of, tasks_to_show
from toolorchestra.agents.evaluation.summary import summarise
from toolorchestra.agents.evaluation.summary_tables import as_text
from toolorchestra.agents.policies.base import unreal
from toolorchestra.agents.policies.knn_and_skillbook import FittedPlayer
from toolorchestra.agents.reports.page import write_page
from toolorchestra.envs.base.errors import ConfigError, Outage, one_line, spelled
from toolorchestra.envs.base.files import held, write_json
from toolorchestra.envs.models.wire import TEMPLATE_TOKENS
from toolorchestra.envs.money.journal import JOURNAL
from toolorchestra.envs.money.ledger import most_nano_usd
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.backends import Backing

_BUSY = "is played in by another process; wait until it has ended, or name another folder with --out"
_ALLOW = "--allow-changed, where mending it changes what the backends file says of a model"
SHOWN_FAILURES = 5
FAILURE_CHARACTERS = 200


def run(given: EvaluateOptions) -> int:
    """Play, and give the exit code."""
    return evaluated(given)[0]


def evaluated(given: EvaluateOptions) -> tuple[int, dict[str, Any]]:
    """Play, and print the figures; the exit code, and the figures as summary.json has them. What has ended is kept in
    the folder as it ends."""
    folder = Path(given.out) if given.out else None
    check_folder("--out", folder)
    if given.resume and folder is None:
        raise ConfigError("resume=True goes on with a run's folder: name it, out=FOLDER", command_line="--out FOLDER")
    cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
    backing = Backing(wanted) if (wanted := wanted_of(given)) is not None else None
    contests: list[Contest] = []
    try:
        contests += contests_of(given, backing, cap)
        if given.estimate is not None:
            return _estimate(given.estimate, contests, given.at_once), {}
        with held(folder, f"{folder} {_BUSY}") if folder is not None else nullcontext():
            return _played(given, folder, contests, backing, cap)
    finally:
        for contest in contests:
            if not contest.closed:
                asyncio.run(_close(contest))
        if backing is not None:
            backing.close()


main = partial(command, EvaluateOptions, run, about=__doc__)


async def _close(contest: Contest) -> None:
    """End what the player holds: of a trained model, its sampler and the memory of that, which the next one needs."""
    contest.closed = True
    if isawaitable(done := getattr(contest.player, "close", lambda: None)()):
        await done


def _played(
    given: EvaluateOptions,
    folder: Path | None,
    contests: Sequence[Contest],
    backing: Backing | None,
    cap: SpendCap | None,
) -> tuple[int, dict[str, Any]]:
    """Play, show what came of it, and give the exit code and the figures."""
    evaluation = EvaluationRun.open(
        folder, _asked(given), contests, resume=given.resume, allow_changed=given.allow_changed
    )
    evaluation.stop_after = given.stop_after_failures
    if cap is not None:
        cap.add(evaluation.nano_usd)
        for line in _too_expensive(contests, cap):
            say(line)
    asyncio.run(_play_all(given, evaluation, contests, backing))
    figures = _show(given, evaluation, contests)
    _say_cap(evaluation, contests, cap)
    ended_by = evaluation.ended_by
    if isinstance(ended_by, ConfigError | Outage) and folder is not None and evaluation.rows:
        told = f"{ended_by}; mend it, then go on with --resume (and with {_ALLOW})"
        raise type(ended_by)(told, command_line=ended_by.command_line)
    if ended_by is not None:
        raise ended_by
    status = {row.status for row in evaluation.rows.values()}
    return FAILED if "failed" in status or "ended" not in status else DONE, figures


def _too_expensive(contests: Sequence[Contest], cap: SpendCap) -> list[str]:
    """The models that will never be asked: one reply may cost more than the whole cap."""
    most: dict[str, int] = {}
    for contest in contests:
        source: Any = contest.made.source
        named = source.backing.wanted.endpoints if not unreal(contest.made) else None
        if named is None or not contest.trials:
            continue
        episode = contest.made.start(contest.trials[0].seed, {"task_id": contest.trials[0].task}).episode
        offered = {offer.model for tool in episode.world.toolbox for offer in tool.offers}
        for model in sorted(filter(named.names, offered | set(source.backing.wanted.judges))):
            most[model] = most_nano_usd(episode.sheet, model, TEMPLATE_TOKENS, named.served(model).output_tokens)
    return [
        f"one reply of {model} may cost {nano / NANO:.4g} $, and the cap has {cap.free_nano_usd / NANO:.4g} $ left: it "
        "will not be asked; raise --spend-cap, or lower output_tokens of its entry"
        for model, nano in most.items()
        if nano > cap.free_nano_usd
    ]


def _say_cap(evaluation: EvaluationRun, contests: Sequence[Contest], cap: SpendCap | None) -> None:
    """Why trials were cut, or did not begin."""
    rows = evaluation.rows.values()
    lacking = sum(len(contest.trials) for contest in contests) - sum(row.status != "cut" for row in rows)
    if cap is None or not lacking or evaluation.ended_by is not None:
        return
    most = max((row.nano_usd for row in rows if row.status == "ended"), default=0)
    each = f"; a trial that ended cost up to {most / NANO:.4g} $" if most else ""
    say(f"{lacking} trials were cut or did not begin: {cap.told()}{each}")


def _estimate(like: Sequence[Path], contests: Sequence[Contest], at_once: int) -> int:
    """What each contest would cost, and all of them."""
    total = [0.0, 0.0, 0.0]
    for contest in contests:
        one = estimated(contest, like, at_once)
        total = [so_far + more for so_far, more in zip(total, one.usd["all"], strict=True)]
        say(str(one))
    low, likely, high = total
    say(f"in all $ {likely:.4g} ({low:.4g} to {high:.4g}), an estimate; nothing was spent")
    shown = ", ".join(f"{points} points from about {tasks_to_show(points):,} tasks on" for points in (20, 10, 5))
    say(f"between two policies on the same tasks a difference is shown of {shown}, fewer where they mostly agree")
    return DONE


def _asked(given: EvaluateOptions) -> dict[str, Any]:
    """What a resumed run must have been asked too. How fast and how long it may go on may change."""
    free = ("out", "resume", "stop_after_failures", "at_once", "spend_cap", "estimate", "allow_changed")
    asked = {name: value for name, value in asdict(given).items() if name not in free}
    return {**asked, "cache": backend_words(given.backends).get("cache", "")}


async def _play_all(
    given: EvaluateOptions, evaluation: EvaluationRun, contests: Sequence[Contest], backing: Backing | None
) -> None:
    """Play them one after the other. Whatever breaks the run off is kept, so that what has ended is shown."""
    try:
        if backing is not None:
            await backing.check()
        for contest in contests:
            done = sum(trial.key in evaluation.rows for trial in contest.trials)
            title = f"{contest.env} {contest.split} {contest.policy}"
            progress = EvaluationProgress(title, len(contest.trials), done)
            if done < len(contest.trials):
                evaluation.learnt += await _prepared(contest, evaluation)
            try:
                await evaluation.play(contest, given.at_once, progress.ended)
            finally:
                progress.close()
                await _close(contest)
    except (asyncio.CancelledError, Exception) as err:  # noqa: BLE001 - raised again when what has ended is shown
        evaluation.ended_by = KeyboardInterrupt() if isinstance(err, asyncio.CancelledError) else err


async def _prepared(contest: Contest, evaluation: EvaluationRun) -> tuple[str, ...]:
    """Have a player learn that learns first; what that cost, in words."""
    if not isinstance(contest.player, FittedPlayer):
        return ()
    cell = (contest.env, contest.split, contest.policy)
    before = evaluation.learning.get(cell, 0)
    contest.player.book = lambda nano_usd: evaluation.add_learning(cell, nano_usd)
    JOURNAL.set(evaluation.journal)
    try:
        fit = await contest.player.prepare()
    finally:
        evaluation.learnt_enough()
    paid = evaluation.learning.get(cell, 0) - before
    failed = f", {fit.failed} of which failed" if fit.failed else ""
    where = f"{contest.policy} on {contest.env} {contest.split} learnt from {fit.episodes} plays of train tasks{failed}"
    return (f"{where}: {fit.usd:.4g} $, {paid / NANO:.4g} of it now",)


_LEFT_OUT = {"images": "with an image", "blanks": "without question or answer", "repeats": "that come again"}


def _show(given: EvaluateOptions, evaluation: EvaluationRun, contests: Sequence[Contest]) -> dict[str, Any]:
    """Say the figures, and what failed. A folder keeps the figures too, which are given."""
    if not evaluation.rows and evaluation.ended_by is not None:
        return {}
    unreal = simulated(contests)
    summary = summarise(evaluation.rows.values(), planned_of(contests), "", evaluation.learning, simulated_in(unreal))
    figures = {**summary.to_json(), "left_out": left_out(contests)}
    if evaluation.folder is not None:
        write_json(evaluation.folder / SUMMARY, figures)
    label = ", experts SIMULATED" if unreal["experts_simulated"] else ""
    if unreal["simulated"]:
        label = ", models SIMULATED" if given.backends else ", SIMULATED"
    versions = dict.fromkeys(getattr(contest.made.source, "version", "") for contest in contests)
    told = "".join(f", {version}" for version in versions if version)
    prices = ", ".join(dict.fromkeys(contest.made.sheet.sheet_id for contest in contests))
    shown = as_text(replace(summary, groups=(), simulated=""))  # the head says it
    say(f"prices {prices}{told}{label}\n\n{shown}\n")
    for env, counts in left_out(contests).items():
        told = ", ".join(f"{count} {_LEFT_OUT[why]}" for why, count in counts.items())
        say(f"{env}: rows of the data set that are left out: {told}")
    _say_failures(evaluation)
    for line in evaluation.learnt:
        say(line)
    unconfirmed, learnt = evaluation.unconfirmed_nano_usd / NANO, sum(evaluation.learning.values())
    more = f", {unconfirmed:.9f} $ of it unconfirmed" if unconfirmed else ""
    more += f", and {learnt / NANO:.9f} $ to learn" if learnt else ""
    spent = f"{(evaluation.nano_usd - learnt) / NANO:.9f} $ for the trials{more}"
    say(f"{spent}; digest {digest_of_run(evaluation.rows.values())}")
    if evaluation.folder is not None:
        write_page(evaluation.folder, None)
        say(f"rows, trajectories, summary.json and page.html: {evaluation.folder}")
    return figures


def _say_failures(evaluation: EvaluationRun) -> None:
    """What failed, the commonest first; but what broke the run off is said at its end, once."""
    last = one_line(str(evaluation.ended_by))[:FAILURE_CHARACTERS] if evaluation.ended_by is not None else ""
    failures = [row.failure for row in evaluation.rows.values() if row.status == "failed"]
    others = Counter(failure for failure in failures if not last or last not in failure)
    if same := len(failures) - sum(others.values()):
        say(f"failed {same} times: by the error that ended the run, which is said below")
    shown = others.most_common(SHOWN_FAILURES)
    for failure, count in shown:
        say(f"failed {count} times: {failure[:FAILURE_CHARACTERS]}")
    if more := sum(others.values()) - sum(count for _, count in shown):
        say(f"and {more} more, of {len(others) - SHOWN_FAILURES} other kinds")


# -- what is said while it runs: on a terminal one line that changes, in a log a line now and then ---------------------


LOG_SECONDS = 15.0
_WIPE = "\r\033[2K"


class EvaluationProgress:
    """Counts the rows of one policy on one split, and tells of them."""

    def __init__(self, title: str, planned: int, done: int = 0) -> None:
        self._title, self._planned, self._before = title, planned, done
        self._rows: list[EvaluationRow] = []
        self._began = self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def ended(self, row: EvaluationRow) -> None:
        """Count a row, and tell when it is time."""
        self._rows.append(row)
        if time.monotonic() - self._told >= (0.2 if self._terminal else LOG_SECONDS):
            self._told = time.monotonic()
            before, behind = (_WIPE, "") if self._terminal else ("", "\n")
            print(before + spelled(self.line()), end=behind, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clears the line on a terminal that shows the progress."""
        if self._terminal:
            sys.stderr.write(_WIPE)
            sys.stderr.flush()

    def line(self) -> str:
        """Done, right so far with its interval, at worst and at best; cents so far and a task, time left, failures."""
        rows, done = self._rows, self._before + len(self._rows)
        failed = sum(row.status == "failed" for row in rows)
        parts = [f"{self._title}: {done} of {self._planned}"]
        if rows:
            share = share_of([TaskTally.of([row.right]) for row in rows])
            right = f"{share.right:g}" + (f" to {share.right + share.unknown:g}" if share.unknown else "")
            parts.append(f"right {right} of {len(rows)} ({share.interval.low:.0%} to {share.interval.high:.0%})")
        cents = 100 * sum(row.nano_usd for row in rows) / NANO
        parts.append(f"{cents:.4g} ¢ so far, {cents / max(1, len(rows)):.4g} ¢ a task")
        if left := self._planned - done:
            seconds = (time.monotonic() - self._began) / max(1, len(rows)) * left
            parts.append(f"{seconds // 60:.0f}:{seconds % 60:02.0f} left")
        if failed:
            parts.append(f"{failed} failed")
        return ", ".join(parts)
