"""The scripted user's stock of sentences, drawn by seed, so that no agent can learn them by heart."""

from __future__ import annotations

from typing import TypeVar

from toolorchestra.envs.tools.tool_config import Half

_T = TypeVar("_T")
_HELDOUT_SHARE = 4


def half_of(options: tuple[_T, ...], half: Half | None) -> tuple[_T, ...]:
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
    "That is what I want, yes.",
    "Please proceed.", "Confirmed.", "Yes, I confirm.", "Sounds right, go on.",
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
