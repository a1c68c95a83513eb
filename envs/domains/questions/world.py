"""The world of a question: documents and results pile up until an answer is given, graded by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, FORM, OPEN
from toolorchestra.envs.base.answer_grading import is_right
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Answer, Message, Outcome, Passage, Question, ToolCall, Transcript
from toolorchestra.envs.domains.questions.judge import Judge
from toolorchestra.envs.domains.source import ungraded
from toolorchestra.envs.domains.world import ENDS_THE_EPISODE, MESSAGE, World
from toolorchestra.envs.models.simulated import Skill
from toolorchestra.envs.tools import Tool, Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.code import Computed
from toolorchestra.envs.tools.question_material import gathered
from toolorchestra.envs.tools.search import NewPassages

SYSTEM = (
    "You orchestrate tools to answer the user's question. Every call costs money and time; your own tokens do too. "
    "Call tools until the question can be answered, then give the answer."
)


def _remind(context: ToolContext, text: str) -> ToolResult:
    """A message does not end the episode where an `answer` tool does: as in the reference, the turn just counts."""
    toolbox: Toolbox = context.world.toolbox
    names = ", ".join(t.name for t in toolbox)
    meant = any(f'"{t.name}"' in text or f"{t.name}(" in text for t in toolbox)  # a call in some other grammar
    form = f" Write a call as {OPEN}{FORM}{CLOSE}." if meant else ""
    return ToolResult(f"Call a tool: {names}. The task ends with `{context.world.ending}`.{form}", role="user")


_REMINDS = Tool("message", "Nobody listens.", MESSAGE, _remind)

UNKNOWN = Answer("")
"""The answer of a question that somebody asks a served policy."""
SHOWN_OF_A_FILE = 2000
"""Characters of an attached file that the agent sees; experts see it as they see a document."""
JUDGE_SECONDS = 4 * 3600.0
"""The judge's own backend has nearer deadlines; this is for one that has none."""


class QaWorld(World):
    """One question, and what was found for it."""

    __slots__ = ("answer", "documents", "ending", "judge", "listener", "question", "results", "skills", "toolbox")
    system = SYSTEM

    def __init__(
        self,
        question: Question,
        toolbox: Toolbox,
        *,
        message_answers: bool,
        ending: str = "answer",
        judge: Judge | None = None,
        skills: Mapping[str, Skill] | None = None,
    ) -> None:
        self.question = question
        self.toolbox = toolbox
        self.ending = ending
        """The tool that ends the task, of which a message reminds where it does not end it."""
        self.judge = judge
        self.skills = skills or {}
        """Skills of the simulated experts, for planners; the agent learns them by what comes of its calls."""
        self.documents: tuple[Passage, ...] = question.attached
        self.results: tuple[str, ...] = ()
        self.answer: str | None = None
        self.listener = ENDS_THE_EPISODE if message_answers else _REMINDS

    def opening(self) -> Transcript:
        shown = "".join(f"\n\n[{p.title}] {p.text[:SHOWN_OF_A_FILE]}" for p in self.question.attached)
        seen = "\n\n[A picture goes with this.]" * len(self.question.images)
        return (Message(role="user", content=f"{self.question.text}{seen}{shown}"),)

    def retell(self) -> Transcript:
        """Tell it as the released reference does: the question and what was gathered, nothing of the turns
        themselves."""
        material = gathered(self)
        asked = f"Problem: {self.question.text}\n\n{material}\n\nChoose a suitable tool."
        return (Message(role="user", content=asked),)

    def absorb(self, call: ToolCall, result: ToolResult) -> None:
        note = result.note
        if isinstance(note, NewPassages):
            have = {p.doc_id for p in self.documents}  # two searches of one turn may find the same
            self.documents += tuple(p for p in note.passages if p.doc_id not in have)
        elif isinstance(note, Computed):
            self.results += (note.output,) if note.output else ()
        elif isinstance(note, str) and self.answer is None:
            self.answer = note
        elif note is not None and self.answer is None:
            raise ConfigError(f"tool {call.name!r} left a note this world does not know: {type(note).__name__}")

    def to_grade(self) -> dict[str, Any]:
        """Give what is graded again (Regradable)."""
        return {"answer": self.answer}

    def take_up(self, kept: Mapping[str, Any], context: ToolContext) -> None:
        """Take up what is graded again (Regradable)."""
        del context
        self.answer = kept["answer"]

    def grade(self, *, finished: bool) -> Outcome | Tool:
        if self.question.answer is UNKNOWN:
            return ungraded(self.answer)
        right = finished and self.answer is not None and is_right(self.question.answer, self.answer)
        if self.judge is not None and finished and self.answer and not right:
            return self.judge.tool(self.question, self.answer, JUDGE_SECONDS)
        evidence = {"answer": self.answer, "expected": self.question.answer.text, "subject": self.question.subject}
        return Outcome(float(right), evidence)
