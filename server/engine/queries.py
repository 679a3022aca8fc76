"""SELECT: pull queries, which answer once, and push queries, which keep sending rows. The executor computes them."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import QueryError, UnknownSource, did_you_mean

from ...executor.answers.left_out import remark
from ...executor.answers.push_query import PushProgress
from ...executor.queries.start_offsets import StartSettings, check_start
from ...planner.planning import PlannedBatch, PlannedPull, PlannedPush
from ...planner.pull.pull_queries import plan_pull
from ...planner.schema import Schema
from ...planner.select.queries import plan_push
from ...sql.ast import Join, Query, Relation, SourceName
from ...sql.functions.java.calendar_days import python_values
from ..http.row_values import converter
from ..insight.open_pushes import OpenPush
from .pull_answers import PullAnswer, answer
from .pull_limits import refuse_disabled
from .request import Request
from .statement_settings import StatementSettings

TOMBSTONE: Final = "@tombstone"
_PIECE_ROWS_MAX: Final = 4096
_PIECE_BYTES_MAX: Final = 64 * 1024


class PushLimitExceeded(QueryError):
    """A push query has reached its limit of rows or of time."""

    code = "PUSH_LIMIT"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One row; a `tombstone` reports that a table's row was deleted, and has only the key columns."""

    values: tuple[Any, ...]
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """Rows: an array for each column of the result's schema. `gone`: which rows are tombstones; None: no row."""

    columns: Sequence[pa.ChunkedArray]
    gone: pa.ChunkedArray | None = None

    def slice(self, count: int, begin: int = 0) -> QueryBatch:
        """`count` rows, or what there is of them."""
        gone = None if self.gone is None else self.gone.slice(begin, count)
        return QueryBatch([column.slice(begin, count) for column in self.columns], gone)

    def pieces(self) -> Iterator[QueryBatch]:
        """The rows in parts that are small enough to be held as Python values, which take many times the space."""
        rows = self._piece_rows()
        if rows >= len(self):
            return iter((self,))
        return (self.slice(rows, begin) for begin in range(0, len(self), rows))

    def _piece_rows(self) -> int:
        size = sum(column.nbytes for column in self.columns)
        return min(_PIECE_ROWS_MAX, max(1, _PIECE_BYTES_MAX * len(self) // max(1, size)))

    def __len__(self) -> int:
        return len(self.columns[0])


class ChangeFeed(Protocol):
    """The rows of a push query as they come: the columns of a ChangeBatch, with an update as one row, and deletions
    with `_weight` -1. Any thread may end the iteration with `close`. `PushQuery` implements it."""

    def __iter__(self) -> Iterator[pa.Table]: ...

    def close(self) -> None: ...


@runtime_checkable
class MeasuredFeed(Protocol):
    """A feed that reports its progress."""

    def progress(self) -> PushProgress: ...


@runtime_checkable
class ThinnedFeed(Protocol):
    """A feed that counts the records that it had to leave out."""

    @property
    def left_out(self) -> int: ...


OpenFeed = Callable[[PlannedPush, Mapping[str, str]], ChangeFeed]
"""Starts a push query, with its properties."""


@dataclass(frozen=True, slots=True)
class PushRows:
    """The source of a push query's rows. `shape`: converts a batch of the feed to the rows that a client sees.
    `about`: how statements show the query. `keyed_only`: rows without a key are left out, as in ksqlDB's scalable push
    queries."""

    feed: ChangeFeed
    shape: Callable[[pa.Table], QueryBatch]
    about: OpenPush
    keyed_only: bool


class QueryResult:
    """The result of a query: the header at once, and rows as they come, either one by one (iterate) or as `batches`.
    The rows can be read only once; call `close` unless you read them to the end.

    `keyed`: rows may be updates of earlier rows, or tombstones. `key`: the positions of the columns that identify a
    row, if known. `progress`: the progress of a push query; any thread may call it. `planned_pull`: the plan of a pull
    query on one source. `push`: for a push query. `rows_max`: more rows end it with an error. `final_message` is None
    until the rows have ended, and also after that if the API sends none.
    """

    def __init__(
        self, kind: Literal["PULL", "PUSH"], query_id: str, schema: Schema, source: Iterable[QueryBatch],
        close: Callable[[], None], last_words: Callable[[int], str | None], *, keyed: bool = False,
        key: tuple[int, ...] | None = None, progress: Callable[[], PushProgress | None] = lambda: None,
        planned_pull: PlannedPull | None = None, push: PushRows | None = None, rows_max: int | None = None,
    ) -> None:  # fmt: skip
        self.kind: Final = kind
        self.query_id: Final = query_id
        self.schema: Final = schema
        self.keyed: Final = keyed
        self.key: Final = key
        self.progress: Final = progress
        self.planned_pull: Final = planned_pull
        self.push: Final = push
        self._source = iter(source)
        self._close = close
        self._last_words = last_words
        self._rows_max = rows_max
        self._final_message: str | None = None
        self._stopped: Exception | None = None

    @property
    def final_message(self) -> str | None:
        return self._final_message

    @property
    def stopped(self) -> Exception | None:
        """The reason given to `stop`, if it was called."""
        return self._stopped

    def stop(self, reason: Exception) -> None:
        """Ends the rows. The reader of the rows gets the reason. Any thread may call it."""
        self._stopped = reason
        self.close()

    def batches(self) -> Iterator[QueryBatch]:
        count = 0
        for batch in self._source:
            if self._rows_max is not None and count + len(batch) > self._rows_max:
                yield batch.slice(self._rows_max - count)
                raise PushLimitExceeded(f"the push query has sent {self._rows_max} rows, its limit")
            count += len(batch)
            yield batch
        self._final_message = self._last_words(count)
        self.close()

    def __iter__(self) -> Iterator[QueryRow]:
        for rows in self.pieces():
            yield from rows

    def pieces(self) -> Iterator[Iterator[QueryRow]]:
        """The rows, each part of which is there at once."""
        for batch in self.batches():
            for piece in batch.pieces():
                yield rows_of(piece, self.schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of `tables`."""
        fields = [pa.field(column.name, column.type.arrow) for column in self.schema]
        return pa.schema([*fields, pa.field(TOMBSTONE, pa.bool_())] if self.keyed else fields)

    def tables(self) -> Iterator[pa.Table]:
        """The batches as Arrow tables; with `keyed`, they have a column that marks tombstones."""
        schema = self.arrow_schema
        for batch in self.batches():
            columns = list(batch.columns)
            if self.keyed:
                columns.append(batch.gone if batch.gone is not None else pa.chunked_array([np.zeros(len(batch), bool)]))
            yield pa.table([c.cast(field.type) for c, field in zip(columns, schema, strict=True)], schema=schema)

    def close(self) -> None:
        self._close()


def transient_id(statement: Query, request: Request) -> str:
    """A new id for a query that lives as long as its client: `transient_NAME_…`. Queries that read a running query's
    output from now on are named as in ksqlDB: `SCALABLE_PUSH_QUERY_…`."""
    number = uuid.uuid4().int % 10**19
    if _taps_running_query(statement, request):
        return f"SCALABLE_PUSH_QUERY_{number}"
    first = statement.source
    while isinstance(first, Join):
        first = first.left
    return f"transient_{first.name if isinstance(first, SourceName) else first.alias}_{number}"


def _taps_running_query(statement: Query, request: Request) -> bool:
    if statement.emit != "CHANGES" or not isinstance(statement.source, SourceName):
        return False
    reshapes = statement.group_by or statement.partition_by or statement.window or statement.having is not None
    from_now_on = StartSettings.of(request.settings).from_now_on
    return not reshapes and from_now_on and bool(request.catalog.writers_of(statement.source.name))


def run_query(statement: Query, request: Request, open_feed: OpenFeed, push_rows_max: int | None = None) -> QueryResult:
    """Starts the query. Raises what planning raises, before any row."""
    statement = request.bound(statement)
    _check_sources(statement.source, {*request.catalog.sources, *(cte.name for cte in statement.ctes)})
    query_id = transient_id(statement, request)
    context = request.planning_context(query_id)
    if statement.emit is None:
        planned = plan_pull(statement, context)
        refuse_disabled(statement, planned, StatementSettings.of(request.settings))
        return _pull(statement, planned, query_id, answer(planned, request, query_id))
    push = plan_push(statement, context)
    check_start(request.log, push.plan, StartSettings.of(request.settings))
    feed = open_feed(push, request.settings)
    keyed_only = _taps_running_query(statement, request)
    about = OpenPush(query_id, statement.text, push)
    return _push(push, about, feed, keyed_only=keyed_only, rows_max=push_rows_max)


class AnswerColumns(NamedTuple):
    """The columns of a query's answer; `keyed` as in `QueryResult`."""

    schema: Schema
    keyed: bool


def columns_of(statement: Query, request: Request) -> AnswerColumns:
    """Plans the query and runs nothing. Raises what planning raises."""
    statement = request.bound(statement)
    _check_sources(statement.source, {*request.catalog.sources, *(cte.name for cte in statement.ctes)})
    context = request.planning_context()
    if statement.emit is None:
        planned = plan_pull(statement, context)
        refuse_disabled(statement, planned, StatementSettings.of(request.settings))
        return AnswerColumns(planned.schema, keyed=False)
    push = plan_push(statement, context)
    return AnswerColumns(push.schema, keyed=push.plan.root.gives == "TABLE")


def _check_sources(relation: Relation, known: Collection[str]) -> None:
    """Reports an unknown source before any other error of the query. The planner checks subqueries."""
    if isinstance(relation, Join):
        _check_sources(relation.left, known)
        _check_sources(relation.right, known)
    elif isinstance(relation, SourceName) and relation.name not in known:
        raise UnknownSource(
            f"{relation.name} does not exist.", span=relation.span, hint=did_you_mean(relation.name, known)
        )


def _pull(statement: Query, planned: PlannedPull | PlannedBatch, query_id: str, found: PullAnswer) -> QueryResult:
    is_table = planned.table if isinstance(planned, PlannedBatch) else planned.source_info.kind == "TABLE"

    def last_words(count: int) -> str | None:
        limited = statement.limit is not None and count >= statement.limit
        end = None if is_table else "Limit Reached" if limited else "Query Completed"
        return _with_remark(end, found.left_out)

    batch = QueryBatch(found.rows.columns[: len(planned.schema.columns)])
    look = planned if isinstance(planned, PlannedPull) else None
    return QueryResult("PULL", query_id, planned.schema, [batch], lambda: None, last_words, planned_pull=look)


def _push(
    planned: PlannedPush, about: OpenPush, feed: ChangeFeed, *, keyed_only: bool, rows_max: int | None
) -> QueryResult:
    is_table = planned.plan.root.gives == "TABLE"

    def shape(rows: pa.Table) -> QueryBatch:
        return push_batch(_with_key(rows) if keyed_only else rows, planned, is_table=is_table)

    def batches() -> Iterator[QueryBatch]:
        left = planned.limit
        if left == 0:
            return
        for rows in feed:
            batch = shape(rows)
            if left is not None:
                batch = batch.slice(left)
                left -= len(batch)
            yield batch
            if left == 0:
                return

    def last_words(count: int) -> str | None:
        end = "Limit Reached" if planned.limit is not None and count >= planned.limit else None
        return _with_remark(end, feed.left_out if isinstance(feed, ThinnedFeed) else 0)

    key = planned.key if is_table else None
    progress = feed.progress if isinstance(feed, MeasuredFeed) else lambda: None
    return QueryResult(
        "PUSH", about.id, planned.schema, batches(), feed.close, last_words, keyed=is_table, key=key, progress=progress,
        push=PushRows(feed, shape, about, keyed_only), rows_max=rows_max,
    )  # fmt: skip


def _with_remark(end: str | None, left_out: int) -> str | None:
    """The final message, with a remark about records that were left out."""
    told = remark(left_out)
    return ". ".join(part for part in (end, told) if part is not None) or None


def _with_key(rows: pa.Table) -> pa.Table:
    keys = [rows[name] for name in rows.column_names if name[:1] == "k" and name[1:].isdigit()]
    if not keys:
        return rows
    return rows.filter(functools.reduce(pc.or_, [pc.is_valid(key) for key in keys]))


def push_batch(rows: pa.Table, planned: PlannedPush, *, is_table: bool) -> QueryBatch:
    """The rows of a batch as a client sees them. A stream's record without a value is no row; a tombstone has only its
    keys."""
    if not is_table:
        rows = rows.filter(pc.invert(rows["_null"]))
        return QueryBatch([rows[name] for name in planned.columns])
    gone = pc.or_(pc.less(rows["_weight"], 0), rows["_null"])
    if not pc.any(gone).as_py():
        return QueryBatch([rows[name] for name in planned.columns])
    kept = [pc.if_else(gone, None, rows[name]) if name.startswith("v") else rows[name] for name in planned.columns]
    return QueryBatch(kept, gone)


def rows_of(batch: QueryBatch, schema: Schema) -> Iterator[QueryRow]:
    """The rows one by one, as JSON values."""
    rows = _rows(batch.columns, schema)
    return map(QueryRow, rows) if batch.gone is None else map(QueryRow, rows, batch.gone.to_pylist())


def _rows(columns: Iterable[pa.ChunkedArray], schema: Schema) -> Iterator[tuple[Any, ...]]:
    """Row tuples of JSON values."""
    converted: list[list[Any]] = []
    for array, column in zip(columns, schema, strict=True):
        values = python_values(array)
        convert = converter(column.type)
        converted.append(values if convert is None else [convert(value) for value in values])
    return iter(zip(*converted, strict=True))
