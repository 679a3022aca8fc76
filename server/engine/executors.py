"""Chooses the executor of a persistent query: property `millstream.executor` of the query, the session, the server."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import structlog

from millstream.errors import MillstreamError, ServerError, StatementError, Unsupported

from ...executor.errors import UnknownQuery
from ...executor.executor import Executor, ExecutorKind, QueryStatus
from ...executor.figures import QueryFigures
from ...executor.queries.duckdb_executor import DuckDBExecutor
from ...executor.queries.query_log import settle_start
from ...executor.queries.store_filling import StoreFilling
from ...logcore.client import LogClient
from ...logcore.failpoints import fp
from ...planner.catalog import PersistentQuery
from ...planner.expressions.user_functions import functions_of
from ...planner.physical import PhysicalPlan
from ...sql.functions.users.user_functions import functions_off
from ...sql.settings.property_table import (
    EXECUTOR,
    FINAL_IDLE_MS,
    PYTHON_FUNCTIONS,
    SPARK_BOOTSTRAP,
    SPARK_MASTER,
    ExecutorChoice,
)
from .backfills import Backfills, records_left

log = structlog.get_logger("millstream.server")

_KINDS: Final[tuple[ExecutorKind, ...]] = ("duckdb", "spark")
JAVA_MAJOR_MIN: Final = 17  # what PySpark 4.3 needs
_SPARK: Final = "millstream.executor.spark.spark_executor"
_NOT_STARTED: Final = "it could not be started yet and is retried: see the log of the server"


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """`moves_time`: windows close when no records come for a while. `python_functions`: whether users' code may run."""

    choice: ExecutorChoice
    moves_time: bool
    python_functions: bool
    spark_master: str

    @staticmethod
    def of(properties: Mapping[str, str]) -> ExecutorSettings:
        """Raises `InvalidProperty`."""
        return ExecutorSettings(
            EXECUTOR.of(properties),
            FINAL_IDLE_MS.of(properties) > 0,
            PYTHON_FUNCTIONS.of(properties),
            SPARK_MASTER.of(properties),
        )


class NoSpark(ServerError):
    """Spark was asked for and cannot run here."""

    code = "NO_SPARK"


def make_executor(
    kind: ExecutorKind,
    client: LogClient,
    data_directory: Path | None,
    properties: Mapping[str, str],
    kafka_address: str | None = None,
) -> Executor:
    """In: `kafka_address`: HOST:PORT where Spark's processes find the log; DuckDB runs in this process."""
    if kind == "duckdb":
        return DuckDBExecutor(client, data_directory, properties)
    # Loaded only for Spark: pyspark is an optional dependency, takes a second to load, and needs a Java runtime.
    spark = importlib.import_module(_SPARK)
    folder = None if data_directory is None else data_directory.with_name(f"{data_directory.name}-spark")
    found = {} if kafka_address is None else {SPARK_BOOTSTRAP.name: kafka_address}
    return spark.SparkExecutor(client, folder, {**found, **properties})


@functools.cache
def why_no_spark() -> str | None:
    """What is missing for Spark, as a clause of a sentence; None if it can run. This does not load Spark."""
    major = _java_major()
    if major is None:
        return f"there is no Java runtime ({JAVA_MAJOR_MIN} or newer) on PATH or in JAVA_HOME"
    if major < JAVA_MAJOR_MIN:
        return f"Spark needs Java {JAVA_MAJOR_MIN} or newer, but found {major}"
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'millstream[spark]')"
    return None


def check_executor(properties: Mapping[str, str]) -> None:
    """Raises `NoSpark` if the server is configured to run queries on Spark, and Spark cannot run here."""
    if ExecutorSettings.of(properties).choice == "spark" and (reason := why_no_spark()) is not None:
        raise NoSpark(
            f"Spark cannot run persistent queries here: {reason}",
            hint="Use --executor duckdb, or auto, which takes Spark where it can run.",
        )


def describe_executor(properties: Mapping[str, str]) -> str:
    """One sentence: what runs persistent queries, and what Spark would add."""
    settings = ExecutorSettings.of(properties)
    wanted = settings.choice
    reason = why_no_spark() if wanted == "auto" else None
    if wanted == "spark" or (wanted == "auto" and reason is None):
        return f"Spark runs persistent queries ({settings.spark_master})"
    sentence = "DuckDB runs persistent queries in this process"
    if reason is None:
        return sentence
    return f"{sentence}; {reason}: with Spark, queries could use a cluster"


