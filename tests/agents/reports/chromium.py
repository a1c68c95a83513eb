"""A headless Chromium for the page's tests, spoken to through two pipes (its DevTools protocol): no driver, no port."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run --hide-scrollbars"
_KEYS = {"Escape": 27, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38}


class Chromium:
    """One tab."""

    def __init__(self, width: int = 1280, height: int = 900, *flags: str) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory()
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # The browser reads from 3 and writes to 4. Numbers above keep the two from covering each other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)

        def place() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        command = [
            CHROMIUM,
            *_FLAGS.split(),
            f"--window-size={width},{height}",
            f"--user-data-dir={self._profile.name}",
        ]
        self._process = subprocess.Popen(
            [*command, *flags, "about:blank"], preexec_fn=place, close_fds=False, stderr=subprocess.DEVNULL
        )
        for end in ends:
            os.close(end)
        self._unread = b""
        self._own: tuple[str, ...] = ("file:", "about:")
        self._asked = 0
        self.complaints: list[str] = []
        """Exceptions, refusals of the content policy, and whatever else the console got."""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.size(width, height)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    # -- what a test does ----------------------------------------------------------------------------------------------

    def open(self, page: Path, address: str = "") -> float:
        """Open the page anew. The milliseconds until it had drawn itself."""
        self._ask("Page.navigate", url="about:blank")
        self.navigate(page, address)
        self.until("document.documentElement?.dataset.ready")
        return float(self.value("document.documentElement.dataset.ready"))

    def navigate(self, page: Path, address: str = "") -> None:
        """Open a page, without waiting for what its script draws."""
        self._ask("Page.navigate", url=f"{page.resolve().as_uri()}#{address}")

    def visit(self, url: str) -> None:
        """Open what a server of this machine serves, without waiting for what its script draws."""
        self._own = ("about:", f"{url}/")
        self._ask("Page.navigate", url=url)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Of the window."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)  # fmt: skip

    def dark(self, dark: bool) -> None:
        """What the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[feature])

    def value(self, script: str) -> Any:
        """What an expression comes to."""
        got = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def until(self, script: str, seconds: float = 10) -> None:
        """Wait until an expression holds."""
        last = time.monotonic() + seconds
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < last, f"never true: {script}; {self.complaints}"
            time.sleep(0.01)

    def key(self, key: str) -> None:
        """Press and release."""
        text = {"text": key} if len(key) == 1 else {}
        code = _KEYS.get(key, ord(key[0]))
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def click(self, script: str) -> None:
        """On the middle of the element that an expression gives, with the mouse."""
        middle = "[b.x + b.width / 2, b.y + b.height / 2]"
        seen = "e.scrollIntoView({ block: 'center' }); const b = e.getBoundingClientRect();"
        box = self.value(f"(() => {{ const e = {script}; {seen} return {middle}; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    # -- the protocol --------------------------------------------------------------------------------------------------

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._send(method, self._session, **parameters)

    def _send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        os.write(self._to, json.dumps({**message, **({"sessionId": session} if session else {})}).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._asked:
                assert "error" not in got, f"{method}: {got['error']}"
                return dict(got["result"])
            self._listen(got)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._from, 1 << 20)
            assert read, "the browser is gone"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(line))

    def _listen(self, event: dict[str, Any]) -> None:
        method, said = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not said["request"]["url"].startswith((*self._own, "data:")):
            self.complaints.append(f"a request: {said['request']['url']}")
