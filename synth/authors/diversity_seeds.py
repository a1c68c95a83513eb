"""Seeds of diversity: what a prompt is given by chance, so that a model that is asked often does not write the same.

All is drawn from the run's seed, so a run can be made again. How different the texts are is measured on what comes out:
`synth/proof/text_diversity.py`.
"""

from __future__ import annotations

import random

PLACES = (
    "a small island", "a mountain valley", "a harbour town", "a capital with many commuters", "a cold northern coast",
    "a university town", "a spa town", "a border region with two currencies", "a desert city", "a rural county",
    "a tourist resort in winter", "an old industrial city", "a river delta", "a new town on a plain",
)  # fmt: skip
CUSTOMERS = (
    "families with small children", "shift workers", "retired people", "students who have little money",
    "owners of small businesses", "people who moved here last month", "frequent travellers", "volunteers of clubs",
    "carers who act for others", "people who use it once a year", "collectors", "people in a hurry at lunch",
)  # fmt: skip
VOICES = (
    "brief, without greeting", "polite and a little formal", "chatty, with the reason told first", "annoyed but fair",
    "unsure, asking whether it can be done", "as a note typed on a telephone", "with the detail first and the wish "
    "last",
    "as somebody who has asked before", "cheerful", "as somebody who plans everything", "tired, late in the evening",
    "in one long sentence", "in two short sentences", "as somebody who writes letters",
)  # fmt: skip
TWISTS = (
    "a limit of money that decides between two ways", "two things that must be told apart by a detail",
    "a date that has to be worked out", "a sum over several entries", "the cheapest or earliest that fits",
    "a condition that holds only sometimes", "a change to something that was just made", "a rule that forbids a part "
    "of it",
)  # fmt: skip
VIEWS = (
    "what customers ask for most often", "what the back office needs to put things right",
    "rare cases and their rules", "what has to be looked up before anything is changed",
)  # fmt: skip


def of_subject(seed: int) -> str:
    """Words for the prompt of a domain's first part: where it is set, and who its customers are."""
    rng = random.Random(f"{seed}/subject")
    return f"Set it in {rng.choice(PLACES)}; its customers are above all {rng.choice(CUSTOMERS)}."


def of_intents(seed: int, batch: int) -> str:
    """For one batch of intents."""
    rng = random.Random(f"{seed}/intents/{batch}")
    return f"Think of {rng.choice(CUSTOMERS)}, and of {rng.choice(TWISTS)}."


def of_draft(seed: int, number: int) -> str:
    """For one of several drafts."""
    return f"Think first of {VIEWS[(seed + number) % len(VIEWS)]}."


def of_task(seed: int, task_id: str) -> str:
    """How a task's user speaks."""
    return random.Random(f"{seed}/voice/{task_id}").choice(VOICES)


def of_evolving(seed: int, task_id: str, number: int) -> str:
    """What makes a task harder."""
    return random.Random(f"{seed}/twist/{task_id}/{number}").choice(TWISTS)
