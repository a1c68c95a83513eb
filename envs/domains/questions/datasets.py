"""Real question sets: from the hub at a pinned revision, or from a local file; rows become questions by their fields.

dataset="cais/hle"                a hub set at the revision in py, with `pip install ".[data]"`
dataset="NAME/OF-ANOTHER@COMMIT"  any other
dataset="frames.jsonl"            a file: jsonl, json, csv, tsv or parquet
"""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from toolorchestra.envs.base.errors import ConfigError, install, no_such
from toolorchestra.envs.base.types import Answer, Question

Row = Mapping[str, Any]
PINNED: Mapping[str, str] = {
    "cais/hle": "5a81a4c7271a2a2a312b9a690f0c2fde837e4c29",  # 2,500 questions, 2,158 of them without an image
    "google/frames-benchmark": "58d9fb6330f3ab1316d1eca12e5e8ef23dcc22ef",  # 824 questions
}
"""The revision that is taken of a set named without one."""
_ROW = '{"question": "...", "answer": "..."}'


def pinned(where: str) -> str:
    """NAME@REVISION of what was named, with or without its revision."""
    name, _, revision = where.partition("@")
    revision = revision or PINNED.get(name, "")
    if not revision:
        known = ", ".join(PINNED)
        raise ConfigError(
            f"data set {name!r} is no file here, and a hub set needs its revision pinned: {name}@COMMIT "
            f"(its commits: https://huggingface.co/datasets/{name}/commits/main; {name}@main takes today's newest; "
            f"without a revision: {known})"
        )
    return f"{name}@{revision}"


def rows(where: str, part: str = "") -> Iterable[Row]:
    """The rows of a part ("": test where there is one, else the only one). Raises ConfigError with what to do."""
    where = pinned(where)
    name, _, revision = where.partition("@")
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"data set {name!r} needs the hub library: {install('data')}") from None
    try:
        parts = datasets.load_dataset(name, revision=revision)
    except datasets.exceptions.DatasetNotFoundError as err:
        hint = f"accept its terms at https://huggingface.co/datasets/{name} and export HF_TOKEN=..."
        raise ConfigError(f"data set {where} is not there or is gated; if gated: {hint} ({str(err)[:160]})") from None
    except (OSError, ValueError) as err:
        hint = f"download a file of it and give its path: dataset={name.rpartition('/')[2]}.parquet"
        raise ConfigError(f"data set {where} cannot be fetched ({str(err)[:160]}); without a network, {hint}") from None
    return _part(where, part, parts)


def _part(where: str, part: str, parts: Mapping[str, Any]) -> Iterable[Row]:
    names: Sequence[str] = list(parts)
    chosen = part or ("test" if "test" in names else names[0] if len(names) == 1 else "")
    if chosen not in names:
        raise ConfigError(f"data set {where}: {no_such('part', chosen, names)}")
    made = parts[chosen]
    for column, feature in made.features.items():
        if getattr(feature, "decode", False):  # a picture or sound: decoding needs more packages
            made = made.cast_column(column, type(feature)(decode=False))
    found: Iterable[Row] = made
    return found


# -- rows become questions by their fields -----------------------------------------------------------------------------


