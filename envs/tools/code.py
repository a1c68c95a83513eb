"""Computing: `enhance_reasoning(model)` lets a model write the program, `python` takes the agent's own."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.money.prices import TOOL, Usage
from toolorchestra.envs.sandbox import Interpreter
from toolorchestra.envs.tools import ToolContext, ToolResult
from toolorchestra.envs.tools.question_material import Experts

SHOWN_CHARACTERS = 2000
MOST_FILE_CHARACTERS = 900_000
"""Characters of a packed file that a program is given; a program has at most a mebibyte."""
_WRITE_FILES = (
    "import base64 as _b, zlib as _z\n"
    "for _n, _d in {packed!r}.items(): open(_n, 'wb').write(_z.decompress(_b.b64decode(_d)))"
)
PRINTED = "Output: "
"""What the result of a program begins with that printed something."""
_FENCE = re.compile(r"```[ \t]*([^\s`]*)[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = re.compile(r"py(?:thon)?(?![a-z])", re.IGNORECASE)
"""How the label of a program begins; that of a session, pycon, does not."""
_WRITE_CODE = "Write a self-contained Python program that prints the intermediate results needed, in a ```python block."


class Computed(NamedTuple):
    """What a program leaves in the material: its output, "" when it failed."""

    output: str


def with_files(code: str, question: Question | None, interpreter: Interpreter) -> str:
    """A program that first writes the question's files into its folder, where the interpreter gives it one. A file that
    packed has more than MOST_FILE_CHARACTERS is left out."""
    if question is None or not question.files or not getattr(interpreter, "has_folder", False):
        return code
    packed = {file.name: base64.b64encode(zlib.compress(file.read_bytes())).decode()
              for file in map(Path, question.files)}  # fmt: skip
    small = {name: text for name, text in packed.items() if len(text) <= MOST_FILE_CHARACTERS}
    return f"{_WRITE_FILES.format(packed=small)}\n{code}" if small else code


def _program(said: str) -> str | None:
    """The last block that is labelled as a program, else the last without a label; None: there is neither."""
    blocks = _FENCE.findall(said)
    found = [code for label, code in blocks if _PYTHON.match(label)] or [code for label, code in blocks if not label]
    return found[-1] if found else None


class Code:
    """Both forms over one interpreter."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    async def written(self, context: ToolContext, experts: Experts, alias: str) -> ToolResult:
        """A model writes the program."""
        code = _program(await experts.say(context, alias, "code", _WRITE_CODE))
        if code is None:
            return ToolResult("The model wrote no program.", note=Computed(""))
        return await self.given(context, code)

    async def given(self, context: ToolContext, code: str) -> ToolResult:
        """The agent's own program. Errors are results too: stderr and the exit status come back."""
        end = getattr(self.interpreter, "end_session", None)
        if end is not None:
            context.at_end(end)
        code = with_files(code, getattr(context.world, "question", None), self.interpreter)
        done = await self.interpreter.run(code, context.session, context.bill)
        context.bill.add(Usage(self.interpreter.item, TOOL, seconds=done.seconds))
        output = done.stdout.strip()[-SHOWN_CHARACTERS:]
        parts = [f"{PRINTED}{output}" if output else "No output."]
        if done.exit_status:
            parts.append(f"exit status {done.exit_status}: {done.stderr.strip()[-SHOWN_CHARACTERS:]}")
        return ToolResult("\n".join(parts), note=Computed("" if done.exit_status else output))
