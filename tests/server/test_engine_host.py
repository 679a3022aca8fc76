"""Where the engine of a cluster runs: what the host believes when the end of an engine fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from two_engines import StandInNode, image_led_by
from waiting import eventually

from millstream.server.cluster.engine_host import EngineHost, RunningEngine


class _Engines:
    """State: how many were opened, and how many of their ends were asked for. Each end raises `failure`."""

    def __init__(self, failure: BaseException) -> None:
        self.opened = 0
        self.left = 0
        self.stopped = 0
        self._failure = failure
        self.lose: Callable[[], None] = lambda: None

    def open(self, on_loss: Callable[[], None]) -> RunningEngine:
        self.opened += 1
        self.lose = on_loss
        nothing = cast(Any, None)
        return RunningEngine(nothing, nothing, self._stop, self._leave)

    def _leave(self) -> None:
        self.left += 1
        raise self._failure

    def _stop(self) -> None:
        self.stopped += 1
        raise self._failure


@pytest.fixture
def said() -> Iterator[list[Any]]:
    with capture_logs() as entries:
        yield entries


def errors(said: list[Any]) -> list[tuple[str, str]]:
    return [(entry["event"], entry["error"]) for entry in said if entry["log_level"] == "error"]


def test_an_engine_whose_end_fails_does_not_run_here_any_more_and_that_is_said(said: list[Any]) -> None:
    node, engines = StandInNode(1), _Engines(RuntimeError("a query did not end"))
    node.image = image_led_by(1)
    host = EngineHost(node, engines.open, lambda *topic: None)
    host.start()
    eventually(lambda: host.running is not None, 10)
    node.image = image_led_by(2)
    eventually(lambda: host.running is None and bool(errors(said)), 10)
    assert errors(said) == [("engine did not end properly", "a query did not end")]
    node.image = image_led_by(1)
    eventually(lambda: host.running is not None, 10)
    engines.lose()
    eventually(lambda: engines.opened == 3, 10)
    assert engines.left == 2, "each of them was ended once"
    host.stop()
    assert (host.running, engines.stopped, len(errors(said))) == (None, 1, 3)
    assert not any(thread.name == "millstream-engine-host" for thread in threading.enumerate())
