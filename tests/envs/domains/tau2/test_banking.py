"""banking_knowledge by the code of a copy: of a made-up one in upstream's layout, and of the real one where it lies."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tests.paths import SHARED
from tests.support.tau2_players import made, winners
from tests.tau2_playing import env_of, needs_package, told, world_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.banking import NAMES
from toolorchestra.envs.models import ChatRequest, ScriptedModel

pytestmark = needs_package
UPSTREAM = Path(os.environ.get("TAU2_BENCH", SHARED / "tau2-bench"))
needs_upstream = pytest.mark.skipif(
    not (UPSTREAM / "src/tau2/domains/banking_knowledge").is_dir() or util.find_spec("rank_bm25") is None,
    reason="no copy of sierra-research/tau2-bench in TAU2_BENCH or ../shared/tau2-bench, or no rank-bm25",
)
BANK = "banking_knowledge"
JUDGE = (ScriptedModel(lambda _: '{"met": [true]}'), "gpt-5")
CODE = {
    "__init__.py": "raise SystemExit('the top is never run')",
    "knowledge/__init__.py": "raise SystemExit('nor is this')",
    "knowledge/pipeline.py": "from tau2.knowledge import _ensure_registered\nclass RetrievalPipeline: pass",
    "knowledge/retrievers/__init__.py": "",
    "knowledge/document_preprocessors/bm25_indexer.py": "import no_such_library",
    f"domains/{BANK}/data_model.py": """
from pathlib import Path
from pydantic import BaseModel
from tau2.environment.db import DB
class Table(BaseModel):
    data: dict = {}
class TransactionalDB(DB):
    users: Table
    logged: Table = Table()
class KnowledgeBase:
    @classmethod
    def load(cls, folder):
        cls.documents = {file.stem: "" for file in sorted(Path(folder).glob("*.json"), reverse=True)}
        return cls
""",
    f"domains/{BANK}/tools.py": '''
import time
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool
class KnowledgeTools(ToolKitBase):
    def __init__(self, db):
        super().__init__(db)
        self.made, self.logs = [], set()
    def get_tools(self):
        return {name: tool for name, tool in super().get_tools().items() if name != "pay_1"}
    def get_discoverable_tools(self):
        return {"pay_1": self.pay_1}
    def set_read_log_allowlist(self, names):
        self.logs = names
    @is_tool(ToolType.WRITE)
    def call_discoverable_agent_tool(self, agent_tool_name: str, arguments: str = "{}") -> str:
        """Call."""
        self.made.append(agent_tool_name)
        if agent_tool_name in self.logs:
            self.db.logged.data[agent_tool_name] = "CALLED"
        return f"{len(self.made)} called at {time.perf_counter()} s"
    @is_tool(ToolType.WRITE)
    def pay_1(self, user: str) -> str:
        """Pay."""
        self.db.users.data[user]["paid"] = 5
        return "paid"
    @is_tool(ToolType.READ)
    def documents(self) -> str:
        """Name them."""
        return " ".join(self.index.documents)
class KnowledgeUserTools(ToolKitBase):
    @is_tool(ToolType.WRITE)
    def apply(self, card: str) -> str:
        """Apply."""
        self.db.users.data[card] = {}
        return "applied"
    @is_tool(ToolType.READ)
    def look(self) -> str:
        """Look."""
        return str(sorted(self.db.users.data))
''',
    f"domains/{BANK}/retrieval.py": """
from tau2.domains.banking_knowledge.tools import KnowledgeTools
from tau2.knowledge import RetrievalPipeline
from tau2.utils.utils import DATA_DIR
def resolve_variant(name):
    return name
def build_tools(variant, db, base):
    made = KnowledgeTools(db)
    made.index = RetrievalPipeline()
    made.index.documents = base.documents
    return made
def get_info_policy_override(variant, base):
    return (DATA_DIR / "tau2/domains/banking_knowledge/prompts/policy.md").read_text() + variant
