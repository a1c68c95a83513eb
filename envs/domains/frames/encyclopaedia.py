"""The fictional encyclopaedia: thousands of linked invented entities, drawn from a seed, with a passage for each.

Names are pronounceable, invented, and each is given out once.
"""

from __future__ import annotations

import bisect
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from toolorchestra.envs.base.types import Fact, Passage
from toolorchestra.envs.domains.frames.prose import (
    OTHER_OCCUPATIONS,
    WORDINGS,
    WORK_KIND_OF_OCCUPATION,
    Institution,
    Person,
    Prize,
    River,
    Statement,
    Town,
    Work,
    colour,
    sentence,
    statements,
)

_ONSETS = "b bl br c cr d dr f fl g gl gr h j k kl l m n p pr qu r s sh sk sl st t th tr v w z".split()
# Single vowels three times: names full of diphthongs are hard to pronounce and to tell apart.
_VOWELS: list[str] = [*"aeiou" * 3, "ae", "ai", "au", "ea", "ia", "io", "oa"]
_CODAS = "l m n r s t v x nd ld rn sk th".split()
_FIRST_NAME_ENDINGS = "a en is or ine ael ette ic ou ya".split()
_LAST_NAME_ENDINGS = "er ov ane ell ard ott ings aire enko ulis man oux".split()
_TOWN_ENDINGS = "wick ford moor holm stad bury gate mere haven croft dale port".split()
_RIVER_ENDINGS = "a el une ava ith ona emme or".split()
_PLAIN_ENDINGS = "on ar isse um and orra ex ime".split()

_INSTITUTION_KINDS = ("Academy", "Observatory", "Library", "Museum", "Conservatory", "Institute", "College", "Archive")
_PRIZE_KINDS = ("Prize", "Medal", "Laurel", "Award")
_TITLE_ADJECTIVES = (
    "Amber Silent Crooked Winter Hollow Paper Scarlet Distant Broken Velvet Patient Salted Northern Gilded Restless "
    "Sunken Painted Blind Copper Final Weary Hidden Marble Frozen Borrowed Invisible Burning Second Quiet Wandering "
    "Ashen Midnight Lesser Unfinished Pale Forgotten Iron Singing Tidal Thirteenth"
).split()
_TITLE_NOUNS = (
    "Staircase Harbour Lantern Orchard Clock Mirror Ferryman Garden Compass Bell Window Bridge Carnival Shepherd "
    "Almanac Chimney Voyage Cathedral Heron Widow Kingdom Ladder Mask Nightingale Oath Pilgrim Quarry Regent Sparrow "
    "Threshold Umbrella Vineyard Weaver Anvil Beacon Cartographer Drum Equinox Furnace Glacier"
).split()


def slug(name: str) -> str:
    """The name in lower case with hyphens, as document ids spell it."""
    return name.lower().replace(" ", "-")


