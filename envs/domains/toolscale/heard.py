"""What an agent's message says, as far as a listener can tell from its words: several things at once, perhaps.

Words are evidence only. The scripted user weighs them against what it knows: which requests are open, what it was told,
what has been done (followed_requests.py). Sentences are read one by one, so "I found your e-mail. When were you born?"
asks for one thing, and of a promise to look and a refusal the later one counts.

In a confirmation it also notices a detail of its own request that is named with another value: a number, date or id
among the arguments of the request's calls that stands in all of its own wordings or in its facts. A detail that the
confirmation leaves out, or that it does not name by the argument's words, goes unnoticed; so does a value that some
right path of the task gives the same argument. So nobody is corrected who does what is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from toolorchestra.envs.domains.toolscale.grading import mentions
from toolorchestra.envs.domains.toolscale.sql_domain import Request, SqlTask


def _any_of(*patterns: str) -> re.Pattern[str]:
    """One pattern that is found where one of them is. The words that begin at a word's start are only tried there,
    which makes reading a message three times as fast."""
    at_words = [one.removeprefix(r"\b") for one in patterns if one.startswith(r"\b")]
    others = [one for one in patterns if not one.startswith(r"\b")]
    return re.compile("|".join([rf"\b(?=\w)(?:{'|'.join(at_words)})", *others] if at_words else others))


_SENTENCE = re.compile(r"[^.!?\n]*(?:[.](?=\w)[^.!?\n]*)*[.!?]*")
_ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)])\s")
_MOMENT = r"(?:moment|second|sec|minute|bit|while)\b"
_LOOKS = (
    r"(?:check|look|see|review|find|search|pull|verify|dig|investigate|get back|have a look|take a look|open|examine)\b"
)
_LOOKED = r"(?:check|look|review|search|verif|consult|consider|examin|investigat|stud|read|seen)"
"""Words of looking: who has looked has done nothing yet."""
_SHALL = r"(?:i will|i'll|i am going to|i'm going to|i need to|i have to|let me|allow me to|next i will)"

_HOLDS = _any_of(
    rf"\b(?:one|a|another|few) {_MOMENT}(?! ago)",
    r"\b(?:bear with|hold on|hold the line|please hold|please wait)\b",
    rf"\b(?:hold|holding|wait|waiting)\b.{{0,20}}{_MOMENT}",
    r"\bplease stay on the line\b",
    rf"\b{_SHALL} (?:first |now |just |quickly )?{_LOOKS}",
    r"\b(?:looking|digging) into\b",
    r"\bstill (?:check|work|look)",
    r"^\W*(?:checking|searching|looking|working)\b",
    r"\b(?:i am|i'm) (?:now )?(?:on it|checking|searching|looking|working)\b",
    r"\b(?:can|happy to|glad to) help(?: you)?(?: with (?:that|this))?\s*[.!]",
    r"\bpatience\b",
    r"\bget back to you\b",
)
_THANKS = re.compile(r"\bthank(?:s| you)\b.{0,30}\bpatience\b")
"""A goodbye beside a refusal; alone, it asks for more patience."""
_NOT_YET = _any_of(
    r"\byet\b", r"\buntil\b", r"\bunless\b", r"\bwithout your\b", r"\bbefore (?:i|you|we)\b", r"\bpromise\b"
)
_WARNS = _any_of(
    r"\b(?:undone|undo|reversed|reverse|revert|revoked|taken back|way back|change (?:it|this) (?:later|again))\b"
)
_NEEDS = _any_of(
    r"\b(?:provide|tell me|give me|send me|share|enter|state|supply|specify|type in|let me (?:have|know)|submit)\b",
    r"\b(?:need|require|missing|ask (?:you )?for|asking for|trouble you for|want to know|can i get|to verify)\b.{0,40}"
    r"\b(?:your|the)\b",
    r"\b(?:what is|what's|what are|which|when were|may i have|could you|can you|would you)\b",
)
_DETAIL = re.compile(r"(?<!\bcan )\b(?:confirm|verify)\b.{0,12}\byour\b")
"""A confirmation that asks for a detail, if the user has one of that name: "Please confirm your date of birth"."""
_ASKS_TOO = _any_of(r"\b(?:provide|tell me your|give me your|send me|what is your|what's your)\b")
_CONFIRMS = _any_of(
    r"\bconfirm\b(?<!\bcan confirm)(?<!\bi confirm)",
    r"\b(?:your|explicit|await\w*) (?:\w+ )?confirmation\b(?! (?:number|code))",
    r"\bproceed\b",
    r"\bgo(?:-| )ahead\b",
    r"\b(?:shall|should) (?:i|we)\b",
    r"\b(?:do you|if you|you) (?:agree|approve|accept|consent)\b",
    r"\byour (?:approval|consent|agreement|ok|okay|permission)\b",
    r"\byes ?(?:/|or) ?no\b",
    r"\by/n\b",
    r"\b(?:say|reply|answer|type|respond|write|reply with|tell me) (?:with )?\W?(?:yes|y|ok)\b",
    r"\b(?:is|are|was) (?:that|this|it|these|everything) (?:right|correct|ok|okay|fine|alright|all right|good)\b",
    r"\b(?:are you|if you are|if you're|you are) (?:happy|fine|sure|ok|okay|ready|good|certain)\b",
    r"\b(?:like|want) me to\b",
    r"\b(?:ok|okay|alright|all right|fine) (?:with|for|by) you\b",
    r"\bif that(?:'s| is) (?:ok|fine|alright)",
    r"\bif i (?:should|may|can)\b",
    r"\bmay i (?:proceed|do|go|continue|start)\b",
    r"\bcan i (?:proceed|do|go|continue|start)\b",
    r"\b(?:correct|right|ok|okay|agreed|sure|ready)\s*\?",
    r"\b(?:get|got) (?:that|this|it|you) right\b",
)
_PROPOSES = _any_of(
    r"\b(?:i will|i'll|i would|i'd|i can|i could|i propose|i suggest)\b",
    r"\b(?:i am|i'm) (?:going|about) to\b",
    r"\b(?:ready to|plan|proposed?|proposal|next step|sum up|summary)\b",
)
_REFUSES = _any_of(
    r"\b(?:i|we|you|they|it|this|that|which) (?:also )?"
    r"(?:cannot|can't|can not|could not|couldn't|won't|will not|may not|mustn't)\b",
    r"\b(?:unable|impossible|ineligible)\b",
    r"\bnot (?:able|possible|allowed|permitted|authori[sz]ed|entitled|eligible|available|at liberty|in a position)\b",
    r"\bagainst (?:our|the)\b",
    r"\b(?:policy|policies|rules?|terms|conditions?|regulations?)\b.{0,20}"
    r"\b(?:do not|does not|don't|doesn't|not|forbid|prohibit|exclude|prevent|rule out)",
    r"\b(?:must|have to|need to|has to) (?:decline|refuse|reject|deny|turn)\b",
    r"\b(?:request|it|this|that) (?:is|was|has been) (?:denied|declined|refused|rejected)\b",
    r"\b(?:out of the question|off the table|no exceptions?|turn (?:this|that|it|you) down)\b",
    r"\ba no(?: from (?:me|us)\b|\W*$)",
    r"\b(?:prohibit|forbid|forbidden)",
)
_NEGATIVE = _any_of(
    r"n't\b",
    r"\b(?:not|cannot|never|neither)\b",
    r"^\W*(?:sorry,? )?no\b",
    r"\bnothing (?:more |else |further )?(?:i|we) can\b",
    r"\bno (?:way|chance|option|longer)\b",
    r"\b(?:is|be|say|saying) (?:a |you )?no\b(?=\W*$| to\b)",
    r"\b(?:there is|there's|there are) none\b",
    r"\b(?:hands are tied|out of my hands|beyond my (?:powers?|control)|outside (?:what|of what)|ship has sailed)\b",
    r"\b(?:past the deadline|stays? as (?:it is|they are)|too (?:early|soon))\b",
    r"\b(?:declin|refus|reject|denied|deny|exclud|unfortunately|regret|too late)",
)
_CITES = re.compile(r"\b(?:polic(?:y|ies)|rules?|terms|conditions?|regulations?|guidelines?)\b")
_LACKS = re.compile(r"n't\b|\b(?:not|cannot|without|lack|lacking|missing|no)\b")
ELSEWHERE = re.compile(r"\b(?:other|another|else|different|differently|further|more)\b(?: ways?\b)?")
"""Words that make a question one for something else."""
_PURPOSE = re.compile(
    r"\b(?:so that|in case|lest|whether|make sure|ensure)\b"
    r"(?:(?!;|, (?:and|but|yet|there)\b|,? (?:sadly|unfortunately|regrettably)\b).)*"
)
"""A clause that says what for: "so that nothing is missed" denies nothing. What comes after it may."""
_HARMLESS = re.compile(
    r"\b(?:no problem|no worries|not a problem|no trouble|don't worry|do not worry|don't hesitate|do not hesitate|"
    r"why not|not only|if not|no longer(?! (?:open|possible|available|allowed|an option))|in no time)\b"
    r"|\blet (?!you\b)(?:\w+ ){1,3}know (?:that )?you (?:can't|cannot|mustn't)\b"
    r"|(?:n't|\bnot) (?:take|be|need|keep you)\b.{0,15}\b(?:long|moments?|minutes?|seconds?|while)\b"
)
_REPORTS = _any_of(
    r"\b(?<!\bbe )(?:done|settled|completed?|finished|sorted|processed|handled|arranged)\b",
    r"\b(?:success(?:ful|fully)?|worked)\b",
    r"\b(?:all set|taken care|took care|carried out|went (?:through|fine|well))\b",
    r"\b(?:everything is|is through|(?:is|are) now)\b",
    r"\b(?:has|have) been\b",
    rf"\b(?:i've|i have|we've|we have) (?:just |now |already )?(?!{_LOOKED})\w+(?:ed|de|ne|nt|ut|ught|ept)\b",
    r"\bi (?:made|updated|changed|booked|cancelled|canceled|moved|added|removed|sent)\b",
    r"\bis saved\b",
    r"\bthat's it\b",
)
_CLOSES = _any_of(
    r"\b(?:anything|something|what|how|who) (?:else|more|further|different)\b",
    r"\belse (?:i|can|may|could)\b",
    r"\b(?:any|other|another|more|further) (?:\w+ )?"
    r"(?:questions?|matters?|topics?|requests?|things?|assistance|help)\b",
    r"\bis that (?:all(?! right)|everything|it)\b",
    r"\bwhat(?:'s| is) next\b",
    r"\bassist you further\b",
    r"\bmore i can\b",
    r"\b(?:good)?bye\b",
    r"\b(?:nice|great|lovely|good|wonderful) (?:day|evening|weekend|time)\b",
    r"\btake care\b",
    r"\bthank you for (?:calling|choosing|contacting|your)\b",
    r"\bhelp you with today\b",
    r"\b(?:hope this|does that|did that) (?:help|answer)",
)
_HANDS_OVER = _any_of(
    r"\btransferred to\b",
    r"\btransferring you\b",
    r"\btransfer you to\b",
    r"\bhand(?:ing)? (?:you )?over\b",
    r"\b(?:human agent|human colleague|specialist|colleague) (?:will|takes|is going to)\b",
    r"\bput(?:ting)? you through\b",
    r"\b(?:connect|connected|connecting) (?:you )?(?:to|with) an?\b",
    r"\bpass(?:ed|ing)? you on\b",
)
_WHICH = re.compile(
    r"\b(?:which|what|when|where|who|whom|whose|why|how (?:much|many|long|often|far|soon))\b(?!'s more)"
)
_HAS = re.compile(r"\b(?:do|did) you (?:have|know|remember|recall|see|hear)\b|\b(?:is|are) there\b")
_EITHER = re.compile(r"\bor (?!no\b|not\b|n\b|decline\b|cancel\b|stop\b)")


class Sentence(NamedTuple):
    """One sentence, in lower case; the items of a list belong to the line above them."""

    text: str
    asks: bool
    """Whether it asks for something."""
    question: bool
    """Whether it waits for an answer, and neither for patience nor for other requests."""
    polar: bool
    """Yes or no would answer it, and it asks for nothing that the user may have."""
    confirms: bool
    """Whether it asks for a yes."""
    proposes: bool
    """Whether it says what the agent would do."""
    refuses: bool
    """Whether it says plainly that something cannot be had."""
    negative: bool
    """Whether it denies something, perhaps the request."""
    cites: bool
    """Whether it speaks of the rules, and asks nothing."""
    lacks: bool
    """Something is missing in it."""
    elsewhere: bool
    """Whether it asks for something else, if it asks."""
    brief: bool
    """Whether it is short and tells nothing, so that a detail's name in it asks for it: "Postcode and phone number"."""
    holds: bool
    reports: bool
    """Whether it says that something has been done."""
    closes: bool
    """Whether it asks for other requests, or says goodbye."""
    hands_over: bool

    @property
    def denies(self) -> bool:
        """Whether it may turn something down."""
        return self.refuses or self.negative or self.cites


