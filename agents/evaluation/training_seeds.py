"""Several trainings of one policy, compared as it: the mean of what they played, and how far another training may be.

An interval over tasks alone holds these trainings' mean. What another one would come to is a second source of chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from toolorchestra.agents.evaluation.rows import EvaluationRow, grouped
from toolorchestra.agents.evaluation.statistics import reach_of_seeds

TaskTrial = tuple[str, int]
"""A task and one of its trials."""
TrialRows = Mapping[TaskTrial, EvaluationRow]
Trainings = Mapping[str, Sequence[TrialRows]]
"""The rows of each training, by the policy that they are trainings of."""


def mean_rows(policy: str, trainings: Sequence[TrialRows]) -> list[EvaluationRow]:
    """A row for each trial that every training played under the same seed and prices, with the means of outcome, bill
    and time. What is not known of one is not known."""
    shared = set.intersection(*({(*key, row.seed, row.sheet) for key, row in rows.items()} for rows in trainings))
    made = []
    for task, trial, *_ in sorted(shared):
        rows = [some[task, trial] for some in trainings]
        known = [row.right for row in rows if row.right is not None]
        right = math.fsum(known) / len(rows) if len(known) == len(rows) else None
        roles = dict.fromkeys(role for row in rows for role in row.nano_usd_by_role)
        bill = {role: round(sum(row.nano_usd_by_role.get(role, 0) for row in rows) / len(rows)) for role in roles}
        first = next((row for row in rows if row.right is None), rows[0])
        time = round(sum(row.elapsed_ns for row in rows) / len(rows))
        made.append(replace(first, policy=policy, right=right, nano_usd_by_role=bill, elapsed_ns=time))
    return made


def reach_over(
    trainings: Sequence[TrialRows], keys: Sequence[TaskTrial], of: Callable[[EvaluationRow], float]
) -> float:
    """How far another training's mean over these trials may be, with 95 %; 0 where there is one training."""
    if len(trainings) < 2 or not keys:
        return 0.0
    by_task = grouped(keys, lambda key: key[0]).values()
    means = [[math.fsum(of(rows[key]) for key in some) / len(some) for some in by_task] for rows in trainings]
    return reach_of_seeds(np.array(means))
