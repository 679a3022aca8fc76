"""A persistent query on Spark: a thread that begins runs of the query until the query is stopped.

The table lists the wanted states and what sets them. One lock guards the state; `_changed` wakes the threads that wait
for a change.

| wanted | the thread | set by |
| --- | --- | --- |
| `run` | begins a run and does its batches; after an outage it waits and begins another run | `start`, `resume` |
| `rest` | lets its job end (it is cancelled after `PATIENCE_S`) and waits | `pause` |
| `end` | lets its job end in the same way, and ends | `stop`; the thread itself, if a retry cannot help |

A job may be cancelled at any moment, because the next run finishes a batch that is only partly done.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import LogClosed
from ...planner.physical import PhysicalPlan
from ...planner.serde import plan_to_json
from ..errors import PositionLost, QueryFailed
from ..executor import QueryMetrics, QueryState, QueryStatus
from ..figures import QueryFigures
from ..queries.known_topics import KnownTopics
from ..queries.query_log import offset_group
from ..queries.query_settings import QuerySettings
from .batch_size import BatchSize
from .bucket import Report
from .lanes import Positions
from .spark_figures import SparkFigures
from .spark_jobs import Jobs, MakeJobs, SparkJobs, TaskCounts
from .spark_run import SparkRun
from .spark_settings import SparkSettings
from .spark_trouble import QueryTrouble, trouble_of
from .spec import RunSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger("millstream.queries")

FAILURES_MAX = 6  # consecutive failures that the query itself may have caused
BACKOFF_S = 0.5  # after the first failure; doubles with each
BACKOFF_MAX_S = 15.0
PATIENCE_S = 2.0  # how long a batch may go on when the query should rest
STOP_S = 1.0  # how long to wait for a cancelled job to end
IDLE_S = 10.0  # a job has no executor if none of its tasks has run or ended for this long


class SparkQuery:
    """Runs one query. In: `session` may raise; it is retried like a failed batch. `bootstrap`: the address where tasks
    reach the log. `directory`: the query's folder; it holds the caches of state if tasks run on this host. `jobs`: runs
    the batches of a run."""

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
        jobs: MakeJobs = SparkJobs,
    ) -> None:
        self.query_id = plan.query_id
        self.metrics = QueryMetrics()
        self._plan = plan
        self._client = client
        self._session = session
        self._bootstrap = bootstrap
        self._directory = directory
        self._properties = dict(properties)
        self._make_jobs = jobs
        self._topics = KnownTopics(client, plan)
        self._figures = SparkFigures(plan)
        self._size = BatchSize(SparkSettings.of(self._properties).batch_records_max)
        self._changed = threading.Condition()
        self._wanted: Literal["run", "rest", "end"] = "rest" if paused else "run"
        self._wanted_since = time.monotonic()
        self._state: QueryState = "PAUSED" if paused else "RUNNING"
        self._error: str | None = None
        self._jobs: Jobs | None = None  # those of the current run
        self._job_since: float | None = None
        # What `look` saw last (the start of the batch, its task counts), and when it last changed.
        self._seen: tuple[float | None, TaskCounts | None, float] = None, None, 0.0
        self._session_opens = False
        self._homes: dict[int, str] = {}  # of buckets; a home outlives the run that made it
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._changed:
            self._begin_thread()

    def pause(self) -> None:
        """Returns when no batch is running, or when Spark has not confirmed that in time."""
        with self._changed:
            if self._state != "RUNNING":
                return
            self._want("rest", "PAUSED")
        self._await_rest()

    def resume(self) -> None:
        """Resumes a paused query. After an error the query also tries again, and accepts the topics as they are now."""
        if self._state == "ERROR":
            self._topics.accept()
        with self._changed:
            if self._state not in ("PAUSED", "ERROR"):
                return
            self._error = None
            self._want("run", "RUNNING")
            if self._thread is None:
                self._begin_thread()

    def ask_to_stop(self) -> None:
        """Asks the query to stop, without waiting. A caller that ends several queries asks all of them before it waits
        for the first one."""
        with self._changed:
            self._want("end", "ERROR" if self._state == "ERROR" else "STOPPED")

    def stop(self) -> None:
        """Returns when no part of the query runs any more, or when Spark has not confirmed that in time. In the latter
        case, tasks that still run find that another run has begun or that the log is closed."""
        thread = self._thread
        if self._wanted != "end":
            self.ask_to_stop()
        self._await_rest()
        if thread is not None:
            thread.join(self._left_s(PATIENCE_S + STOP_S))

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
        starts = self._session_opens and self._state == "RUNNING"
        return QueryStatus(
            self.query_id, self._state, self.metrics, positions, lag, self._error, "spark", spark_starts=starts
        )

    def figures(self) -> QueryFigures:
        """What the operators have done since the query was started here, and what its state contains."""
        return self._figures.figures()

    def look(self) -> float | None:
        """Reports in the status whether the batch waits for executors. Call it every few seconds. It asks Spark, so it
        may take long. Out: for how many seconds no task of the batch has run; None without a batch."""
        jobs, since = self._jobs, self._job_since
        counts = None if jobs is None or since is None else jobs.tasks()
        now = time.monotonic()
        if counts is None or counts.active or (since, counts) != self._seen[:2]:
            self._seen = since, counts, now
        waited_s = now - self._seen[2]
        with self._changed:
            if counts is None or self._job_since != since:
                return None
            waits = waited_s >= IDLE_S
            text = f"the batch has waited {int(waited_s)} s for an executor of Spark: none is there, or all are busy"
            self._error = text if waits else None
        return waited_s

    def run_available(self, stops: Sequence[Positions] | None = None) -> None:
        """Processes the available input in the caller's thread; for queries that were not started. In: `stops`: reads
        up to each of these positions in turn, and no further. Raises `QueryFailed`."""
        try:
            with self._begun() as run:
                for stop in [run.available()] if stops is None else stops:
                    while (reports := run.step(stop)) is not None:
                        self._count(reports)
        except Exception as error:
            raise QueryFailed(f"query {self.query_id}: {trouble_of(error, self.query_id).text}") from error

    # -------------------------------------------------------------- requests from other threads

    def _want(self, wanted: Literal["run", "rest", "end"], state: QueryState) -> None:
        self._wanted, self._state, self._wanted_since = wanted, state, time.monotonic()
        self._changed.notify_all()

    def _left_s(self, patience_s: float) -> float:
        """What is left of `patience_s`, counted from the last request. So several queries that get a request together
        take no longer than one."""
        return max(0.0, self._wanted_since + patience_s - time.monotonic())

    def _await_rest(self) -> None:
        """Waits for the current job, and cancels it after `PATIENCE_S`."""
        with self._changed:
            if self._changed.wait_for(lambda: self._jobs is None, self._left_s(PATIENCE_S)):
                return
            jobs = self._jobs
        if jobs is not None:
            # A driver that hangs never answers, so another thread calls it.
            threading.Thread(target=_cancel, args=(jobs,), name="spark-cancel", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._jobs is None, self._left_s(PATIENCE_S + STOP_S))

    # -------------------------------------------------------------- the thread

    def _begin_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"spark-query-{self.query_id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failures = 0
        while self._may_run():
            batches = self.metrics.batches
            try:
                self._run_once()
                failures = 0
            except Exception as error:  # any error: everything durable is in the log, so a new run begins from there
                if self._wanted != "run":
                    continue  # its job was cancelled
                failures = 1 if self.metrics.batches > batches else failures + 1
                trouble = trouble_of(self._topic_lost(error), self.query_id)
                if trouble.smallest and self._size.shrink(trouble.smallest):
                    failures = 1  # a smaller batch is another one
                    self._wait_out(trouble.followed_by(self._size.records), failures)
                elif trouble.kind == "over" or (trouble.kind == "failure" and failures >= FAILURES_MAX):
                    self._fail(trouble)
                else:
                    self._wait_out(trouble, failures)

    def _topic_lost(self, error: Exception) -> Exception:
        """`PositionLost` if a topic was deleted or recreated, because that explains any other error; else `error`. The
        task that notices it does not know what the query uses the topic for or what to do about it, and Spark passes on
        only the text of the task's error."""
        try:
            self._topics.check()
        except PositionLost as lost:
            return lost
        except Exception:  # the log does not answer
            return error
        return error

    def _may_run(self) -> bool:
        """Waits while the query should rest. False if it should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted != "rest")
            if self._wanted == "end":
                self._thread = None  # from now on `resume` begins another thread
            return self._wanted == "run"

    def _run_once(self) -> None:
        """Does one run: until the query should stop, a topic has grown, or the run fails."""
        with self._begun() as run:
            while self._wanted == "run" and not run.has_grown():
                self._job_since = time.monotonic()
                self._figures.sample()
                reports = run.step()
                self._job_since = None
                self._recovered()
                if reports is not None:
                    self._count(reports)
                    self._size.done()

    def _wait_out(self, trouble: QueryTrouble, failures: int) -> None:
        log.warning("query waits", query_id=self.query_id, failures=failures, kind=trouble.kind, error=trouble.text)
        with self._changed:
            self._error = trouble.text
            self.metrics = replace(self.metrics, restarts=self.metrics.restarts + 1)
            pause_s = min(BACKOFF_S * 2 ** min(failures - 1, 10), BACKOFF_MAX_S)
            self._changed.wait_for(lambda: self._wanted != "run", pause_s)

    def _recovered(self) -> None:
        if self._error is not None:
            log.info("query goes on", query_id=self.query_id)
            self._error = None

    def _fail(self, trouble: QueryTrouble) -> None:
        with self._changed:
            self._error = trouble.text
            self._want("end", "ERROR")
        log.error("query stopped", query_id=self.query_id, error=self._error)

    # -------------------------------------------------------------- one run

    @contextlib.contextmanager
    def _begun(self) -> Generator[SparkRun]:
        self._session_opens = True  # it may take minutes; no part of the query runs during that time
        try:
            session = self._session()
        finally:
            self._session_opens = False
        name = uuid.uuid4().hex
        spec = RunSpec(
            plan_to_json(self._plan), self._bootstrap(), name, self._properties, self._cache(_master(session))
        )
        jobs = self._make_jobs(session, spec)
        with self._changed:
            if self._wanted != "run":  # changed meanwhile; that caller does not wait for a run that has not begun
                raise QueryFailed("the query was told to stop before it had begun")
            self._jobs = jobs
        try:
            self._size.planned(0)
            run = SparkRun(self._plan, self._client, spec, jobs.run, lambda: jobs.parallelism, self._size, self._homes)
            self._figures.begin(run.seen)
            yield run
        finally:
            with self._changed:
                self._jobs = self._job_since = None
                self._changed.notify_all()

    def _cache(self, master: str) -> str | None:
        """Where caches of state are: in the data directory if tasks run on this host, else in each host's folder for
        temporary files. None: in memory."""
        if QuerySettings.of({**self._properties, **self._plan.properties}).cache == "memory":
            return None
        if master.startswith("local"):
            return str((self._directory / "buckets").absolute())
        return self._directory.name

    def _count(self, reports: Sequence[Report]) -> None:
        rows_in, rows_failed = (sum(getattr(each, name) for each in reports) for name in ("rows_in", "rows_failed"))
        used = min(sum(report.rows_used for report in reports), rows_in - rows_failed)
        self._figures.add((report.bucket, report.figures) for report in reports if report.figures)
        old = self.metrics
        self.metrics = replace(
            old,
            rows_in=old.rows_in + rows_in,
            rows_used=old.rows_used + used,
            rows_failed=old.rows_failed + rows_failed,
            rows_dropped=old.rows_dropped + rows_in - used - rows_failed,
            rows_out=old.rows_out + sum(report.rows_out for report in reports),
            bytes_in=old.bytes_in + sum(report.bytes_in for report in reports),
            batches=old.batches + 1,
        )


def _master(session: SparkSession) -> str:
    context: Any = session.sparkContext
    return str(context.master)


def _cancel(jobs: Jobs) -> None:
    with contextlib.suppress(Exception):  # the driver has ended, and the job with it
        jobs.cancel()