class Heard(NamedTuple):
    """What a listener understands of a message."""

    sentences: tuple[Sentence, ...]
    question: bool
    """Something in it waits for an answer."""
    refuses: bool
    denies: bool
    holds: bool
    """Whether it asks for patience, or says that the agent is at work, and denies nothing after that."""
    reports: bool
    closes: bool
    hands_over: bool


@lru_cache(maxsize=1024)
def read(text: str, wanted: frozenset[str] = frozenset()) -> Heard:
    """Read a message. Words of a change that the listener wants deny nothing: it may want an offer refused."""
    said = tuple(_sentence(part, wanted) for part in _parts(text.lower().replace("\u2019", "'")))
    refuses = any(one.refuses for one in said)
    held = max(
        (at for at, one in enumerate(said) if one.holds and not (refuses and _THANKS.search(one.text))), default=-1
    )
    denied = max((place for place, one in enumerate(said) if one.denies), default=-1)
    return Heard(
        sentences=said,
        question=any(one.question for one in said),
        refuses=refuses,
        denies=denied >= 0,
        holds=held >= max(denied, 0),
        reports=any(one.reports for one in said),
        closes=any(one.closes for one in said),
        hands_over=any(one.hands_over for one in said),
    )


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SHORT = 12
"""Characters that a sentence of somebody's own has, at least."""