class NameSource:
    """Gives out invented names, none of them twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._taken: set[str] = set()
        self._first_names = [self.coin(_FIRST_NAME_ENDINGS) for _ in range(260)]
        self._last_names = [self.coin(_LAST_NAME_ENDINGS) for _ in range(1000)]

    def person(self) -> str:
        """A first and a last name; relatives share the last one, nobody shares both."""
        while True:
            name = f"{self._rng.choice(self._first_names)} {self._rng.choice(self._last_names)}"
            if self._take(name):
                return name

    def work(self) -> str:
        """A title of common words, or of a common and an invented one."""
        while True:
            noun = self._rng.choice(_TITLE_NOUNS)
            if self._rng.random() < 0.5:
                title = f"The {self._rng.choice(_TITLE_ADJECTIVES)} {noun}"
            else:
                title = f"The {noun} of {self.coin(_PLAIN_ENDINGS)}"
            if self._take(title):
                return title

    def coin(self, endings: list[str]) -> str:
        """An invented word with one of these endings."""
        while True:
            syllable = [self._rng.choice(part) for part in (_ONSETS, _VOWELS, _CODAS)]
            word = ("".join(syllable) + self._rng.choice(endings)).capitalize()
            # Shorter words collide with English ones, which a search index drops or finds everywhere.
            if 5 <= len(word) <= 12 and self._take(word):
                return word

    def _take(self, name: str) -> bool:
        if name.lower() in self._taken:
            return False
        self._taken.add(name.lower())
        return True


_RIVERS, _TOWNS, _PEOPLE, _INSTITUTIONS, _CREATORS, _PRIZES = 110, 360, 1300, 400, 470, 110
# Four and a half centuries of births: whoever guesses years is right in fewer than one case in a hundred.
_FIRST_BIRTH, _LAST_BIRTH = 1360, 1810
_MOST_SENTENCES = 6


@dataclass(frozen=True, slots=True)
class Encyclopaedia:
    """The entities by document id, and what their passages state."""

    rivers: Mapping[str, River]
    towns: Mapping[str, Town]
    people: Mapping[str, Person]
    institutions: Mapping[str, Institution]
    works: Mapping[str, Work]
    prizes: Mapping[str, Prize]
    names: Mapping[str, str]
    """Entity's name by document id."""
    passages: tuple[Passage, ...]
    """One an entity, titled with its name; its text is the entity's sentences, joined with spaces."""
    sentences: Mapping[tuple[str, str], str]
    """The sentence by (document id, relation); the relations are those that prose.WORDINGS has sentences for."""
    stated: Mapping[tuple[str, str], Statement]
    """What each of these sentences says, as ids and a number."""
    ids_by_kind: Mapping[str, tuple[str, ...]]
    """All document ids by what stands before their slash: river, town, person, institution, work, prize."""

    def fact(self, doc_id: str, relation: str) -> Fact:
        """The evidence for a relation, and the search that finds it."""
        query = f"{self.names[doc_id]} {WORDINGS['searches'].get(relation, relation)}"
        return Fact(sentence=self.sentences[doc_id, relation], query=query)

    def others(self, doc_id: str, relation: str) -> tuple[str, ...]:
        """The ids that the entity is linked to by the relation; empty where its passage says nothing about it."""
        statement = self.stated.get((doc_id, relation))
        return statement.other_ids if statement else ()

    def number(self, doc_id: str, relation: str) -> int | None:
        statement = self.stated.get((doc_id, relation))
        return statement.number if statement else None


@lru_cache(maxsize=4)
def build(seed: int = 0) -> Encyclopaedia:
    """The encyclopaedia of a seed; a fraction of a second the first time, the same object after that."""
    # A string: from the bare integer, other generators of this suite would start on the same stream.
    rng = random.Random(f"frames-encyclopaedia-{seed}")
    source = NameSource(rng)
    rivers = _rivers(source, rng)
    towns = _towns(source, rivers, rng)
    people = _people(source, list(towns), rng)
    institutions = _institutions(source, list(towns), people, rng)
    people = _careers(people, institutions, rng)
    works = _works(source, people, list(institutions), rng)
    prizes, honours = _prizes(source, people, institutions, rng)
    people |= {i: replace(people[i], prize_id=prize_id, prize_year=year) for i, (prize_id, year) in honours.items()}
    natives = _grouped((p.birth_town_id, p.doc_id) for p in people.values())
    stations = _grouped((t.river_id, t.doc_id) for t in towns.values())
    created = _grouped((w.creator_id, w.doc_id) for w in works.values())
    held = _grouped((w.holder_id, w.doc_id) for w in works.values() if w.holder_id)
    tables = (
        {i: replace(r, town_ids=stations.get(i, ())) for i, r in rivers.items()},
        {i: replace(t, native_ids=natives.get(i, ())) for i, t in towns.items()},
        {i: replace(p, work_ids=created.get(i, ())) for i, p in people.items()},
        {i: replace(n, holding_ids=held.get(i, ())) for i, n in institutions.items()},
        works,
        prizes,
    )
    return _published(tables, random.Random(f"frames-prose-{seed}"))