def chosen_executor(plan: PhysicalPlan, server: Mapping[str, str] | None = None) -> ExecutorKind:
    """The executor that will run the plan: the one named for the plan, else the server's choice, which runs on DuckDB
    what only DuckDB can run. Raises `Unsupported` if the choice is Spark, which cannot run the plan here."""
    settings = ExecutorSettings.of({**(server or {}), **plan.properties})
    match settings.choice:
        case "duckdb":
            return "duckdb"
        case "auto":
            return "duckdb" if _moves_time(settings, plan) or why_no_spark() else "spark"
        case "spark":
            if EXECUTOR.name not in plan.properties and _moves_time(settings, plan):
                return "duckdb"
            reason = why_no_spark()
            if _moves_time(ExecutorSettings.of(plan.properties), plan):
                reason = f"{FINAL_IDLE_MS} is set, and there only records move time"
            if reason is not None:
                raise Unsupported(f"Spark cannot run this query: {reason}", hint="Use EXECUTOR='duckdb' or 'auto'.")
            return "spark"


@runtime_checkable
class DrainedExecutor(Protocol):
    """An executor that works only when `drain` is called, as in the Sandbox. It runs all queries itself, backfills
    included."""

    def drain(self) -> None: ...


def backfill_executor() -> ExecutorKind:
    """The executor that reads a query's history, whatever executor runs the query later: in history, only records
    advance time. Raises `Unsupported` if it cannot run here."""
    if (reason := why_no_spark()) is not None:
        raise Unsupported(f"Spark cannot read the query's history: {reason}", hint="Leave BACKFILL out.")
    return "spark"


def _named_executor(plan: PhysicalPlan) -> ExecutorKind | None:
    """The executor named in the plan; None if the server, or the software on this machine, decides."""
    choice = ExecutorSettings.of(plan.properties).choice
    return None if choice == "auto" else choice


def _moves_time(settings: ExecutorSettings, plan: PhysicalPlan) -> bool:
    """Whether windows of the plan close when no records come."""
    return settings.moves_time and any(step.final for step in plan.steps())


