"""What is said where something is missing or does not fit, and that nothing runs before it is trusted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.envs.domains.tau2.reference.playing import (
    CHECKOUT,
    CLINIC,
    DEPOT,
    FOLDERS,
    ROWS,
    call,
    copied,
    edited,
    made,
    plans,
    source_of,
)
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.task import public_id

pytestmark = needs_package


def test_nothing_runs_before_it_is_trusted(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = edited(
        copied(DEPOT, tmp_path / "depot"), "IMPORTED_AT =", f"open({str(ran)!r}, 'w').close()\nIMPORTED_AT ="
    )
    with pytest.raises(ConfigError, match=r"would be run in this process.*tools\.py.*say trust_code=True") as refused:
        made(reference=str(folder), trust_code=False)
    assert str(folder / "data_model.py") in str(refused.value)
    assert not ran.exists()
    made(reference=str(folder))
    assert ran.exists()


# a file, what is taken out of it (None: all), what is put in its place (None: the file is gone), and what is said
SPOILED: dict[str, tuple[str, str | None, str | None, str]] = {
    "no database": ("db.json", None, None, r"depot has no db\.json \(the database\); put one into .*depot"),
    "no policy": ("policy.md", None, None, r"depot has no policy\.md \(what the agent has to follow\)"),
    "no tasks": ("tasks.json", None, None, r"depot has no tasks\.json or tasks\.jsonl .*nvidia/ToolScale"),
    "no toolkit": ("tools.py", None, None, r"depot has data in .*, but no tools\.py"),
    "no data model": ("data_model.py", None, None, r"imports 'tau2.domains.depot.data_model', which is n"),
    "a pointer": ("db.json", None, "version https://git-lfs.github.com/spec/v1\noid", r"pointer of Git LFS.*lfs pull"),
    "not JSON": ("db.json", None, "{", r"db\.json: not JSON: Expecting"),
    "no task": ("tasks.json", None, "[]", r"at least one task expected, got none"),
    "tools of a user's": ("user_tools.py", None, "", r"depot has tools of the user's, which are not played"),
    "a split": ("split_tasks.json", None, "[1]", r"split_tasks\.json: a name with a list of task ids"),
    "another database": ("db.json", '"fee_usd"', '"tea_usd"', r"db\.json does not fit DepotDB: 2 validation err"),
    "a missing module": (
        "tools.py", "import json", "import json\nimport nosuchmodule",
        r"tools\.py imports 'nosuchmodule', which is neither in the folder nor installed; install",
    ),
    "a missing name": (
        "tools.py", "DepotDB, Grade", "DepotDB, Upgrade, Grade",
        r"tools\.py cannot be run: ImportError: cannot import name 'Upgrade'.*tools\.py, line \d+\)",
    ),
    "a wrong line": ("tools.py", "IMPORTED_AT =", "IMPORTED_AT ==", r"cannot be run: NameError: .*IMPORTED_AT"),
    "no Python": ("tools.py", "IMPORTED_AT =", "IMPORTED_AT = =", r"cannot be run: SyntaxError: invalid syntax"),
    "no class": ("tools.py", "(ToolKitBase)", "", r"one class derived from ToolKitBase expected .*, got none"),
    "two classes": (
        "tools.py", "IMPORTED_AT =", "class Other(ToolKitBase):\n    pass\n\n\nIMPORTED_AT =",
        r"one class derived from ToolKitBase expected as the toolkit, got DepotTools, Other",
    ),
    "another constructor": (
        "tools.py", "self, db: DepotDB) -> None", "self, db: DepotDB, more: int) -> None",
        r"DepotTools\(db\) fails: TypeError: .*'more'",
    ),
    "an unknown tool": (
        "tasks.json", "close_on", "open_on",
        r"depot: 1 of 6 tasks do not match the toolkit: task 4: no tool 'open_on'\. Its tools: annotate, .*skip_unmat",
    ),
    "an unknown parameter": ("tasks.json", '"day":', '"date":', r"task 4: close_on has no parameter 'date'"),
    "a parameter left out": ("tasks.json", '"note": "a gift", ', "", r"task 5: annotate needs 'note', which the t"),
    "two of an id": ("tasks.json", '"id": "1"', '"id": "0"', r"tasks\.json: a second task '0'"),
    "no id": ("tasks.json", '"id": "1"', '"no": "1"', r"tasks\.json: row 2: 'id' expected, got None"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_missing_is_said(name: str, tmp_path: Path) -> None:
    folder = copied(DEPOT, tmp_path / "depot")
    file, old, new, told = SPOILED[name]
    if new is None:
        (folder / file).unlink()
    elif old is None:
        (folder / file).write_text(new, encoding="utf-8")
    else:
        edited(folder, old, new, file)
    with pytest.raises(ConfigError, match=re.compile(told, re.DOTALL)):
        made(reference=str(folder))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"reference": "/nowhere"}, r"reference='/nowhere': no such folder"),
        ({"reference": str(FOLDERS.parents[3] / "sandbox")}, r"no domain there; expected tools\.py in .*tau2/domains"),
        ({"reference": str(FOLDERS), "domain": "depo"}, r"no domain 'depo'"),
        (
            {**CLINIC, "domain": "all", "skip_unmatched": False},
            r"tasks of museum, whose databases are missing; .*clinic",
        ),
        ({**CLINIC, "skip_unmatched": False}, r"clinic: 1 of 4 tasks do not match .*: no tool 'book_xray'"),
        (
            {"reference": str(DEPOT), "tasks_path": str(ROWS)},
            r"no task of depot; its other domains: clinic \(4\), museum",
        ),
        ({"reference": str(DEPOT), "user": "none"}, r"cannot be worked alone: say user= one of scripted"),
        ({"now": "2025-01-01"}, r"trust_code, now and skip_unmatched are about the domains of a folder"),
    ],
)
def test_what_does_not_fit_is_said(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        made(**given)


@pytest.mark.parametrize(
    "written",
    [
        "from data_model import",
        "from .data_model import",
        "from tau2.domains.depot import data_model\nfrom tau2.domains.depot.data_model import",
        "import tau2.domains.depot.data_model as model\nassert model.Item\nfrom . data_model import",
        "import tau2.domains.depot.data_model, os.path\nassert tau2.domains.depot.data_model\nfrom .data_model import",
    ],
)
def test_imports_may_be_written_in_any_way(written: str, tmp_path: Path) -> None:
    folder = edited(copied(DEPOT, tmp_path / "depot"), "from tau2.domains.depot.data_model import", written)
    env = made(reference=str(folder))
    env.reset(seed=0)
    assert '"member_id": "M-1"' in call(env, "get_member", member_id="M-1")


def test_toolscale_says_where_such_a_folder_is_played() -> None:
    with pytest.raises(ConfigError, match=r"Python toolkit.*ToolOrchestra/Tau2-v0.*reference="):
        gym.make("ToolOrchestra/ToolScale-v0", domain=str(DEPOT))


def test_rows_of_toolscale_are_played_without_their_nulls() -> None:
    env = made(**CLINIC)
    assert {plan.task_id for plan in plans(env).values()} == {"c1", "c2", "c3"}
    given = []
    for task_id in ("c1", "c2"):
        criteria = plans(env)[f"clinic/{public_id(task_id)}"].criteria
        given.append([action.call.arguments for action in (criteria and criteria.actions) or ()])
    assert given[0] == [{"patient_id": "P-7"}, {"patient_id": "P-7", "day": "2025-06-02", "reason": "check-up"}]
    assert given[1][1] == {"reason": None, "visit_id": "V-1"}  # it has to be given
    assert env.reset(seed=0)[1]["task"]["tasks_version"].startswith("rows.jsonl sha256:")


def test_the_papers_names_mean_the_codes_folders(tmp_path: Path) -> None:
    folder = copied(DEPOT, tmp_path / "bank")
    edited(folder, "tau2.domains.depot", "tau2.domains.bank")
    rows = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    for row in rows:
        row["user_scenario"]["instructions"]["domain"] = "Finance"
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    env = made(reference=str(folder), tasks_path=str(tmp_path / "rows.json"), domain="bank")
    assert len(plans(env)) == 6


def test_splits_are_a_files_or_follow_from_the_ids(tmp_path: Path) -> None:
    folder = copied(DEPOT, tmp_path / "depot")
    source = source_of(made(reference=str(folder)))
    parts = [set(source.ids(split)) for split in source.splits if split != "base"]
    assert set.union(*parts) == set(source.ids("base"))
    assert sum(map(len, parts)) == 6
    (folder / "split_tasks.json").write_text(json.dumps({"train": ["0", "3"], "test": ["1"]}), encoding="utf-8")
    source = source_of(made(reference=str(folder), tasks_version="mine"))
    assert (source.splits, source.ids("train")) == (("base", "train", "test"), ["depot/0", "depot/3"])


def test_a_checkout_is_found_whole() -> None:
    """Code and data lie apart there, as in the reference's own."""
    source = source_of(made(**CLINIC))
    assert source.domain == "clinic"
    assert (CHECKOUT / "tau2/domains/clinic/tools.py").is_file()
    assert not (CHECKOUT / "tau2/domains/clinic/db.json").exists()
