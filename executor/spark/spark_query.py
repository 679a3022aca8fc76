"""A persistent query on Spark: a thread that begins runs of it until it is told to stop.

Each run is one Structured Streaming query.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import LogClosed, ProducerFenced
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ...planner.serde import plan_to_json
from ..errors import QueryFailed
from ..executor import QueryMetrics, QueryState, QueryStatus
from ..queries.query_log import offset_group
from ..state.lost_state import LOST, how_to_rebuild, what_to_do
from .alignment import align
from .markers import StaleRun
from .spark_session import first_line, on_progress
from .spec import BATCH_RECORDS_MAX, RunSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger()

LOOK_S = 0.1  # how often a running query looks whether it should stop
FAILURES_MAX = 6  # in a row
BACKOFF_S = 0.5  # after the first failure; doubles with each

_RECORDS_MAX = "millstream.spark.batch.records.max"
_CACHE = "millstream.spark.cache"  # "disk" (default) or "memory"
_LOST = tuple(kind.__name__ for kind in LOST)
_FATAL = ("StaleRun", "ProducerFenced", *_LOST)
_PYTHON_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Fenced|Topic|Run|Unavailable|Failed|Lost|CorruptLog)\w*): (.+)$", re.M
)
_JAVA_ERROR = re.compile(r"^: (.+)$", re.M)


class SparkQuery:
    """Runs one query. In: `session` may raise; it is tried again like a failed batch. `bootstrap`: where tasks reach
    the log. `directory`: of the query; its checkpoints and caches are in it."""

    def __init__(
        self,
        plan: PhysicalPlan,
        client: LogClient,
        session: Callable[[], SparkSession],
        bootstrap: Callable[[], str],
        directory: Path,
        properties: Mapping[str, str],
        *,
        paused: bool = False,
    ) -> None:
        self.query_id = plan.query_id
        self.metrics = QueryMetrics()
        self._plan = plan
        self._client = client
        self._session = session
        self._bootstrap = bootstrap
        self._directory = directory
        self._properties = dict(properties)
        self._state: QueryState = "PAUSED" if paused else "RUNNING"
        self._error: str | None = None
        self._stopping = threading.Event()
        self._may_run = threading.Event()
        self._at_rest = threading.Event()
        self._guard = threading.Lock()
        if paused:
            self._at_rest.set()
        else:
            self._may_run.set()
        self._thread = self._new_thread()

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Returns once no batch is under way."""
        if self._state == "RUNNING":
            self._state = "PAUSED"
            self._may_run.clear()
            self._at_rest.wait()

    def resume(self) -> None:
        """Also after an error: the query tries again."""
        if self._state == "ERROR" and not self._thread.is_alive():
            self._error = None
            self._thread = self._new_thread()
            self._run_on()
            self._thread.start()
        elif self._state == "PAUSED":
            self._run_on()

    def stop(self) -> None:
        """Returns once nothing of the query runs any more."""
        self._stopping.set()
        self._may_run.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._state != "ERROR":
            self._state = "STOPPED"

    def status(self) -> QueryStatus:
        positions: dict[TopicPartition, int] = {}
        lag: dict[TopicPartition, int] = {}
        with contextlib.suppress(LogClosed):
            lanes = {source.topic for source in self._plan.sources()}
            committed = self._client.committed_offsets(offset_group(self.query_id))
            positions = {lane: offset for lane, offset in committed.items() if lane.topic in lanes and offset >= 0}
            lag = {
                lane: max(0, self._client.offsets(*lane).last_stable_offset - offset)
                for lane, offset in positions.items()
            }
        return QueryStatus(self.query_id, self._state, self.metrics, positions, lag, self._error)

    def run_available(self) -> None:
        """Processes what is there, in the caller's thread; for queries that were not started. Raises `QueryFailed`."""
        with self._streaming(available_now=True) as streaming:
            try:
                streaming.awaitTermination()
            except Exception as error:
                raise QueryFailed(f"query {self.query_id}: {cause_of(error)}") from error

    # -------------------------------------------------------------- the thread

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"spark-query-{self.query_id}", daemon=True)

    def _run_on(self) -> None:
        self._state = "RUNNING"
        self._at_rest.clear()
        self._may_run.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            if not self._may_run.is_set():
                self._at_rest.set()
                self._may_run.wait()
                self._at_rest.clear()
                continue
            batches = self.metrics.batches
            try:
                self._run_once()
                failures = 0
            except (ProducerFenced, StaleRun, LogClosed, *LOST) as error:
                self._fail(error)
                break
            except Exception as error:  # whatever it is: what counts is in the log, so begin again from there
                failures = 1 if self.metrics.batches > batches else failures + 1
                cause = cause_of(error)
                log.warning("query failed", query_id=self.query_id, failures=failures, error=cause)
                if failures >= FAILURES_MAX or any(name in cause for name in _FATAL):
                    hint = f". {how_to_rebuild(self.query_id)}" if cause.startswith(_LOST) else ""
                    self._fail(QueryFailed(cause + hint))
                    break
                self.metrics = replace(self.metrics, restarts=self.metrics.restarts + 1)
                self._stopping.wait(BACKOFF_S * 2 ** (failures - 1))
        self._at_rest.set()

    def _run_once(self) -> None:
        """One run: until the query should stop, or fails."""
        with self._streaming(available_now=False) as streaming:
            while not self._stopping.is_set() and self._may_run.is_set():
                if streaming.awaitTermination(LOOK_S):  # type: ignore[arg-type]  # fractions are fine, its hint is not
                    return

    def _fail(self, error: Exception) -> None:
        self._error = what_to_do(error)
        self._state = "ERROR"
        log.error("query stopped", query_id=self.query_id, error=self._error)

    # -------------------------------------------------------------- one run

    @contextlib.contextmanager
    def _streaming(self, *, available_now: bool):
        """A run's Structured Streaming query. It ends, and its checkpoint goes, when the block is left."""
        session = self._session()
        run = uuid.uuid4().hex
        start = align(self._plan, self._client, self._properties, run)
        context: Any = session.sparkContext
        disk = {**self._properties, **self._plan.properties}.get(_CACHE, "disk") != "memory"
        spec = RunSpec(
            plan_to_json(self._plan),
            self._bootstrap(),
            run,
            start,
            self._properties,
            cache_directory=str(self._cache_directory(str(context.master))) if disk else None,
            parallelism=max(1, int(context.defaultParallelism)),
            batch_records_max=int(self._properties.get(_RECORDS_MAX, BATCH_RECORDS_MAX)),
        )
        checkpoint = self._directory / "checkpoints" / run
        shutil.rmtree(checkpoint.parent, ignore_errors=True)
        fp("spark.before_start")
        streaming_module: Any = importlib.import_module("millstream.executor.spark.streaming")
        streaming: StreamingQuery = streaming_module.start(session, spec, checkpoint, available_now=available_now)
        on_progress(str(streaming.runId), self._count)
        try:
            yield streaming
        finally:
            streaming.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _cache_directory(self, master: str) -> Path:
        """Beside the checkpoints where tasks run on this host, else where any host has room for temporary files."""
        if master.startswith("local"):
            return (self._directory / "buckets").absolute()
        return Path(tempfile.gettempdir(), "millstream-buckets", self._directory.name)

    def _count(self, report: Mapping[str, int]) -> None:
        with self._guard:
            old = self.metrics
            used = min(report["rows_used"], report["rows_in"] - report["rows_failed"])
            self.metrics = replace(
                old,
                rows_in=old.rows_in + report["rows_in"],
                rows_used=old.rows_used + used,
                rows_failed=old.rows_failed + report["rows_failed"],
                rows_dropped=old.rows_dropped + report["rows_in"] - used - report["rows_failed"],
                rows_out=old.rows_out + report["rows_out"],
                bytes_in=old.bytes_in + report["bytes_in"],
                batches=old.batches + 1,
            )


def cause_of(error: BaseException) -> str:
    """What a person should read of an error that has come through Spark: the last Python error in its text,
    or the Java error it began with."""
    found = _PYTHON_ERROR.findall(str(error))
    named = [(name, text) for name, text in found if not name.startswith(("Py4J", "PythonException"))]
    if named:
        name, text = named[-1]
        return f"{name}: {text.strip()}"
    java = _JAVA_ERROR.search(str(error))
    return java[1].strip() if java is not None else first_line(error)
