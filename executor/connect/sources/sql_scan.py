"""Reads the rows of one table after a place, in order, in limited portions."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

import sqlalchemy as sa

from ..connector_errors import ConnectorFailed
from .sql_settings import SqlSourceSettings

_BYTES_MAX: Final = 8 * 1024 * 1024
_BUFFERED_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class SqlPlace:
    """The place of the last row that was read. `time`: as the driver returns it, a datetime or a text."""

    number: int | None = None
    time: datetime.datetime | str | None = None

    @staticmethod
    def of(kept: Mapping[str, Any] | None) -> SqlPlace:
        if kept is None or "read_ms" in kept:
            return SqlPlace()
        moment = kept.get("moment")
        return SqlPlace(
            kept.get("number"), datetime.datetime.fromisoformat(moment) if moment is not None else kept.get("text")
        )

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.number is None else {"number": self.number}
        if self.time is not None:
            moment = isinstance(self.time, datetime.datetime)
            found["moment" if moment else "text"] = str(self.time)
        return found

    def within(self, *, numbered: bool, timed: bool) -> SqlPlace:
        """The place for the current mode. If ALTER CONNECTOR has changed the mode and the place lacks a part that the
        new mode needs, reading begins from the start."""
        known = (self.number is not None or not numbered) and (self.time is not None or not timed)
        return SqlPlace(self.number if numbered else None, self.time if timed else None) if known else SqlPlace()

    def follows(self, other: SqlPlace) -> bool:
        if type(self.time) is not type(other.time) and other != SqlPlace():
            return False
        return other == SqlPlace() or self._order(self) > self._order(other)

    @staticmethod
    def _order(place: SqlPlace) -> tuple[Any, ...]:
        return tuple(item for item in (place.time, place.number) if item is not None)


class RowScan:
    """One SELECT. The number of rows and bytes in memory is limited.

    State: the open cursor, the next row after those that were returned, and the place of the last returned row.
    """

    def __init__(self, engine: sa.Engine, query: sa.Select[Any], table: str, places: _Places, rows_max: int) -> None:
        self.table = table
        self.ended = False
        self.whole = False
        """Whether it has read all rows, instead of ending at the limit."""
        self._places = places
        self._rows_max = rows_max
        self._given = 0
        self._last = places.start
        self._connection = engine.connect()
        try:
            options = {"stream_results": True, "max_row_buffer": min(rows_max, _BUFFERED_ROWS)}
            self._rows = self._connection.execution_options(**options).execute(query).mappings()
            self._ahead = self._fetched()
        except BaseException:
            self.close()
            raise

    @property
    def empty(self) -> bool:
        return self._ahead is None

    def next(self) -> tuple[Sequence[Mapping[str, Any]], SqlPlace | None, bool]:
        """The next rows, the place of the last one (None for a table without an order), and whether the log may commit
        there."""
        found: list[Mapping[str, Any]] = []
        size, place = 0, self._last
        while self._ahead is not None:
            following = self._places.of(self._ahead)
            full = len(found) >= self._rows_max or size >= _BYTES_MAX
            far_too_full = len(found) >= 2 * self._rows_max or size >= 2 * _BYTES_MAX
            if far_too_full or (full and (following != place or not self._places.ordered)):
                break
            place = following
            found.append(self._ahead)
            size += sum(len(value) for value in self._ahead.values() if isinstance(value, str | bytes | memoryview))
            self._ahead = self._fetched()
        if self._ahead is None:
            self.close()
            self.ended = True
            self.whole = self._places.limit is None or self._given < self._places.limit
            return found, place if self._places.ordered else None, True
        if not self._places.ordered:
            return found, None, False
        self._last = place
        return found, place, self._places.of(self._ahead) != place

    def close(self) -> None:
        self._connection.close()

    def _fetched(self) -> Mapping[str, Any] | None:
        row = self._rows.fetchone()
        self._given += row is not None
        return cast("Mapping[str, Any] | None", row)


class _Places:
    """The places of rows in the order of the mode. `limit`: the most rows of one SELECT."""

    def __init__(self, settings: SqlSourceSettings, names: Sequence[str], start: SqlPlace) -> None:
        self.start = start
        self._number = None if settings.number_column is None else _named(names, settings.number_column)
        self._times = [_named(names, name) for name in settings.time_columns]
        self.ordered = self._number is not None or bool(self._times)
        self.limit = settings.batch_max_rows if self._number is not None else None

    def of(self, row: Mapping[str, Any]) -> SqlPlace:
        """The place of a row. Raises `ConnectorFailed` if the row has none, or it is not after the start."""
        number = None if self._number is None else _whole(self._number, row[self._number])
        time = None
        if self._times:
            time = next((row[name] for name in self._times if row[name] is not None), None)
            if not isinstance(time, datetime.datetime | str):
                raise ConnectorFailed(
                    f"the column {self._times[0]} has a value of type {type(time).__name__}, which is no time",
                    hint="timestamp.column.name must name a column of dates with times.",
                )
        found = SqlPlace(number, time)
        if self.ordered and not found.follows(self.start):
            raise ConnectorFailed(
                f"the order of the rows cannot be kept: {found.as_json()} came after {self.start.as_json()}",
                hint="The driver loses digits of the time, or the database compares it in another way: cast the column "
                "in a query.",
            )
        return found

    def number(self) -> sa.ColumnClause[Any] | None:
        return None if self._number is None else sa.column(self._number)

    def time(self) -> sa.ColumnElement[Any] | None:
        columns = [sa.column(name) for name in self._times]
        return None if not columns else columns[0] if len(columns) == 1 else sa.func.coalesce(*columns)


def next_rows(engine: sa.Engine, settings: SqlSourceSettings, table: str, place: SqlPlace) -> RowScan | None:
    """A scan of the rows after the place; None if there are none. Raises `ConnectorFailed`, and SQLAlchemy's errors."""
    source = _source(settings, table)
    with engine.connect() as connection:
        names = tuple(connection.execute(sa.select(sa.text("*")).select_from(source).where(sa.false())).keys())
        until = _until(connection, settings.timestamp_delay_interval_ms) if settings.time_columns else None
    place = place.within(numbered=settings.number_column is not None, timed=bool(settings.time_columns))
    places = _Places(settings, names, place)
    number, time = places.number(), places.time()
    query = sa.select(sa.text("*")).select_from(source)
    if time is not None:
        query = query.where(time < _bound(until))
    if time is not None and number is not None and place.time is not None:
        last = _bound(place.time)
        query = query.where(sa.or_(time > last, sa.and_(time == last, number > place.number)))
    elif time is not None:
        query = query.where(time > _bound(place.time)) if place.time is not None else query
    elif number is not None:
        query = query.where(number > place.number if place.number is not None else number.is_not(None))
    if time is not None and number is not None:
        query = query.where(number.is_not(None))
    query = query.order_by(*(column for column in (time, number) if column is not None))
    scan = RowScan(engine, query.limit(places.limit) if places.limit else query, table, places, settings.batch_max_rows)
    if scan.empty:
        scan.close()
        return None
    return scan


