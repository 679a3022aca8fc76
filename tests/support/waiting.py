"""Waiting for what other threads and processes do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

PAUSE_S = 0.02
_REST = 3  # times what a look took, before the next one: looking takes a quarter of a core at most
_REST_MAX_S = 0.5

T = TypeVar("T")


def eventually(
    holds: Callable[[], T | None],
    seconds: float = 60.0,
    *,
    otherwise: str = "it never came true",
    pause_s: float = PAUSE_S,
) -> T:
    """What `holds()` gives, as soon as it counts as true. Raises AssertionError with `otherwise` when the time is over,
    and at once whatever `holds` raises. In: `pause_s`: between two calls, at least."""
    deadline = (began := time.monotonic()) + seconds
    while not (found := holds()):
        looked = time.monotonic()
        assert looked < deadline, otherwise
        time.sleep(max(pause_s, _rest(looked - began)))
        began = time.monotonic()
    return found


def _rest(took_s: float) -> float:
    """What many tests look at are requests, which the server that is waited for has to answer."""
    return min(_REST * took_s, _REST_MAX_S)


def without_error(
    act: Callable[[], T], errors: type[Exception] | tuple[type[Exception], ...] = Exception, seconds: float = 60.0
) -> T:
    """What `act` gives, as soon as it raises none of these errors any more. Raises the last of them when the time is
    over."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        try:
            return act()
        except errors:
            if time.monotonic() > deadline:
                raise
        time.sleep(max(PAUSE_S, _rest(time.monotonic() - began)))


def once(holds: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Calls `act` in a thread of its own, as soon as `holds()` is true."""

    def wait() -> None:
        eventually(holds)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def inside(function: Callable[..., object], thread: threading.Thread | None = None) -> Callable[[], bool]:
    """A condition: this thread, by default the one that asks for the condition, runs this function or what it calls."""
    code = cast("FunctionType", function).__code__
    ident = (thread or threading.current_thread()).ident

    def holds() -> bool:
        frame = sys._current_frames().get(ident or 0)
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        return frame is not None

    return holds
