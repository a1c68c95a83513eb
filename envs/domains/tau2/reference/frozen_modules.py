"""Time that stands still and chance that repeats, as modules to be put in the place of Python's own.

They are handed to a toolkit's modules alone, where these import them: nothing of the process is changed. A class such
as `datetime` is a subclass that answers to the real one's values, so that comparisons and pydantic go on working.
"""

from __future__ import annotations

import base64
import calendar
import datetime
import importlib
import random
import time
import uuid
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from toolorchestra.envs.base.errors import ConfigError

_UTC = datetime.UTC
_FORM = "YYYY-MM-DD HH:MM:SS"
_NODE = 0x020000000000
"""In the place of the machine's own number in uuid1."""


def moment(text: str, where: str) -> datetime.datetime:
    """A moment as users and policies write it, without a zone."""
    try:
        made = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{where}: a moment written {_FORM} expected, got {text!r}") from None
    if made.tzinfo is not None:
        raise ConfigError(f"{where}: the clock has no zone, write {_FORM}, got {text!r}")
    return made


class FrozenModules:
    """The modules that stand in for Python's at one moment."""

    def __init__(self, now: datetime.datetime) -> None:
        self.now = now
        self._stream = random.Random(0)
        nanoseconds = calendar.timegm(now.timetuple()) * 10**9 + now.microsecond * 1000
        changed = {"datetime": _dates(now), "time": _times(nanoseconds), "uuid": _ids(self._stream, nanoseconds)}
        self.modules: dict[str, ModuleType] = {}
        for name, members in {**changed, **_chances(self._stream)}.items():
            self.modules[name] = ModuleType(name)
            vars(self.modules[name]).update({**vars(importlib.import_module(name)), **members})

    def reseed(self, text: str) -> None:
        """Chance from here on follows from the text."""
        self._stream.seed(text)


class _StandsFor(type):
    """A class whose instances are those of the class that it stands for."""

    real: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)


class _Frozen:
    """What `date` and `datetime` of a frozen moment have in common."""

    real: ClassVar[Any]
    frozen: ClassVar[datetime.datetime]
    of: ClassVar[Any]
    """Makes one of a real one."""

    @classmethod
    def today(cls) -> Any:
        return cls.of(cls.frozen)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls.of, handler(cls.real))


class _Date(_Frozen, datetime.date, metaclass=_StandsFor):
    real = datetime.date

    @classmethod
    def of(cls, value: datetime.date) -> Any:
        return cls(value.year, value.month, value.day)

    @classmethod
    def fromtimestamp(cls, seconds: float) -> Any:
        return cls.of(datetime.datetime.fromtimestamp(seconds, _UTC))


class _Datetime(_Frozen, datetime.datetime, metaclass=_StandsFor):
    """Zoneless times count as UTC: nothing depends on the machine's zone."""

    real = datetime.datetime

    @classmethod
    def of(cls, value: datetime.datetime) -> Any:
        return cls.combine(value.date(), value.timetz())

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return cls.of(cls.frozen if tz is None else cls.frozen.replace(tzinfo=_UTC).astimezone(tz))

    @classmethod
    def utcnow(cls) -> Any:
        return cls.of(cls.frozen)

    @classmethod
    def fromtimestamp(cls, seconds: float, tz: datetime.tzinfo | None = None) -> Any:
        made = datetime.datetime.fromtimestamp(seconds, tz or _UTC)
        return cls.of(made if tz else made.replace(tzinfo=None))

    def timestamp(self) -> float:
        return datetime.datetime.timestamp(self if self.tzinfo else self.replace(tzinfo=_UTC))

    def astimezone(self, tz: datetime.tzinfo | None = None) -> Any:
        aware = self if self.tzinfo else self.replace(tzinfo=_UTC)
        return datetime.datetime.astimezone(aware, tz or _UTC)


def _dates(now: datetime.datetime) -> Mapping[str, Any]:
    return {name: _StandsFor(name, (k,), {"frozen": now}) for name, k in (("date", _Date), ("datetime", _Datetime))}


def _times(nanoseconds: int) -> Mapping[str, Any]:
    seconds = nanoseconds / 10**9

    def at(given: float | None = None) -> time.struct_time:
        return time.gmtime(seconds if given is None else given)

    changed: dict[str, Any] = {
        "sleep": lambda _seconds: None,
        "gmtime": at,
        "localtime": at,
        "mktime": calendar.timegm,
        "ctime": lambda given=None: time.asctime(at(given)),
        "asctime": lambda parts=None: time.asctime(parts or at()),
        "strftime": lambda form, parts=None: time.strftime(form, parts or at()),
        "timezone": 0, "altzone": 0, "daylight": 0, "tzname": ("UTC", "UTC"),
    }  # fmt: skip
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        changed[name], changed[f"{name}_ns"] = lambda: seconds, lambda: nanoseconds
    return changed


def _ids(draw: random.Random, nanoseconds: int) -> Mapping[str, Any]:
    def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        ticks = nanoseconds // 100 + 0x01B21DD213814000
        sequence = draw.getrandbits(14) if clock_seq is None else clock_seq
        low, middle, high = ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
        return uuid.UUID(fields=(low, middle, high, sequence >> 8 & 0x3F, sequence & 0xFF, node or _NODE), version=1)

    return {"uuid4": lambda: uuid.UUID(int=draw.getrandbits(128), version=4), "uuid1": uuid1, "getnode": lambda: _NODE}


def _chances(draw: random.Random) -> Mapping[str, Mapping[str, Any]]:
    """What draws lots, in each module. Everything draws from one stream."""

    class Random(random.Random):
        """Takes its seed from the stream where it is given none."""

        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(draw.getrandbits(64) if a is None else a, version)

    def seed(a: Any = None, version: int = 2) -> None:
        if a is not None:
            draw.seed(a, version)

    def token_bytes(count: int | None = None) -> bytes:
        return draw.randbytes(32 if count is None else count)

    methods = {name: getattr(draw, name) for name in random.__all__ if hasattr(draw, name)}
    return {
        "random": {**methods, "seed": seed, "Random": Random, "SystemRandom": Random},
        "secrets": {
            "choice": draw.choice,
            "randbelow": draw.randrange,
            "randbits": draw.getrandbits,
            "token_bytes": token_bytes,
            "token_hex": lambda count=None: token_bytes(count).hex(),
            "token_urlsafe": lambda count=None: base64.urlsafe_b64encode(token_bytes(count)).rstrip(b"=").decode(),
            "SystemRandom": Random,
        },
        "os": {"urandom": draw.randbytes},
    }
