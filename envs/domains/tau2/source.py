"""τ²-Bench as a source of tasks: airline, retail, telecom, mock; with a user, or alone where the benchmark has it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, no_such, one_of
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.domains.tau2 import banking, package
from toolorchestra.envs.domains.tau2.domain import PARTS, Tau2Domain, folder_of, load_domain
from toolorchestra.envs.domains.tau2.package import JUDGES_WORDS, Release, load_release
from toolorchestra.envs.domains.tau2.task import Tau2Task, public_id, read_plan
from toolorchestra.envs.domains.tau2.toolbox import DomainToolbox, build_toolbox
from toolorchestra.envs.domains.tau2.user_and_judge_models import Hiring, Role
from toolorchestra.envs.domains.tau2.users import ReplayUser, Tau2ModelUser, Tau2ScriptedUser, User
from toolorchestra.envs.domains.tau2.world import Recording, SourceRules, Tau2World, listener_of, read_recordings
from toolorchestra.envs.money.prices import PriceSheet
from toolorchestra.envs.tools.backends import Backing, backing, deadline

ALL = ("airline", "retail", "telecom")
USERS = ("none", "scripted", "replay")
RECORDED = "recorded"
"""The split of recorded runs; their ids are DOMAIN/TASK@SIM_ID."""
_MOST_BOXES = 32
_NAME_A_JUDGE = 'give judge="NAME" with backends=FILE, or judge=(model, "price sheet item")'


@dataclass(eq=False)
class Tau2Source:
    """`gym.make("ToolOrchestra/Tau2-v0", domain="retail", user="gpt-5-mini", backends="my.toml")`.

    A model is a name in the backends file, or anything that completes chat requests, paired with the item that it is
    billed under.
    """

    domain: str | None = None
    """airline, retail, telecom (None), telecom-workflow, mock, banking_knowledge (or another way to its documents, such
    as banking_knowledge-bm25), or "all": the first three mixed, each task as likely."""
    user: str | Role = "none"
    """none (the agent works alone), scripted (plumbing and tests), replay (recorded runs), or the model that plays."""
    _: KW_ONLY
    judge: str | Role | None = None
    """Says whether assertions in natural language hold; None: the judge of the backends file. Domains with tasks that
    are graded by any are refused without one."""
    experts: Mapping[str, str | Role] | None = None
    """Expert models by alias. With them the agent has the tool `call_expert`."""
    backends: str | Path | Backing | None = None
    """A file of real backends, or what `backing.read` and `Backing` made of one: where named models are served."""
    recordings: str | None = None
    """File of recorded runs, one JSON a line."""
    tasks_path: str | None = None
    """A newer release's data folder, in upstream's layout."""
    corrected: bool = False
    """Grade and check by this suite's corrections. False: as the benchmark was published, its defects included."""
    release: Release = field(init=False)

    def __post_init__(self) -> None:
        self._kind = self.user if isinstance(self.user, str) and self.user in USERS else "llm"
        self._check_roles()
        names = self._open_package()
        self.backing = backing(self.backends) if self.backends is not None else None
        self._hiring = hiring = Hiring(self.backing)
        experts = {alias: hiring.hire(f"experts[{alias!r}]", role) for alias, role in (self.experts or {}).items()}
        judge = hiring.judge(self.judge)
        self._hired_user = hiring.hire("user", self.user) if self._kind == "llm" else None
        self._house = SourceRules(self.corrected, self._kind != "replay", judge, experts)
        self._runs = read_recordings(self.recordings) if self.recordings else {}
        self._plans: dict[str, tuple[Tau2Domain, Tau2Task]] = {}
        self._boxes: dict[tuple[object, ...], tuple[PriceSheet, DomainToolbox]] = {}
        self._ids = self._split_ids(names)
        if self.tasks_path:
            self._refuse_what_cannot_be_graded()
        self.name = f"tau2-{self.domain}"

    def _check_roles(self) -> None:
        if self._kind == "llm" and isinstance(self.user, str) and self.backends is None:
            served = f"A model {self.user!r} needs backends=FILE, which says where it is served"
            raise ConfigError(f"{no_such('user', self.user, USERS)} {served} (docs/tau2.md shows one)")
        if self._kind == "replay" and self.recordings is None:
            raise ConfigError('user="replay" needs recordings="FILE" with recorded runs')
        if self.experts is not None and not isinstance(self.experts, Mapping):
            raise ConfigError(f'experts are models by alias, such as {{"expert-1": "NAME"}}, got {self.experts!r:.60}')

    def _open_package(self) -> Sequence[str]:
        self.domain = self.domain or "telecom"
        one_of("domain", self.domain, (*PARTS, *banking.NAMES, "all"))
        self.release = load_release(self.tasks_path)
        if self.domain in banking.NAMES:
            self.release = banking.with_code(self.release)
        names = ALL if self.domain == "all" else (self.domain,)
        for name in names if self.tasks_path else ():
            self.release.require(folder_of(name), f"domain={name!r} of tasks_path={self.tasks_path!r}")
        if self.release.number >= (JUDGES_WORDS,):
            self.release = replace(self.release, version=f"{self.release.version}, COMMUNICATE by words")
        alone = self._kind == "none"
        self._domains: Mapping[str, Tau2Domain] = {}
        if self._kind != "replay":
            self._domains = {name: load_domain(name, self.release, alone) for name in names}
        return names

    def _refuse_what_cannot_be_graded(self) -> None:
        """A task whose tools the package does not have would be graded by half its reference path. A domain some of
        whose tasks need a judge is refused before any of them is played."""
        for name, domain in self._domains.items():
            plans = [read_plan(row) for row in self.release.tasks(domain.folder).values()]
            of_them = f"of {len(plans)} tasks of {name} in {self.release.version}"
            if found := [(plan.task_id, what) for plan in plans if (what := domain.lacks(plan))]:
                lacking = f"{package.DISTRIBUTION} {package.version()} does not have"
                raise ConfigError(f"{len(found)} {of_them} need what {lacking}, such as task {': '.join(found[0])}")
            number = sum(bool(plan.criteria and plan.criteria.needs_judge) for plan in plans)
            if number and self._house.judge is None:
                raise ConfigError(f"{number} {of_them} are graded by assertions in natural language: {_NAME_A_JUDGE}")

    @property
    def version(self) -> str:
        """The version of the tasks. Results of two are not to be compared."""
        return self.release.version

    @property
    def splits(self) -> Sequence[str]:
        return tuple(self._ids)

    def ids(self, split: str) -> Sequence[str]:
        """Every task id of a split, in the benchmark's order."""
        one_of("split", split, self._ids, f"{self.name}: ")
        return self._ids[split]

    task_ids = ids

    def draw(self, split: str, rng: random.Random) -> str:
        return rng.choice(self.ids(split))

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        del seed
        sheet = self._hiring.priced(sheet)
        run = self.recording(task_id) if self._kind == "replay" else None
        domain, plan = self._task(task_id, run)
        if plan.criteria and plan.criteria.needs_judge and self._house.judge is None:
            needs = f"{task_id} is graded by {len(plan.criteria.judged)} assertions in natural language"
            raise ConfigError(f"{needs}: {_NAME_A_JUDGE}")
        user = self._user(domain, plan, run)
        toolbox = self._toolbox(domain, sheet, tools, user)
        judge = {self._house.judge.item} if self._house.judge else set()
        sheet.require(toolbox.bills | judge | set(user.bills if user else ()), self.name)
        world = Tau2World(domain, plan, toolbox, user, self._house)
        version = self.release.version
        public = {"task_id": task_id, "domain": domain.name, "user": self._kind, "tasks_version": version}
        return Scene(world, sheet, public)

    def with_price_of(self, sheet: PriceSheet, orchestrator: str) -> PriceSheet:
        """The sheet with the price that the backends file gives the orchestrator, if it names it, or all models."""
        return self._hiring.priced(sheet, orchestrator)

    # -- what there is -----------------------------------------------------------------------------------------------

    def _split_ids(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        if self._kind == "replay":
            runs = [r for r in self._runs.values() if self.domain == "all" or r.domain == self.domain]
            if not runs:
                held = sorted({r.domain for r in self._runs.values()})
                others = f"it has some of {', '.join(held)}: give domain={held[0]!r}" if held else "it is empty"
                raise ConfigError(f"recordings={self.recordings!r} has no run of {self.domain!r}; {others}")
            return {RECORDED: [f"{r.domain}/{public_id(r.task_id)}@{r.sim_id}" for r in runs]}
        made: dict[str, list[str]] = {}
        for name in names:
            splits = self.release.splits(self._domains[name].folder)
            for split, ids in splits.items():
                if self.domain != "all" or all(split in self.release.splits(other) for other in names):
                    made.setdefault(split, []).extend(f"{name}/{public_id(i)}" for i in ids if self._playable(name, i))
        return made

    def _playable(self, name: str, task_id: str) -> bool:
        """Alone, an agent needs a ticket and can tell nobody anything. In telecom all tasks have one."""
        if self._kind != "none" or self._domains[name].folder == "telecom":
            return True
        plan = read_plan(self.release.tasks(name)[task_id])
        return bool(plan.ticket) and not (plan.criteria and plan.criteria.communicate)

    def recording(self, task_id: str) -> Recording:
        """The recorded run of an id of the split `recorded`."""
        sim_id = task_id.partition("@")[2]
        if sim_id not in self._runs:
            raise ConfigError(no_such("recorded run", task_id, self._ids[RECORDED]))
        return self._runs[sim_id]

    def _task(self, task_id: str, run: Recording | None) -> tuple[Tau2Domain, Tau2Task]:
        known = self._plans.get(task_id)
        if known is None:
            name, _, given = task_id.partition("@")[0].partition("/")
            domain = load_domain(name, self.release, run.solo) if run else self._domains.get(name)
            if domain is None:
                raise ConfigError(no_such("domain", name, self._domains))
            rows = self.release.tasks(domain.folder)
            row = rows.get(given) or rows.get(_by_public_id(self.release, domain.folder).get(given, ""))
            if row is None:
                raise ConfigError(f"no task {task_id!r} in {self.release.version}; ids are {name}/ID")
            plan = read_plan(row)
            known = domain, replace(plan, criteria=run.criteria) if run and run.criteria else plan
            self._plans[task_id] = known
        return known

    def _user(self, domain: Tau2Domain, plan: Tau2Task, run: Recording | None) -> User | None:
        if domain.solo:
            return None
        if run:
            past = sum(message.side == "user" for message in plan.history)  # it has been said as the episode begins
            return ReplayUser(run.user_turns()[past:], run.sim_id, run.ended)
        if self._hired_user:
            return Tau2ModelUser(domain, plan, self._hired_user)
        return Tau2ScriptedUser(domain, plan)

    def _toolbox(
        self, domain: Tau2Domain, sheet: PriceSheet, tools: Sequence[str] | None, user: User | None
    ) -> DomainToolbox:
        kept = None if tools is None else tuple(tools)
        key = (domain.name, domain.solo, id(sheet), kept)  # by identity, holding the sheet: names need not differ
        if key not in self._boxes:
            if len(self._boxes) >= _MOST_BOXES:
                self._boxes.clear()
            listener, experts = listener_of(user), self._house.experts
            models = [hired.model for hired in experts.values()]
            box = build_toolbox(
                domain, sheet, experts,
                suspends=bool(listener.suspends) or any(model.suspends for model in models),
                deadline_seconds=listener.deadline_seconds + max(map(deadline, models), default=0.0),
            )  # fmt: skip
            self._boxes[key] = (sheet, box.only(kept))
        return self._boxes[key][1]


@lru_cache(maxsize=16)
def _by_public_id(release: Release, folder: str) -> Mapping[str, str]:
    """The benchmark's ids by the ids that agents may see."""
    return {public_id(task_id): task_id for task_id in release.tasks(folder)}
