"""A headless Chromium that tests drive over its debugging pipe: no port, no driver, no library."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS: Final = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-sandbox", "--disable-gpu",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=900,700", "--hide-scrollbars",
    "--force-device-scale-factor=1",
)  # fmt: skip
# The browser reads commands from descriptor 3 and answers on 4.
_WIRED: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


@cache
def browser_path() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(browser_path() is None, reason="needs Chromium: the Debian package chromium")


class Browser:
    """One page. `call` sends a command of the DevTools protocol; `run` evaluates JavaScript, promises awaited."""

    def __init__(self, profile: Path) -> None:
        commands, self._out = _high_pipe()
        self._in, answers = _high_pipe()
        wires = [str(commands), str(answers)]
        os.set_inheritable(commands, True)
        os.set_inheritable(answers, True)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WIRED, *wires, str(browser_path()), *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._unread = b""
        self._session: str | None = None
        self.on_event: Callable[[str, dict[str, Any]], None] = lambda _method, _params: None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The command's result. Raises `AssertionError` for an error."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            if "method" in answer:
                self.on_event(answer["method"], answer["params"])

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 60.0) -> Any:
        """The value of the script once it is true."""
        deadline = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"not within {seconds} s: {script}"
            time.sleep(0.03)
        return found

    def screenshot(self) -> bytes:
        """A PNG of the page."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            received = os.read(self._in, 1 << 20)
            assert received, "the browser ended"
            self._unread += received
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are none of 0 to 4, which the browser's own take."""
    import fcntl

    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
