"""A run as logs of Inspect AI, version 2 of its JSON format: one log for each environment, split and policy. Nothing of
Inspect is needed to write them; `inspect view --log-dir FOLDER` shows them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from toolorchestra.agents.evaluation.rows import Cell, EvaluationRow
from toolorchestra.agents.evaluation.run_files import PlayedRow, RunFiles, model_of
from toolorchestra.agents.evaluation.summary import read_planned, tallies_of, tasks_of
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError
from toolorchestra.envs.money.prices import NANO


def inspect_messages(kept: Sequence[Mapping[str, Any]], model: str) -> Iterator[dict[str, Any]]:
    """A transcript with its calls apart from its words. A text that is no action stays as it was said."""
    waiting: list[tuple[str, str]] = []
    for number, message in enumerate(kept):
        role, content = message["role"], message["content"]
        if role == "assistant":
            made = _said(content, number)
            waiting = [(call["id"], call["function"]) for call in made.get("tool_calls", ())]
            yield {"role": role, "source": "generate", "model": model, **made}
        elif role == "tool":
            own = next((call for call in waiting if call[1] == message.get("name")), (None, None))
            waiting = [call for call in waiting if call[0] != own[0]]
            yield {"role": role, "content": content, "function": message.get("name"), "tool_call_id": own[0]}
        else:
            yield {"role": role, "content": content}


def _said(text: str, number: int) -> dict[str, Any]:
    try:
        action = parse(text)
    except ActionError:
        return {"content": text}
    thought = [{"type": "reasoning", "reasoning": action.thought}, {"type": "text", "text": action.said}]
    content: dict[str, Any] = {"content": thought if action.thought else action.said}
    calls = [
        {"id": f"call-{number}-{place}", "function": call.name, "arguments": call.arguments, "type": "function"}
        for place, call in enumerate(action.calls)
    ]
    return {**content, "tool_calls": calls} if calls else content


def inspect_usages(charges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens and dollars by model and by role. Inspect's output tokens hold the reasoning."""
    made: dict[str, dict[str, dict[str, Any]]] = {"model_usage": {}, "role_usage": {}}
    for charge in charges:
        tokens = charge["tokens"]
        told = {
            "input_tokens": tokens["input"],
            "output_tokens": tokens["output"] + tokens["reasoning"],
            "total_tokens": sum(tokens.values()),
            "input_tokens_cache_read": tokens["cached"],
            "reasoning_tokens": tokens["reasoning"],
            "total_cost": charge["nano_usd"] / NANO,
        }
        for kind, name in (("model_usage", charge["item"]), ("role_usage", charge["role"])):
            sums = made[kind].setdefault(name, dict.fromkeys(told, 0))
            for key, value in told.items():
                sums[key] += value
    return made


# -- logs --------------------------------------------------------------------------------------------------------------


SCORER = "outcome"
_NO_TRACE = {"traceback": "", "traceback_ansi": ""}


