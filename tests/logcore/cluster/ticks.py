"""When a node that is alone hears the time: its pauses in between, seen and changed by tests."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from millstream.logcore.log import Log
from millstream.logcore.replication.node.lone_node import LoneNode

_NEVER_S = 600.0
_PATIENCE_S = 60.0


def tick_every(pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_TICK_S", "_TICK_S_MAX"):
        monkeypatch.setattr(f"millstream.logcore.replication.node.lone_node.{pause}", pause_s)


def stop_ticks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of this log, which is open, hears the time once more and then no more: nothing becomes durable but what
    somebody waits for."""
    stopped, pause = threading.Event(), LoneNode._pause

    def noted(node: LoneNode, pause_s: float) -> None:
        if pause_s == _NEVER_S:
            while node._make_durable():  # what it was left with before
                pass
            stopped.set()
        pause(node, pause_s)

    monkeypatch.setattr(LoneNode, "_pause", noted)
    tick_every(_NEVER_S, monkeypatch)
    log.offsets("t", 0)  # a node that rests wakes up for the first request, and goes on at its usual pace
    assert stopped.wait(_PATIENCE_S)


def tick(log: Log) -> None:
    """The node of this log hears the time once. Nothing becomes durable by that."""
    node = log.node._running()
    assert isinstance(node, LoneNode)
    node.hold(node._tell_the_time)


class Pauses:
    """The pauses of all nodes that are alone, as they begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun: queue.Queue[tuple[float, float]] = queue.Queue()
        pause = LoneNode._pause

        def noted(node: LoneNode, pause_s: float) -> None:
            self._begun.put((time.monotonic(), pause_s))
            pause(node, pause_s)

        monkeypatch.setattr(LoneNode, "_pause", noted)

    def next_of(self, least_s: float) -> float:
        """When the next pause of this length, or a longer one, began."""
        while True:
            began, pause_s = self._begun.get(timeout=_PATIENCE_S)
            if pause_s >= least_s:
                return began