def sentences(said: Iterable[str]) -> tuple[str, ...]:
    """The sentences of what somebody said, but for those of a word or two."""
    parts = dict.fromkeys(part for one in said for part in _SENTENCE_END.split(one))
    return tuple(part for part in parts if len(part) >= _SHORT)


def without_numbering(text: str) -> str:
    """A text without the marks of its lists: the 1 of "1. Look it up" says nothing."""
    return "\n".join(_ITEM.sub("", line, count=1) for line in text.splitlines())


def _sentence(part: str, wanted: frozenset[str]) -> Sentence:
    holds, closes = bool(_HOLDS.search(part)), bool(_CLOSES.search(part))
    question = "?" in part and not holds and not closes
    denied = "" if _WARNS.search(part) or _NOT_YET.search(part) else _HARMLESS.sub(" ", _PURPOSE.sub(" ", part))
    if wanted:
        denied = _WORD.sub(lambda found: "" if found[0] in wanted else found[0], denied)
    return Sentence(
        text=part,
        asks=_asks(part),
        question=question,
        polar=question and not any(kind.search(part) for kind in (_WHICH, _EITHER, _NEEDS, _HAS)),
        confirms=bool(_CONFIRMS.search(part)) and not closes and not holds,
        proposes=bool(_PROPOSES.search(part)),
        refuses=bool(_REFUSES.search(denied)),
        negative=bool(_NEGATIVE.search(denied)),
        cites="?" not in part and not holds and bool(_CITES.search(part)),
        lacks=bool(_LACKS.search(part)),
        elsewhere=bool(ELSEWHERE.search(part)),
        brief=len(part.split()) <= _FEW_WORDS and not _TELLING.search(part),
        holds=holds,
        reports=bool(_REPORTS.search(part)),
        closes=closes,
        hands_over=bool(_HANDS_OVER.search(part)) and "?" not in part,
    )