def without_a_place(engine: sa.Engine, settings: SqlSourceSettings, table: str) -> bool:
    """Whether a row has NULL in the columns that define its place."""
    missing: list[sa.ColumnElement[bool]] = []
    if settings.number_column is not None:
        missing.append(sa.column(settings.number_column).is_(None))
    if settings.time_columns:
        missing.append(sa.and_(*(sa.column(name).is_(None) for name in settings.time_columns)))
    if not missing:
        return False
    query = sa.select(sa.literal(1)).select_from(_source(settings, table)).where(sa.or_(*missing)).limit(1)
    with engine.connect() as connection:
        return connection.execute(query).first() is not None


def _source(settings: SqlSourceSettings, table: str) -> Any:
    if settings.query is not None:
        query = settings.query.strip().rstrip(";").replace(":", r"\:")  # so that a colon does not begin a parameter
        return sa.text(f"({query}) q")
    schema, _, bare = table.rpartition(".")
    return sa.table(bare, schema=schema or None)


def _until(connection: sa.Connection, delay_ms: int) -> datetime.datetime | str:
    """The current time of the database minus `delay_ms`; in SQLite as a text."""
    now: Any = sa.func.current_timestamp()
    if connection.dialect.name == "duckdb":
        now = sa.cast(now, sa.DateTime())  # without a zone: for times with one, its driver needs pytz
    if connection.dialect.name == "sqlite":
        return str(connection.execute(sa.text("SELECT datetime('now', :ago)"), {"ago": f"-{delay_ms / 1000} seconds"})
                   .scalar_one())  # fmt: skip
    return connection.execute(sa.select(now)).scalar_one() - datetime.timedelta(milliseconds=delay_ms)


def _bound(value: datetime.datetime | str | None) -> sa.BindParameter[Any]:
    if isinstance(value, datetime.datetime):
        return sa.bindparam(None, value, sa.DateTime(timezone=value.tzinfo is not None))
    return sa.bindparam(None, value, sa.String())


def _named(names: Sequence[str], wanted: str) -> str:
    """The name of the column as the database writes it. Raises `ConnectorFailed`."""
    if wanted in names:
        return wanted
    found = next((name for name in names if name.lower() == wanted.lower()), None)
    if found is None:
        raise ConnectorFailed(f"there is no column {wanted}", hint=f"There are {', '.join(names)}.")
    return found


def _whole(name: str, value: Any) -> int:
    """The value as an integer. Raises `ConnectorFailed`."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConnectorFailed(
        f"the column {name} has a value of type {type(value).__name__}, which is no whole number",
        hint="incrementing.column.name must name a column of whole numbers.",
    )
