"""Pauses Python's cyclic garbage collector while many objects are created of which none is garbage.

A statement of 100 KB is half a million objects, and none of them is garbage before it is planned. Scanning them
repeatedly takes longer than creating them (parsing a COALESCE of 9,900 columns: 0.58 s of CPU time, 0.16 s without the
collector). The modules of a server are 300,000 objects, which live as long as the process. Importing them takes 2.4 s;
with the collector 3.0 s, and 2.65 s if it runs only once per 20,000 objects.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import threading
from collections.abc import Generator

_LONG = 20_000  # characters


class _Pauses:
    """How many statements have paused the collector: there is one collector for all threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._guard:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._guard:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextlib.contextmanager
def collector_paused(length: int) -> Generator[None]:
    """Pauses it while a statement of `length` characters is parsed or planned, which takes a second at most."""
    if length < _LONG:
        yield
        return
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


@contextlib.contextmanager
def importing(*, forever: bool = False) -> Generator[None]:
    """Pauses it while many modules are imported. In: `forever`: no later collection scans the objects that exist at the
    end. Use it only in our own processes, because the garbage of another program would stay, too."""
    _pauses.begin()
    try:
        yield
        if forever:
            gc.freeze()
            atexit.register(gc.unfreeze)  # otherwise DuckDB's binding reports leaks
    finally:
        _pauses.end()
