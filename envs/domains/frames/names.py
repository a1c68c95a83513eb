"""Pronounceable invented names, each given out once: people, towns, rivers, works, institutions and prizes."""

from __future__ import annotations

import random


def _words(text: str) -> list[str]:
    return text.split()


_ONSETS = _words("b bl br c cr d dr f fl g gl gr h j k kl l m n p pr qu r s sh sk sl st t th tr v w z")
# Single vowels three times: names full of diphthongs are hard to pronounce and to tell apart.
_VOWELS: list[str] = [*"aeiou" * 3, "ae", "ai", "au", "ea", "ia", "io", "oa"]
_CODAS = _words("l m n r s t v x nd ld rn sk th")
_FIRST_NAME_ENDINGS = _words("a en is or ine ael ette ic ou ya")
_LAST_NAME_ENDINGS = _words("er ov ane ell ard ott ings aire enko ulis man oux")
_TOWN_ENDINGS = _words("wick ford moor holm stad bury gate mere haven croft dale port")
_RIVER_ENDINGS = _words("a el une ava ith ona emme or")
_PLAIN_ENDINGS = _words("on ar isse um and orra ex ime")

_INSTITUTION_KINDS = ("Academy", "Observatory", "Library", "Museum", "Conservatory", "Institute", "College", "Archive")
_PRIZE_KINDS = ("Prize", "Medal", "Laurel", "Award")
_TITLE_ADJECTIVES = _words(
    "Amber Silent Crooked Winter Hollow Paper Scarlet Distant Broken Velvet Patient Salted Northern Gilded Restless "
    "Sunken Painted Blind Copper Final Weary Hidden Marble Frozen Borrowed Invisible Burning Second Quiet Wandering "
    "Ashen Midnight Lesser Unfinished Pale Forgotten Iron Singing Tidal Thirteenth"
)
_TITLE_NOUNS = _words(
    "Staircase Harbour Lantern Orchard Clock Mirror Ferryman Garden Compass Bell Window Bridge Carnival Shepherd "
    "Almanac Chimney Voyage Cathedral Heron Widow Kingdom Ladder Mask Nightingale Oath Pilgrim Quarry Regent Sparrow "
    "Threshold Umbrella Vineyard Weaver Anvil Beacon Cartographer Drum Equinox Furnace Glacier"
)


def slug(name: str) -> str:
    """The name in lower case with hyphens, as document ids spell it."""
    return name.lower().replace(" ", "-")


class NameSource:
    """Gives out invented names, none of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._taken: set[str] = set()
        self._first_names = [self._coin(_FIRST_NAME_ENDINGS) for _ in range(260)]
        self._last_names = [self._coin(_LAST_NAME_ENDINGS) for _ in range(1000)]

    def person(self) -> str:
        """A first and a last name; relatives share the last one, nobody shares both."""
        while True:
            name = f"{self._rng.choice(self._first_names)} {self._rng.choice(self._last_names)}"
            if self._take(name):
                return name

    def town(self) -> str:
        return self._coin(_TOWN_ENDINGS)

    def river(self) -> str:
        return self._coin(_RIVER_ENDINGS)

    def highland(self) -> str:
        return self._coin(_PLAIN_ENDINGS)

    def institution(self) -> str:
        return f"{self._coin(_PLAIN_ENDINGS)} {self._rng.choice(_INSTITUTION_KINDS)}"

    def prize(self) -> str:
        return f"{self._coin(_PLAIN_ENDINGS)} {self._rng.choice(_PRIZE_KINDS)}"

    def work(self) -> str:
        """A title of common words, or of a common and an invented one."""
        while True:
            noun = self._rng.choice(_TITLE_NOUNS)
            if self._rng.random() < 0.5:
                title = f"The {self._rng.choice(_TITLE_ADJECTIVES)} {noun}"
            else:
                title = f"The {noun} of {self._coin(_PLAIN_ENDINGS)}"
            if self._take(title):
                return title

    def _coin(self, endings: list[str]) -> str:
        while True:
            word = (self._syllable() + self._rng.choice(endings)).capitalize()
            # Shorter words collide with English ones, which a search index drops or finds everywhere.
            if 5 <= len(word) <= 12 and self._take(word):
                return word

    def _syllable(self) -> str:
        return self._rng.choice(_ONSETS) + self._rng.choice(_VOWELS) + self._rng.choice(_CODAS)

    def _take(self, name: str) -> bool:
        if name.lower() in self._taken:
            return False
        self._taken.add(name.lower())
        return True