class RoutingExecutor:
    """Implements `Executor`: passes each query to its chosen executor, which starts with its first query.

    A stored query whose executor is missing now (another machine, no Java any more) gets the state ERROR, with the
    reason; other queries still run.

    A query with a backfill starts on Spark, and moves automatically once it has read up to its mark.
    """

    def __init__(
        self,
        client: LogClient,
        data_directory: Path | None,
        properties: Mapping[str, str],
        kafka_address: str | None = None,
    ) -> None:
        self._client = client
        self._data_directory = data_directory
        self._properties = dict(properties)
        self._settings = ExecutorSettings.of(self._properties)
        self._kafka_address = kafka_address
        self._guard = threading.Lock()
        self._executors: dict[ExecutorKind, Executor] = {}
        self._by_query: dict[str, Executor] = {}
        self._refused: dict[str, QueryStatus] = {}  # by query id: queries that cannot run here
        self._moving = threading.RLock()  # held while changing where a query runs, or whether it runs
        self._backfills = Backfills(client, self._end_backfill)

    def start(self, query: PersistentQuery) -> None:
        with self._moving:
            fills = self._fills_stores(query)
            self._start(query, fills=fills, backfill=not fills and self._is_before_mark(query))

    def _start(self, query: PersistentQuery, *, fills: bool, backfill: bool) -> None:
        """In: `fills`: it fills new stores, on DuckDB; `backfill`: it is before its mark, so it runs on Spark."""
        try:
            self._check_code(query.plan)
            chosen = backfill_executor() if backfill else chosen_executor(query.plan, self._properties)
        except StatementError as error:
            log.error("query cannot start", query_id=query.id, error=error.message)
            self._refused[query.id] = QueryStatus(
                query.id, "ERROR", error=error.message, executor="spark" if backfill else _named_executor(query.plan)
            )
            return
        name: ExecutorKind = "duckdb" if fills else chosen
        executor = self._executor(name)
        with self._guard:
            self._by_query[query.id] = executor
        log.info("query starts", query_id=query.id, executor=name)
        try:
            executor.start(query)
        except BaseException:
            with self._guard:
                self._by_query.pop(query.id, None)
            raise
        if backfill or (fills and (chosen != name or query.backfill is not None)):
            self._backfills.add(query, fills=fills)

    def _fills_stores(self, query: PersistentQuery) -> bool:
        try:
            return StoreFilling.of(self._client, query.plan) is not None
        except MillstreamError:
            return True  # the log did not answer: the thread of `Backfills` asks again

    def _is_before_mark(self, query: PersistentQuery) -> bool:
        """Whether the query has history to read on Spark. It first settles where the query begins: a query that begins
        with new records has no history."""
        if query.backfill is None:
            return False
        settle_start(self._client, query.plan, self._properties)
        try:
            return records_left(self._client, query) > 0
        except MillstreamError:
            return True  # the log did not answer: the thread of `Backfills` asks again

    def _end_backfill(self, query: PersistentQuery) -> None:
        """Moves a query that has read its history, or filled its stores, unless it is paused or has an error."""
        with self._moving:
            status = self.status(query.id)
            rests = status.state in ("PAUSED", "ERROR") and status.error != _NOT_STARTED
            if query.id not in self._backfills or rests:
                return
            log.info("backfill is done", query_id=query.id)
            before = self._by_query.get(query.id)
            if before is not None:
                before.stop(query.id)
            fp("backfill.stopped")
            self._backfills.take_out(query.id)
            try:
                self.start(replace(query, paused=False))
            except BaseException:
                self._backfills.add(query, fills=False)  # the next check tries again
                raise

    def _check_code(self, plan: PhysicalPlan) -> None:
        """Raises `PythonFunctionsOff` for a query with users' code, if the server no longer allows that."""
        if self._settings.python_functions:
            return
        for function in functions_of(plan.root):
            raise functions_off(f"the query calls {function.name}, which is written in Python", None)

    def stop(self, query_id: str) -> None:
        with self._moving:
            self._refused.pop(query_id, None)
            self._backfills.take_out(query_id)
            found = self._by_query.get(query_id)
            if found is not None:
                found.stop(query_id)

    def pause(self, query_id: str) -> None:
        """A query that does not run here is unaffected: when it starts, it follows the catalog."""
        with self._moving:
            executor = self._by_query.get(query_id)
            if executor is not None:
                executor.pause(query_id)

    def resume(self, query_id: str) -> None:
        with self._moving:
            executor = self._by_query.get(query_id)
            if executor is not None:
                executor.resume(query_id)

    def drop(self, query_id: str) -> None:
        """Also for a query that was never started here, as after a crash."""
        with self._moving:
            self._refused.pop(query_id, None)
            self._backfills.take_out(query_id)
            with self._guard:
                self._by_query.pop(query_id, None)
            # It may have run on both, and each has caches of its state. Dropping them does not need a running Spark.
            for kind in _KINDS:
                self._executor(kind).drop(query_id)

    def status(self, query_id: str) -> QueryStatus:
        """A query without an executor is in the catalog, but its start failed, and the caller of `start` tries again. A
        query that its executor does not know is STOPPED: a statement has stopped it to alter or end it, and has not yet
        started it again or removed it from the catalog."""
        refused = self._refused.get(query_id)
        if refused is not None:
            return refused
        executor = self._by_query.get(query_id)
        if executor is None:
            return QueryStatus(query_id, "ERROR", error=_NOT_STARTED)
        try:
            found = executor.status(query_id)
        except UnknownQuery:
            return QueryStatus(query_id, "STOPPED")
        left = self._backfills.left(query_id)
        return found if left is None else replace(found, backfill_left=left)

    def figures(self, query_id: str) -> QueryFigures | None:
        executor = self._by_query.get(query_id)
        if query_id in self._refused or executor is None:
            return None
        try:
            return executor.figures(query_id)
        except UnknownQuery:
            return None

    def close(self) -> None:
        self._backfills.close()
        with self._guard:
            executors, self._executors = list(self._executors.values()), {}
            self._by_query.clear()
        for executor in executors:
            executor.close()

    def _executor(self, name: ExecutorKind) -> Executor:
        with self._guard:
            found = self._executors.get(name)
            if found is None:
                found = make_executor(name, self._client, self._data_directory, self._properties, self._kafka_address)
                self._executors[name] = found
            return found


def _java_major() -> int | None:
    """The major version of Java: 21, or 8 for `1.8`; None if no Java answers."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        return None
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None
