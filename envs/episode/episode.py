"""The rules of one episode, as a state machine that does no I/O: text in, calls out, results in, observation out.

    pending = episode.act(text)            parse, check, count the turn, bill the policy
    step = episode.resolve(results)        one result per pending call: a Step, or once more a Pending (a judge's call)

Two drivers wait for the calls: OrchestraEnv and the asyncio loop of the vector environment and the rollouts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from toolorchestra.envs.base.actions import not_text, only_call, parse
from toolorchestra.envs.base.errors import ActionError, ResetNeeded, ToolError
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.base.types import Message, Observation, Outcome, Rows, ToolCall, Transcript, build, plain
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.episode import saved
from toolorchestra.envs.episode.calls import CallResult, Failure, FailureGuard, ReadyCall, failure, unreadable
from toolorchestra.envs.episode.rules import (
    WHERE,
    Rules,
    as_tokens,
    budget_text,
    held_to,
    least_usd,
    left_nano_usd,
    values_of,
    with_left,
)
from toolorchestra.envs.money.ledger import Ledger, by_class, charge_row, rewarded_usd, total_tokens
from toolorchestra.envs.money.prices import NANO, Charge, PriceSheet, Usage
from toolorchestra.envs.tools import Tool, ToolContext

GRADING = ToolCall("grade", {})
Calls = tuple[tuple[ToolCall, ReadyCall | str], ...]
"""A turn's calls, each ready to run, or why not."""


Origin = tuple[saved.Starts, int, dict[str, Any]]
"""The factory, the episode's seed and reset's options."""


class Pending(NamedTuple):
    """Calls to run, all at the same time. May be empty: then resolve(()) says what was wrong."""

    calls: tuple[ReadyCall, ...]