def _parts(text: str) -> Iterator[str]:
    """The sentences; an item of a list goes with the line that leads to it."""
    lead = ""
    for line in text.splitlines():
        if _ITEM.match(line) and lead:
            lead += f" {line.strip()}"
            continue
        if lead:
            yield lead
            lead = ""
        sentences = [found.strip() for found in _SENTENCE.findall(line) if found.strip(" .!?*_")]
        if sentences:
            *before, lead = sentences
            yield from before
    if lead:
        yield lead


def _asks(part: str) -> bool:
    if _HOLDS.search(part) and not _NEEDS.search(part):
        return False
    if _CONFIRMS.search(part) and not _DETAIL.search(part):
        return bool(_ASKS_TOO.search(part))
    return "?" in part or bool(_NEEDS.search(part)) or bool(_DETAIL.search(part))


_WORD = re.compile(r"[a-z']+")
_FEW_WORDS = 14
"""Limit of a sentence that may be nothing but the names of details."""
_TELLING = re.compile(
    r"\b(?:is|are|was|were|has|have|had|been|be|will|found|see|saw|sent|thanks|thank|got|received|noted|use|using|used|i|we)\b"
    r"|\w(?:ed|ing)\b"
)
"""Words of a sentence that tells something."""


def names(words: Iterable[str], part: str) -> bool:
    """Whether a sentence has one of these words."""
    for word in words:  # noqa: SIM110 - any() takes twice as long, and nothing is called more often
        if word in part and _has_word(word, part):
            return True
    return False