def inspect_logs(run: RunFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each log with the name of its file, in the form by which Inspect finds it in a folder."""
    for cell, played in run.cells.items():
        task_id = hashlib.sha256(json.dumps(cell).encode()).hexdigest()[:22]
        words = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(cell)).strip("-")
        stamp = re.sub(r"[:+]", "-", run.begun.isoformat(timespec="seconds"))
        yield f"{stamp}_{words}_{task_id}.json", _log(run, cell, played, task_id)


def _log(run: RunFiles, cell: Cell, played: Sequence[PlayedRow], task_id: str) -> dict[str, Any]:
    planned = (read_planned(run.folder) or {}).get(cell, len(played))
    model, begun = model_of(played), run.begun.isoformat()
    charges = [charge for one in played for charge in one.trajectory.get("charges", ())]
    return {
        "version": 2,
        "status": "success" if len(played) >= planned else "cancelled",
        "eval": _spec(run, cell, played, {"model": model, "task_id": task_id, "created": begun}),
        "results": _results(played, planned),
        "stats": {"started_at": begun, "completed_at": "", **inspect_usages(charges)},
        "samples": [_sample(one, model) for one in played],
    }


def _spec(run: RunFiles, cell: Cell, played: Sequence[PlayedRow], more: Mapping[str, Any]) -> dict[str, Any]:
    env, split, policy = cell
    told, ids = run.manifest, list(dict.fromkeys(one.row.task for one in played))
    kept = ("simulated", "experts_simulated", "machine", "planned", "repriced")
    revision = str(told.get("revision", "")).partition("-dirty")
    commit = {"type": "git", "origin": "", "commit": revision[0], "dirty": bool(revision[1])}
    return {
        "run_id": str(told.get("run_id", "")),
        "task": env,
        "task_version": told.get("task_versions", {}).get(env.partition(",")[0], 0),
        "task_args": told.get("asked", {}),
        "solver": policy,
        "dataset": {"name": f"{env} {split}", "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": 1 + max(one.row.trial for one in played), "fail_on_error": False},
        "revision": commit if revision[0] else None,
        "packages": told.get("versions", {}),
        "metadata": {name: told[name] for name in kept if name in told},
        "scorers": [{"name": SCORER, "metrics": [{"name": "accuracy"}, {"name": "stderr"}]}],
        **more,
    }


def _results(played: Sequence[PlayedRow], planned: int) -> dict[str, Any]:
    """Figures as Inspect has them: the mean over tasks of their trials' mean, and its standard error over tasks, of
    what ended. What did not is counted beside."""
    rows = [one.row for one in played if one.row.right is not None]
    means = [tally.right / tally.known for tally in tallies_of(rows)]
    error = stdev(means) / len(means) ** 0.5 if len(means) > 1 else 0.0
    found = {"accuracy": fmean(means), "stderr": error} if means else {}
    metrics = {name: {"name": name, "value": value} for name, value in found.items()}
    score = {"name": SCORER, "scorer": SCORER, "reducer": "mean", "metrics": metrics}
    unscored = len(tasks_of(one.row for one in played)) - len(means)
    counts = {"scored_samples": len(means), "unscored_samples": unscored}
    return {"total_samples": planned, "completed_samples": len(rows), "scores": [{**score, **counts}]}


def _sample(one: PlayedRow, model: str) -> dict[str, Any]:
    row, kept = one.row, one.trajectory
    messages = list(inspect_messages(kept.get("messages", ()), model))
    said = [message for message in messages if message["role"] == "assistant"]
    opening = messages[: messages.index(said[0])] if said else messages
    error = row.failure or ("cut by the run's spend cap" if row.status == "cut" else "")
    known = {"turns": ("turn", row.turns), "usd": ("cost", row.agent_usd), "seconds": ("time", row.seconds)}
    kind, reached = known.get(row.truncated_by, ("custom", row.turns))
    limit = {"type": kind, "limit": reached, "reason": f"truncated by {row.truncated_by}"}
    told = "; ".join(f"{name}: {json.dumps(value, default=str)}" for name, value in row.evidence.items())
    answer = str(row.evidence["answer"]) if "answer" in row.evidence else None
    score = {"value": row.right, "answer": answer, "explanation": told, "metadata": dict(row.evidence)}
    return {
        "id": row.task,
        "epoch": row.trial + 1,
        "input": opening or "",
        "target": str(row.evidence.get("expected", "")),
        "messages": messages,
        "output": {"model": model, "choices": [{"message": m, "stop_reason": "stop"} for m in said[-1:]]},
        "scores": {SCORER: score} if row.right is not None else None,
        "metadata": _metadata(row),
        **inspect_usages(kept.get("charges", ())),
        "total_time": row.seconds,
        "working_time": row.seconds,
        "turn_count": row.turns,
        "limit": limit if row.truncated_by and row.right is not None else None,
        "error": {"message": error, **_NO_TRACE} if row.right is None else None,
    }


def _metadata(row: EvaluationRow) -> dict[str, Any]:
    """What Inspect has no place for: the bill by role, tool and model, calls, seed, price sheet."""
    bills = {"role": row.nano_usd_by_role, "tool": row.nano_usd_by_tool, "model": row.nano_usd_by_model}
    usd = {f"usd_by_{kind}": {name: nano / NANO for name, nano in bill.items()} for kind, bill in bills.items()}
    kept = ("status", "seed", "calls", "groups", "preference", "sheet", "estimated", "over_budget_usd", "digest")
    return {"usd": row.usd, **usd, **{name: getattr(row, name) for name in kept}}