class Step(NamedTuple):
    """The five values that Gymnasium's step() returns."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Episode:
    """One episode. Not thread-safe; a driver owns it."""

    __slots__ = (
        "_calls", "_context_size", "_mark", "_new", "_pending", "_phase", "_started_nano_usd", "_started_ns", "_stop",
        "calls", "context", "failure", "finished", "least_usd", "ledger", "messages", "origin", "outcome",
        "preference", "rules", "sheet", "task_id", "terms", "turn", "world",
    )  # fmt: skip

    def __init__(
        self, task_id: str, world: World, context: ToolContext, rules: Rules, sheet: PriceSheet, preference: Preference
    ) -> None:
        self.task_id, self.world, self.context = task_id, world, context
        self.rules, self.sheet, self.preference = rules, sheet, preference
        self.ledger = Ledger()
        self.messages: Transcript = ()
        self.turn = 0
        self.calls: dict[str, int] = {}
        """Executed calls by countable key."""
        self.least_usd: dict[str, float] = {}
        """The least that a call costs, where there is a budget, by its countable key, as the agent is told it."""
        self.failure: Failure | None = None
        self.outcome: Outcome | None = None
        self.terms: dict[str, float] = {}
        """What the user's own reward terms came to, once it has ended."""
        self.finished: bool | None = None
        """Whether it was graded as finished, not as cut off by a limit; None: not graded yet."""
        self.origin: Origin | None = None
        """What it was started by, which makes it again where it is unpickled."""
        self._phase = "new"
        self._pending: tuple[ReadyCall, ...] = ()
        self._calls: Calls = ()
        self._new: list[Message] = []
        self._stop = ""
        self._mark = self._started_ns = self._started_nano_usd = 0
        self._context_size = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Episode:
        made = object.__new__(Episode)
        memo[id(self)] = made
        for name in Episode.__slots__:
            setattr(made, name, copy.deepcopy(getattr(self, name), memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            raise TypeError("only an episode that a factory started can be pickled: its tools are made again from that")
        return saved.again, (*self.origin, saved.state_of(self))

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> Observation:
        """Start the episode, and give the first observation: the task, the user's preference and the tools."""
        system = self.world.system
        if self.rules.history == "state":
            self.world.retell()  # a world that cannot says so now, not in the middle of a batch
        first = self.world.opening()
        if self.preference.sentence:
            system = f"{system}\nThe user's wish: {self.preference.sentence}"
        if self.rules.limits.usd is not None:
            task = 0 if isinstance(first, Tool) else sum(len(message["content"]) for message in first)
            self.least_usd = least_usd(self.world.toolbox, self.sheet, task)
            system = f"{system}\n{budget_text(self.rules.limits, self.least_usd)}"
        self.messages = (Message(role="system", content=system),)
        if not isinstance(first, Tool):
            return self._opened(first)
        if first.bills and self._cap_reached():
            self.failure = Failure("opening", "the spend cap was used up before the episode could be opened", "")
            return self._opened(())
        self._phase, self._pending = "opening", (ReadyCall(first, {}, self.context),)
        return self.observation

    def _opened(self, first: Transcript) -> Observation:
        self.messages += first
        self._context_size = self.world.toolbox.schema_characters + self._size_of(self.messages)
        self._phase, self._pending = "ready", ()
        return self.observation

    @property
    def opening(self) -> tuple[ReadyCall, ...]:
        """Calls that a driver has to run and hand to begin() before the first turn; mostly none."""
        return self._pending if self._phase == "opening" else ()

    def begin(self, results: Sequence[CallResult]) -> Observation:
        """Take the opening calls' results: the first observation. A failed one makes the first step say so."""
        (done,) = results
        unbilled = self._bill("opening", done, "opening")
        self._pass_time(done.result.seconds or 0.0)
        refusal = Failure("opening", done.result.content, "") if done.refused else None
        self.failure = done.failure or unbilled or refusal
        first: Transcript | Tool = ()
        if not self.failure:
            with FailureGuard("opening") as guard:
                first = self.world.opening()
            self.failure = guard.failure
        return self._opened(() if isinstance(first, Tool) else first)

    @property
    def observation(self) -> Observation:
        """The transcript, or under history="state" what the world retells, with the tools' schemas."""
        messages = self.messages
        if self.rules.history == "state" and self.turn:
            messages = (messages[0], *self.world.retell())
            if self.rules.limits.usd is not None and not self.over:
                messages = (*messages[:-1], with_left(messages[-1], self._budget_left))
        return {"messages": Rows(messages), "tools": self.world.toolbox.schemas}

    @property
    def over(self) -> bool:
        return self._phase == "over"

    # -- a turn ----------------------------------------------------------------------------------------------------

    def act(self, text: str, usage: Usage | None = None) -> Pending:
        """Take the assistant's text, and its counted usage when the caller has it. Says which calls are to be made."""
        if self._phase != "ready":
            what = "run its opening, see begin()," if self._phase == "opening" else "call reset()"
            raise ResetNeeded(f"step() in an episode that is {self._phase}; {what} first")
        if not isinstance(text, str):
            raise TypeError(not_text(text))
        billed = self.sheet.charge(usage) if usage is not None else None  # an unbillable one changes nothing
        context = self.context
        self.turn = context.turn = self.turn + 1
        context.aside = ""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()
        self._new = [Message(role="assistant", content=text)]
        self._bill_policy(text, billed)
        self._stop = "" if self.rules.only_turns else self._limit_reached(before_calls=True)
        calls: Calls = ()
        if not (self._stop or self.failure):
            call = only_call(text)
            calls = ((call, self._checked(call)),) if call else self._read(text)
        self._calls = calls
        ready = calls[0][1] if len(calls) == 1 else None
        if type(ready) is ReadyCall:  # by far the commonest
            self._pending = (ready,)
        else:
            self._pending = tuple([call[1] for call in calls if type(call[1]) is ReadyCall])
        self._phase = "waiting"
        return build(Pending, (self._pending,))

    def _read(self, text: str) -> Calls:
        """The text's calls, each checked: ready to run, or why not. A message is a call of the listener."""
        listener = self.world.listener
        try:
            action = parse(text)
        except ActionError as err:
            self._tell("parser", f"Error: {err}")
            return ()
        if not action.calls:
            ready = ReadyCall(listener, {"text": action.said}, self.context)
            return ((ToolCall(listener.name, {"text": action.said}), ready),)
        self.context.aside = action.said
        return tuple([(call, self._checked(call)) for call in action.calls])

    def _checked(self, call: ToolCall) -> ReadyCall | str:
        try:
            tool = self.world.toolbox.check(call)
        except ToolError as err:
            return f"Error: {err}"
        arguments = call.arguments
        key = tool.key(arguments) if tool.keyed_by else tool.name
        self.calls[key] = self.calls.get(key, 0) + 1
        return build(ReadyCall, (tool, arguments, self.context))

    def resolve(self, results: Sequence[CallResult]) -> Step | Pending:
        """Take the pending calls' results, in their order."""
        if self._phase not in ("waiting", "grading") or len(results) != len(self._pending):
            self._refuse(results)
        if self._phase == "grading":
            return self._take_grade(results[0])
        given = iter(results)
        took: list[float] = []
        final = self.world.over
        for call, checked in self._calls:
            if isinstance(checked, str):
                self._tell(call.name, checked)
                continue
            done = next(given)
            took.append(done.result.seconds or 0.0)
            final = self._take(call, checked, done) or final
        self._pass_time(self._passed(took))
        if self.failure:
            return self._end(truncated_by="failed")
        rules = self.rules
        if not (final or self._stop) and (self.turn >= rules.limits.turns or not rules.only_turns):
            self._stop = self._limit_reached(before_calls=False)
        if final or self._stop:
            return self._grade(finished=final)
        return self._step(0.0, terminated=False, truncated=False)

    def _passed(self, took: Sequence[float]) -> float:
        """Seconds that the pending calls took together: they ran at the same time, or in their order."""
        if len(took) > 1 and any([ready.tool.in_order for ready in self._pending]):
            return sum(took)
        return max(took, default=0.0)

    def _refuse(self, results: Sequence[CallResult]) -> NoReturn:
        if self._phase not in ("waiting", "grading"):
            raise ResetNeeded(f"resolve() in an episode that is {self._phase}; call act() first")
        raise ValueError(f"{len(self._pending)} calls are pending, got {len(results)} results")

    def _take(self, call: ToolCall, ready: ReadyCall, done: CallResult) -> bool:
        """Bill one result, show it, and let the world remember it. True when it ends the episode."""
        result, world = done.result, self.world
        content = result.content
        unbilled = self._bill(call.name, done, ready.tool.key(ready.arguments)) if done.booked else None
        if failed := done.failure or unbilled or (None if type(content) is str else unreadable(call.name, content)):
            self.failure = self.failure or failed
            return False
        if ready.tool is not world.listener:
            self._tell(call.name, content, result.role)
        elif not result.final:
            self._tell(call.name, content, "user" if result.role == "tool" else result.role)
        if not done.refused:
            try:
                world.absorb(call, result)
            except Exception as err:  # noqa: BLE001 - as Guard does, but free when nothing is raised
                self.failure = self.failure or failure(call.name, err)
        return result.final

    # -- the end ---------------------------------------------------------------------------------------------------

    def _grade(self, *, finished: bool) -> Step | Pending:
        self.finished = finished
        with FailureGuard(GRADING.name) as guard:
            outcome = self.world.grade(finished=finished)
            if not isinstance(outcome, Outcome | Tool):
                raise TypeError(f"grade() gives an Outcome or a Tool, got {type(outcome).__name__}")
        if guard.failure:
            self.failure = guard.failure
            return self._end(truncated_by="failed")
        if isinstance(outcome, Outcome):
            self.outcome = outcome
            return self._end(truncated_by="" if finished else self._stop)
        if outcome.bills and self._cap_reached():
            self.failure = Failure(GRADING.name, "the spend cap was used up before the judge could be asked", "")
            return self._end(truncated_by="failed")
        self._pending = (ReadyCall(outcome, {}, self.context),)
        self._stop = "" if finished else self._stop
        self._phase = "grading"
        return Pending(self._pending)

    def _take_grade(self, done: CallResult) -> Step:
        unbilled = self._bill(GRADING.name, done, GRADING.name)
        self.outcome = done.result.outcome
        if self.outcome is None or unbilled:
            refusal = Failure("grade", done.result.content or "the grader gave no outcome", "")
            self.failure = done.failure or unbilled or refusal
            return self._end(truncated_by="failed")
        return self._end(truncated_by=self._stop)

    def _end(self, truncated_by: str) -> Step:
        self._phase = "over"
        self.context.end()
        if truncated_by == "spend_cap" and not self.failure:  # no agent caused it, so it is nobody's wrong answer
            self.failure = Failure("step", "the spend cap was used up", "")
        limits = self.rules.limits
        over = -self._budget_left if limits.usd is not None else 0
        if self.outcome and over > 0:
            self.outcome = held_to(self.outcome, over)
        if self.outcome and not self.failure:
            truncated_by = truncated_by or self.outcome.truncated_by
        # A failed episode has no reward. nan, not 0: whoever forgets to exclude it sees nan instead of a wrong mean.
        value = self.outcome.value if self.outcome and not self.failure else float("nan")
        step = self._step(value, terminated=not truncated_by, truncated=bool(truncated_by))
        if self.rules.terms:
            step = self._with_terms(step)
            truncated_by = "failed" if self.failure and truncated_by != "spend_cap" else truncated_by
        # Empty, not None, where there is none: what is a dict in one environment is one in all of a vector's.
        step.info["outcome"] = {"value": value, "evidence": plain(self.outcome.evidence)} if self.outcome else {}
        step.info["calls"] = dict(self.calls)
        step.info["failed"] = self.failure.told if self.failure else {}
        step.info["truncated_by"] = truncated_by
        if limits.usd is not None:
            step.info["over_budget_usd"] = max(0, over) / NANO
        return step

    def _with_terms(self, step: Step) -> Step:
        """The last step with the user's own terms in its reward. One that raises fails the episode."""
        if self.outcome and not self.failure:
            with FailureGuard(WHERE) as guard:
                self.terms = values_of(self, self.rules.terms)
            self.failure = guard.failure
            added = float("nan") if self.failure else sum(self.terms.values())
            step = step._replace(reward=step.reward + added)
        step.info["reward_terms"] = dict(self.terms)
        return step._replace(terminated=False, truncated=True) if self.failure else step

    def _step(self, value: float, *, terminated: bool, truncated: bool) -> Step:
        ledger, rules = self.ledger, self.rules
        limited = rules.limits.usd is not None
        if limited and self._phase != "over" and rules.history == "full" and len(self._new) > 1:
            self._new[-1] = with_left(self._new[-1], self._budget_left)
        new = tuple(self._new)
        self.messages += new
        for message in new:
            self._context_size += len(message["content"])
        charges = ledger.since(self._mark)
        tokens = charges[0].usage.tokens if len(charges) == 1 else total_tokens(charges)
        usd = (ledger.nano_usd - self._started_nano_usd) / NANO
        seconds = (ledger.elapsed_ns - self._started_ns) / NANO
        # The next step's own begins here; what the opening cost is the first step's.
        self._mark += len(charges)
        self._started_nano_usd, self._started_ns = ledger.nano_usd, ledger.elapsed_ns
        if rules.costs is not None:
            value -= rules.costs[0] * rewarded_usd(charges) + rules.costs[1] * seconds
        info = {
            "task_id": self.task_id,
            "turn": self.turn,
            "new_messages": new,
            "charges": [charge_row(charge) for charge in charges],
            "cost": {"usd": usd, "seconds": seconds, "tokens": by_class(tokens)},
            "ledger": ledger.summary(),
        }
        if limited:
            info["budget_left_usd"] = self._budget_left / NANO
        self._calls = self._pending = ()
        if self._phase != "over":
            self._phase = "ready"
        return build(Step, (self.observation, value, terminated, truncated, info))

    # -- money, time and size --------------------------------------------------------------------------------------

    def _bill_policy(self, text: str, billed: Charge | None) -> None:
        if self.context.bill.usages:
            self.settle_policy()
            if billed is None:  # what the policy booked itself is not estimated as well
                return
        if billed is None:
            size = self._context_size if self.rules.history == "full" else self._size_of_observation()
            billed = self.sheet.charge(self.rules.policy_usage(size, text))
        self.ledger.add(billed)
        if self.rules.spend_cap is not None:
            self.rules.spend_cap.add(billed.nano_usd)
        if billed.usage.seconds:
            self._pass_time(billed.usage.seconds)

    def _bill(self, where: str, done: CallResult, key: str) -> Failure | None:
        """Bill a call. One that bills what has no price fails its own episode, not the batch that it is in; whatever
        else it used is billed all the same."""
        failed = None
        for usage in done.booked:
            with FailureGuard(where) as guard:
                self.ledger.add(self.sheet.charge(usage, key))
            failed = failed or guard.failure
        return failed

    def settle_policy(self) -> tuple[Usage, ...]:
        """Bill the policy what was booked on `context.bill` between two turns: its own calls, failed ones too."""
        booked = self.context.bill.take()
        for usage in booked:
            self.ledger.add(self.sheet.charge(usage))
            self._pass_time(usage.seconds)
        return booked

    def settle(self) -> None:
        """Bill what calls have booked that were broken off."""
        for usage in self.context.bill.unsettled():
            with FailureGuard("a call that was broken off"):
                self.ledger.add(self.sheet.charge(usage))

    def _pass_time(self, seconds: float) -> None:
        if seconds:
            self.ledger.elapsed_ns += round(seconds * NANO)

    def _limit_reached(self, *, before_calls: bool) -> str:
        """The name of the limit that is used up, or "". Turns count after the calls: the last turn still acts."""
        limits = self.rules.limits
        if limits.usd is not None and self._budget_left <= 0:
            return "usd"
        if limits.seconds is not None and self.ledger.seconds >= limits.seconds:
            return "seconds"
        most = limits.context_tokens
        if most is not None and as_tokens(self._size_of_observation()) > most:
            return "context"
        if before_calls:
            return self._cap_reached()
        # A last turn whose calls the spend cap may have refused says nothing of what the agent can do.
        return (self._cap_reached() or "turns") if self.turn >= limits.turns else ""

    @property
    def _budget_left(self) -> int:
        """The rest of the budget in nano-dollars; below 0 where more was spent."""
        return left_nano_usd(self.rules.limits, self.ledger)

    def _cap_reached(self) -> str:
        cap = self.rules.spend_cap
        return "spend_cap" if cap is not None and cap.used_up else ""

    def _tell(self, name: str, content: str, role: str = "tool") -> None:
        self._new.append(
            Message(role=role, name=name, content=content) if role == "tool" else Message(role=role, content=content)
        )

    def _size_of(self, messages: Sequence[Message]) -> int:
        return sum([len(message["content"]) for message in messages])

    def _size_of_observation(self) -> int:
        if self.rules.history == "full":
            return self._context_size + self._size_of(self._new)
        return self.world.toolbox.schema_characters + self._size_of(self.observation["messages"])
