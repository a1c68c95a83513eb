"""The connection to a Tinker server: opened with a check, waited for with a bound, and its errors in plain words.

The client library asks again by itself while a server is away, and some of its requests never stop asking. So each
answer is waited for here, with a look every few seconds at whether the server is there at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, TimeoutError
from typing import Any, TypeVar
from urllib.parse import urlsplit

from toolorchestra.agents.engines.base import EngineLost
from toolorchestra.agents.engines.settings import TinkerBackend, TinkerSettings
from toolorchestra.envs.base.errors import ConfigError, WrongSetting, install, no_such

KEY = "TINKER_API_KEY"
HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
LOOK_SECONDS = 5.0
"""Between two looks at whether a server that says nothing is there."""
REACH_SECONDS = 10.0
"""Of one such look."""
FITS = "SkyRL 0.4 speaks tinker 0.25 (pip install 'tinker>=0.25,<0.26'), the hosted service the newest"
GO_ON, RESUME = "go on from the last checkpoint with resume=True", "--resume"
URL = "--tinker.url http://HOST:PORT"
_SKYRL = "Tinker API Mock"
"""What SkyRL's server calls itself."""
T = TypeVar("T")


class TinkerServer:
    """A session with a server."""

    def __init__(self, settings: TinkerSettings) -> None:
        self.settings = settings
        self.sdk = _load_sdk()
        self.url = _checked_url(settings.url or os.environ.get("TINKER_BASE_URL") or HOSTED)
        self._key = self._read_key()
        self._connected = False
        self._seen = time.monotonic()
        """When the server was last known to be there."""
        self._looking = threading.Lock()
        self.skyrl = self._introduce()
        self.service: Any = self.call(self._open, "open a session")
        self.models = self._served_models()
        self._connected = True

    # -- opening -----------------------------------------------------------------------------------------------------

    def _read_key(self) -> str:
        key = os.environ.get(KEY, "")
        if key.startswith(("tml-", "eyJ")):
            return key
        if key:
            raise WrongSetting(f"the key in {KEY} is none of Tinker's, which begin with tml-; set the right one")
        if self.url == HOSTED:
            raise WrongSetting(f"the hosted Tinker service needs a key: export {KEY}=tml-...")
        return "tml-none"  # a server of one's own asks for none, and the client library wants one

    def _introduce(self) -> bool:
        """Whether it is a server of SkyRL's. Raises where there is none at all."""
        try:
            said = _get(self.url)
            _get(f"{self.url}/api/v1/healthz")
        except urllib.error.HTTPError as err:
            if self.url != HOSTED and err.code == 404:
                raise ConfigError(
                    f"what answers at {self.url} is no Tinker server (it knows no /api/v1/healthz); check tinker.url",
                    command_line=URL,
                ) from None
            return False
        except OSError as err:
            raise ConfigError(
                f"no Tinker server can be reached at {self.url} ({getattr(err, 'reason', err)}); start it, or check "
                "tinker.url",
                command_line=URL,
            ) from None
        with contextlib.suppress(ValueError, AttributeError):
            return bool(json.loads(said).get("name") == _SKYRL)
        return False

    def _open(self) -> Any:
        return self.sdk.ServiceClient(base_url=self.url, api_key=self._key)

    def _served_models(self) -> list[str]:
        found = self.call(lambda: self.service.get_server_capabilities(), "say which models it serves")
        return [str(model.model_name) for model in found.supported_models]

    def base_model(self, wanted: str) -> str:
        """The name under which it serves a model; of a single one it need not be said."""
        asked = self.settings.base_model or wanted
        if asked in self.models:
            return asked
        if len(self.models) == 1 and not self.settings.base_model:
            return self.models[0]
        raise ConfigError(
            f"{self.url}: {no_such('model', asked, self.models)} Set tinker.base_model",
            command_line="--tinker.base-model NAME",
        )

    def backend(self, outputs: Any) -> TinkerBackend:
        """Which of the backends it has, by the settings or by what a forward pass gave: of SkyRL's, the one in JAX
        gives losses too."""
        if self.settings.backend:
            return self.settings.backend
        if not self.skyrl:
            return "hosted"
        return "skyrl-jax" if "elementwise_loss" in outputs else "skyrl"

    # -- waiting -----------------------------------------------------------------------------------------------------

    def call(self, ask: Callable[[], T], what: str) -> T:
        """The answer of something that blocks."""
        done: Future[T] = Future()

        def work() -> None:
            try:
                answer: Any = ask()  # what the client library blocks for up to 0.25, it gives a future of since then
                done.set_result(answer.result() if hasattr(answer, "result") else answer)
            except BaseException as err:  # noqa: BLE001 - whoever waits raises it
                done.set_exception(err)

        threading.Thread(target=work, name="tinker-call", daemon=True).start()
        made: T = self.wait(done, what)
        return made

    def wait(self, future: Any, what: str) -> Any:
        """The answer of the client library's future."""
        inner = _inner(future)
        started = self._seen = time.monotonic()
        try:
            while True:
                try:
                    return inner.result(timeout=LOOK_SECONDS)
                except TimeoutError as err:
                    if inner.done():
                        raise self.explained(err, what) from err
                    self._look(started, what)
        except BaseException as err:
            inner.cancel()
            if isinstance(err, ConfigError | EngineLost | KeyboardInterrupt):
                raise
            raise self.explained(err, what) from err

    async def until_done(self, future: Future[T], what: str) -> T:
        """The same, on an event loop. Being cancelled here cancels the request."""
        started = self._seen = time.monotonic()
        waiting = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait({waiting}, timeout=LOOK_SECONDS))[0]:
                await asyncio.to_thread(self._look, started, what)
        except BaseException:
            waiting.cancel()
            raise
        try:
            return waiting.result()
        except Exception as err:
            raise self.explained(err, what) from err

    def _look(self, started: float, what: str) -> None:
        """Raise where the server has been away, or has said nothing, for too long. One looks for all that wait."""
        if time.monotonic() - started > self.settings.request_seconds:
            raise self._gave_up(f"gave no answer within {self.settings.request_seconds:g} s when asked to {what}")
        with self._looking:
            if time.monotonic() - self._seen > LOOK_SECONDS and _answers(self.url):
                self._seen = time.monotonic()
            away = time.monotonic() - self._seen
        if away > self.settings.patience_seconds:
            raise self._gave_up(f"has not been reachable for {away:.0f} s")

    def _gave_up(self, seen: str) -> Exception:
        if not self._connected:
            return ConfigError(f"the Tinker server at {self.url} {seen}; check tinker.url", command_line=URL)
        return EngineLost(f"the Tinker server at {self.url} {seen}; once it is back, {GO_ON}", command_line=RESUME)

    # -- in plain words ----------------------------------------------------------------------------------------------

    def explained(self, err: BaseException, what: str) -> Exception:
        """What went wrong when the server was asked to do something."""
        sdk, said = self.sdk, self._without_key(f"{err!s:.300}" or type(err).__name__)
        status = getattr(err, "status_code", 0)
        if isinstance(err, ConfigError | EngineLost):
            return err
        if status in (401, 403):
            return WrongSetting(f"{self.url} refuses the key in {KEY} ({status}); set the right one")
        if isinstance(err, sdk.APIConnectionError | CancelledError):
            return self._gave_up(f"cannot be reached ({said})")
        other = isinstance(err, AssertionError | TypeError | KeyError | sdk.APIResponseValidationError)
        if other or status in (405, 415, 422) or (status == 404 and not self._connected):
            return ConfigError(
                f"{self.url} does not answer as a server of tinker {sdk.__version__} does (asked to {what}: "
                f"{type(err).__name__}: {said}); {FITS}"
            )
        if status == 404 or "not loaded" in said or "not found" in said.lower():
            return EngineLost(
                f"the Tinker server at {self.url} knows this run's model no more ({said}): it was restarted, or the "
                f"session was given up; {GO_ON}",
                command_line=RESUME,
            )
        return EngineLost(
            f"the Tinker server at {self.url} could not {what}: {type(err).__name__}: {said}; {GO_ON}",
            command_line=RESUME,
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***")

    def close(self) -> None:
        """End the session: what it holds on the server becomes free. May be called twice."""
        service, self.service = self.service, None
        if service is not None:
            with contextlib.suppress(Exception):
                service.holder.close()


def _load_sdk() -> Any:
    try:
        return importlib.import_module("tinker")
    except ModuleNotFoundError as err:
        if err.name != "tinker":
            raise
        raise ConfigError(
            f"engine=tinker needs the client library, which is not installed: {install('tinker')}"
        ) from None


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"tinker.url is http://HOST:PORT, got {url!r:.80}", command_line=URL)
    if parts.username or parts.password:
        raise ConfigError(
            f"tinker.url holds a user or a password, and settings are saved; put the key in {KEY}", command_line=URL
        )
    return url.rstrip("/")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=REACH_SECONDS) as reply:
        return str(reply.read(1 << 16), "utf-8", "replace")


def _answers(url: str) -> bool:
    try:
        _get(f"{url}/api/v1/healthz")
    except urllib.error.HTTPError as err:
        return err.code < 500  # 502 to 504 are a proxy's, before a server that is away
    except OSError:
        return False
    return True


def _inner(future: Any) -> Future[Any]:
    """The client library wraps most of its futures."""
    return future if isinstance(future, Future) else future.future()
