"""The simulated customer that a script plays from the scenario, without knowing the gold actions.

It answers what it is asked (by keyword), confirms what it wants, waits when it is asked to, objects to a refusal where
its scenario says so, brings its requests one after the other, and says ###STOP### when it has no more. It goes by what
it knows (followed_requests.py): a request is over when it was told what it asked for and something was done about it,
or when it was refused. While a change is still to be made, a message that names it, or a question about it that yes
would answer, asks for its yes. It corrects a confirmation that names a detail of its own with another value, and cannot
judge what else it is told, so it is for training and tests; reported scores want a model as the user (model_user.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from toolorchestra.envs.domains.toolscale import heard
from toolorchestra.envs.domains.toolscale.followed_requests import (
    EpisodeSoFar,
    FollowedRequests,
    alike,
    content,
    spoken_names,
)
from toolorchestra.envs.domains.toolscale.sql_domain import FirstWords, SqlTask, UserFact
from toolorchestra.envs.models import ChatModel
from toolorchestra.envs.tools.tool_config import Half

_T = TypeVar("_T")
_HELDOUT_SHARE = 4


def sentences_of(options: tuple[_T, ...], half: Half | None) -> tuple[_T, ...]:
    """The sentences of a half: the last quarter, one at least, is held out. None: all; a single one is in both."""
    if half is None or len(options) < 2:
        return options
    cut = len(options) - max(1, len(options) // _HELDOUT_SHARE)
    return options[:cut] if half == "train" else options[cut:]


GREETINGS = (
    "Hello.", "Hi there.", "Good morning.", "Hi,", "Hello, I hope you can help me.", "Good day.", "Hey.",
    "Hi! Thanks for taking my call.", "Hello, this is about my account with you.", "",
)  # fmt: skip
TELLS = (
    "{label}: {value}.", "My {label} is {value}.", "The {label} is {value}.", "Sure, {label} {value}.",
    "It's {value} ({label}).", "For the {label}: {value}.", "{value} is the {label}.",
)  # fmt: skip
UNKNOWN = (
    "I don't remember my {label}.", "Sorry, I don't have the {label} at hand.", "I can't tell you the {label}.",
    "No idea what the {label} is, sorry.", "I do not know the {label}.",
)  # fmt: skip
YES = (
    "Yes, please go ahead.", "Yes.", "Yes, that's right.", "Correct, please do.", "Yes, do it.",
    "That is what I want, yes.", "Please proceed.", "Confirmed.", "Yes, I confirm.", "Sounds right, go on.",
)  # fmt: skip
ALL_OF_IT = (
    "That goes for all that I asked for.", "All of it, please.", "I mean everything I have asked for.",
    "Do the whole list.",
)  # fmt: skip
CORRECTS = (
    "No, the {label} is {value}, not {stated}.", "Wait, you said {label} {stated}. I want {value}.",
    "That is not right: {label} {value}, please.", "Please don't. The {label} should be {value}.",
)  # fmt: skip
NEXT = (
    "Thanks. Next: {say}", "Good. {say}", "All right. Then there is something else. {say}",
    "Thank you. One more thing. {say}",
    "Great. Also: {say}", "OK. I have another matter. {say}", "Fine, thanks. {say}",
)  # fmt: skip
REMIND = (
    "Thanks. And the other thing I mentioned: {say}", "OK. There is still what I said before. {say}",
    "Good. And the rest? {say}", "Thank you. Don't forget: {say}",
)  # fmt: skip
AGAIN = (
    "I'm not sure what you mean. {say}", "Sorry, I don't follow. {say}", "I can only repeat what I want. {say}",
    "I don't understand the question. {say}",
)  # fmt: skip
WAITS = (
    "All right, I'll wait.", "OK, take your time.", "Sure, I'll hold.", "Fine, thank you.", "Okay.", "I am listening.",
    "Go ahead, I'll wait.", "No problem, I'll stay here.",
)  # fmt: skip
STILL_WAITS = (
    "I am still waiting. {say}", "Are you still there? {say}", "So what about it? {say}",
    "I would like to know where this stands. {say}",
)  # fmt: skip
DOUBTS_DONE = (
    "Has it really been done? {say}", "I can't see that anything has happened. {say}",
    "Hm, it does not look done to me. {say}", "Are you sure that this is done? {say}",
)  # fmt: skip
DOUBTS_TOLD = (
    "You have not told me what I wanted to know. {say}", "And what is the answer? {say}",
    "I am missing something that I asked for. {say}", "I have not heard yet what I asked about. {say}",
)  # fmt: skip
NOT_THAT = (
    "No, that is not what I asked for. {say}", "That's something else. {say}", "No, please don't. {say}",
    "I never asked for that. {say}",
)  # fmt: skip
LINKS = ("Also: ", "Besides: ", "And then: ", "Another thing: ", "On top of that: ", "Moreover: ")
ACCEPTS = ("All right, I understand.", "Hm, okay then.", "Pity, but fine.", "I see.", "If that's how it is.")
STOPS = (
    "No, that's all. ###STOP###", "Nothing else, thank you. ###STOP###", "That's everything, goodbye. ###STOP###",
    "Thanks, bye. ###STOP###", "No more, thanks for the help. ###STOP###",
)  # fmt: skip
TRANSFER = "###TRANSFER###"
LOST = "###OUT-OF-SCOPE###"
STOP_TOKENS = ("###STOP###", TRANSFER, LOST)


GREETING = "Hello! How can I help you today?"
PATIENCE = 4
"""Messages in a row that lead nowhere before it gives up."""
MUCH = 4
"""Long words: a proposal with so many shares some with the domain's policy, or is of another matter."""