GUESSES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "question_id", "task_id", "_id", "Unnamed: 0", ""),
    "question": ("question", "Question", "Prompt", "prompt", "problem"),
    "answer": ("answer", "Answer", "Final answer", "reference_answer", "final_answer"),
    "subject": ("category", "raw_subject", "subject", "task", "reasoning_types", "Level"),
    "image": ("image", "image_preview"),
}
"""What the fields are called in the sets that are known: HLE, FRAMES, GeneralThought, GAIA."""
NEEDED = ("question", "answer")
DIFFICULTY = 3.0
"""Nobody has measured a real question on the simulated models' scale; this is its middle."""
ALL = "all"
NO_SUBJECT = "general"
"""Subject of a question whose set names none."""
Family = Literal["math", "science", "code", "logic", "knowledge"]
_FAMILIES: Mapping[str, Family] = {
    "math": "math", "physics": "science", "chemistry": "science", "biology": "science", "engineering": "science",
    "computer": "code", "code": "code", "coding": "code", "logic": "logic",
}  # fmt: skip
_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Dataset:
    """A set of real questions: the file or hub name that holds them, and which of its columns is which."""

    where: str
    """A file, or a hub set as NAME@REVISION; those of PINNED go without a revision."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """id, question, answer, subject, image -> what the set calls them; what is missing is guessed."""
    ids: tuple[str, ...] = ()
    """The rows that are taken; empty: all."""
    part: str = ""
    """Split of a hub set; "" takes test where there is one, else the only one."""
    images: Literal["skip", "take"] = "skip"
    """What to do with a question that needs its image: leave it out and count it, or take it."""
    blanks: Literal["skip", "refuse"] = "refuse"
    """What to do with a row without question or answer, of which sets made for training have some."""

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
    blanks: int = 0
    """Rows without a question or an answer, left out where that was asked for."""
    repeats: int = 0
    """Rows that ask a question again under its id, as sets with several models' answers to it do: the first counts."""

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows nobody is asked, by why."""
        why = {"images": self.skipped_images, "blanks": self.blanks, "repeats": self.repeats}
        return {name: count for name, count in why.items() if count}


def load(wanted: str | Dataset, file: str = "") -> Loaded:
    """Read a question set. `file` is the column that names what is attached; GAIA alone has one, since what is named is
    read. Raises ConfigError with what to do."""
    spec = Dataset(wanted) if isinstance(wanted, str) else wanted
    names: dict[str, str] | None = None
    questions: dict[str, Question] = {}
    skipped = blanks = repeats = 0
    for number, row in enumerate(_rows(spec)):
        names = names or _names(spec, row)
        key = _key(spec, row, names, number)
        if spec.ids and key not in spec.ids:
            continue
        picture = row.get(names["image"]) if "image" in names else None
        image = picture_url(picture) if picture and spec.images == "take" else ""
        if picture and not image:
            skipped += 1
            continue
        question = _question(spec, row, names, key)
        question = replace(question, images=(image,)) if question and image else question
        question = replace(question, files=(str(row[file]),)) if question and file and row.get(file) else question
        if question is None:
            blanks += 1
        elif key not in questions:
            questions[key] = question
        elif questions[key].text == question.text:
            repeats += 1
        else:
            raise ConfigError(f'data set {spec.where}: two rows have the id {key!r}; name another field="id"')
    if names is None:
        raise ConfigError(f"data set {spec.where} is empty; each line is a question: {_ROW}")
    if missing := [wanted_id for wanted_id in spec.ids if wanted_id not in questions]:
        raise ConfigError(
            f"data set {spec.where} has no usable row {missing[0]!r} ({len(missing)} of the ids are missing)"
        )
    return Loaded(questions, skipped, spec.where, blanks, repeats)


_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
"""How the kinds of pictures begin that models take."""


def picture_url(picture: object) -> str:
    """A row's picture as a `data:` URL: it is one, or holds its bytes; "" where no model could be shown it."""
    held = picture.get("bytes") if isinstance(picture, Mapping) else picture
    if isinstance(held, bytes):
        kind = next((kind for start, kind in _PICTURES.items() if held.startswith(start)), "")
        if kind == "webp" and held[8:12] != b"WEBP":  # a sound or a film begins so too
            return ""
        return f"data:image/{kind};base64,{base64.b64encode(held).decode()}" if kind else ""
    return held if isinstance(held, str) and held.startswith("data:image/") else ""


def _key(spec: Dataset, row: Row, names: Mapping[str, str], number: int) -> str:
    """What a row is called: its id, or its number where the set has none."""
    if "id" not in names:
        return str(number)
    if _blank(own := row.get(names["id"])):
        hint = 'give it one, or name another field="id"'
        raise ConfigError(f"data set {spec.where}: row {number + 1} has no id under {names['id']!r}; {hint}")
    return str(own)


