"""Newer releases by their folders: what is read of them, what is refused, and that no two versions are mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tau2_playing import env_of, needs_package, released, world_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.package import load_release
from toolorchestra.envs.models import ChatRequest, ScriptedModel

pytestmark = needs_package

SCENARIO = {"persona": None, "instructions": "You want to know the price."}


def task(**criteria: Any) -> dict[str, Any]:
    """A task in the form of upstream's releases since 1.0, with keys that older ones do not have."""
    usual = {"actions": [], "communicate_info": [], "reward_basis": ["DB", "COMMUNICATE"]}
    return {
        "id": "7", "description": {"purpose": "Test."}, "user_scenario": SCENARIO, "initial_state": None,
        "evaluation_criteria": {**usual, **criteria},
        "annotations": None, "issues": [], "user_tools": None, "required_documents": None,
    }  # fmt: skip


def checkout(tmp_path: Path, rows: list[dict[str, Any]], version: str = "1.0.1", domain: str = "airline") -> Path:
    """A copy of upstream's repository with one domain."""
    released(tmp_path, rows, domain)
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "tau2"\nversion = "{version}"\n', encoding="utf-8")
    return tmp_path


def guidelines(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "data" / "tau2" / "user_simulator"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "simulation_guidelines.md").write_text(text, encoding="utf-8")


def test_the_version_is_the_checkouts_own_and_changes_with_all_that_is_read(tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [task()]))
    seen = []
    for file, text in (("", ""), ("domains/airline/policy.md", "Be kind."), ("domains/airline/split_tasks.json", "{}"),
                       ("domains/airline/tasks/task_7.json", "{}"),
                       ("user_simulator/simulation_guidelines.md", "Be brief.")):  # fmt: skip
        if file:
            (tmp_path / "data/tau2" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data/tau2" / file).write_text(text, encoding="utf-8")
        seen.append(load_release(path).version)
    assert len(set(seen)) == 5
    assert all(version.startswith("tau2 1.0.1 sha256:") for version in seen)
    for inner in ("data", "data/tau2", "data/tau2/domains"):
        assert load_release(str(tmp_path / inner)).number == (1, 0, 1)


def test_tasks_written_again_are_read_again(tmp_path: Path) -> None:
    for said in ("42", "43"):
        path = str(checkout(tmp_path, [task(communicate_info=[said])]))
        assert load_release(path).tasks("airline")["7"]["evaluation_criteria"]["communicate_info"] == [said]


@pytest.mark.parametrize("domain", ["telecom-workflow", "all"])
def test_a_domain_that_a_release_lacks_is_not_taken_from_another_version(domain: str, tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [task()]))
    with pytest.raises(ConfigError, match=r"tau2 1\.0\.1 .*has no \w+/tasks.json, .*another version; it has airline$"):
        env_of(domain, "scripted", tasks_path=path)


def test_2_0_is_played_by_words_and_results_say_it(tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [task(communicate_info=["42"])], "2.0.0"))
    model = ScriptedModel(lambda request: "Thanks. ###STOP###" if len(request.messages) > 2 else "How much?")
    env = env_of("airline", (model, "gpt-5-mini"), "7", tasks_path=path)
    _, reward, _, _, info = env.step("It is 42 dollars.")
    evidence = info["outcome"]["evidence"]
    assert (reward, evidence["parts"]["COMMUNICATE"]) == (1.0, 1.0)
    assert evidence["tasks_version"].endswith(", COMMUNICATE by words")
    assert evidence["user"]["prompt"] == "as before 2.0"


def test_the_users_guidelines_are_the_releases(tmp_path: Path) -> None:
    asked: list[ChatRequest] = []
    model = ScriptedModel(lambda request: asked.append(request) or "Hello.")
    digests = []
    for name, text in (("a", "# Guidelines of 1.0\n<PERSONA_GUIDELINES>Be kind."), ("b", "# Others")):
        path = checkout(tmp_path / name, [task()])
        guidelines(path, text)
        env = env_of("airline", (model, "gpt-5-mini"), "7", tasks_path=str(path))
        user = world_of(env).user
        assert user is not None
        digests.append(user.described["guidelines"])
    assert asked[0].messages[0]["content"].startswith("# Guidelines of 1.0\nBe kind.\n\n<scenario>")
    assert digests[0] != digests[1]
    path = checkout(tmp_path / "c", [task()])
    guidelines(path, "Speak <LANGUAGE_CLAUSE>.")
    with pytest.raises(ConfigError, match="<LANGUAGE_CLAUSE> is filled in by that release's own code"):
        env_of("airline", (model, "gpt-5-mini"), "7", tasks_path=str(path))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (task(actions=[{"name": "book_train", "arguments": {}}]), "the assistant's tool book_train"),
        (task(actions=[{"name": "reboot", "arguments": {}, "requestor": "user"}]), "the user's tool reboot"),
        (task(env_assertions=[{"env_type": "assistant", "func_name": "assert_it", "arguments": {}}]),
         "the assistant's function assert_it"),
    ],
)  # fmt: skip
def test_tasks_whose_tools_the_package_lacks_are_refused(row: dict[str, Any], what: str, tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [row]))
    with pytest.raises(ConfigError, match=rf"1 of 1 tasks of airline in tau2 1\.0\.1 .* such as task 7: {what}$"):
        env_of("airline", "scripted", "7", tasks_path=path)