def _has_word(word: str, part: str) -> bool:
    """Whether the word stands there, not as a part of another."""
    at = part.find(word)
    while at >= 0:
        end = at + len(word)
        if not part[at - 1 : at].isalnum() and not part[end : end + 1].isalpha():
            return True
        at = part.find(word, end)
    return False


_SHAPES = tuple(
    re.compile(shape) for shape in (r"\d{4}-\d\d-\d\d", r"[a-z]{1,4}-?\d[\w-]*", r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
)
"""Dates, ids, numbers, of a text in lower case."""
_BETWEEN = r"(?:\s|[:=$€£*`\"']|\b(?:is|of|to|now)\b){1,12}"


class Detail(NamedTuple):
    """An argument as the user knows it."""

    label: str
    value: str
    stated: re.Pattern[str]
    """The label and a value behind it, in lower case."""
    right: frozenset[str]
    """The argument's values on the task's right paths, and those of arguments whose names end like its own: "from
    account id" is no "account id"."""


class Wrong(NamedTuple):
    """What a confirmation says instead."""

    label: str
    value: str
    stated: str


def details(task: SqlTask) -> tuple[tuple[Detail, ...], ...]:
    """The details of each request of a task that the user watches for in a confirmation."""
    right: dict[str, set[str]] = {}
    for path in (task.actions, *task.alternatives):
        for action in path:
            for name, value in action.arguments.items():
                right.setdefault(name, set()).add(str(value))
    return tuple(tuple(_details(task, request, right)) for request in task.requests)


def _details(task: SqlTask, request: Request, right: dict[str, set[str]]) -> Iterator[Detail]:
    for number in request.actions:
        for name, value in task.actions[number].arguments.items():
            text = str(value)
            shape = next((shape for shape in _SHAPES if shape.fullmatch(text.lower())), None)
            if shape is None or isinstance(value, bool):
                continue
            if all(mentions(say, text) for say in request.say) or any(text == fact.value for fact in request.facts):
                alike = (right[other] for other in right if f"_{other}".endswith(f"_{name}"))
                label = name.replace("_", " ").lower()
                stated = re.compile(rf"\b{re.escape(label)}{_BETWEEN}({shape.pattern})")
                yield Detail(label, text, stated, frozenset().union(*alike))


def wrong(known: Sequence[Detail], text: str) -> Wrong | None:
    """The first detail that a text names with a wrong value and does not say."""
    heard = text.lower()
    for detail in known:
        if detail.label not in heard or mentions(text, detail.value):
            continue
        for found in detail.stated.finditer(heard):
            if not any(mentions(found[1], value) for value in detail.right):
                return Wrong(detail.label, detail.value, found[1])
    return None
