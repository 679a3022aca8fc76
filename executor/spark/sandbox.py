"""The Spark executor for a Sandbox: queries run only on request, each until no input is left.

All partitions count as one task, and rows arrive in the order of the script, so the results equal those of a Sandbox on
DuckDB. The order between records of different partitions is not defined, so tests compare the final content of a topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from ...logcore.client import FetchedRows, LogClient, TopicPartition
from ...logcore.log import Log
from ...logcore.remote import trusted_address
from ...logcore.server import LogServer
from ...planner.catalog import PersistentQuery
from ...planner.physical import PhysicalPlan
from ...planner.planning import PlannedPush
from ...planner.steps.sink import Sink
from ...sql.settings.property_table import SPARK_BOOTSTRAP, SPARK_CACHE, SPARK_MASTER
from .. import processing_log
from ..errors import QueryFailed, UnknownQuery
from ..executor import QueryStatus
from ..figures import QueryFigures
from ..queries.query import QueryRuntime
from ..queries.query_log import start_positions
from ..queries.query_settings import QuerySettings
from ..queries.script_rounds import ScriptRounds
from ..queries.start_offsets import StartSettings
from ..queries.stepwise import StepwiseFeed
from ..queries.store_filling import StoreFilling
from ..sources.arrivals import Ends, stops
from ..sources.journal import JournaledLog
from ..state.temporary_folders import TemporaryFolder
from ..tasks import in_one_task
from . import alignment
from .spark_executor import OpenSession, SparkExecutor
from .spark_jobs import MakeJobs, SparkJobs
from .spark_query import SparkQuery
from .spark_session import spark_session


@dataclass(slots=True)
class _Query:
    plan: PhysicalPlan
    spark: SparkQuery
    paused: bool
    there: Ends = field(default_factory=dict)  # ends of the input that existed at the start: it is read in one step
    seen: int = 0  # how many entries of the journal were read
    noted: Ends = field(default_factory=dict)  # up to which offsets the sink's records are in the journal


class SparkSandboxExecutor:
    """Implements `Executor`, and `drain`. The Spark session stays open for the next Sandbox of this process."""

    def __init__(
        self,
        log: JournaledLog,
        properties: Mapping[str, str],
        session: OpenSession = spark_session,
        jobs: MakeJobs = SparkJobs,
    ) -> None:
        self._log = log
        self._client = cast(LogClient, log)
        self._server = LogServer(cast(Log, log), port=0)
        self._server.start()
        self._properties = {
            SPARK_MASTER.name: "local[2]",
            SPARK_CACHE.name: "memory",
            **properties,
            SPARK_BOOTSTRAP.name: trusted_address(self._server.log, self._server.address),
        }
        self._directory = TemporaryFolder("spark")
        self._executor = SparkExecutor(self._client, self._directory.path, self._properties, session=session, jobs=jobs)
        self._queries: dict[str, _Query] = {}
        self._rounds = ScriptRounds(log)

    def drain(self) -> None:
        """Runs every query until no input is left, in the order in which they were created. Raises `QueryError`."""
        running = [query for query in self._queries.values() if not query.paused]
        self._rounds.run([(query.plan, partial(self._run, query)) for query in running])

    def open_feed(self, planned: PlannedPush, properties: Mapping[str, str]) -> StepwiseFeed:
        """Starts a push query, which runs on DuckDB."""
        return StepwiseFeed(planned, self._log, {**self._properties, **properties})

    def start(self, query: PersistentQuery) -> None:
        if query.id not in self._queries:
            plan = in_one_task(query.plan)
            self._fill_new_stores(plan)
            spark = self._executor.query(replace(query, plan=plan, paused=False))
            self._queries[query.id] = _Query(plan, spark, query.paused)
            self._catch_up(self._queries[query.id])

    def _fill_new_stores(self, plan: PhysicalPlan) -> None:
        """On DuckDB, as a server does it (`RoutingExecutor`)."""
        if StoreFilling.of(self._client, plan) is not None:
            take_over = partial(alignment.take_from_spark, plan, self._client, self._properties)
            QueryRuntime(plan, self._client, None, self._properties, take_over=take_over).close()

    def stop(self, query_id: str) -> None:
        self._queries.pop(query_id, None)

    def drop(self, query_id: str) -> None:
        self.stop(query_id)
        self._executor.drop(query_id)

    def pause(self, query_id: str) -> None:
        self._query(query_id).paused = True

    def resume(self, query_id: str) -> None:
        query = self._query(query_id)
        if query.paused:
            query.paused = False
            self._catch_up(query)

    def status(self, query_id: str) -> QueryStatus:
        query = self._query(query_id)
        return QueryStatus(query_id, "PAUSED" if query.paused else "RUNNING", query.spark.metrics, executor="spark")

    def figures(self, query_id: str) -> QueryFigures | None:
        return self._query(query_id).spark.figures()

    def close(self) -> None:
        self._queries.clear()
        self._executor.close()
        self._server.stop()
        self._directory.remove()

    def _positions(self, plan: PhysicalPlan) -> dict[TopicPartition, int]:
        return start_positions(self._client, plan, StartSettings.of({**self._properties, **plan.properties}))

    def _catch_up(self, query: _Query) -> None:
        """Notes the input that exists now. It did not arrive during the script, so it is read in one step."""
        query.there = self._log.ends(self._positions(query.plan))
        query.seen = len(self._log.entries)

    def _stops(self, query: _Query, script_end: int) -> list[Ends]:
        """The positions up to which to read, one after the other. The order is that of `StepwisePlan.advance`: input
        that existed at the start, records of the script, records that queries have written."""
        start = self._positions(query.plan)
        there = {lane: max(offset, query.there.get(lane, 0)) for lane, offset in start.items()}
        script = self._log.script(there, query.seen, script_end)
        query.seen = max(query.seen, script_end)
        last = {lane: max(offset, there[lane]) for lane, offset in self._log.ends(start, script_end).items()}
        found = [there, *stops(self._client, query.plan.sources(), there, script), last]
        return [stop for before, stop in pairwise([start, *found]) if stop != before]

    def _run(self, query: _Query, script_end: int) -> bool:
        """Runs the query on its available input. False if there was nothing to read."""
        found = self._stops(query, script_end)
        if not found:
            return False
        failures = self._failures()
        query.spark.run_available(found)
        self._check(query.plan, failures)
        self._take_note(query)
        return True

    def _check(self, plan: PhysicalPlan, failures: int) -> None:
        """Raises `QueryFailed` as on DuckDB: for a row that the sink's format cannot represent, and for any skipped
        record if the script's settings say so. In: `failures`: the previous end of the processing log."""
        entries = self._left_out(failures)
        unwritten = next((each["serializationError"] for each in entries if "serializationError" in each), None)
        if unwritten is not None:
            message = f"Exception caught in process: Unable to serialize record: {unwritten['errorMessage']}"
            raise QueryFailed(f"query {plan.query_id}: {message}")
        if entries and self._stops_on_bad_record(plan):
            error = entries[-1].get("deserializationError") or entries[-1]["recordProcessingError"]
            raise QueryFailed(f"query {plan.query_id}: {error['errorMessage']}")

    def _take_note(self, query: _Query) -> None:
        """Adds the records that the query has written to the journal."""
        assert isinstance(query.plan.root, Sink)
        topic = query.plan.root.topic
        for partition in range(self._client.partition_count(topic)):
            at = TopicPartition(topic, partition)
            known = {place.offset for entry in self._log.entries if entry.at == at for place in entry.places()}
            for first, count in self._stretches(at, query.noted.get(at, 0), known):
                self._log.note(at, first, count)
            query.noted[at] = self._client.offsets(*at).last_stable_offset

    def _stretches(self, at: TopicPartition, begin: int, known: set[int]) -> list[tuple[int, int]]:
        """The ranges (first offset, count) of the records that are not in the journal yet."""
        offsets: list[int] = []
        position, fetched = -1, self._client.fetch(at.topic, at.partition, begin)
        while fetched.next_offset > position:
            for run in fetched.runs:
                if isinstance(run, FetchedRows):
                    offsets += run.table["offset"].to_pylist()
                else:
                    offsets += run.row_offsets.tolist()
            position = fetched.next_offset
            fetched = self._client.fetch(at.topic, at.partition, position)
        new = np.array([offset for offset in offsets if offset not in known], np.int64)
        borders = [0, *(np.flatnonzero(np.diff(new) != 1) + 1).tolist(), len(new)] if len(new) else []
        return [(int(new[a]), b - a) for a, b in pairwise(borders)]

    def _stops_on_bad_record(self, plan: PhysicalPlan) -> bool:
        return QuerySettings.of({**self._properties, **plan.properties}).stops_on_bad_record

    def _failures(self) -> int:
        if processing_log.TOPIC not in self._client.topics():
            return 0
        return self._client.offsets(processing_log.TOPIC, 0).last_stable_offset

    def _left_out(self, begin: int) -> list[dict[str, Any]]:
        """The messages of the processing log from this offset on."""
        messages: list[dict[str, Any]] = []
        position, fetched = -1, self._client.fetch(processing_log.TOPIC, 0, begin)
        while fetched.next_offset > position:
            for run in fetched.runs:
                if isinstance(run, FetchedRows):
                    messages += [json.loads(value)["message"] for value in run.table["value"].to_pylist()]
            position = fetched.next_offset
            fetched = self._client.fetch(processing_log.TOPIC, 0, position)
        return messages

    def _query(self, query_id: str) -> _Query:
        found = self._queries.get(query_id)
        if found is None:
            raise UnknownQuery(f"query {query_id} does not run here", hint="SHOW QUERIES lists the queries.")
        return found
