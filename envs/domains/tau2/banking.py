"""The domain banking_knowledge of upstream 1.0: the one whose tools and search are code of the user's copy, which is
run."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import installed_code, package
from toolorchestra.envs.domains.tau2.domain import State, Tau2Domain, clone, described, updated
from toolorchestra.envs.domains.tau2.package import Release
from toolorchestra.envs.domains.tau2.task import Tau2Task

BANKING = "banking_knowledge"
_DEFAULT = "bm25_grep"
VARIANTS = (_DEFAULT, "bm25", "grep_only", "full_kb", "no_knowledge", "golden_retrieval")
"""Upstream's ways to the documents that need neither a paid model nor a shell."""
NAMES = (BANKING, *(f"{BANKING}-{variant}" for variant in VARIANTS[1:]))
_DATA = ("tasks/*.json", "documents/*.json", "prompts/**/*.md")
_CODE = (f"domains/{BANKING}/*.py", "environment/*.py", "knowledge/**/*.py", "utils/*.py")
_CALLS = "call_discoverable_agent_tool"


def with_code(release: Release) -> Release:
    """The release, whose version tells this domain's code and documents apart too."""
    code, data = release.code, release.folder / BANKING
    if not (code / "domains" / BANKING).is_dir() or not data.is_dir():
        raise ConfigError(
            f"{BANKING} is played by the code of a copy of upstream's repository, which {release.version} is not; type "
            "git clone https://github.com/sierra-research/tau2-bench and say tasks_path='tau2-bench'"
        )
    digest = hashlib.sha256()
    for folder, patterns in ((data, _DATA), (code, _CODE)):
        for file in sorted({file for pattern in patterns for file in folder.glob(pattern)}):
            digest.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return replace(release, version=f"{release.version}, {BANKING} sha256:{digest.hexdigest()[:12]}")


class BankingDomain(Tau2Domain):
    """The domain, with one of the ways to its documents. Documents and their indexes are shared by all episodes."""

    def __init__(self, name: str, release: Release, *, solo: bool) -> None:
        if solo:
            raise ConfigError(f"{name} has no solo mode: name a user, such as user='scripted'")
        self.name, self.release, self.solo, self.folder = name, release, solo, BANKING
        self._variant = name.removeprefix(BANKING).removeprefix("-") or _DEFAULT
        try:
            self._open()
        except ConfigError:
            raise
        except SyntaxError as err:
            raise ConfigError(f"{release.version} is written for a newer Python than this: {err}") from None
        except (AttributeError, OSError, ValueError) as err:
            raise ConfigError(f"{release.version} has another {BANKING} than upstream 1.0 and 1.0.1: {err}") from None

    def _module(self, name: str) -> Any:
        return package.module(name, installed_code.name_of(self.release.code))

    def _open(self) -> None:
        data, here = self.release.folder / BANKING, f"domains.{BANKING}"
        self._module("utils.utils").DATA_DIR = self.release.folder.parents[1]  # a variable may have named another
        knowledge = self._module("knowledge")
        knowledge._ensure_registered = bool  # since 1.0.1; it would import the clients of paid models
        knowledge.RetrievalPipeline = pipeline = self._module("knowledge.pipeline").RetrievalPipeline
        pipeline.__deepcopy__ = lambda index, _memo: index
        self._module("knowledge.retrievers")
        if self._variant.startswith("bm25"):
            self._module("knowledge.document_preprocessors.bm25_indexer")
        kinds, self._retrieval = self._module(f"{here}.data_model"), self._module(f"{here}.retrieval")
        self._documents = kinds.KnowledgeBase.load(str(data / "documents"))
        self._documents.documents = dict(sorted(self._documents.documents.items()))  # not as the disk lists them
        self._agent_db = kinds.TransactionalDB.load(str(data / "db.json"))
        way = self._retrieval.resolve_variant(self._variant)
        self._first = self._retrieval.build_tools(way, self._agent_db, self._documents)
        vars(self).update({name: part for name, part in vars(self._first).items() if isinstance(part, pipeline)})
        self._tools = self._module(f"{here}.tools")
        self._kit, self._user_kit = type(self._first), self._tools.KnowledgeUserTools
        self.policy = self._retrieval.get_info_policy_override(self._variant, self._documents)
        user = self._tools.KnowledgeUserTools(self._agent_db)
        self.tools, self.user_tools = described(self._first), described(user)
        self.agent_names, self.user_names = frozenset(self._first.tools), frozenset(user.tools)
        self.hidden = tuple(sorted(self._first.get_discoverable_tools()))
        self._databases: dict[str, Any] = {}

    def policy_of(self, plan: Tau2Task) -> str:
        if self._variant != "golden_retrieval":
            return self.policy
        return str(self._retrieval.build_policy(self._retrieval.resolve_variant(self._variant), self._documents, plan))

    def start(self, plan: Tau2Task) -> State:
        database = self._databases.get(plan.task_id)
        if database is None:
            database = self._databases[plan.task_id] = self._prepared_database(plan)
        agent, database = copy.copy(self._first), clone(database)
        self._tools.KnowledgeTools.__init__(agent, database)  # nothing but the documents is the first one's
        if hasattr(agent, "set_read_log_allowlist"):  # since 1.0.1: reads are logged that the reference path makes
            agent.set_read_log_allowlist(_calls_of(plan))
        return self._prepared(State(agent, self._tools.KnowledgeUserTools(database), None, self), plan)

    def _prepared_database(self, plan: Tau2Task) -> Any:
        """A task's database. Records that it leaves as they are it shares with the others'."""
        changed, pristine = self._agent_db, self._agent_db
        for data in (plan.agent_data, plan.user_data):
            changed = updated(changed, data)
        for name, table in changed.__dict__.items() if changed is not pristine else ():
            was = getattr(pristine, name).data
            table.data.update({key: was[key] for key, row in table.data.items() if str(was.get(key)) == str(row)})
        return changed


def _calls_of(plan: Tau2Task) -> set[str]:
    """The hidden tools that the reference path calls."""
    actions = (plan.criteria and plan.criteria.actions) or ()
    return {str(one.call.arguments.get("agent_tool_name")) for one in actions if one.call.name == _CALLS}
