"""The report of a run: learning curves, the accuracy-cost plane with the baselines, calls before and after, probes,
trajectories with their bills; as PNG files and one page of HTML that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import as_json
from toolorchestra.agents.configuration.environments import simulated
from toolorchestra.agents.evaluation.heldout import CALLS, Evaluation, HeldOut, WishStanding
from toolorchestra.agents.evaluation.panel import POLICY, OracleShare, Standing
from toolorchestra.agents.evaluation.probes import PROBED, Probe, standard_probes
from toolorchestra.agents.reports.evaluation_page import write_page
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import trajectories_of
from toolorchestra.agents.training.training_run import TrainingRun, rollout_params
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.marks import clean

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "img{max-width:100%}pre{background:#f4f4f4;padding:1em;overflow:auto;white-space:pre-wrap}"
)


def write_report(run: TrainingRun) -> Path:
    """Evaluate the best checkpoint on the test split, probe, draw and write. Gives the page's path; the engine is left
    with that checkpoint's weights."""
    folder = run.folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    step = _take_best(run)
    config = run.config
    evaluating = run.rollouts.with_params(rollout_params(config, config.evaluation_temperature))
    with run.engine.averaged():
        final = HeldOut(config.environments, config.evaluation_tasks, "test", config.seed).evaluate(evaluating)
        # Where an evaluation is short because the model is slow, so are they.
        probes = standard_probes(evaluating, config.environments, min(PROBED, config.evaluation_tasks))
    summary = as_summary(run, step, final, probes)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    pictures = _draw(run, final, folder)
    page = folder / "index.html"
    page.write_text(clean(_page(run, final, probes, pictures)), encoding="utf-8")
    return page


def _take_best(run: TrainingRun) -> int:
    """The weights that did best on the validation split, where their checkpoint is still whole. Gives their step."""
    best = run.folder / "checkpoints" / f"step-{run.best_step:06d}"
    if run.best_step in (-1, run.step):
        return run.step
    if wrong := checkpoint.check(best):
        lost = f"is damaged ({wrong})" if best.exists() else "is gone"
        run.say(f"reporting on the last step: {best.name}, which did best on the validation split, {lost}")
        return run.step
    run.engine.load(best)
    run.say(f"reporting on step {run.best_step}, which did best on the validation split")
    return run.best_step


def as_summary(run: TrainingRun, best_step: int, final: Evaluation, probes: Sequence[Probe]) -> dict[str, Any]:
    """What the report says, as numbers; `best_step` is the step whose weights it is of."""
    return {
        "simulated": simulated(run.config),
        "preset": run.config.preset,
        "seed": run.config.seed,
        "steps": run.step,
        "best_step": best_step,
        "of_oracle": _share_row(final.of_oracle),
        "by_wish": {wish: _wish_row(found) for wish, found in final.by_wish.items()},
        "failed": final.failed,
        "valid": final.valid,
        "standings": {name: _row(s) for name, s in final.standings.items()},
        "by_environment": {e: {n: _row(s) for n, s in p.items()} for e, p in final.by_environment.items()},
        "probes": [{**p.__dict__, "shift": p.shift} for p in probes],
    }


def _share_row(share: OracleShare | None) -> dict[str, float] | None:
    if share is None:
        return None
    return {"value": share.value, "low": share.interval.low, "high": share.interval.high}


def _wish_row(found: WishStanding) -> dict[str, Any]:
    return {"policy": _row(found.policy), "oracle": _row(found.oracle), "of_oracle": _share_row(found.share)}


def _row(s: Standing) -> dict[str, Any]:
    return {
        "reward": s.reward,
        "accuracy": s.accuracy,
        "cents": s.cents,
        "cents_per_solved": s.cents_per_solved if s.accuracy else None,
        "seconds": s.seconds,
        "calls": s.calls,
        "tasks": s.tasks,
    }


# -- pictures ----------------------------------------------------------------------------------------------------------


