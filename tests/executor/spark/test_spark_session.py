"""What ends Spark at the end of the process."""

from __future__ import annotations

import threading

import pytest

from millstream.executor.spark import spark_session
from millstream.executor.spark.spark_session import end_at_exit


def test_a_spark_that_answers_is_stopped_and_not_killed() -> None:
    done: list[str] = []
    end = end_at_exit(lambda: done.append("stopped"), lambda: done.append("killed"))
    assert done == []
    end()
    assert done == ["stopped"]


def test_a_spark_that_has_ended_is_left_alone() -> None:
    killed: list[str] = []

    def stop() -> None:
        raise ConnectionRefusedError("the driver has gone")

    end_at_exit(stop, lambda: killed.append("killed"))()
    assert killed == []


def test_a_spark_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "EXIT_S", 0.01)
    answers, killed = threading.Event(), list[str]()
    end_at_exit(answers.wait, lambda: killed.append("killed"))()
    assert killed == ["killed"]
    answers.set()
