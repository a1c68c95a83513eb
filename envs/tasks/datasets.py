"""Real question sets: from the hub at a pinned revision, or from a local file; rows become questions by their fields.

dataset="google/frames-benchmark@COMMIT"      a hub set, with `pip install "toolorchestra[data]"`
dataset="frames.jsonl"                        a file: jsonl, json, csv or parquet
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolorchestra.envs.errors import ConfigError, no_such
from toolorchestra.envs.types import Answer, Question

Row = Mapping[str, Any]
GUESSES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "question_id", "task_id", "_id", "Unnamed: 0"),
    "question": ("question", "Prompt", "prompt", "problem"),
    "answer": ("answer", "Answer", "reference_answer", "final_answer"),
    "subject": ("category", "raw_subject", "subject", "task", "reasoning_types"),
    "image": ("image", "image_preview"),
}
"""What the fields are called in the sets that are known: HLE, FRAMES, GeneralThought."""
NEEDED = ("question", "answer")
DIFFICULTY = 3.0
"""Nobody has measured a real question on the simulated models' scale; this is its middle."""
ALL = "all"
_FAMILIES: Mapping[str, Literal["math", "science", "code", "logic"]] = {
    "math": "math", "physics": "science", "chemistry": "science", "biology": "science", "engineering": "science",
    "computer": "code", "code": "code", "coding": "code", "logic": "logic",
}  # fmt: skip
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class Dataset:
    """Which questions, from where."""

    where: str
    """A file, or a hub set as NAME@REVISION."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """id, question, answer, subject, image -> what the set calls them; what is missing is guessed."""
    ids: tuple[str, ...] = ()
    """Only these rows; empty: all."""
    part: str = ""
    """Split of a hub set; "" takes test where there is one, else the only one."""
    images: Literal["skip", "refuse"] = "skip"
    """What to do with a question that needs its image: leave it out and count it, or raise."""

    def __post_init__(self) -> None:
        for name in self.fields:
            if name not in GUESSES:
                raise ConfigError(f"data set {self.where}: {no_such('field', name, GUESSES)}")


@dataclass(frozen=True)
class Loaded:
    """The questions by their ids, in the set's own order."""

    questions: Mapping[str, Question]
    skipped_images: int
    where: str


def load(wanted: str | Dataset) -> Loaded:
    """Read a question set. Raises ConfigError with what to do."""
    spec = Dataset(wanted) if isinstance(wanted, str) else wanted
    rows = list(_rows(spec))
    if not rows:
        raise ConfigError(f"data set {spec.where} is empty")
    names = _names(spec, rows[0])
    questions: dict[str, Question] = {}
    skipped = 0
    for number, row in enumerate(rows):
        key = str(row[names["id"]]) if "id" in names else str(number)
        if spec.ids and key not in spec.ids:
            continue
        if "image" in names and row.get(names["image"]):
            if spec.images == "refuse":
                raise ConfigError(f"data set {spec.where}: {key!r} needs its image, which no tool here can see")
            skipped += 1
            continue
        if key in questions:
            raise ConfigError(f'data set {spec.where}: two rows have the id {key!r}; name another field="id"')
        questions[key] = _question(spec, row, names, key)
    if missing := [wanted_id for wanted_id in spec.ids if wanted_id not in questions]:
        raise ConfigError(
            f"data set {spec.where} has no usable row {missing[0]!r} ({len(missing)} of the ids are missing)"
        )
    return Loaded(questions, skipped, spec.where)


def _question(spec: Dataset, row: Row, names: Mapping[str, str], key: str) -> Question:
    text, answer = row.get(names["question"]), row.get(names["answer"])
    for name, value in (("question", text), ("answer", answer)):
        if value is None or not str(value).strip():
            raise ConfigError(f"data set {spec.where}: row {key!r} has no {name} under {names[name]!r}")
    subject = str(row.get(names.get("subject", ""), "") or "general")
    word = next((w for w in _FAMILIES if w in subject.lower()), "")
    family = _FAMILIES[word] if word else "knowledge"
    return Question(str(text).strip(), Answer(str(answer).strip()), subject, family, DIFFICULTY)