def _published(tables: tuple[Mapping[str, Any], ...], rng: random.Random) -> Encyclopaedia:
    names = {doc_id: entity.name for table in tables for doc_id, entity in table.items()}
    sentences: dict[tuple[str, str], str] = {}
    stated: dict[tuple[str, str], Statement] = {}
    passages: list[Passage] = []
    for table in tables:
        for doc_id, entity in table.items():
            lines: list[str] = []
            for statement in statements(entity):
                stated[doc_id, statement.relation] = statement
                sentences[doc_id, statement.relation] = sentence(entity, statement, names, rng)
                lines.append(sentences[doc_id, statement.relation])
            lines += colour(entity, rng)[: _MOST_SENTENCES - len(lines)]
            passages.append(Passage(doc_id, entity.name, " ".join(lines)))
    ids_by_kind = {next(iter(table)).partition("/")[0]: tuple(table) for table in tables}
    rivers, towns, people, institutions, works, prizes = tables
    return Encyclopaedia(
        rivers, towns, people, institutions, works, prizes, names, tuple(passages), sentences, stated, ids_by_kind
    )


def _rivers(source: NameSource, rng: random.Random) -> dict[str, River]:
    lengths_km = rng.sample(range(35, 1400), _RIVERS)
    names = [source.coin(_RIVER_ENDINGS) for _ in lengths_km]
    return {
        (i := f"river/{slug(name)}"): River(i, name, length_km, source.coin(_PLAIN_ENDINGS))
        for name, length_km in zip(names, lengths_km, strict=True)
    }


def _towns(source: NameSource, rivers: Mapping[str, River], rng: random.Random) -> dict[str, Town]:
    populations = rng.sample(range(900, 96_000), _TOWNS)
    towns: dict[str, Town] = {}
    for population, river_id in zip(populations, _evenly(list(rivers), _TOWNS, rng), strict=True):
        name = source.coin(_TOWN_ENDINGS)
        doc_id = f"town/{slug(name)}"
        towns[doc_id] = Town(doc_id, name, river_id, rng.randint(640, 1330), population)
    return towns


def _people(source: NameSource, town_ids: list[str], rng: random.Random) -> dict[str, Person]:
    occupations = [rng.choice(tuple(WORK_KIND_OF_OCCUPATION)) for _ in range(_CREATORS)]
    occupations += [rng.choice(OTHER_OCCUPATIONS) for _ in range(_PEOPLE - _CREATORS)]
    rng.shuffle(occupations)
    people: dict[str, Person] = {}
    for occupation, birth_town_id in zip(occupations, _evenly(town_ids, _PEOPLE, rng), strict=True):
        name = source.person()
        doc_id = f"person/{slug(name)}"
        birth_year = rng.randint(_FIRST_BIRTH, _LAST_BIRTH)
        death_year = birth_year + rng.randint(46, 91)
        people[doc_id] = Person(doc_id, name, occupation, birth_year, birth_town_id, death_year, rng.choice(town_ids))
    return people


def _institutions(
    source: NameSource, town_ids: list[str], people: Mapping[str, Person], rng: random.Random
) -> dict[str, Institution]:
    institutions: dict[str, Institution] = {}
    founder_ids = rng.sample(list(people), _INSTITUTIONS)
    for town_id, founder_id in zip(_evenly(town_ids, _INSTITUTIONS, rng), founder_ids, strict=True):
        name = f"{source.coin(_PLAIN_ENDINGS)} {rng.choice(_INSTITUTION_KINDS)}"
        doc_id = f"institution/{slug(name)}"
        opened_year = people[founder_id].birth_year + rng.randint(28, 45)
        institutions[doc_id] = Institution(doc_id, name, town_id, founder_id, opened_year)
    return institutions


