"""Pull queries by key, `SELECT … FROM t WHERE key = 17`: planned once for all keys.

A plan is cached by the text before and after the key: if only the key's literal differs, and its kind is the same, the
plan is the same. All other queries are planned normally.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from ...executor.answers.keyed_rows import KeyedTable
from ...logcore.client import LogClient
from ...planner.catalog import Catalog
from ...planner.planning import PlannedPull
from ...planner.schema import Schema
from ...planner.source_info import SourceInfo
from ...sql.ast import Query, span_of, unwrapped
from ...sql.settings.property_table import OFFSET_RESET, PULL_FULL_SQL
from ...sql.types import BIGINT, INTEGER, STRING
from ..http.row_values import Converter, converter
from .session import Session

KNOWN_MAX: Final = 1_000
IDLE_S: Final = 300.0
_LITERAL: Final = re.compile(r"(?<![\w.])\d{1,18}(?![\w.])|'[^']*+(?:''[^']*+)*+'")
_SETTLED: Final = {OFFSET_RESET.name, PULL_FULL_SQL.name}  # their values do not affect the look-up of one key
_COLUMN: Final = re.compile(r"[kv]\d+|_ts")


@dataclass(frozen=True, slots=True)
class _Known:
    """A planned query. `statement`: as planned, with the key of that time."""

    statement: Query
    catalog: Catalog
    source: SourceInfo
    columns: tuple[str, ...]
    converters: tuple[Converter | None, ...]
    schema: Schema


@dataclass(slots=True)
class _Table:
    source: SourceInfo
    rows: KeyedTable
    used_at: float


@dataclass(frozen=True, slots=True)
class Lookup:
    """A query whose answer is at most one row."""

    known: _Known
    rows: KeyedTable
    key: int | str

    @property
    def statement(self) -> Query:
        """The statement, with some key; its names are what the user's rights are checked for."""
        return self.known.statement

    @property
    def schema(self) -> Schema:
        return self.known.schema

    def catch_up(self) -> None:
        """Reads everything that is committed at the time of the call. Raises `TooManyKeys`."""
        self.rows.catch_up(self.rows.bounds())

    def values(self) -> tuple[Any, ...] | None:
        """The row's values, as Arrow returns them; None if there is no row."""
        return self.rows.find(self.key, self.known.columns)

    def answer(self) -> list[tuple[Any, ...]]:
        """The row as JSON values, if there is one."""
        found = self.values()
        if found is None:
            return []
        uses = zip(found, self.known.converters, strict=True)
        return [tuple(value if use is None else use(value) for value, use in uses)]


class Lookups:
    """Any thread may use it. Rows of tables that were dropped, or were unused for a while, are removed."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._guard = threading.Lock()
        self._learned_in: Catalog | None = None
        self._known: OrderedDict[tuple[str, str, type], _Known] = OrderedDict()
        self._tables: dict[str, _Table] = {}
        self._too_large: dict[str, SourceInfo] = {}  # see `refuse`

    def learn(self, text: str, statement: Query, planned: PlannedPull, catalog: Catalog, session: Session) -> None:
        """Remembers how the query was planned, if it is simple enough. In: `text`: of the whole request."""
        literal = _looked_up_by(statement, planned) if _is_plain(session) else None
        span = None if literal is None else span_of(literal)
        if span is None or self._too_large.get(planned.source_info.name) is planned.source_info:
            return
        found = _LITERAL.match(text, span.start)
        if found is None or found.end() != span.end or "${" in text:
            return
        uses = tuple(converter(column.type) for column in planned.schema)
        known = _Known(statement, catalog, planned.source_info, planned.columns, uses, planned.schema)
        with self._guard:
            self._forget_other(catalog)
            self._known[text[: span.start], text[span.end :], type(_value(found[0]))] = known
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def find(self, text: str, catalog: Catalog, session: Session) -> Lookup | None:
        """The look-up for this text, if a similar query was planned in this catalog."""
        if "${" in text or not _is_plain(session):
            return None
        for literal in _LITERAL.finditer(text):
            key = _value(literal[0])
            known = self._known.get((text[: literal.start()], text[literal.end() :], type(key)))
            if known is not None and known.catalog is catalog:
                return Lookup(known, self._rows(known.source), key)
        return None

    def refuse(self, lookup: Lookup) -> None:
        """From now on keeps no rows of this look-up's table, which has too many."""
        with self._guard:
            name = lookup.known.source.name
            self._too_large[name] = lookup.known.source
            self._tables.pop(name, None)
            for at in [at for at, known in self._known.items() if known.source.name == name]:
                del self._known[at]

    def forget_idle(self) -> None:
        """Removes the rows of tables that were unused for `IDLE_S`. Call it periodically."""
        with self._guard:
            late = time.monotonic() - IDLE_S
            for name in [name for name, table in self._tables.items() if table.used_at < late]:
                del self._tables[name]

    def _forget_other(self, catalog: Catalog) -> None:
        """Forgets plans of another catalog. They would never be found again, and would keep that catalog, with the
        plans of its queries, in memory."""
        if self._learned_in is catalog:
            return
        self._learned_in = catalog
        self._known = OrderedDict((at, known) for at, known in self._known.items() if known.catalog is catalog)
        present = catalog.sources
        self._tables = {name: table for name, table in self._tables.items() if present.get(name) is table.source}
        self._too_large = {name: source for name, source in self._too_large.items() if present.get(name) is source}

    def _rows(self, source: SourceInfo) -> KeyedTable:
        table = self._tables.get(source.name)
        topic_id = self._log.topic_id(source.topic)  # it changes if the topic is recreated
        if table is None or table.source is not source or table.rows.topic_id != topic_id:
            with self._guard:
                table = self._tables[source.name] = _Table(source, KeyedTable(source, self._log), 0.0)
        table.used_at = time.monotonic()
        return table.rows


def _is_plain(session: Session) -> bool:
    return not session.variables and session.properties.keys() <= _SETTLED


def _looked_up_by(statement: Query, planned: PlannedPull) -> exp.Literal | None:
    """The literal that the table's key is compared with; None for any query that is less simple."""
    source = planned.source_info
    simple = source.kind == "TABLE" and source.key_window is None and source.ttl_ms is None and not planned.udfs
    if not simple or planned.timestamp is not None or len(source.schema.key) != 1:
        return None
    if statement.limit is not None or statement.offset is not None or statement.order_by or statement.where is None:
        return None
    if not all(_COLUMN.fullmatch(column) for column in planned.columns):
        return None
    (key,) = source.schema.key
    condition = unwrapped(statement.where)
    if not isinstance(condition, exp.EQ) or key.type not in (INTEGER, BIGINT, STRING):
        return None
    sides = [unwrapped(condition.this), unwrapped(condition.expression)]
    literals = [side for side in sides if isinstance(side, exp.Literal)]
    columns = [side for side in sides if isinstance(side, exp.Column)]
    if len(literals) != 1 or len(columns) != 1 or columns[0].name != key.name:
        return None
    return literals[0] if literals[0].is_string == (key.type == STRING) else None


def _value(literal: str) -> int | str:
    return literal[1:-1].replace("''", "'") if literal[0] == "'" else int(literal)
