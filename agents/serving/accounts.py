"""Keys that may ask, how often, and for how much: from a file, with what they have spent in SQLite or Postgres.

    [keys.alice]
    sha256 = "9f86d08..."        # of the key; `toolorchestra serve --new-key alice` prints both
    usd = 20.0                   # in all; leave it out for no limit
    requests_per_minute = 60

A request first sets aside the most that it may spend, in one transaction, so the limits are exact for any number of
servers on one database. What a server had set aside that was killed counts against its key until `release_lost`: nobody
knows what its requests in flight have cost.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import string
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import NOT_NEGATIVE, ConfigError, Outage, install, require
from toolorchestra.envs.money.prices import NANO

NOBODY = "-"
"""Name of the account of requests without a key, where none is required."""
_BURST_SECONDS = 10
"""Seconds' worth of a rate that may come at once."""
_KEY_BYTES = 24
PATIENCE_SECONDS = 10
"""How long a database may keep its silence."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, spent BIGINT NOT NULL DEFAULT 0, "
    "held BIGINT NOT NULL DEFAULT 0, tokens DOUBLE PRECISION NOT NULL DEFAULT 0, "
    "at DOUBLE PRECISION NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS requests (id TEXT PRIMARY KEY, name TEXT NOT NULL, replica TEXT NOT NULL, "
    "held BIGINT NOT NULL, spent BIGINT NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0)",
)


@dataclass(frozen=True)
class ApiKey:
    """What one key may do."""

    sha256: str
    usd: float | None = None
    requests_per_minute: float | None = None
    admin: bool = False
    """Right to see what all keys do: the page, /metrics and the latest trajectories."""

    def __post_init__(self) -> None:
        require(self, NOT_NEGATIVE, *(n for n in ("usd", "requests_per_minute") if getattr(self, n) is not None))
        if len(self.sha256) != hashlib.sha256().digest_size * 2 or not set(self.sha256) <= set(string.hexdigits):
            raise ConfigError(f"sha256 is the key's hash, 64 hexadecimal digits, got {len(self.sha256)} characters")


@dataclass(frozen=True)
class _KeysFile:
    """A file of keys, as it is written."""

    keys: Mapping[str, ApiKey] = field(default_factory=dict)


_PRINTED = "`toolorchestra serve --new-key alice` prints one with its lines"


def read_keys(path: str | Path) -> dict[str, ApiKey]:
    """The keys of a TOML file, by name."""
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as err:
        told = f"no file of keys {str(path)!r} ({err.strerror}); write [keys.NAME] with sha256 in it"
        raise ConfigError(told) from None
    except ValueError as err:
        raise ConfigError(f"{path} is not TOML: {err}") from None
    if strange := sorted(data.keys() - {"keys"}):
        raise ConfigError(f"{path}: a key stands under [keys.NAME], got {strange[0]!r} beside it; {_PRINTED}")
    made = dict(shapes.read(_KeysFile, data, str(path)).keys)
    if not made:
        raise ConfigError(f"{path} has no key; {_PRINTED}")
    if NOBODY in made:
        raise ConfigError(f"{path}: {NOBODY!r} is the name of who has no key; name the key otherwise")
    by_hash: dict[str, str] = {}
    for name, key in made.items():
        if (other := by_hash.setdefault(key.sha256.lower(), name)) != name:
            raise ConfigError(f"{path}: {other} and {name} have the same sha256; give each a key of its own")
    return made


def new_key(name: str) -> tuple[str, str]:
    """A fresh key, and the lines of it for the file."""
    key = f"to-{secrets.token_urlsafe(_KEY_BYTES)}"
    hashed = hashlib.sha256(key.encode()).hexdigest()
    limits = "usd = 10.0\nrequests_per_minute = 60\n# admin = true  # may see the page, and what others ask"
    bare = name and set(name) <= set(f"{string.ascii_letters}{string.digits}_-")
    return key, f'[keys.{name if bare else json.dumps(name, ensure_ascii=False)}]\nsha256 = "{hashed}"\n{limits}'


class Refused(Exception):
    """A request that is not taken: its status, a code, and when to come again."""

    def __init__(self, status: int, code: str, text: str, after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.code, self.after_seconds = status, code, after_seconds


class Account(NamedTuple):
    """What an account has spent and set aside, in nano-dollars."""

    name: str
    spent: int
    held: int
    """The part of requests in flight, and of those that a killed server left."""


class Accounts:
    """The keys with what they have spent. May be shared by threads."""

    def __init__(
        self,
        keys: Mapping[str, ApiKey] | None = None,
        database: str = "",
        replica: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`database`: a file of SQLite, a postgresql:// address, or "" for this process's memory. `replica` names this
        server among those that share it: what it had in flight when it was killed is marked when it starts again.
        `clock` gives the time where the database has none of its own."""
        self.keys = dict(keys or {})
        self.replica = replica
        self._by_hash = {key.sha256.lower(): name for name, key in self.keys.items()}
        postgres = database.startswith(("postgres://", "postgresql://"))
        self._database = _Postgres(database) if postgres else _Sqlite(database, clock)
        with self._database.transaction() as do:
            for statement in (self._database.alone, *_TABLES):
                do(statement)
            for name in (*self.keys, NOBODY):
                do("INSERT INTO accounts (name) VALUES (?) ON CONFLICT (name) DO NOTHING", name)
            columns = "SELECT id, name, held, spent FROM requests"
            rows = do(f"{columns} WHERE replica = ? AND lost = 0{self._database.lock}", replica)
            for request, name, held, spent in rows:
                left = max(held - spent, 0)  # a policy's own last turn may pass what was set aside
                do("UPDATE accounts SET spent = spent + ?, held = held - ? WHERE name = ?", spent, held - left, name)
                do("UPDATE requests SET held = ?, lost = 1 WHERE id = ?", left, request)
        self.lost = len(rows)
        """Requests that this server had in flight when it was killed."""

    def who(self, authorization: str) -> str:
        """The name of the key that an Authorization header has. Raises Refused for one that there is not."""
        if not self.keys:
            return NOBODY
        scheme, _, key = authorization.partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        given = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        for known, name in self._by_hash.items():
            if hmac.compare_digest(known, given):
                return name
        raise Refused(401, "invalid_api_key", "no such key; send one as `Authorization: Bearer KEY`")

    def limit_of(self, name: str) -> float | None:
        """The dollars that a key may spend in all; None: no limit."""
        key = self.keys.get(name)
        return key.usd if key is not None else None

    def begin(self, request: str, name: str, usd: float) -> float:
        """Count a request, and set aside what it may spend: so many dollars, or what is left of the key's limit, which
        is returned. Raises Refused where the rate or the limit is used up."""
        key = self.keys.get(name)
        with self._database.transaction() as do:
            columns = f"spent, held, tokens, at, {self._database.now}"
            row = do(f"SELECT {columns} FROM accounts WHERE name = ?{self._database.lock}", name)[0]
            spent, held, tokens, at, now = row
            tokens, after = _taken(key, tokens, at, now)
            wanted = round(usd * NANO) if not after else 0
            if key is not None and key.usd is not None and not after:
                wanted = min(wanted, round(key.usd * NANO) - spent - held)
                if wanted <= 0:
                    raise Refused(402, "insufficient_quota", f"the key's {key.usd:g} $ are spent, or set aside")
            do("UPDATE accounts SET held = held + ?, tokens = ?, at = ? WHERE name = ?", wanted, tokens, now, name)
            if not after:
                kept = (request, name, self.replica, wanted)
                do("INSERT INTO requests (id, name, replica, held) VALUES (?, ?, ?, ?)", *kept)
        if after:
            allowed = key.requests_per_minute if key is not None else 0.0
            raise Refused(429, "rate_limit_exceeded", f"{allowed:g} requests a minute are allowed", after)
        return wanted / NANO

    def book(self, request: str, nano_usd: int) -> None:
        """Note what a request has spent so far. Of one that counts as lost, `spent` stays what was counted then."""
        with self._database.transaction() as do:
            do("UPDATE requests SET spent = ? WHERE id = ? AND lost = 0", nano_usd, request)

    def end(self, request: str, nano_usd: int) -> None:
        """Book what a request has spent, and give back the rest of what was set aside."""
        with self._database.transaction() as do:
            columns = "SELECT name, held, spent, lost FROM requests"
            for name, held, spent, lost in do(f"{columns} WHERE id = ?{self._database.lock}", request):
                more = nano_usd - (spent if lost else 0)  # what counts already: another server took this one for killed
                do("UPDATE accounts SET spent = spent + ?, held = held - ? WHERE name = ?", more, held, name)
                do("DELETE FROM requests WHERE id = ?", request)

    def release_lost(self) -> int:
        """Give back what lost requests had set aside: somebody has looked at the providers' bills. They stay, since the
        server that was taken for killed may still end them."""
        with self._database.transaction() as do:
            rows = do(f"SELECT id, name, held FROM requests WHERE lost = 1{self._database.lock}")
            for request, name, held in rows:
                do("UPDATE accounts SET held = held - ? WHERE name = ?", held, name)
                do("UPDATE requests SET held = 0, lost = 2 WHERE id = ?", request)
        return len(rows)

    def accounts(self) -> list[Account]:
        """Every account, by name."""
        with self._database.transaction() as do:
            return [Account(*row) for row in do("SELECT name, spent, held FROM accounts ORDER BY name")]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _taken(key: ApiKey | None, tokens: float, at: float, now: float) -> tuple[float, float]:
    """What is left of a key's rate after one request more, and the seconds to wait where nothing is. A clock that was
    set back gives nothing, and takes nothing."""
    if key is None or key.requests_per_minute is None:
        return 0.0, 0.0
    if not key.requests_per_minute:
        return 0.0, 3600.0
    rate = key.requests_per_minute / 60
    most = max(1.0, rate * _BURST_SECONDS)
    have = most if not at else min(most, tokens + max(0.0, now - at) * rate)
    if have >= 1:
        return have - 1, 0.0
    return have, (1 - have) / rate


