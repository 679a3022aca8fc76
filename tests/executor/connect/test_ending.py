"""How long an engine that ends waits for tasks that wait for others."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from millstream.executor.connect import task_worker
from millstream.executor.connect.connector_secrets import Secrets
from millstream.executor.connect.secret_vault import KnownSecrets, SecretVault
from millstream.executor.connect.task_worker import ENDING_S, Ending, TaskRunner, TaskWorker


def test_all_tasks_together_have_the_time_since_they_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(task_worker.time, "monotonic", lambda: now[0])
    waits = Ending()
    assert waits.left_s == ENDING_S
    now[0] += 50
    waits.begin()
    now[0] += ENDING_S - 0.5
    waits.begin()
    assert waits.left_s == pytest.approx(0.5)
    now[0] += 1
    assert waits.left_s == 0


def test_a_task_that_waits_for_others_is_left_and_ends_when_they_answer() -> None:
    waits, answered = threading.Event(), threading.Event()

    def open_runner() -> TaskRunner:
        waits.set()
        answered.wait()
        raise OSError("the system has gone")

    worker = _worker(open_runner)
    worker.start()
    waits.wait()
    worker.stop(0.0)
    assert worker.status().state == "RUNNING"
    answered.set()
    worker.stop()
    assert worker.status().state == "STOPPED"


def _worker(open_runner: Callable[[], TaskRunner]) -> TaskWorker:
    secrets = Secrets(KnownSecrets(SecretVault(), dict))
    return TaskWorker("c", 0, open_runner, secrets, paused=False)
