"""SELECT: pull queries, which answer once, and push queries, which go on. How rows are computed is the executor's."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import UnknownSource, did_you_mean

from ..executor.materialization import Materialization
from ..planner.catalog import Catalog, SourceInfo
from ..planner.physical import Aggregate, Source, Step, StreamStreamJoin, StreamTableJoin, inputs_of
from ..planner.planning import PlannedPull, PlannedPush
from ..planner.pull import plan_pull
from ..planner.queries import plan_push
from ..planner.schema import Schema
from ..sql.ast import Join, Query, Relation
from .pull_limits import refuse_disabled
from .request import Request
from .row_values import converter


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One row; a `tombstone` says that a table's row is gone, and has its key columns only."""

    values: tuple[Any, ...]
    tombstone: bool = False


class ChangeFeed(Protocol):
    """The rows of a push query as they come (the columns of a ChangeBatch, updates as one row, deletions with
    `_weight` -1); `close` ends the iteration, from any thread. `PushQuery` is one."""

    def __iter__(self) -> Iterator[pa.Table]: ...

    def close(self) -> None: ...


OpenFeed = Callable[[PlannedPush, Mapping[str, str]], ChangeFeed]
"""Starts a push query, with the properties that hold for it."""


class QueryResult:
    """What a query gives: a header at once, rows as they come. Iterate once; `close` it if that is not to the end.

    `final_message` is None until the rows have ended, and after that where the API sends none.
    """

    def __init__(
        self, kind: Literal["PULL", "PUSH"], query_id: str, schema: Schema, source: Iterable[QueryRow],
        close: Callable[[], None], last_words: Callable[[int], str | None],
    ) -> None:  # fmt: skip
        self.kind: Literal["PULL", "PUSH"] = kind
        self.query_id = query_id
        self.schema = schema
        self.final_message: str | None = None
        self._source = iter(source)
        self._close = close
        self._last_words = last_words
        self._count = 0

    def __iter__(self) -> Iterator[QueryRow]:
        for row in self._source:
            self._count += 1
            yield row
        self.final_message = self._last_words(self._count)
        self.close()

    def close(self) -> None:
        self._close()


def transient_id(statement: Query, request: Request) -> str:
    """A new id for a query that lives as long as its client: `transient_NAME_…`, or, as ksqlDB calls those that tap
    a running query's output from now on, `SCALABLE_PUSH_QUERY_…`."""
    number = uuid.uuid4().int % 10**19
    if _taps_running_query(statement, request):
        return f"SCALABLE_PUSH_QUERY_{number}"
    first = statement.source
    while isinstance(first, Join):
        first = first.left
    return f"transient_{first.name}_{number}"


def _taps_running_query(statement: Query, request: Request) -> bool:
    if statement.emit != "CHANGES" or isinstance(statement.source, Join):
        return False
    reshapes = statement.group_by or statement.partition_by or statement.window or statement.having is not None
    from_now_on = request.settings.get("auto.offset.reset", "latest") == "latest"
    return not reshapes and from_now_on and bool(request.catalog.writers_of(statement.source.name))