def test_the_read_of_1_0_that_the_package_lacks_is_played_in_the_copys_words(tmp_path: Path) -> None:
    row = task(actions=[{"name": "get_item_details", "arguments": {"item_id": "6086499569"}}])
    path = checkout(tmp_path, [row], domain="retail")
    tools = tmp_path / "src" / "tau2" / "domains" / "retail" / "tools.py"
    tools.parent.mkdir(parents=True)
    tools.write_text(
        'raise SystemExit  # never run\nclass A:\n    def get_item_details(self):\n        """Say it."""\n'
    )
    env = env_of("retail", "scripted", "7", tasks_path=str(path))
    offered = {tool["function"]["name"]: tool["function"] for tool in world_of(env).toolbox.schemas}
    assert offered["get_item_details"]["description"] == "Say it."
    assert list(offered["get_item_details"]["parameters"]["properties"]) == ["item_id"]
    item_id = next(iter(next(iter(world_of(env).state.kits[0].db.products.values())).variants))
    for item, said in ((item_id, f'"item_id": "{item_id}"'), ("1", "Error: Item not found")):
        assert said in env.step(render_call("get_item_details", {"item_id": item}))[4]["new_messages"][-1]["content"]
    tools.unlink()
    without = world_of(
        env_of("retail", "scripted", "7", tasks_path=str(checkout(tmp_path / "b", [row], domain="retail")))
    )
    assert "one item in stock" in str(without.toolbox.schemas)
    assert "get_item_details" not in str(world_of(env_of("retail", "scripted")).toolbox.schemas)


def test_an_older_release_has_no_such_read(tmp_path: Path) -> None:
    row = task(actions=[{"name": "get_item_details", "arguments": {"item_id": "1"}}])
    with pytest.raises(ConfigError, match="the assistant's tool get_item_details"):
        env_of("retail", "scripted", "7", tasks_path=str(checkout(tmp_path, [row], "0.2.1", "retail")))


def test_an_environment_made_after_an_edit_has_the_edited_tasks(tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [task()]))
    seen = []
    for said in ("42", "43"):
        released(tmp_path, [task(communicate_info=[said])])
        factories = [env_of("airline", "scripted", tasks_path=path).factory for _ in range(2)]
        assert factories[0] is factories[1]
        seen.append(factories[0].source.version)
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tasks.json", '[{"id": "7"', "JSON is expected"),
        ("tasks.json", "", "JSON is expected"),
        ("tasks.json", "{}", "a list of tasks is expected"),
        ("tasks.json", '["a"]', "a task is"),
        ("tasks.json", '[{"user_scenario": {}}]', "a task is"),
        ("tasks/task_7.json", "{}", "a task is"),
        ("split_tasks.json", '{"base": [', "JSON is expected"),
        ("split_tasks.json", '["7"]', "lists of task ids"),
        ("split_tasks.json", '{"base": ["7", "8"]}', "'base' names 1 tasks that are not there: '8'"),
    ],
)
def test_a_broken_file_is_named(file: str, text: str, message: str, tmp_path: Path) -> None:
    path = str(checkout(tmp_path, [task()]))
    broken = tmp_path / "data/tau2/domains/airline" / file
    broken.parent.mkdir(exist_ok=True)
    broken.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"airline/{file}: {message}"):
        env_of("airline", "scripted", tasks_path=path)


def test_a_byte_order_mark_and_a_project_above_that_cannot_be_read_are_no_matter(tmp_path: Path) -> None:
    path = checkout(tmp_path, [task()])
    (path / "pyproject.toml").write_text("not toml [", encoding="utf-8")
    file = tmp_path / "data/tau2/domains/airline/tasks.json"
    file.write_text("\ufeff" + file.read_text(encoding="utf-8"), encoding="utf-8")
    release = load_release(str(path))
    assert (list(release.tasks("airline")), release.number) == (["7"], ())


def test_all_that_the_package_splits_is_there() -> None:
    release = load_release(None)
    assert all(release.splits(domain) for domain in ("airline", "retail", "telecom", "mock"))