def build_policy(variant, base, task=None):
    return f"{variant}: {task.required_documents}"
""",
}


def task(number: int, *actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    criteria = {"actions": list(actions), "reward_basis": ["DB"]}
    scenario = {"instructions": "You want a card. Say ###STOP### when you have it."}
    return {"id": f"task_{number}", "user_scenario": scenario, "evaluation_criteria": criteria, **more}


CALL = {"name": "call_discoverable_agent_tool", "arguments": {"agent_tool_name": "pay_1"}}
APPLY = {"name": "apply", "arguments": {"card": "gold"}, "requestor": "user"}
PAY = {"name": "pay_1", "arguments": {"user": "ann"}}
ROWS = [
    task(1, CALL, APPLY, user_tools=["apply"], required_documents=["b"]),
    task(2, PAY, user_tools=[], initial_state={"initialization_data": {"agent_data": {"users": {"data": {"bo": {}}}}}}),
]


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def copy_of(tmp_path: Path, **changed: str) -> str:
    """A made-up copy of upstream's repository, with the installed package's toolkit; its path."""
    code, data = tmp_path / "src/tau2", tmp_path / "data/tau2/domains" / BANK
    for folder in ("environment", "utils"):
        shutil.copytree(package.root() / folder, code / folder, ignore=shutil.ignore_patterns("__pycache__"))
    write(code, {**CODE, **changed})
    write(data, {f"tasks/task_{row['id'][-1]}.json": json.dumps(row) for row in ROWS})
    write(data, {"tasks.json": json.dumps(ROWS[:1]), "db.json": '{"users": {"data": {"ann": {"paid": 0}}}}'})
    write(data, {f"documents/{name}.json": "{}" for name in "abc"} | {"prompts/policy.md": "Be kind. "})
    write(tmp_path, {"pyproject.toml": '[project]\nname = "tau2"\nversion = "1.0.1"\n'})
    return str(tmp_path)


WAY = f"{BANK}-grep_only"


def test_the_copys_code_is_played_as_a_second_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path / "elsewhere"))
    env, source = made("scripted", domain=WAY, split="base", tasks_path=copy_of(tmp_path))
    assert winners(env, "gold", solo=False) == ["task_1", "task_2"]  # of the folder: tasks.json has one
    assert winners(env, "nothing", solo=False) == []
    assert list(world_of(env).state.kits[1].db.users.data) == ["ann", "bo"]  # as task_2 begins
    assert source.version.startswith("tau2 1.0.1 sha256:")
    assert f", {BANK} sha256:" in source.version
    assert world_of(env).system.rstrip().endswith("Be kind. grep_only\n</policy>")
    toolkit = type(world_of(env).state.kits[0]).__mro__[-2]
    assert toolkit is not package.member("environment.toolkit:ToolKitBase")
    assert toolkit.__module__.startswith("toolorchestra.envs.domains.tau2.installed_code.of_")
    golden = env_of(f"{BANK}-golden_retrieval", "scripted", "task_1", tasks_path=str(tmp_path))
    assert "golden_retrieval: ('b',)" in world_of(golden).system


def test_episodes_share_nothing_that_changes_and_time_stands_still(tmp_path: Path) -> None:
    env = env_of(WAY, "scripted", "task_1", tasks_path=copy_of(tmp_path))
    offered = {tool["function"]["name"] for tool in world_of(env).toolbox.schemas}
    assert offered == {"call_discoverable_agent_tool", "documents"}
    for _ in range(2):
        env.reset(options={"task_id": f"{WAY}/task_1"})
        said = told(env.step(render_call(CALL["name"], {"agent_tool_name": "x"}))[4])
        assert said == ["1 called at 0.0 s"]
        assert world_of(env).state.kits[0].db.users.data["ann"] == {"paid": 0}
        assert told(env.step(render_call(PAY["name"], PAY["arguments"]))[4]) == ["paid"]  # hidden, and called by name
        assert not world_of(env).state.kits[0].db.logged.data  # as a read is that the reference path does not make
    env.step(render_call(CALL["name"], CALL["arguments"]))
    assert list(world_of(env).state.kits[0].db.logged.data) == ["pay_1"]
    assert told(env.step(render_call("documents", {}))[4]) == ["a b c"]
    kit, kept = world_of(env).state.kits[0], world_of(copy.deepcopy(env)).state.kits[0]
    assert kept.index is kit.index
    assert kept.db is not kit.db
    assert b"RetrievalPipeline" not in pickle.dumps(env.episode)
    assert "no tool 'fly'" in told(env.step(render_call("fly", {}))[4])[0]
    env.reset(options={"task_id": f"{WAY}/task_1", "tools": ["documents"]})
    assert told(env.step(render_call(PAY["name"], PAY["arguments"]))[4]) == ["paid"]


def test_the_user_has_the_tasks_tools_and_their_guidelines(tmp_path: Path) -> None:
    path, asked = copy_of(tmp_path), list[ChatRequest]()
    model = ScriptedModel(lambda request: asked.append(request) or "Hello.")
    names = ("simulation_guidelines", "simulation_guidelines_tools")
    write(tmp_path / "data/tau2/user_simulator", {f"{name}.md": name for name in names})
    for number, names in ((1, ["apply"]), (2, [])):
        env_of(WAY, (model, "gpt-5-mini"), f"task_{number}", tasks_path=path)
        assert [tool["function"]["name"] for tool in asked[-1].tools] == names
        assert asked[-1].messages[0]["content"].startswith(f"simulation_guidelines{'_tools' * len(names)}\n")


@pytest.mark.parametrize(
    ("domain", "file", "text", "why"),
    [
        (BANK, "", "", "copy of tau2-bench needs 'no_such_library'; type: pip install no-such-library"),
        (WAY, f"domains/{BANK}/retrieval.py", "def f[T](): pass", "is written for a newer Python|has another"),
        (WAY, f"domains/{BANK}/retrieval.py", "", "has another banking_knowledge than upstream 1.0 and 1.0.1"),
        (WAY, f"domains/{BANK}/retrieval.py", "import tau2.gone", "has no module tau2.gone"),
    ],
)
def test_what_a_copy_lacks_is_said(domain: str, file: str, text: str, why: str, tmp_path: Path) -> None:
    path = copy_of(tmp_path, **({file: text} if file else {}))
    with pytest.raises(ConfigError, match=why):
        env_of(domain, "scripted", tasks_path=path)


def test_without_a_copy_or_a_user_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"banking_knowledge is played by the code of a copy .*git clone https"):
        env_of(BANK, "scripted")
    with pytest.raises(ConfigError, match="no solo mode: name a user"):
        env_of(WAY, "none", tasks_path=copy_of(tmp_path))


@needs_upstream
def test_upstreams_tasks_are_solved_by_their_reference_paths_and_every_way_to_its_documents_opens() -> None:
    before = set(sys.modules)
    env, source = made("scripted", domain=BANK, split="base", tasks_path=str(UPSTREAM), judge=JUDGE)
    solved = [len(winners(env, player, solo=False)) for player in ("gold", "nothing", "transfer")]
    assert (len(source.ids("base")), *solved) == (97, 97, 0, 0)
    env.reset(options={"task_id": source.ids("base")[0]})
    found = told(env.step(render_call("KB_search", {"query": "annual fee"}))[4])[0]
    assert found.endswith("[Timing: retrieval=0ms, total=0ms]")
    assert not {"litellm", "pandas", "openai", "tau2"} & (sys.modules.keys() - before)
    for name in NAMES:
        shown = world_of(env_of(name, "scripted", "task_001", tasks_path=str(UPSTREAM), judge=JUDGE)).toolbox.schemas
        searches = {tool["function"]["name"] for tool in shown} & {"KB_search", "grep"}
        assert len(searches) == {BANK: 2, f"{BANK}-bm25": 1, WAY: 1}.get(name, 0)
