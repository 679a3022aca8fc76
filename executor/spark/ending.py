"""How Spark ends with the process that drives it, also where it does not answer any more."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable

PATIENCE_S = 2.0


def end_at_exit(stop: Callable[[], object], kill: Callable[[], object]) -> Callable[[], None]:
    """Registers what ends Spark, and gives it: `stop`, and `kill` where that takes longer than PATIENCE_S.

    The thread that stops is there from the beginning: at its exit a process begins none.
    """
    asked, stopped = threading.Event(), threading.Event()

    def wait() -> None:
        asked.wait()
        with contextlib.suppress(Exception):  # it has ended
            stop()
        stopped.set()

    def end() -> None:
        asked.set()
        if not stopped.wait(PATIENCE_S):
            kill()

    threading.Thread(target=wait, name="spark-exit", daemon=True).start()
    atexit.register(end)
    return end
