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
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTask, UserFact
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
LINKS = ("Also, ", "Besides, ", "And then: ", "Second thing: ", "On top of that: ", "Moreover: ")
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

    def _one_of(self, sentences: tuple[str, ...], rng: random.Random) -> str:
        return rng.choice(sentences_of(sentences, self._half))

    def said(self, number: int, *, took_back: bool = True) -> str:
        """How this episode's user words a request; what it says at first where it has not taken that back."""
        request = self.task.requests[number]
        return self._worded(request.say if took_back or not request.first else request.first.say, number)

    def _worded(self, wordings: tuple[str, ...], number: int) -> str:
        say = sentences_of(wordings, self._half)
        return say[(self._seed // 7 + number) % len(say)]

    def _request_said(self, mood: Mood) -> str:
        return self.said(mood.request, took_back=mood.took_back)

    def opening(self) -> str:
        """What the user says first, before the agent has said anything."""
        rng = self._rng(0)
        parts = [self._one_of(GREETINGS, rng), self.said(0, took_back=False)]
        if self._together:
            parts += [self._one_of(LINKS, rng) + self.said(k) for k in range(1, len(self.task.requests))]
        return " ".join(part for part in parts if part)

    def reply(self, mood: Mood, text: str, turn: int, progress: EpisodeSoFar | None = None) -> SqlUserReply:
        """The answer to what the agent said. Without `progress` the user takes the agent's word for all."""
        if mood.handed_over:
            return SqlUserReply(TRANSFER, mood)
        if progress is None:
            return self._answered(mood, text, None, self._rng(turn))
        if mood.lost and len(progress.calls) > mood.calls:
            mood = mood._replace(lost=0)
        since = progress._replace(told=progress.told[mood.since :])
        made = self._answered(mood, text, since, self._rng(turn))
        return made._replace(mood=made.mood._replace(calls=len(progress.calls)))

    def _answered(self, mood: Mood, text: str, progress: EpisodeSoFar | None, rng: random.Random) -> SqlUserReply:
        wanted = self._followed(progress).verbs(mood.request) if progress else frozenset()
        said = heard.read(self._without_own_words(text), wanted)
        asked = self._asked(mood, said, progress)
        if self._takes_back(mood, said, asked, progress):
            return self._taken_back(mood)
        settled = progress is not None and self._followed(progress).settled(mood.request, progress, text)
        if said.hands_over and not settled:
            return self._handed_over(mood, progress, rng)
        told = [self._line(fact, rng) for fact in asked]
        if told:
            mood = mood._replace(lost=0, has_told=mood.has_told.union(fact.label for fact in asked))
        if not settled and self._wants_yes(mood, said, progress):
            return self._asked_to_confirm(mood, text, told, progress, rng)
        if told:
            return SqlUserReply(" ".join(told), mood)
        return self._moved(mood, text, said, progress, rng, settled=settled)

    def _moved(
        self,
        mood: Mood,
        text: str,
        said: heard.Heard,
        progress: EpisodeSoFar | None,
        rng: random.Random,
        *,
        settled: bool,
    ) -> SqlUserReply:
        """Answer a message that asks for nothing that the user has: whether its request is over with it."""
        if settled and (said.reports or said.closes or not said.holds or self._hears_it_now(mood, progress)):
            return self._next(mood, rng, progress)
        if self._hears_no(mood, said, progress):
            return self._refused(mood, rng, progress)
        if progress is None:
            waits = said.question and not said.closes and not said.reports
            return self._lost(mood, rng) if waits else self._next(mood, rng, progress)
        return self._unsettled(mood, text, said, progress, rng)

    def _takes_back(
        self, mood: Mood, said: heard.Heard, asked: Sequence[UserFact], progress: EpisodeSoFar | None
    ) -> bool:
        """Whether the user now notices that it does not stay with its first words: as soon as the agent says more than
        that it is at work, or asks more than who it is; where it asks for too much, once that is refused."""
        first = self.task.requests[mood.request].first
        if first is None or mood.took_back:
            return False
        if first.kind == "negotiates":
            denied = any(one.negative for one in said.sentences) and not said.question and not said.holds
            return not asked and (said.refuses or denied)
        if self._confirms(mood, said, progress):
            return True
        return not asked and not said.holds

    def _taken_back(self, mood: Mood) -> SqlUserReply:
        first = self.task.requests[mood.request].first
        assert first is not None
        said = self._worded(first.then, mood.request)
        return SqlUserReply(said, mood._replace(took_back=True, lost=0), takes_back=frozenset([mood.request]))

    def _unsettled(
        self, mood: Mood, text: str, said: heard.Heard, progress: EpisodeSoFar, rng: random.Random
    ) -> SqlUserReply:
        """Answer a message that neither asks for what the user has nor settles the request that it waits for."""
        followed = self._followed(progress)
        undone, untold = followed.undone(mood.request, progress), followed.untold(mood.request, progress, text)
        if said.holds and not said.closes:
            return self._waits(mood, rng)
        if self._offers(mood, said, progress):
            return self._asked_to_confirm(mood, text, (), progress, rng)
        if self._together and followed.settled_now(mood.request + 1, progress, text, mood.calls):
            reminds = self._one_of(REMIND, rng).format(say=self._request_said(mood))
            return SqlUserReply(reminds, mood._replace(lost=0))
        shown = not undone and bool(untold) and all(alike(followed.news(mood.request, text), info) for info in untold)
        if said.reports or said.closes or (shown and not said.question):
            if (mood.doubted and said.reports) or shown or self._may_be_over(mood, progress):
                return self._next(mood, rng, progress)
            if mood.doubted:
                return self._waits(mood, rng)
            asked = DOUBTS_DONE if undone or not untold else DOUBTS_TOLD
            doubt = self._one_of(asked, rng).format(say=self._request_said(mood))
            return SqlUserReply(doubt, mood._replace(doubted=True))
        return self._lost(mood, rng) if said.question else self._waits(mood, rng)

    def _may_be_over(self, mood: Mood, progress: EpisodeSoFar) -> bool:
        """Whether a request whose end the user cannot see may be over: something was changed since it came up. So who
        says that all is done gets the same answer whether the request can be served or not."""
        return not self._followed(progress).leaves_a_trace(mood.request) and self._changed(mood, progress)

    def _changed(self, mood: Mood, progress: EpisodeSoFar) -> bool:
        return any(name in progress.writes for name in progress.calls[mood.came_up :])

    def _hears_it_now(self, mood: Mood, progress: EpisodeSoFar | None) -> bool:
        """Whether this message, and none before it, tells what the request asks for."""
        return progress is not None and bool(self._followed(progress).untold(mood.request, progress, ""))

    def _hears_no(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar | None) -> bool:
        """Whether the request is turned down: plainly; or, when the agent has looked things up, has heard an objection
        or has led nowhere before, by a message that denies something, names the rules, or goes on to other requests
        with nothing done. It asks nothing about the request then, and reports nothing. Before, it is a manner of
        speech."""
        if said.holds or said.refuses:
            return said.refuses and not said.holds
        if progress is None:
            return said.denies and not said.question
        followed = self._followed(progress)
        looked_up = len(progress.calls) > max(mood.calls, self.task.identify)
        if not (looked_up or mood.objected or mood.doubted or mood.lost) or self._open_question(mood, said, followed):
            return False
        open_ = followed.undone(mood.request, progress) or not followed.leaves_a_trace(mood.request)
        if said.denies:
            return open_ or not said.reports
        goes_on = said.closes or any(one.question for one in said.sentences)  # for something else, since none is open
        return goes_on and not said.reports and open_ and not self._changed(mood, progress)

    def _open_question(self, mood: Mood, said: heard.Heard, followed: FollowedRequests) -> bool:
        """Whether something is asked, and not only for something else than the request."""
        about = followed.words(mood.request)
        open_ = (one for one in said.sentences if one.question)
        return any(not one.elsewhere or content(heard.without_elsewhere(one.text)) & about for one in open_)

    def _wants_yes(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar | None) -> bool:
        """Whether the message asks for a yes: in one of the usual forms, or by naming the change that the user waits
        for. An offer beside a refusal is no such question, unless another sentence names that change."""
        if self._names_the_change(mood, said, progress):
            return not said.refuses or any(one.confirms or one.polar for one in said.sentences)
        return not said.refuses and self._confirms(mood, said, progress)

    def _confirms(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar | None) -> bool:
        """Whether a yes is asked for in a usual form. "Please confirm your date of birth" asks for the date."""
        return any(one.confirms and not self._asks_for_facts(mood, one, progress) for one in said.sentences)

    def _asks_for_facts(self, mood: Mood, one: heard.Sentence, progress: EpisodeSoFar | None) -> bool:
        """Whether a sentence wants what the user has: it asks for it, or it wants a yes to what the user has not told
        yet ("Can you confirm the e-mail that you have with us?") or says that this is missing, and nothing in it is of
        the change that the user waits for."""
        facts = [fact for fact in self._facts(mood) if heard.names(fact.asked, one.text)]
        if one.asks or not facts or progress is None:
            return one.asks and bool(facts)
        if any(fact.label in mood.has_told for fact in facts) or not (one.confirms or one.lacks):
            return False
        if not one.confirms:
            return not self._followed(progress).named(mood.request, one.text, progress)
        rest = content(one.text) - content(" ".join(word for fact in facts for word in (fact.label, *fact.asked)))
        return not rest & self._followed(progress).change(mood.request)

    def _names_the_change(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar | None) -> bool:
        """Whether a sentence names the change that the user waits for, before it is made. One that sounds like a report
        counts where yes or no is asked besides: "I have prepared the following: ... Want it?"."""
        if progress is None:
            return False
        followed = self._followed(progress)
        asks = any(one.polar and not one.closes for one in said.sentences)
        may = (
            one.text
            for one in said.sentences
            if not (one.refuses or (one.reports and not asks) or (one.negative and not (one.confirms or one.polar)))
        )
        return any(followed.named(mood.request, part, progress) for part in may)

    def _offers(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar) -> bool:
        """Whether the agent would do something about the request that is open, or asks yes or no about it."""
        followed = self._followed(progress)
        if not followed.undone(mood.request, progress):
            return False
        about = followed.words(mood.request)
        may = (one for one in said.sentences if (one.proposes or one.polar) and not one.reports)
        return any(content(one.text) & about for one in may)

    def _followed(self, progress: EpisodeSoFar) -> FollowedRequests:
        return self.task.once(FollowedRequests, progress.writes)

    def _handed_over(self, mood: Mood, progress: EpisodeSoFar | None, rng: random.Random) -> SqlUserReply:
        """Hold the line while nobody takes over, and leaves when it hears so again."""
        if progress is None or mood.doubted:
            return SqlUserReply(TRANSFER, mood)
        return SqlUserReply(self._one_of(WAITS, rng), mood._replace(doubted=True))

    def _asked_to_confirm(
        self, mood: Mood, text: str, told: Sequence[str], progress: EpisodeSoFar | None, rng: random.Random
    ) -> SqlUserReply:
        if mistaken := self._mistaken(mood, text):
            corrected = self._corrected(mood, next(iter(mistaken.values())), rng)
            about = self._followed(progress).asked_about(self._shown(mood), text) if progress else frozenset()
            return corrected._replace(takes_back=about.union(mistaken))
        if progress is not None and self._foreign(mood, text, progress):
            return self._led_nowhere(mood, self._one_of(NOT_THAT, rng))
        agrees_to, yes = frozenset([mood.request]), self._one_of(YES, rng)
        if progress is not None:
            followed = self._followed(progress)
            agrees_to = followed.asked_about(self._shown(mood), text) or agrees_to
            if len(agrees_to) > 1 and agrees_to >= followed.changing.intersection(self._shown(mood)):
                left = sum(followed.undone(number, progress) for number in agrees_to)
                yes = f"{yes} {self._one_of(ALL_OF_IT, rng)}" if left > 1 else yes
        return SqlUserReply(" ".join([yes, *told]), mood._replace(lost=0), agrees_to)

    def _foreign(self, mood: Mood, text: str, progress: EpisodeSoFar) -> bool:
        """Whether a proposal is of another matter, or names another change: but for that change's name it shares no
        word with what the user wants and has said."""
        followed, proposed = self._followed(progress), content(text)
        about = proposed & frozenset().union(*(followed.words(number) for number in self._shown(mood)))
        much = sum(len(word) > 4 and word.isalpha() for word in proposed) >= MUCH
        if much and len(about) < 2 and len(proposed & progress.subject) < 2:
            return True
        named = (said for said in spoken_names(progress.writes) if len(said) > 1 and said <= proposed)
        return any(about < said for said in named)

    def _shown(self, mood: Mood) -> range:
        """The requests that the agent may know of."""
        return range(len(self.task.requests) if self._together else mood.request + 1)

    def _without_own_words(self, text: str) -> str:
        if self._own is None:
            each = [(number, late) for number in range(len(self.task.requests)) for late in (False, True)]
            self._own = heard.sentences(self.said(number, took_back=late) for number, late in each)
        return heard.without_quotes(text, self._own)

    def _mistaken(self, mood: Mood, text: str) -> dict[int, heard.Wrong]:
        """What a confirmation gets wrong of the requests that the agent may know of, by number."""
        known, text = self.task.once(heard.details), self._without_own_words(text)
        wrong = {number: heard.wrong(known[number], text) for number in self._shown(mood)}
        return {number: found for number, found in wrong.items() if found}

    def _corrected(self, mood: Mood, mistaken: heard.Wrong, rng: random.Random) -> SqlUserReply:
        if mood.lost + 1 >= PATIENCE:
            return SqlUserReply(f"This leads nowhere. {LOST}", mood)
        said = self._one_of(CORRECTS, rng).format(**mistaken._asdict())
        return SqlUserReply(said, mood._replace(lost=mood.lost + 1))

    def _asked(self, mood: Mood, said: heard.Heard, progress: EpisodeSoFar | None) -> list[UserFact]:
        """What the message asks for of what the user has or is known not to have."""
        facts = self._facts(mood)
        if not facts:
            return []
        asking = [one.text for one in said.sentences if self._asks_for_facts(mood, one, progress)]
        return [
            fact
            for fact in facts
            if any(heard.names(fact.asked, part) for part in asking)
            or any(heard.names_alone(fact.asked, part) for part in said.parts)
        ]

    def _facts(self, mood: Mood) -> tuple[UserFact, ...]:
        """What may be asked for by now."""
        return self.task.once(_facts_until, len(self._shown(mood)))

    def _line(self, fact: UserFact, rng: random.Random) -> str:
        sentences = TELLS if fact.value else UNKNOWN
        return self._one_of(sentences, rng).format(label=fact.label, value=fact.value)

    def _refused(self, mood: Mood, rng: random.Random, progress: EpisodeSoFar | None) -> SqlUserReply:
        pushback = self.task.requests[mood.request].pushback
        if pushback and not mood.objected:
            return SqlUserReply(pushback, mood._replace(objected=True, lost=0))
        moved = self._next(mood, rng, progress)
        return moved._replace(text=f"{self._one_of(ACCEPTS, rng)} {moved.text}")

    def _next(self, mood: Mood, rng: random.Random, progress: EpisodeSoFar | None) -> SqlUserReply:
        number = mood.request + 1
        while progress and self._together and number < len(self.task.requests):
            if not self._followed(progress).settled_out_of_turn(number, progress):
                break
            number += 1
        if number >= len(self.task.requests):
            return SqlUserReply(self._one_of(STOPS, rng), mood)
        lead = REMIND if self._together else NEXT
        since = mood.since + len(progress.told) + 1 if progress and not self._together else 0
        said = self._one_of(lead, rng).format(say=self.said(number, took_back=False))
        came_up = len(progress.calls) if progress else 0
        return SqlUserReply(said, Mood(number, since=since, came_up=came_up, has_told=mood.has_told))

    def _waits(self, mood: Mood, rng: random.Random) -> SqlUserReply:
        waits = STILL_WAITS if mood.lost else WAITS
        return self._led_nowhere(mood, self._one_of(waits, rng))

    def _lost(self, mood: Mood, rng: random.Random) -> SqlUserReply:
        return self._led_nowhere(mood, self._one_of(AGAIN, rng))

    def _led_nowhere(self, mood: Mood, sentence: str) -> SqlUserReply:
        """Says a sentence, with the request again, until its patience is over."""
        if mood.lost + 1 >= PATIENCE:
            return SqlUserReply(f"This leads nowhere. {LOST}", mood)
        return SqlUserReply(sentence.format(say=self._request_said(mood)), mood._replace(lost=mood.lost + 1))


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