Do = Callable[..., list[Any]]


class _Sqlite:
    """One connection, whose transactions lock the file from their start."""

    lock, alone = "", "SELECT 1"

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        try:
            self._connection = sqlite3.connect(
                path or ":memory:", PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing, a power cut the last moment
        except sqlite3.Error as err:
            raise ConfigError(f"{path!r} is no database ({err}); name a file that may be written") from None
        self._lock = threading.Lock()

    @property
    def now(self) -> str:
        """The time, as statements have it."""
        return repr(float(self._clock()))

    @contextmanager
    def transaction(self) -> Iterator[Do]:
        """Run statements, all of them or none."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield lambda statement, *values: self._connection.execute(statement, values).fetchall()
                self._connection.execute("COMMIT")
            except BaseException as err:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(err, sqlite3.OperationalError):  # locked for long, or no room on the disk
                    raise Outage(f"the database of accounts cannot be written: {err}") from None
                raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class _Postgres:
    """One connection, made again when it has broken."""

    lock = " FOR UPDATE"
    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"  # servers' own clocks differ
    alone = "SELECT pg_advisory_xact_lock(7015746351)"  # replicas that begin at once would make one table twice

    def __init__(self, address: str) -> None:
        try:
            import psycopg
        except ModuleNotFoundError:
            raise ConfigError(f"Postgres needs psycopg: {install('postgres')}") from None
        self._psycopg, self._address = psycopg, address
        self._lock = threading.Lock()
        self._connection: Any = None

    @contextmanager
    def transaction(self) -> Iterator[Do]:
        """Run statements, all of them or none."""
        with self._lock, ExitStack() as stack:
            try:
                try:
                    stack.enter_context(self._connected().transaction())
                except self._psycopg.OperationalError:  # idle, it broke unseen, and nothing was asked yet
                    stack.enter_context(self._connected().transaction())
                yield self._run
                stack.close()
            except self._psycopg.OperationalError as err:
                raise Outage(f"the database of accounts broke off: {type(err).__name__}") from None

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            try:
                patience = {"connect_timeout": PATIENCE_SECONDS, "keepalives_idle": PATIENCE_SECONDS}
                patience["tcp_user_timeout"] = PATIENCE_SECONDS * 1000
                self._connection = self._psycopg.connect(self._address, autocommit=True, **patience)
                self._connection.execute(f"SET statement_timeout = {PATIENCE_SECONDS * 1000}")
            except self._psycopg.Error as err:
                raise Outage(f"the database of accounts does not answer: {type(err).__name__}") from None
        return self._connection

    def _run(self, statement: str, *values: Any) -> list[Any]:
        found = self._connection.execute(statement.replace("?", "%s"), values)
        return found.fetchall() if found.description else []

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
