"""Which errors of Spark's are outages, which the query's own, and which end a query."""

from __future__ import annotations

import duckdb
import pytest
from jobs_in_process import JavaError

from millstream.executor.errors import SparkUnavailable, StateLost
from millstream.executor.spark.markers import StaleRun
from millstream.executor.spark.spark_trouble import LOST_MIN, trouble_of
from millstream.logcore.errors import LogClosed, LogFull, LogUnavailable, ProducerFenced, UnknownTopic

JAVA = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SparkUnavailable("no master"), "outage"),
        (LogUnavailable("no answer"), "outage"),
        (LogFull("no room"), "outage"),
        (ConnectionResetError("the driver has gone"), "outage"),
        (duckdb.OutOfMemoryException("no memory"), "outage"),
        (UnknownTopic("there is no topic x"), "failure"),
        (ValueError("a mistake of ours"), "failure"),
        (LogClosed("the log is closed"), "over"),
        (ProducerFenced("a newer one"), "over"),
        (StaleRun("another run"), "over"),
        (StateLost("records are lost"), "over"),
    ],
)  # fmt: skip
def test_errors_of_this_process(error: Exception, kind: str) -> None:
    assert trouble_of(error, "Q").kind == kind


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        (f"An error occurred while calling o1.x.\n: {JAVA}\n\tat x", "outage", JAVA),
        ("java.net.ConnectException: Connection refused", "outage", "java.net.ConnectException: Connection refused"),
        (f"{JAVA}: Python worker failed to connect back", "outage", f"{JAVA}: Python worker failed to connect back"),
        ("Traceback\nmillstream.logcore.errors.LogUnavailable: 1.2.3.4:9092 does not answer\n", "outage",
         "LogUnavailable: 1.2.3.4:9092 does not answer"),
        ("Traceback\nmillstream.logcore.errors.NotNow: the leader moves", "outage", "NotNow: the leader moves"),
        ("Traceback\nConnectionResetError: [Errno 104]", "outage", "ConnectionResetError: [Errno 104]"),
        ("Traceback\nMemoryError: 3 GB", "outage", "MemoryError: 3 GB"),
        ("Traceback\nnumpy._core._exceptions._ArrayMemoryError: 3 GB", "outage", "_ArrayMemoryError: 3 GB"),
        ("Traceback\n_duckdb.IOException: IO Error: no room", "outage", "IOException: IO Error: no room"),
        (f"{JAVA}\nTraceback\nKeyError: 'k0'\n", "failure", "KeyError: 'k0'"),
        ("Traceback\nmillstream.logcore.errors.UnknownTopic: no topic x", "failure", "UnknownTopic: no topic x"),
        (f"{JAVA}\nmillstream.executor.spark.markers.StaleRun: another run", "over", "StaleRun: another run"),
        ("Traceback\nmillstream.logcore.errors.ProducerFenced: newer", "over", "ProducerFenced: newer"),
    ],
)  # fmt: skip
def test_errors_that_come_through_spark(text: str, kind: str, shown: str) -> None:
    found = trouble_of(JavaError(text), "Q")
    assert (found.kind, found.text) == (kind, shown)


@pytest.mark.parametrize(
    ("error", "smallest"),
    [
        (MemoryError("3 GB"), 1),
        (duckdb.OutOfMemoryException("no memory"), 1),
        (LogUnavailable("no answer"), 0),
        (JavaError("Traceback\nMemoryError: 3 GB"), 1),
        (JavaError("Traceback\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB"), 1),
        (JavaError("Traceback\npyarrow.lib.ArrowCapacityError: array cannot contain more than 2147483646 bytes"), 1),
        (JavaError("java.lang.OutOfMemoryError: Java heap space"), LOST_MIN),
        (JavaError(f"{JAVA}: ExecutorLostFailure (executor 1 exited) Reason: exit code 137 (SIGKILL)"), LOST_MIN),
        (JavaError("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"), LOST_MIN),
        (JavaError(f"{JAVA}: Python worker failed to connect back"), 0),
        (JavaError("Traceback\nKeyError: 'OutOfMemoryError'"), 0),
    ],
)  # fmt: skip
def test_what_a_smaller_batch_may_mend(error: Exception, smallest: int) -> None:
    assert trouble_of(error, "Q").smallest == smallest


def test_lost_state_says_what_rebuilds_it() -> None:
    found = trouble_of(JavaError("Traceback\nmillstream.executor.errors.StateLost: records are lost"), "CTAS_T_1")
    assert found.kind == "over"
    assert "RESET CTAS_T_1" in found.text