class Mood(NamedTuple):
    """Where a scripted conversation stands."""

    request: int = 0
    objected: bool = False
    lost: int = 0
    """Messages in a row that led nowhere."""
    handed_over: bool = False
    doubted: bool = False
    """Whether it has asked back (is it settled?), or waited to be handed over; it does so once."""
    since: int = 0
    """The agent's messages before this one were about earlier requests."""
    calls: int = 0
    """How many calls had been made when it last answered."""
    took_back: bool = False
    """Whether it has taken back what it said of this request at first."""
    came_up: int = 0
    """How many calls had been made when it came to this request."""
    has_told: frozenset[str] = frozenset()
    """What it has told of itself, by label."""


class SqlUserReply(NamedTuple):
    """What the user says, and where the conversation stands then."""

    text: str
    mood: Mood
    agrees_to: frozenset[int] = frozenset()
    """The requests whose changes it says yes to, by number."""
    takes_back: frozenset[int] = frozenset()
    """The requests to whose changes an earlier yes does not hold any more."""

    @property
    def final(self) -> bool:
        return any(token in self.text for token in STOP_TOKENS)


class SqlScriptedUser:
    """One task's user. Its wording follows from the seed; `half` leaves it a half of its sentences."""

    __slots__ = ("_half", "_own", "_seed", "_together", "task")

    def __init__(self, task: SqlTask, seed: int, half: Half | None = None) -> None:
        self.task = task
        self._seed = seed
        self._half = half
        self._own: tuple[str, ...] | None = None
        self._together = random.Random(seed ^ 0x705E).random() < 0.3 and not any(r.first for r in task.requests)

    def _rng(self, turn: int) -> random.Random:
        return random.Random(self._seed * 1009 + turn)

    def one_of(self, sentences: tuple[str, ...], rng: random.Random) -> str:
        """A sentence of the half that it has."""
        return rng.choice(sentences_of(sentences, self._half))

    def said(self, number: int, *, took_back: bool = True) -> str:
        """How this episode's user words a request; what it says at first where it has not taken that back."""
        request = self.task.requests[number]
        return self.worded(request.say if took_back or not request.first else request.first.say, number)

    def worded(self, wordings: tuple[str, ...], number: int) -> str:
        """This episode's wording of a request."""
        say = sentences_of(wordings, self._half)
        return say[(self._seed // 7 + number) % len(say)]

    def shown(self, request: int) -> range:
        """The requests that the agent may know of when the user has come to this one."""
        return range(len(self.task.requests) if self._together else request + 1)

    def without_own_words(self, text: str) -> str:
        """A message without the user's own sentences: "I can't come" refuses nothing then."""
        if self._own is None:
            each = [(number, late) for number in range(len(self.task.requests)) for late in (False, True)]
            self._own = heard.sentences([self._reason, *(self.said(number, took_back=late) for number, late in each)])
        for sentence in self._own:
            text = text.replace(sentence, "")
        return text

    @property
    def _reason(self) -> str:
        """All requests as the scenario has them: some in one sentence, some taken back for another to be first."""
        return str(self.task.shape["user_scenario"]["instructions"]["reason_for_call"])

    def opening(self) -> str:
        """What the user says first, before the agent has said anything."""
        rng = self._rng(0)
        parts = [self.one_of(GREETINGS, rng), self.said(0, took_back=False)]
        if self._together and self._half is None:
            parts[1] = self._reason
        elif self._together:
            parts += [self.one_of(LINKS, rng) + self.said(k) for k in range(1, len(self.task.requests))]
        return " ".join(part for part in parts if part)

    def reply(self, mood: Mood, text: str, turn: int, progress: EpisodeSoFar) -> SqlUserReply:
        """The answer to what the agent said."""
        if mood.handed_over:
            return SqlUserReply(TRANSFER, mood)
        if mood.lost and len(progress.calls) > mood.calls:
            mood = mood._replace(lost=0)
        since = progress._replace(told=progress.told[mood.since :])
        made = _UserTurn(self, mood, text, since, self._rng(turn)).answered()
        return made._replace(mood=made.mood._replace(calls=len(progress.calls)))


class _UserTurn:
    """One message of the agent's, as the user takes it, and the answer."""

    def __init__(
        self, user: SqlScriptedUser, mood: Mood, text: str, progress: EpisodeSoFar, rng: random.Random
    ) -> None:
        self.user, self.task, self.together = user, user.task, user._together
        self.mood, self.text, self.progress, self.rng = mood, text, progress, rng
        self.number = mood.request
        self.request = self.task.requests[self.number]
        self.followed = self.task.once(FollowedRequests, progress.writes)
        self.heard = heard.read(user.without_own_words(text), self.followed.verbs[self.number])

    def answered(self) -> SqlUserReply:
        """The user's answer."""
        asked = self._asked()
        if self.request.first is not None and self._takes_back(self.request.first, asked):
            then = self.user.worded(self.request.first.then, self.number)
            return SqlUserReply(then, self.mood._replace(took_back=True, lost=0), takes_back=frozenset([self.number]))
        settled = self.followed.settled(self.number, self.progress, self.text)
        if self.heard.hands_over and not settled:
            if self.mood.doubted:
                return SqlUserReply(TRANSFER, self.mood)
            return SqlUserReply(self._one_of(WAITS), self.mood._replace(doubted=True))  # nobody took over yet
        told = [self._one_of(TELLS if f.value else UNKNOWN).format(label=f.label, value=f.value) for f in asked]
        if told:
            labels = self.mood.has_told.union(fact.label for fact in asked)
            self.mood = self.mood._replace(lost=0, has_told=labels)
        if not settled and self._wants_yes():
            return self._asked_to_confirm(told)
        if told:
            return SqlUserReply(" ".join(told), self.mood)
        said = self.heard
        # With no text, untold() gives what only this message can have told.
        if settled and (
            said.reports or said.closes or not said.holds or self.followed.untold(self.number, self.progress, "")
        ):
            return self._next()
        if not self._hears_no():
            return self._unsettled()
        if self.request.pushback and not self.mood.objected:
            return SqlUserReply(self.request.pushback, self.mood._replace(objected=True, lost=0))
        moved = self._next()
        return moved._replace(text=f"{self._one_of(ACCEPTS)} {moved.text}")

    def _one_of(self, sentences: tuple[str, ...]) -> str:
        return self.user.one_of(sentences, self.rng)

    def _asking(self, sentences: tuple[str, ...]) -> str:
        """A sentence with the request in it."""
        return self._one_of(sentences).format(say=self.user.said(self.number, took_back=self.mood.took_back))

    def _takes_back(self, first: FirstWords, asked: Sequence[UserFact]) -> bool:
        """Whether the user now notices that it does not stay with its first words: as soon as the agent says more than
        that it is at work, or asks more than who it is; where it asks for too much, once that is refused."""
        said = self.heard
        if self.mood.took_back:
            return False
        if first.kind == "negotiates":
            denied = any(one.negative for one in said.sentences) and not said.question and not said.holds
            return not asked and (said.refuses or denied)
        return self._confirms() or not (asked or said.holds)

    def _unsettled(self) -> SqlUserReply:
        """Answer a message that neither asks for what the user has nor settles the request that it waits for."""
        said, followed, progress = self.heard, self.followed, self.progress
        undone, untold = followed.undone(self.number, progress), followed.untold(self.number, progress, self.text)
        if said.holds and not said.closes:
            return self._waits()
        if self._offers():
            return self._asked_to_confirm(())
        if self.together and followed.settled_now(self.number + 1, progress, self.text, self.mood.calls):
            return SqlUserReply(self._asking(REMIND), self.mood._replace(lost=0))
        shown = not undone and bool(untold) and all(alike(followed.news(self.number, self.text), i) for i in untold)
        if said.reports or said.closes or (shown and not said.question):
            # Where the user cannot see the end of a request, it may be over once anything was changed: who says that
            # all is done gets the same answer whether the request can be served or not.
            may_be_over = not followed.leaves_a_trace(self.number) and self._changed()
            if (self.mood.doubted and said.reports) or shown or may_be_over:
                return self._next()
            if self.mood.doubted:
                return self._waits()
            doubt = self._asking(DOUBTS_DONE if undone or not untold else DOUBTS_TOLD)
            return SqlUserReply(doubt, self.mood._replace(doubted=True))
        return self._led_nowhere(AGAIN) if said.question else self._waits()

    def _changed(self) -> bool:
        return any(name in self.progress.writes for name in self.progress.calls[self.mood.came_up :])

    def _hears_no(self) -> bool:
        """Whether the request is turned down: plainly; or, when the agent has looked things up, has heard an objection
        or has led nowhere before, by a message that denies something, names the rules, or goes on to other requests
        with nothing done. It asks nothing about the request then, and reports nothing. Before, it is a manner of
        speech."""
        said, mood, followed = self.heard, self.mood, self.followed
        if said.holds or said.refuses:
            return said.refuses and not said.holds
        looked_up = len(self.progress.calls) > max(mood.calls, self.task.identify)
        if not (looked_up or mood.objected or mood.doubted or mood.lost) or self._open_question():
            return False
        open_ = followed.undone(self.number, self.progress) or not followed.leaves_a_trace(self.number)
        if said.denies:
            return open_ or not said.reports
        goes_on = said.closes or any(one.question for one in said.sentences)  # for something else, since none is open
        return goes_on and not said.reports and open_ and not self._changed()

    def _open_question(self) -> bool:
        """Whether something is asked, and not only for something else than the request."""
        about = self.followed.words[self.number]
        open_ = (one for one in self.heard.sentences if one.question)
        return any(not one.elsewhere or content(heard.ELSEWHERE.sub(" ", one.text)) & about for one in open_)

    def _wants_yes(self) -> bool:
        """Whether the message asks for a yes: in one of the usual forms, or by naming the change that the user waits
        for. An offer beside a refusal is no such question, unless another sentence names that change."""
        if self._names_the_change():
            return not self.heard.refuses or any(one.confirms or one.polar for one in self.heard.sentences)
        return not self.heard.refuses and self._confirms()

    def _confirms(self) -> bool:
        """Whether a yes is asked for in a usual form. "Please confirm your date of birth" asks for the date."""
        return any(one.confirms and not self._asks_for_facts(one) for one in self.heard.sentences)

    def _asks_for_facts(self, one: heard.Sentence) -> bool:
        """Whether a sentence wants what the user has: it asks for it, or it wants a yes to what the user has not told
        yet ("Can you confirm the e-mail that you have with us?") or says that this is missing, and nothing in it is of
        the change that the user waits for."""
        facts = [fact for fact in self._facts() if heard.names(fact.asked, one.text)]
        if one.asks or not facts:
            return one.asks and bool(facts)
        if any(fact.label in self.mood.has_told for fact in facts) or not (one.confirms or one.lacks):
            return False
        if not one.confirms:
            return not self.followed.named(self.number, one.text, self.progress)
        rest = content(one.text) - content(" ".join(word for fact in facts for word in (fact.label, *fact.asked)))
        return not rest & self.followed.change(self.number)

    def _names_the_change(self) -> bool:
        """Whether a sentence names the change that the user waits for, before it is made. One that sounds like a report
        counts where yes or no is asked besides: "I have prepared the following: ... Want it?"."""
        asks = any(one.polar and not one.closes for one in self.heard.sentences)
        may = (
            one.text
            for one in self.heard.sentences
            if not (one.refuses or (one.reports and not asks) or (one.negative and not (one.confirms or one.polar)))
        )
        return any(self.followed.named(self.number, part, self.progress) for part in may)

    def _offers(self) -> bool:
        """Whether the agent would do something about the request that is open, or asks yes or no about it."""
        if not self.followed.undone(self.number, self.progress):
            return False
        about = self.followed.words[self.number]
        may = (one for one in self.heard.sentences if (one.proposes or one.polar) and not one.reports)
        return any(content(one.text) & about for one in may)

    def _asked_to_confirm(self, told: Sequence[str]) -> SqlUserReply:
        followed, shown = self.followed, self.user.shown(self.number)
        asked_about = followed.asked_about(shown, self.text)
        if mistaken := self._mistaken():
            corrected = self._led_nowhere(CORRECTS, next(iter(mistaken.values())))
            return corrected._replace(takes_back=asked_about.union(mistaken))
        if self._foreign():
            return self._led_nowhere(NOT_THAT)
        yes, agrees_to = self._one_of(YES), asked_about or frozenset([self.number])
        if len(agrees_to) > 1 and agrees_to >= followed.changing.intersection(shown):
            left = sum(followed.undone(number, self.progress) for number in agrees_to)
            yes = f"{yes} {self._one_of(ALL_OF_IT)}" if left > 1 else yes
        return SqlUserReply(" ".join([yes, *told]), self.mood._replace(lost=0), agrees_to)

    def _foreign(self) -> bool:
        """Whether a proposal is of another matter, or names another change: but for that change's name it shares no
        word with what the user wants and has said."""
        proposed = content(self.text)
        about = proposed & frozenset().union(*(self.followed.words[n] for n in self.user.shown(self.number)))
        much = sum(len(word) > 4 and word.isalpha() for word in proposed) >= MUCH
        if much and len(about) < 2 and len(proposed & self.progress.subject) < 2:
            return True
        named = (said for said in spoken_names(self.progress.writes) if len(said) > 1 and said <= proposed)
        return any(about < said for said in named)

    def _mistaken(self) -> dict[int, heard.Wrong]:
        """What a confirmation gets wrong of the requests that the agent may know of, by number."""
        known, text = self.task.once(heard.details), self.user.without_own_words(self.text)
        wrong = {number: heard.wrong(known[number], text) for number in self.user.shown(self.number)}
        return {number: found for number, found in wrong.items() if found}

    def _asked(self) -> list[UserFact]:
        """What the message asks for of what the user has or is known not to have."""
        facts = self._facts()
        if not facts:
            return []
        asking = [one.text for one in self.heard.sentences if one.brief or self._asks_for_facts(one)]
        return [fact for fact in facts if any(heard.names(fact.asked, part) for part in asking)]

    def _facts(self) -> tuple[UserFact, ...]:
        """What may be asked for by now."""
        return self.task.once(_facts_until, len(self.user.shown(self.number)))

    def _next(self) -> SqlUserReply:
        number = self.number + 1
        while self.together and number < len(self.task.requests):
            if not self.followed.settled_out_of_turn(number, self.progress):
                break
            number += 1
        if number >= len(self.task.requests):
            return SqlUserReply(self._one_of(STOPS), self.mood)
        said = self._one_of(REMIND if self.together else NEXT).format(say=self.user.said(number, took_back=False))
        since = 0 if self.together else self.mood.since + len(self.progress.told) + 1
        came_up = len(self.progress.calls)
        return SqlUserReply(said, Mood(number, since=since, came_up=came_up, has_told=self.mood.has_told))

    def _waits(self) -> SqlUserReply:
        return self._led_nowhere(STILL_WAITS if self.mood.lost else WAITS)

    def _led_nowhere(self, sentences: tuple[str, ...], wrong: heard.Wrong | None = None) -> SqlUserReply:
        """Says a sentence, with the request again or what was got wrong, until its patience is over."""
        said = self._one_of(sentences).format(**wrong._asdict()) if wrong else self._asking(sentences)
        if self.mood.lost + 1 >= PATIENCE:
            return SqlUserReply(f"This leads nowhere. {LOST}", self.mood)
        return SqlUserReply(said, self.mood._replace(lost=self.mood.lost + 1))


def _facts_until(task: SqlTask, number: int) -> tuple[UserFact, ...]:
    """What the user may be asked for while only the requests before this one are known."""
    own = (fact for request in task.requests[:number] for fact in request.facts)
    return tuple(dict.fromkeys((*task.facts, *own)))


@dataclass(frozen=True)
class SqlModelUser:
    """A user played by a chat model (model_user.py): hand it to the source as `user=`. Its tokens are billed in the
    user's role."""

    models: ChatModel
    model: str
