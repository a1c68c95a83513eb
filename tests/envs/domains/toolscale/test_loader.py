"""A domain folder that is wrong is refused, with file, line and field."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.domains import LIBRARY, changed, library, with_tool
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.database import SqlDatabase, without_comments
from toolorchestra.envs.domains.toolscale.domain_files import FILES
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.stages.domain_folder import make


def test_the_library_loads_and_its_hash_holds() -> None:
    domain = loader.read(library(), verify=True)
    assert (domain.name, len(domain.tools), len(domain.tasks)) == ("library", 5, 30)


@pytest.mark.parametrize(
    ("name", "old", "new", "seen"),
    [
        ("tools.json", '"kind": "write"', '"kind": "mutate"', "tools.json:5: kind must be one of: read, write"),
        ("tools.json", '"format": "email"', '"format": "mail"', "parameters.email.format: no format 'mail'"),
        ("tools.json", "lower(:email)", "lower(:mail)", "steps[0].let: You did not supply a value for binding"),
        ("tools.json", "SELECT loan_id, title", "SELEC loan_id", "returns: starts with select or with"),
        ("tools.json", '"error": "No member {member_id}."', '"fault": ""', "has no argument 'fault'"),
        ("tools.json", "date(:today, '+21 days')", "date('now')", "the wall clock would break replays"),
        (
            "tools.json",
            "No member {member_id}.",
            "No member {member}.",
            "member}.': no value 'member'",
        ),
        ("tools.json", "No member {member_id}.", "No {member_id:.2f}.", "Unknown format code 'f'"),
        ("tasks.jsonl.gz", '"difficulty": 2', '"difficulty": 9', "difficulty must be at most 5"),
        ("tasks.jsonl.gz", '"name": "renew_loan"', '"name": "renew"', "no tool 'renew'"),
        ("tasks.jsonl.gz", '"actions": [1]', '"actions": [7]', "actions, numbered from 0; there is no 7"),
        ("rows.jsonl.gz", '["BO-001"', '["BO-001", 1', "rows.jsonl.gz:43: a list of 4 values expected"),
        ("schema.sql", "CHECK (copies >= 0)", "CHECK (copies < 0)", "CHECK constraint failed"),
        ("domain.json", '"clock": "2026', '"clock": "26', "clock is written YYYY-MM-DD HH:MM:SS"),
        ("domain.json", '"library"', '"../shop"', "got '../shop'"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, name: str, old: str, new: str, seen: str) -> None:
    folder = changed(tmp_path, name, lambda text: text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        SqlDatabase(loader.read(folder))
    assert seen in str(caught.value)


@pytest.mark.parametrize("change", [{"say": []}, None])
def test_a_task_whose_user_has_nothing_to_say_is_refused(tmp_path: Path, change: dict[str, Any] | None) -> None:
    def silent(text: str) -> str:
        row = json.loads(text.split("\n", 1)[0])
        first = row["toolscale"]["requests"][0]
        row["toolscale"]["requests"] = [] if change is None else [{**first, **change}]
        return json.dumps(row) + "\n"

    with pytest.raises(ConfigError, match=r"tasks\.jsonl\.gz:1: toolscale\.requests: one request at least"):
        loader.read(changed(tmp_path, "tasks.jsonl.gz", silent))


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_only_a_newline_ends_a_line(tmp_path: Path, mark: str) -> None:
    folder = changed(tmp_path, "rows.jsonl.gz", lambda text: text.replace('["BO-001", "', f'["BO-001", "{mark}', 1))
    assert loader.read(folder).tables["books"].rows[0][1].startswith(mark)


@pytest.mark.parametrize(
    ("name", "data", "seen"),
    [
        ("tasks.jsonl.gz", gzip.compress(bytes(range(200)), mtime=0)[:60], "tasks.jsonl.gz: not a gzip file"),
        ("tasks.jsonl.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 40, "tasks.jsonl.gz: not a gzip file"),
        ("rows.jsonl.gz", gzip.compress(b"\xff", mtime=0), "rows.jsonl.gz:1: not UTF-8 text"),
        ("policy.md", b"\xff", "policy.md: not UTF-8 text"),
        ("domain.json", b"\xff", "domain.json: not UTF-8 text"),
        ("rows.jsonl.gz", None, r"rows\.jsonl\.gz: no such file; a domain folder holds"),
    ],
)
def test_a_damaged_or_missing_file_is_named(tmp_path: Path, name: str, data: bytes | None, seen: str) -> None:
    folder = changed(tmp_path, "policy.md", str)
    (folder / name).unlink() if data is None else (folder / name).write_bytes(data)
    with pytest.raises(ConfigError, match=seen):
        loader.read(folder)


def test_edited_files_do_not_pass_for_generated_ones(tmp_path: Path) -> None:
    folder = changed(tmp_path, "policy.md", lambda text: text + "\n")
    with pytest.raises(ConfigError, match="they were edited since they were generated"):
        loader.read(folder, verify=True)


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ({"kind": "read", "returns": {"rows": "SELECT * FROM sqlite_master"}}, "prohibited"),
        ({"kind": "read", "returns": {"rows": "SELECT load_extension('x')"}}, "not authorized to use function"),
        ({"kind": "read", "returns": {"rows": "SELECT * FROM _changes"}}, "prohibited"),
        ({"kind": "read", "returns": {"rows": "PRAGMA table_info(books)"}}, "starts with select or with"),
        ({"kind": "write", "returns": {"row": "SELECT 1"}}, "of kind 'write', but it writes to nothing"),
        (
            {"kind": "read", "steps": [{"do": "DELETE FROM loans"}], "returns": {"row": "SELECT 1"}},
            "of kind 'read', but it writes to loans",
        ),
        ({"kind": "write", "steps": [{"do": "ATTACH 'x' AS y"}], "returns": {"row": "SELECT 1"}}, "starts with insert"),
        (
            {"kind": "write", "steps": [{"do": "DELETE FROM loans; SELECT 1"}], "returns": {"row": "SELECT 1"}},
            "one statement at a time",
        ),
    ],
)  # fmt: skip
def test_sql_that_a_tool_may_not_run_is_refused(tmp_path: Path, row: dict[str, Any], seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_tool(tmp_path, name="evil", **row)
    assert "tool 'evil'" in str(caught.value)
    assert seen in str(caught.value)


@pytest.mark.parametrize(
    ("start", "seen"),
    [
        ("insert or /* so */ replace INTO", "OR REPLACE deletes rows unseen; say UPDATE"),
        ("INSERT/* a *//**/OR--'/*\nREPLACE INTO", "OR REPLACE deletes rows unseen"),
        ("REPLACE INTO", "starts with insert or update or delete"),
    ],
)
def test_a_statement_that_replaces_rows_is_refused(tmp_path: Path, start: str, seen: str) -> None:
    """No trigger hears of the rows that it deletes, so no end state would show it."""
    put = {"do": f"{start} books VALUES ('BO-001', 'Dune', 'A-1', 1)"}
    with pytest.raises(ConfigError) as caught:
        with_tool(tmp_path, name="put", kind="write", steps=[put], returns={"row": "SELECT 1"})
    assert "tool 'put': steps[0].do: " + seen in str(caught.value)


def test_replace_is_a_function_too(tmp_path: Path) -> None:
    update = "UPDATE books SET copies = 1 WHERE shelf = 'A' OR replace(title, '-', ' ') = 'Dune'"
    assert with_tool(tmp_path, name="put", kind="write", steps=[{"do": update}], returns={"row": "SELECT 1"}).tools


@pytest.mark.parametrize(
    ("clause", "refused"),
    [
        ("DEFAULT '--' UNIQUE ON/**/CONFLICT/**/REPLACE", True),
        ("DEFAULT '/*' UNIQUE ON CONFLICT REPLACE DEFAULT '*/'", True),
        ("DEFAULT 'it''s --' UNIQUE ON CONFLICT REPLACE", True),
        ("DEFAULT '' /* on conflict replace */", False),
    ],
)
def test_comments_and_texts_hide_no_clause_that_replaces(tmp_path: Path, clause: str, refused: bool) -> None:
    folder = changed(
        tmp_path, "schema.sql", lambda text: text.replace("shelf TEXT NOT NULL", f"shelf TEXT NOT NULL {clause}", 1)
    )
    if refused:
        with pytest.raises(ConfigError, match="ON CONFLICT REPLACE deletes rows unseen"):
            loader.read(folder)
    else:
        loader.read(folder)


@pytest.mark.parametrize("text", ["on" + "/**/" * 60 + "x", "on /* " * 20_000, "'" * 99_999])
def test_comments_take_no_time_however_they_stand(text: str) -> None:
    """They were matched by a pattern that tried every way to part them: 24 took seconds, 60 for ever."""
    started = time.process_time()
    without_comments(text)
    assert time.process_time() - started < 1.0


def test_a_folder_that_is_generated_anew_is_read_anew(tmp_path: Path) -> None:
    folder = shutil.copytree(library(), tmp_path / "library")
    before, source = ready(str(folder)), ToolScaleSource(str(folder))
    assert source.find("toolscale/library/0001")[0] is ready(str(folder)) is before
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert ready("library") is before
    make(specs.load(LIBRARY), 3, 2, folder)
    assert len(loader.load(folder).tasks) == len(ready(str(folder)).domain.tasks) == 3
    assert source.find("toolscale/library/0001")[0] is before  # who plays one goes on with it
    with pytest.raises(ConfigError, match="library has 0001 to 0003"):
        ToolScaleSource(str(folder)).find("toolscale/library/0004")


@pytest.mark.parametrize(
    ("more", "seen"),
    [
        ({"name": "find\u200b_book"}, "names of tools and parameters are 1 to 64 letters"),
        ({"parameters": {"the title": {"type": "string", "format": "text"}}}, "names of tools and parameters"),
        ({"parameters": {"today": {"type": "string", "format": "date"}}}, "'today' is the domain's own time; give the"),
        ({"steps": [{"let": "SELECT '2026-01-01' AS now", "error": "No."}]}, r"\.let: 'now' is the domain's own time"),
        ({"steps": [{"let": "SELECT 1 AS one", "error": "No."}] * 65}, "65 steps, at most 64 are allowed"),
    ],
)
def test_what_no_tool_needs_is_refused(tmp_path: Path, more: dict[str, Any], seen: str) -> None:
    put = {"name": "look", "kind": "read", "parameters": {}, "returns": {"row": "SELECT 1"}}
    with pytest.raises(ConfigError, match=seen):
        with_tool(tmp_path, **{**put, **more})


def test_a_table_that_the_rows_do_not_list_is_refused(tmp_path: Path) -> None:
    """The change log does not follow it, so what a tool wrote to it would be no part of the end state."""
    folder = changed(tmp_path, "schema.sql", lambda text: text + "CREATE TABLE notes (note TEXT PRIMARY KEY);\n")
    with pytest.raises(ConfigError, match=r"schema\.sql has a table 'notes' that the rows do not list"):
        loader.read(folder)
    rows = folder / "rows.jsonl.gz"
    rows.write_bytes(rows.read_bytes() + gzip.compress(b'{"table": "notes", "key": "note", "columns": ["note"]}\n'))
    assert loader.read(folder).tables["notes"].rows == []


def test_a_statement_that_another_tool_has_too_is_still_a_write(tmp_path: Path) -> None:
    """Word for word the same SQL, in a tool that says it reads."""
    tools = json.loads((library() / "tools.json").read_text(encoding="utf-8"))
    writer = next(tool for tool in tools if tool["kind"] == "write")
    with pytest.raises(ConfigError, match="tool 'evil' is of kind 'read', but it writes to"):
        with_tool(tmp_path, **{**writer, "name": "evil", "kind": "read"})


@pytest.mark.parametrize("statement", ["ATTACH '{place}' AS x; CREATE TABLE x.t (x);", "VACUUM INTO '{place}';"])
def test_a_strangers_schema_does_no_more_than_define(tmp_path: Path, statement: str) -> None:
    place = tmp_path / "written"
    folder = changed(tmp_path, "schema.sql", lambda text: text + statement.format(place=place))
    with pytest.raises(ConfigError):
        SqlDatabase(loader.read(folder))
    assert not place.exists()


@pytest.mark.parametrize("name", ["domain.json", *FILES])
def test_a_file_that_leads_out_of_the_folder_is_not_read(tmp_path: Path, name: str) -> None:
    folder = changed(tmp_path, "policy.md", str)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=rf"{name} is a link that leads out of .*library, and is not read"):
        loader.read(folder)


def test_a_packed_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path, "policy.md", str)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(b"\n" * (40 << 20)))
    with pytest.raises(ConfigError, match=r"rows\.jsonl\.gz unpacks to more than 33554432 bytes"):
        loader.read(folder)


@pytest.mark.parametrize("name", ["domain.json", "rows.jsonl.gz", "tools.json", "tasks.jsonl.gz"])
@pytest.mark.parametrize("depth", [700, 100_000])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, name: str, depth: int) -> None:
    text = "[" * depth + "]" * depth
    nested = f'[{{"name": {text}}}]' if name == "tools.json" else f'{{"name": {text}}}'
    with pytest.raises(ConfigError):
        loader.read(changed(tmp_path, name, lambda _: nested))


def test_too_many_tools_are_refused_before_all_are_read(tmp_path: Path) -> None:
    def many(text: str) -> str:
        one = json.loads(text)[0]
        return json.dumps([{**one, "name": f"tool_{n}"} for n in range(1_000)])

    with pytest.raises(ConfigError, match="1 to 128 tools expected, got 129"):
        loader.read(changed(tmp_path, "tools.json", many))