def _blank(value: object) -> bool:
    return value is None or value != value or not str(value).strip()  # nan is not what it is


def _question(spec: Dataset, row: Row, names: Mapping[str, str], key: str) -> Question | None:
    text, answer = row.get(names["question"]), row.get(names["answer"])
    for name, value in (("question", text), ("answer", answer)):
        if isinstance(value, Mapping | list):
            wanted = f"a text or a number expected under {names[name]!r}"
            raise ConfigError(f"data set {spec.where}: row {key!r}: {wanted}, got {value!r:.60}; write it as one text")
        if _blank(value):
            if spec.blanks == "skip":
                return None
            hint = 'leave such rows out with Dataset(..., blanks="skip")'
            raise ConfigError(f"data set {spec.where}: row {key!r} has no {name} under {names[name]!r}; {hint}")
    subject = str(row.get(names.get("subject", ""), "") or NO_SUBJECT)
    return Question(str(text).strip(), Answer(str(answer).strip()), subject, family_of(subject), DIFFICULTY)


def family_of(subject: str) -> Family:
    """The family of the simulated experts' skills that a subject's questions take, by the words in its name."""
    word = next((w for w in _FAMILIES if w in subject.lower()), "")
    return _FAMILIES[word] if word else "knowledge"


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
                f'Dataset({spec.where!r}, fields={{"{name}": "COLUMN"}})',
                command_line=f"--dataset ... {name}=COLUMN",
            )
    return names


def _rows(spec: Dataset) -> Iterable[Row]:
    path = Path(spec.where)
    if path.suffix.lower() in _SUFFIXES or path.exists():
        if not path.is_file():
            raise ConfigError(f"no data set file {spec.where!r}; give a {', '.join(_SUFFIXES)} file, or NAME@REVISION")
        return _from_file(path)
    return rows(spec.where, spec.part)


def _from_file(path: Path) -> Iterator[Row]:
    kind = path.suffix.lower()
    if kind not in _SUFFIXES:
        raise ConfigError(f"data set file {str(path)!r}: {no_such('kind', kind, _SUFFIXES)}")
    try:
        for number, row in enumerate(_parquet(path) if kind == ".parquet" else _written(path, kind), 1):
            if not isinstance(row, Mapping):
                raise ValueError(f"row {number} is {row!r:.60}")
            yield row
    except ConfigError:
        raise
    except (ValueError, OSError) as err:
        wrong = f"data set {path} cannot be read as {kind[1:]} ({err})"
        raise ConfigError(f"{wrong}; each row is a question: {_ROW}") from None


def _parquet(path: Path) -> Iterable[Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(f"{path} needs pyarrow: {install('data')}") from None
    found: Iterable[Any] = parquet.read_table(path).to_pylist()
    return found


def _written(path: Path, kind: str) -> Iterator[Any]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if kind in (".csv", ".tsv"):
            yield from _delimited(file, "," if kind == ".csv" else "\t")
        elif kind == ".jsonl":
            yield from _json_lines(file)
        elif isinstance(found := json.load(file), list):
            yield from found
        else:
            raise ValueError(f"a list of rows expected, got {type(found).__name__}")


def _delimited(file: TextIO, mark: str) -> Iterator[Row]:
    reader: csv.DictReader[str] = csv.DictReader(file, delimiter=mark)
    try:
        for row in reader:
            if None in row:
                raise csv.Error(f"more columns than the first line; put a text that holds {mark!r} in quotes")
            yield row
    except csv.Error as err:
        raise ValueError(f"line {reader.line_num}: {err}") from None


def _json_lines(file: TextIO) -> Iterator[Any]:
    for number, line in enumerate(file, 1):
        try:
            if line.strip():
                yield json.loads(line)
        except ValueError as err:
            raise ValueError(f"line {number}: {err}") from None
