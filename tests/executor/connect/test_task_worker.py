"""What a task does after errors: it waits, or it is FAILED, at once or after some time."""

from __future__ import annotations

import pytest
from waiting import eventually

from millstream.executor.connect.connector_errors import ConnectorFailed, SystemFault, SystemUnavailable
from millstream.executor.connect.connector_secrets import Secrets
from millstream.executor.connect.secret_vault import KnownSecrets, SecretVault
from millstream.executor.connect.task_worker import TaskWorker


class Failing:
    """A task that raises at each step."""

    records = 0
    pause_s = 0.0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def step(self, timeout_s: float) -> bool:
        raise self._error

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        pass


def worker(error: Exception, fault_s: float) -> TaskWorker:
    secrets = Secrets(KnownSecrets(SecretVault(), dict))
    return TaskWorker("t", 0, lambda: Failing(error), secrets, paused=False, fault_s=fault_s)


@pytest.mark.parametrize(
    ("error", "restarts"),
    [(ConnectorFailed("change it", hint="Do."), 0), (SystemFault("strange", hint="Look."), 5), (KeyError("x"), 5)],
)
def test_what_does_not_pass_stops_the_task_at_once_or_after_some_attempts(error: Exception, restarts: int) -> None:
    running = worker(error, fault_s=0)
    running.start()
    eventually(lambda: running.status().state == "FAILED", 20)
    assert running.status().restarts == restarts
    running.restart()
    eventually(lambda: running.status().restarts == 2 * restarts and running.status().state == "FAILED", 20)
    running.stop()


@pytest.mark.parametrize("error", [SystemUnavailable("away"), OSError("away"), SystemFault("strange")])
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    running = worker(error, fault_s=300)
    running.start()
    eventually(lambda: running.status().restarts >= 6, 20)
    status = running.status()
    assert status.state == "RUNNING"
    assert str(error) in (status.error or "")
    running.stop()