class Materializations:
    """What pull queries read: one materialization per source, kept as long as the catalog has that very source."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_name: dict[str, tuple[SourceInfo, Materialization]] = {}

    def of(self, source: SourceInfo, request: Request) -> Materialization:
        """The materialization, caught up with the topic."""
        with self._guard:
            self._forget_dropped(request.catalog)
            known = self._by_name.get(source.name)
            if known is None:
                known = self._by_name[source.name] = (source, Materialization(source, request.log, request.settings))
        known[1].catch_up()
        return known[1]

    def close(self) -> None:
        with self._guard:
            for _, materialization in self._by_name.values():
                materialization.close()
            self._by_name.clear()

    def _forget_dropped(self, catalog: Catalog) -> None:
        """A source that was dropped and made anew is another one, however much it looks the same."""
        for name, (source, materialization) in list(self._by_name.items()):
            if catalog.sources.get(name) is not source:
                materialization.close()
                del self._by_name[name]


def run_query(
    statement: Query, request: Request, materializations: Materializations, open_feed: OpenFeed
) -> QueryResult:
    """Starts the query. Raises what planning raises, before any row."""
    _check_sources(statement.source, request)
    query_id = transient_id(statement, request)
    context = request.planning_context(query_id)
    if statement.emit is None:
        planned = plan_pull(statement, context)
        refuse_disabled(statement, planned.source_info, request.settings)
        return _pull(statement, planned, query_id, materializations.of(planned.source_info, request))
    push = plan_push(statement, context)
    feed = open_feed(push, request.settings)
    return _push(push, query_id, feed, keyed_only=_taps_running_query(statement, request))


def _check_sources(relation: Relation, request: Request) -> None:
    if isinstance(relation, Join):
        _check_sources(relation.left, request)
        _check_sources(relation.right, request)
    elif relation.name not in request.catalog.sources:
        raise UnknownSource(
            f"{relation.name} does not exist.",
            span=relation.span,
            hint=did_you_mean(relation.name, request.catalog.sources),
        )


def _pull(statement: Query, planned: PlannedPull, query_id: str, materialization: Materialization) -> QueryResult:
    table = materialization.query(planned.sql, planned.udfs)

    def last_words(count: int) -> str | None:
        if planned.source_info.kind == "TABLE":
            return None
        return "Limit Reached" if statement.limit is not None and count >= statement.limit else "Query Completed"

    rows = _rows(table.columns, planned.schema)
    return QueryResult("PULL", query_id, planned.schema, map(QueryRow, rows), lambda: None, last_words)


def _push(planned: PlannedPush, query_id: str, feed: ChangeFeed, *, keyed_only: bool = False) -> QueryResult:
    """`keyed_only`: of a source with a key, only rows that have one, as where ksqlDB taps a running query."""
    is_table = _gives_table(planned.plan.root)

    def rows() -> Iterator[QueryRow]:
        left = planned.limit
        if left == 0:
            return
        for batch in feed:
            for row in push_rows(_with_key(batch) if keyed_only else batch, planned, is_table=is_table):
                yield row
                if left is not None:
                    left -= 1
                    if left == 0:
                        return

    def last_words(count: int) -> str | None:
        return "Limit Reached" if planned.limit is not None and count >= planned.limit else None

    return QueryResult("PUSH", query_id, planned.schema, rows(), feed.close, last_words)


def _with_key(rows: pa.Table) -> pa.Table:
    keys = [rows[name] for name in rows.column_names if name[:1] == "k" and name[1:].isdigit()]
    if not keys:
        return rows
    return rows.filter(functools.reduce(pc.or_, [pc.is_valid(key) for key in keys]))


def push_rows(rows: pa.Table, planned: PlannedPush, *, is_table: bool) -> Iterator[QueryRow]:
    """The rows of a batch as a client sees them. A stream's record without value is none."""
    if not is_table:
        rows = rows.filter(pc.invert(rows["_null"]))
    if not rows.num_rows:
        return
    gone = pc.or_(pc.less(rows["_weight"], 0), rows["_null"]).to_pylist()
    columns = [rows[name] for name in planned.columns]
    is_value = [name.startswith("v") for name in planned.columns]
    for values, tombstone in zip(_rows(columns, planned.schema), gone, strict=True):
        if tombstone:
            kept = (None if drop else value for value, drop in zip(values, is_value, strict=True))
            yield QueryRow(tuple(kept), tombstone=True)
        else:
            yield QueryRow(values)


def _rows(columns: Iterable[pa.ChunkedArray], schema: Schema) -> Iterator[tuple[Any, ...]]:
    """Row tuples of JSON values."""
    converted: list[list[Any]] = []
    for array, column in zip(columns, schema, strict=True):
        values = array.to_pylist()
        convert = converter(column.type)
        converted.append(values if convert is None else [convert(value) for value in values])
    return iter(zip(*converted, strict=True))


def _gives_table(step: Step) -> bool:
    match step:
        case Source():
            return step.kind == "TABLE"
        case Aggregate():
            return True
        case StreamTableJoin() | StreamStreamJoin():
            return False
        case _:
            return _gives_table(inputs_of(step)[0])