def _names(spec: Dataset, row: Row) -> dict[str, str]:
    """What each field is called in this set."""
    names = {}
    for name, guesses in GUESSES.items():
        if name in spec.fields:
            if spec.fields[name] not in row:
                raise ConfigError(f"data set {spec.where}: {no_such('column', spec.fields[name], row)}")
            names[name] = spec.fields[name]
        elif found := next((g for g in guesses if g in row), None):
            names[name] = found
    for name in NEEDED:
        if name not in names:
            columns = ", ".join(row)
            raise ConfigError(
                f"data set {spec.where} has no {name} (its columns: {columns}); name it: "
                f'Dataset({spec.where!r}, fields={{"{name}": "COLUMN"}}), or --field {name}=COLUMN'
            )
    return names


def _rows(spec: Dataset) -> Iterable[Row]:
    path = Path(spec.where)
    if path.suffix.lower() in _SUFFIXES or path.exists():
        if not path.is_file():
            raise ConfigError(f"no data set file {spec.where!r}; give a {', '.join(_SUFFIXES)} file, or NAME@REVISION")
        return _from_file(path)
    return _from_hub(spec)


def _from_file(path: Path) -> Iterator[Row]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        try:
            from pyarrow import parquet
        except ImportError:
            raise ConfigError(f'{path} needs pyarrow: pip install "toolorchestra[data]"') from None
        yield from parquet.read_table(path).to_pylist()
        return
    if kind not in _SUFFIXES:
        raise ConfigError(f"data set file {str(path)!r}: {no_such('kind', kind, _SUFFIXES)}")
    with path.open(encoding="utf-8", newline="") as file:
        if kind == ".csv":
            yield from csv.DictReader(file)
            return
        try:
            rows = json.load(file) if kind == ".json" else (json.loads(line) for line in file if line.strip())
            yield from rows
        except ValueError as err:
            raise ConfigError(f"data set {path} is not {kind[1:]}: {err}") from None


def _from_hub(spec: Dataset) -> Iterable[Row]:
    name, _, revision = spec.where.partition("@")
    if not revision:
        raise ConfigError(
            f"data set {name!r} is no file here, and a hub set needs its revision pinned: {name}@COMMIT "
            f"(its commits: https://huggingface.co/datasets/{name}/commits/main; {name}@main takes today's newest)"
        )
    try:
        import datasets
    except ImportError:
        raise ConfigError(f'data set {name!r} needs the hub library: pip install "toolorchestra[data]"') from None
    try:
        parts = datasets.load_dataset(name, revision=revision)
    except datasets.exceptions.DatasetNotFoundError as err:
        hint = f"accept its terms at https://huggingface.co/datasets/{name} and export HF_TOKEN=..."
        raise ConfigError(f"data set {name!r} is not there or is gated; if gated: {hint} ({str(err)[:120]})") from None
    except (OSError, ValueError) as err:
        hint = f"download a file of it and give its path: dataset={name.rpartition('/')[2]}.parquet"
        raise ConfigError(
            f"data set {spec.where} cannot be fetched ({str(err)[:160]}); without a network, {hint}"
        ) from None
    return _part(spec, parts)


def _part(spec: Dataset, parts: Mapping[str, Any]) -> Iterable[Row]:
    names: Sequence[str] = list(parts)
    chosen = spec.part or ("test" if "test" in names else names[0] if len(names) == 1 else "")
    if chosen not in names:
        raise ConfigError(f"data set {spec.where}: {no_such('part', chosen, names)}")
    made = parts[chosen]
    if "image" in made.column_names and hasattr(made.features["image"], "decode"):
        made = made.cast_column("image", made.features["image"].__class__(decode=False))
    rows: Iterable[Row] = made
    return rows
