"""Time that stands still and chance that repeats, as modules to be put in the place of Python's own.

They are handed to a toolkit's modules alone, where these import them: nothing of the process is changed. A class such
as `datetime` is a subclass that answers to the real one's values, so that comparisons and pydantic go on working.
"""

from __future__ import annotations

import calendar
import datetime as real_datetime
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from toolorchestra.envs.base.errors import ConfigError

_NANO = 10**9
_UTC = real_datetime.UTC
_FORM = "YYYY-MM-DD HH:MM:SS"
_NODE = 0x020000000000
"""In the place of the machine's own number in uuid1."""


def moment(text: str, where: str) -> real_datetime.datetime:
    """A moment as users and policies write it, without a zone."""
    try:
        made = real_datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{where}: a moment written {_FORM} expected, got {text!r}") from None
    if made.tzinfo is not None:
        raise ConfigError(f"{where}: the clock has no zone, write {_FORM}, got {text!r}")
    return made


class FrozenModules:
    """The modules that stand in for Python's at one moment."""

    def __init__(self, now: real_datetime.datetime) -> None:
        self.now = now
        self._stream = random.Random(0)
        seconds = calendar.timegm(now.timetuple())
        nanoseconds = seconds * _NANO + now.microsecond * 1000
        draw, unseeded = self._stream, _unseeded(self._stream)
        self.modules: Mapping[str, ModuleType] = {
            "datetime": _module(real_datetime, _dates(now)),
            "time": _module(time, _times(nanoseconds)),
            "random": _module(random, _chances(draw, unseeded)),
            "uuid": _module(uuid, _ids(draw, nanoseconds)),
            "secrets": _module(secrets, _secrets(draw, unseeded)),
            "os": _module(os, {"urandom": draw.randbytes}),
        }

    def reseed(self, text: str) -> None:
        """Chance from here on follows from the text."""
        self._stream.seed(text)


def _module(real: ModuleType, changed: Mapping[str, Any]) -> ModuleType:
    made = ModuleType(real.__name__, real.__doc__)
    vars(made).update({**vars(real), **changed})
    return made


class _StandsFor(type):
    """A class whose instances are those of the class that it stands for."""

    real: type

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)


class _Date(real_datetime.date, metaclass=_StandsFor):
    """`datetime.date` of a frozen day. Subclasses say which."""

    real = real_datetime.date
    frozen: ClassVar[real_datetime.datetime]

    @classmethod
    def today(cls) -> Any:
        return cls.of(cls.frozen)

    @classmethod
    def fromtimestamp(cls, seconds: float) -> Any:
        return cls.of(real_datetime.datetime.fromtimestamp(seconds, _UTC))

    @classmethod
    def of(cls, value: real_datetime.date) -> Any:
        return cls(value.year, value.month, value.day)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        return _converted(handler(cls.real), cls.of)


class _Datetime(real_datetime.datetime, metaclass=_StandsFor):
    """`datetime.datetime` of a frozen moment. Zoneless times count as UTC: nothing depends on the machine's zone."""

    real = real_datetime.datetime
    frozen: ClassVar[real_datetime.datetime]

    @classmethod
    def now(cls, tz: real_datetime.tzinfo | None = None) -> Any:
        return cls.of(cls.frozen if tz is None else cls.frozen.replace(tzinfo=_UTC).astimezone(tz))

    @classmethod
    def utcnow(cls) -> Any:
        return cls.of(cls.frozen)

    @classmethod
    def today(cls) -> Any:
        return cls.of(cls.frozen)

    @classmethod
    def fromtimestamp(cls, seconds: float, tz: real_datetime.tzinfo | None = None) -> Any:
        made = real_datetime.datetime.fromtimestamp(seconds, tz or _UTC)
        return cls.of(made if tz else made.replace(tzinfo=None))

    @classmethod
    def of(cls, value: real_datetime.datetime) -> Any:
        return cls.combine(value.date(), value.timetz())

    def timestamp(self) -> float:
        return real_datetime.datetime.timestamp(self if self.tzinfo else self.replace(tzinfo=_UTC))

    def astimezone(self, tz: real_datetime.tzinfo | None = None) -> Any:
        aware = self if self.tzinfo else self.replace(tzinfo=_UTC)
        return real_datetime.datetime.astimezone(aware, tz or _UTC)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
        return _converted(handler(cls.real), cls.of)


def _dates(now: real_datetime.datetime) -> Mapping[str, Any]:
    kinds = {"date": _Date, "datetime": _Datetime}
    return {name: type(kind)(name, (kind,), {"frozen": now}) for name, kind in kinds.items()}


def _converted(schema: Any, convert: Callable[[Any], Any]) -> Any:
    from pydantic_core import core_schema

    return core_schema.no_info_after_validator_function(convert, schema)


def _times(nanoseconds: int) -> Mapping[str, Any]:
    seconds = nanoseconds / _NANO

    def at(given: float | None = None) -> time.struct_time:
        return time.gmtime(seconds if given is None else given)

    def rest(_seconds: float) -> None:
        """Time does not pass."""

    changed: dict[str, Any] = {
        "sleep": rest,
        "gmtime": at,
        "localtime": at,
        "mktime": calendar.timegm,
        "ctime": lambda given=None: time.asctime(at(given)),
        "asctime": lambda parts=None: time.asctime(parts or at()),
        "strftime": lambda form, parts=None: time.strftime(form, parts or at()),
        "timezone": 0, "altzone": 0, "daylight": 0, "tzname": ("UTC", "UTC"),
    }  # fmt: skip
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        changed[name] = lambda: seconds
        changed[f"{name}_ns"] = lambda: nanoseconds
    return changed


def _unseeded(draw: random.Random) -> type[random.Random]:
    """Random, which takes its seed from the stream where it is given none."""

    class Random(random.Random):
        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(draw.getrandbits(64) if a is None else a, version)

    return Random


def _chances(draw: random.Random, unseeded: type[random.Random]) -> Mapping[str, Any]:
    def seed(a: Any = None, version: int = 2) -> None:
        if a is not None:
            draw.seed(a, version)

    methods = {name: getattr(draw, name) for name in random.__all__ if hasattr(draw, name)}
    return {**methods, "seed": seed, "Random": unseeded, "SystemRandom": unseeded}


def _ids(draw: random.Random, nanoseconds: int) -> Mapping[str, Any]:
    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=draw.getrandbits(128), version=4)

    def uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        ticks = nanoseconds // 100 + 0x01B21DD213814000
        sequence = draw.getrandbits(14) if clock_seq is None else clock_seq
        low, middle, high = ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF
        fields = (low, middle, high, sequence >> 8 & 0x3F, sequence & 0xFF, node or _NODE)
        return uuid.UUID(fields=fields, version=1)

    return {"uuid4": uuid4, "uuid1": uuid1, "getnode": lambda: _NODE}


def _secrets(draw: random.Random, unseeded: type[random.Random]) -> Mapping[str, Any]:
    import base64

    def token_bytes(count: int | None = None) -> bytes:
        return draw.randbytes(32 if count is None else count)

    def token_urlsafe(count: int | None = None) -> str:
        return base64.urlsafe_b64encode(token_bytes(count)).rstrip(b"=").decode()

    return {
        "choice": draw.choice,
        "randbelow": draw.randrange,
        "randbits": draw.getrandbits,
        "token_bytes": token_bytes,
        "token_hex": lambda count=None: token_bytes(count).hex(),
        "token_urlsafe": token_urlsafe,
        "SystemRandom": unseeded,
    }
