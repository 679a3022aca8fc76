"""What a task does after errors: it waits, or it is FAILED, at once or after some time."""

from __future__ import annotations

import pytest
from waiting import eventually

from millstream.executor.connect.connector_errors import ConnectorFailed, SystemFault, SystemUnavailable
from millstream.executor.connect.connector_secrets import Secrets
from millstream.executor.connect.secret_vault import KnownSecrets, SecretVault
from millstream.executor.connect.task_worker import TaskWorker


class Failing:
    """A task that raises at each step. In: `errors`: of all its lives, in their order; the last one again and again."""

    records = 0
    pause_s = 0.0

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors

    def step(self, timeout_s: float) -> bool:
        raise self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        pass


def worker(*errors: Exception, fault_s: float) -> TaskWorker:
    secrets = Secrets(KnownSecrets(SecretVault(), dict))
    remaining = list(errors)
    return TaskWorker("t", 0, lambda: Failing(remaining), secrets, paused=False, fault_s=fault_s)


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


@pytest.mark.parametrize("last", [SystemFault("strange"), KeyError("x")])
def test_a_system_that_was_away_for_long_may_begin_with_a_fault(last: Exception) -> None:
    """The time and the attempts that a fault has do not begin before the fault."""
    away = SystemUnavailable("away")
    running = worker(*5 * [away], last, away, fault_s=0)
    running.start()
    eventually(lambda: running.status().restarts >= 6 or running.status().state == "FAILED", 20)
    assert running.status().state == "RUNNING"
    running.stop()