def _careers(
    people: Mapping[str, Person], institutions: Mapping[str, Institution], rng: random.Random
) -> dict[str, Person]:
    """Gives people teachers who were born 16 to 48 years before them, and employers opened by their 35th year, none of
    them too often. Of the dates it looks at births and openings alone: a few teachers died before their pupil was born.
    """
    births = sorted((p.birth_year, i) for i, p in people.items())
    openings = sorted((n.opened_year, i) for i, n in institutions.items())
    pupils: Counter[str] = Counter()
    staff: Counter[str] = Counter()
    careers: dict[str, Person] = {}
    for doc_id, person in people.items():
        born = person.birth_year
        teacher_id = _least_used(_between(births, born - 48, born - 16), pupils, rng)
        employer_id = _least_used(_between(openings, born - 170, born + 35), staff, rng)
        careers[doc_id] = replace(person, teacher_id=teacher_id, employer_id=employer_id)
    return careers


def _works(
    source: NameSource, people: Mapping[str, Person], institution_ids: list[str], rng: random.Random
) -> dict[str, Work]:
    counts = {i: rng.randint(2, 4) for i, p in people.items() if p.occupation in WORK_KIND_OF_OCCUPATION}
    total = sum(counts.values())
    prices_crowns = iter(rng.sample(range(120, 60_000), total))
    held = [i for i in institution_ids for _ in range(rng.randint(2, 4))][:total]
    holder_ids = [*held, *[None] * (total - len(held))]
    rng.shuffle(holder_ids)
    works: dict[str, Work] = {}
    for creator_id, count in counts.items():
        creator = people[creator_id]
        for year in rng.sample(range(creator.birth_year + 21, creator.death_year + 1), count):
            name = source.work()
            doc_id = f"work/{slug(name)}"
            kind = WORK_KIND_OF_OCCUPATION[creator.occupation]
            works[doc_id] = Work(doc_id, name, kind, creator_id, year, next(prices_crowns), holder_ids.pop())
    return works


def _prizes(
    source: NameSource, people: Mapping[str, Person], institutions: Mapping[str, Institution], rng: random.Random
) -> tuple[dict[str, Prize], dict[str, tuple[str, int]]]:
    """The prizes, and the (prize, year) of each laureate."""
    births = sorted((p.birth_year, i) for i, p in people.items())
    early = [i for i, n in institutions.items() if n.opened_year <= _LAST_BIRTH - 60]
    prizes: dict[str, Prize] = {}
    honours: dict[str, tuple[str, int]] = {}
    for institution_id in rng.sample(early, _PRIZES):
        name = f"{source.coin(_PLAIN_ENDINGS)} {rng.choice(_PRIZE_KINDS)}"
        doc_id = f"prize/{slug(name)}"
        first_year = institutions[institution_id].opened_year + rng.randint(4, 50)
        eligible = [i for i in _between(births, first_year - 30, first_year + 220) if i not in honours]
        laureate_ids = rng.sample(eligible, min(len(eligible), rng.randint(4, 7)))
        for laureate_id in laureate_ids:
            person = people[laureate_id]
            honours[laureate_id] = (doc_id, rng.randint(person.birth_year + 31, person.death_year))
        prizes[doc_id] = Prize(doc_id, name, institution_id, first_year, tuple(laureate_ids))
    return prizes, honours


def _evenly(ids: list[str], count: int, rng: random.Random) -> list[str]:
    """`count` of the ids in random order, each about equally often."""
    drawn: list[str] = []
    while len(drawn) < count:
        drawn += rng.sample(ids, len(ids))
    drawn = drawn[:count]
    rng.shuffle(drawn)
    return drawn


def _between(years_and_ids: Sequence[tuple[int, str]], low: int, high: int) -> list[str]:
    """The ids whose year lies in low..high, from pairs in order of year."""
    start = bisect.bisect_left(years_and_ids, (low, ""))
    return [i for _, i in years_and_ids[start : bisect.bisect_left(years_and_ids, (high + 1, ""))]]


def _least_used(ids: list[str], uses: Counter[str], rng: random.Random) -> str | None:
    # The best of four random ones: much-used entities would become the answers that a guesser names.
    if not ids:
        return None
    chosen = min(rng.sample(ids, min(4, len(ids))), key=lambda i: uses[i])
    uses[chosen] += 1
    return chosen


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for key, member in pairs:
        groups[key].append(member)
    return {key: tuple(members) for key, members in groups.items()}