def _draw(run: TrainingRun, final: Evaluation, folder: Path) -> list[Path]:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        run.say("matplotlib is not installed, so the report has no pictures: pip install matplotlib")
        return []
    rows = list(read(run.log.path))
    drawn = [
        _curves(pyplot, rows, folder / "curves.png"),
        _plane(pyplot, final, folder / "pareto.png"),
        _calls(pyplot, final, rows, folder / "calls.png"),
    ]
    timed = [r for r in rows if "time/step" in r]
    if timed:  # earlier versions did not write them
        drawn.append(_times(pyplot, timed, folder / "times.png"))
    pyplot.close("all")
    return drawn


def _times(pyplot: Any, rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Where the seconds of each step went; where rollouts went on beside the training, those of both sides."""
    beside = "time/rollouts_idle" in rows[-1]
    of_rollouts, of_trainer = ("sampling", "tokenisation", "tools"), ("training", "sync", "idle")
    panels: dict[str, tuple[str, ...]] = {"a step": (*of_rollouts, *of_trainer)}
    if beside:
        panels = {"the trainer, a step": of_trainer, "the rollouts meanwhile": (*of_rollouts, "rollouts_idle")}
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.5 * len(panels), 3.6), squeeze=False)
    for axis, (title, parts) in zip(axes[0], panels.items(), strict=True):
        heights = [[r.get(f"time/{part}") or 0.0 for r in rows] for part in parts]
        axis.stackplot([r["step"] for r in rows], heights, labels=parts, step="mid")
        axis.set(title=f"seconds of {title}", xlabel="step", ylabel="seconds")
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


def _curves(pyplot: Any, rows: Sequence[dict[str, Any]], path: Path) -> Path:
    train = [r for r in rows if r["kind"] == "train"]
    held_out = [r for r in rows if r["kind"] == "eval"]
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6))
    for name, style in ((POLICY, "-o"), ("oracle", "--"), ("strongest", ":"), ("cheapest", "-."), ("random", ":")):
        if not all(f"{name}/reward" in r for r in held_out):
            continue
        axes[0].plot([r["step"] for r in held_out], [r[f"{name}/reward"] for r in held_out], style, label=name)
    axes[0].set(title="held-out reward", xlabel="step")
    axes[0].legend(fontsize=8)
    for axis, name in ((axes[1], "accuracy"), (axes[2], "cents")):
        axis.plot([r["step"] for r in train], [r[name] for r in train], lw=0.6)
        axis.set(title=f"training rollouts: {name}", xlabel="step")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


def _plane(pyplot: Any, final: Evaluation, path: Path) -> Path:
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for name, s in final.standings.items():
        axis.scatter(
            max(s.cents, 1e-3), s.accuracy, s=90 if name == POLICY else 45, marker="*" if name == POLICY else "o"
        )
        axis.annotate(name, (max(s.cents, 1e-3), s.accuracy), textcoords="offset points", xytext=(6, 4))
    axis.set(xscale="log", xlabel="cents a task", ylabel="accuracy", title="held-out tasks of the test split")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


def _calls(pyplot: Any, final: Evaluation, rows: Sequence[dict[str, Any]], path: Path) -> Path:
    after = final.standings[POLICY].calls
    first = next((r for r in rows if (r["kind"], r["step"]) == ("eval", 0)), {})
    earlier = {name.removeprefix(CALLS): count for name, count in first.items() if name.startswith(CALLS)}
    keys = sorted(set(after) | set(earlier))
    figure, axis = pyplot.subplots(figsize=(9, 3.6))
    places = range(len(keys))
    axis.bar([p - 0.2 for p in places], [earlier.get(k, 0.0) for k in keys], 0.4, label="after the warm start")
    axis.bar([p + 0.2 for p in places], [after.get(k, 0.0) for k in keys], 0.4, label="after training")
    axis.set_xticks(list(places), keys, rotation=40, ha="right")
    axis.set(title="calls a task, by tool")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path


# -- the page ----------------------------------------------------------------------------------------------------------


def _page(run: TrainingRun, final: Evaluation, probes: Sequence[Probe], pictures: Sequence[Path]) -> str:
    images = "".join(
        f'<p><img alt="{p.stem}" src="data:image/png;base64,{base64.b64encode(p.read_bytes()).decode()}"></p>'
        for p in pictures
    )
    tables = "".join(f"<h3>{html.escape(e)}</h3>{_table(p)}" for e, p in final.by_environment.items())
    shown = "".join(_transcript(t.messages, t.bill, t.measure.outcome) for t in trajectories_of(final, 4))
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(run.config.preset)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(run.config.preset)}, seed {run.config.seed}</h1>"
        f"{_SIMULATED if simulated(run.config) else ''}<p>{run.step} steps. {_reached(final)}</p>"
        f"{_table(final.standings)}{_wishes(final.by_wish)}{tables}{images}"
        f"<h2>Counterfactual probes</h2>{_probes(probes)}<h2>Trajectories</h2>{rollouts_link(run)}{shown}"
        f"<h2>Configuration</h2><pre>{html.escape(json.dumps(_config(run), indent=1))}</pre>"
    )


_SIMULATED = (
    "<p><b>Simulated.</b> Experts and latencies are the embedded worlds'; nothing here measures a real model.</p>"
)


def _reached(final: Evaluation) -> str:
    where = "On tasks, prices, tools and wordings never trained on, as far as the environments vary them, the policy"
    mine = final.standings[POLICY]
    if final.of_oracle is None:
        return f"{where} solves <b>{mine.accuracy:.1%}</b> at {mine.cents:.2f} ¢ a task. No baseline can play them."
    only = {name for name, panel in final.by_environment.items() if "oracle" not in panel}
    note = f" Baselines do not play {html.escape(', '.join(sorted(only)))}." if only else ""
    return f"{where} earns <b>{final.of_oracle}</b> of the reward of an oracle that knows the wish.{note}"


def rollouts_link(run: TrainingRun) -> str:
    """To the page of the rollouts that the run has dumped, which is written for it."""
    if not (run.folder / ROLLOUTS).is_file():
        return ""
    try:
        written = write_page(run.folder)
    except ConfigError as err:
        run.say(f"no page of the rollouts: {err}")
        return ""
    return (
        f'<p><a href="../{written.file.name}">{written.transcripts} rollouts of training</a>, by step, with rewards, '
        "advantages and bills.</p>"
    )


def _config(run: TrainingRun) -> dict[str, Any]:
    return as_json(run.config)


def _table(standings: dict[str, Standing]) -> str:
    head = "<tr><th>player<th>reward<th>accuracy<th>¢ a task<th>¢ a solved task<th>seconds</tr>"
    rows = "".join(
        f"<tr><td>{n}<td>{s.reward:.3f}<td>{s.accuracy:.1%}<td>{s.cents:.3f}"
        f"<td>{s.cents_per_solved:.3f}<td>{s.seconds:.0f}</tr>"
        for n, s in standings.items()
    )
    return f"<table>{head}{rows}</table>"


def _wishes(found: dict[str, WishStanding]) -> str:
    if not found:
        return ""
    head = (
        "<tr><th>wish<th>tasks<th>share of the oracle's reward<th>reward<th>accuracy<th>¢ a task"
        "<th>oracle: reward<th>accuracy<th>¢ a task</tr>"
    )
    rows = "".join(
        f"<tr><td>{html.escape(wish)}<td>{w.policy.tasks}<td>{w.share or '-'}"
        + "".join(f"<td>{s.reward:.3f}<td>{s.accuracy:.1%}<td>{s.cents:.3f}" for s in (w.policy, w.oracle))
        + "</tr>"
        for wish, w in found.items()
    )
    return f"<h2>By the user's wish</h2><table>{head}{rows}</table>"


def _probes(probes: Sequence[Probe]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(p.name)}<td>{html.escape(p.left)}: {p.left_rate:.2f}<td>{html.escape(p.right)}: "
        f"{p.right_rate:.2f}<td>{p.shift:+.2f}</tr>"
        for p in probes
    )
    return f"<table><tr><th>what<th>one side<th>other side<th>shift</tr>{rows}</table>"


def _transcript(messages: Sequence[Any], bill: Any, outcome: float) -> str:
    lines = "\n".join(f"[{m['role']}] {m['content'][:600]}" for m in messages)
    return f"<pre>{html.escape(lines)}\n\noutcome {outcome:g}, bill {html.escape(json.dumps(dict(bill)))}</pre>"
