"""Failpoints: places where tests kill the process or make a call fail: `fp("txn.after_prepare")`.

The environment variable MILLSTREAM_FP, or `arm`, arms them with `name:nth:action,…`: the action happens at the nth hit
of this name (from 1). Actions: `kill9`, `stop` (SIGSTOP), `raise`, `eio`, `enospc`, `sleep(ms)`. An unarmed failpoint
costs one look-up in an empty dict.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Final

_SPEC: Final = re.compile(r"(?P<name>[\w.]+):(?P<nth>\d+):(?P<action>kill9|stop|raise|eio|enospc|sleep\((?P<ms>\d+)\))")


class FailpointHit(Exception):
    """What the action `raise` raises."""


@dataclass(slots=True)
class _Failpoint:
    nth: int
    action: str
    sleep_ms: int
    hits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hit(self, name: str) -> None:
        with self.lock:
            self.hits += 1
            due = self.hits == self.nth
        if due:
            self._act(name)

    def _act(self, name: str) -> None:
        match self.action:
            case "kill9":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise FailpointHit(name)
            case "eio":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "enospc":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case _:
                time.sleep(self.sleep_ms / 1000)


def parse(text: str) -> dict[str, _Failpoint]:
    """The failpoints that `text` arms. Raises ValueError if it does not have the form above."""
    armed: dict[str, _Failpoint] = {}
    for spec in filter(None, text.split(",")):
        matched = _SPEC.fullmatch(spec.strip())
        if matched is None:
            raise ValueError(f"not a failpoint (name:nth:action): {spec!r}")
        armed[matched["name"]] = _Failpoint(int(matched["nth"]), matched["action"], int(matched["ms"] or 0))
    return armed


_armed: dict[str, _Failpoint] = parse(os.environ.get("MILLSTREAM_FP", ""))


def arm(text: str) -> None:
    """Arms the failpoints of `text` and disarms all others. An empty text disarms all."""
    armed = parse(text)
    _armed.clear()
    _armed.update(armed)


def hits(name: str) -> int:
    """How often an armed failpoint was reached."""
    return _armed[name].hits


def fp(name: str) -> None:
    """A place where a test may make this process die or fail."""
    point = _armed.get(name)
    if point is not None:
        point.hit(name)
