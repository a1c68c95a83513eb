"""`ToolOrchestra/GAIA-v0`: the questions of your copy of GAIA, which is gated, with their attachments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.types import Passage, Question
from toolorchestra.envs.domains.gaia.attachments import text_of
from toolorchestra.envs.domains.questions import datasets
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

METADATA = ("metadata.jsonl", "metadata.parquet")
LEVELS = (1, 2, 3)


@dataclass(eq=False)
class GaiaSource(QaSource):
    """GAIA's questions, graded by its quasi-exact match alone. The leaderboard keeps the answers of the test part: they
    are "?" here, so nobody's is right."""

    level: int | None = None
    """Take the questions of level 1, 2 or 3 alone."""

    real_name = "gaia"

    def __post_init__(self) -> None:
        if self.level is not None:
            one_of("level", self.level, LEVELS)
        if self.dataset is None:
            raise ConfigError(
                "GAIA is gated, so this suite has no copy of it; get yours and name the folder that its metadata file "
                'lies in with the attachments: dataset="GAIA/2023/validation"',
                command_line="--dataset GAIA/2023/validation",
            )
        super().__post_init__()
        self.judge = None

    def load_questions(self, wanted: str | datasets.Dataset) -> datasets.Loaded:
        spec = datasets.Dataset(str(wanted)) if not isinstance(wanted, datasets.Dataset) else wanted
        folder = Path(spec.where)
        if folder.is_dir():
            names = [folder / name for name in METADATA if (folder / name).is_file()]
            if not names:
                raise ConfigError(f"{folder} has none of {', '.join(METADATA)}; name the folder that has it")
            spec = replace(spec, where=str(names[0]))
        loaded = datasets.load(spec)
        place = Path(spec.where).parent
        chosen = {key: _question(question, place, seen=self.takes_images) for key, question in loaded.questions.items()
                  if self.level is None or question.subject == str(self.level)}  # fmt: skip
        return replace(loaded, questions=chosen)

    def retriever(self) -> Bm25:
        return Bm25((Passage("gaia", "GAIA", "No index is named."),))


def _question(question: Question, place: Path, *, seen: bool) -> Question:
    """A row with what is attached to it: what can be read is a document that is there from the start."""
    made = replace(question, answer=replace(question.answer, kind="quasi"), subject=f"level {question.subject}")
    if not question.files:
        return made
    files = [place / Path(name).name for name in question.files]
    if missing := [file for file in files if not file.is_file()]:
        raise ConfigError(f"attachment {missing[0].name!r} is not in {place}; put it beside the metadata file")
    texts = [Passage(f"attached:{file.name}", file.name, text) for file in files if (text := text_of(file))]
    told = f"{question.text}\n\nAttached file: {', '.join(file.name for file in files)}"
    shown = filter(None, (datasets.picture_url(file.read_bytes()) for file in files)) if seen else ()
    return replace(made, text=told, files=tuple(map(str, files)), attached=tuple(texts), images=tuple(shown))
