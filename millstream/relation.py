"""A SELECT that runs when its results are requested: a data frame, rows, live batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import InvalidStatement, MillstreamError
from millstream.server.client_tables import ResultTables
from millstream.sql.tokens import tokenize

if TYPE_CHECKING:
    import pandas
    import polars

    from .notebook.chart_data import Kind
    from .notebook.chart_widget import LiveChart
    from .notebook.widgets import LiveTable

_PREVIEW_ROWS: Final = 20


class Relation:
    """The rows of a query: each method below runs it; a live query (`EMIT CHANGES`) runs while its rows are requested.

        ms.table("totals").filter("n > 10").df()         # a pandas data frame; .pl() of Polars, .arrow(), .fetchall()
        for batch in ms.sql("SELECT * FROM totals EMIT CHANGES;"): …      # pyarrow tables, as they come

    A live query of a table has an additional column, `@tombstone`, true if a row is deleted. Methods that need all rows
    refuse a query without an end (`InvalidStatement`): give it a LIMIT, or iterate.
    """

    def __init__(
        self, start: Callable[[str], ResultTables], text: str, *, endless: bool, order: str = "", limit: str = ""
    ) -> None:
        self._start = start
        self._text = text.strip().rstrip(";")
        self._endless = endless
        self._order = order
        self._limit = limit

    @property
    def sql(self) -> str:
        """The query's text."""
        return " ".join(part for part in (self._text, self._order, self._limit) if part) + ";"

    @property
    def endless(self) -> bool:
        """Whether it is a live query without a LIMIT."""
        return self._endless

    # ------------------------------------------------------------ derived relations

    def filter(self, condition: str) -> Relation:
        """The rows for which a SQL condition is true. Use it before `order_by` and `limit`, like `select`."""
        return self._over(f"SELECT * FROM ({self._text}) WHERE {condition}")

    def select(self, *columns: str) -> Relation:
        """Selects SQL expressions, with `AS name` if they need one."""
        return self._over(f"SELECT {', '.join(columns)} FROM ({self._text})")

    def order_by(self, *columns: str) -> Relation:
        """Orders by SQL expressions, followed by `DESC` for descending order."""
        over = self._over(f"SELECT * FROM ({self._text})")
        return Relation(self._start, over._text, endless=False, order=f"ORDER BY {', '.join(columns)}")

    def limit(self, count: int, offset: int = 0) -> Relation:
        """The first `count` rows, after skipping `offset` rows."""
        if self._limit:
            raise InvalidStatement("the relation has a limit already", hint="Limit it once, at the end.")
        text = self._text if self._order else self._over(f"SELECT * FROM ({self._text})")._text
        limit = f"LIMIT {count:d}" + (f" OFFSET {offset:d}" if offset else "")
        return Relation(self._start, text, endless=False, order=self._order, limit=limit)

    # ------------------------------------------------------------ all rows

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        with self.tables() as tables:
            return pa.concat_tables([tables.schema.empty_table(), *tables])

    def df(self) -> pandas.DataFrame:
        """All rows as a pandas data frame; a column with NULLs keeps its type if pandas has a nullable one."""
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """All rows as a Polars data frame. Needs polars."""
        import polars

        return polars.DataFrame(self.arrow())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values."""
        return rows_of(self.arrow())

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row; None if there is none."""
        with self._start(self.sql) as tables:
            return next((rows_of(table.slice(0, 1))[0] for table in tables if table.num_rows), None)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """For consumers of Arrow's C stream: `polars.DataFrame(relation)`, `duckdb.sql("FROM relation")`."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as they arrive; also of a live query."""
        tables = self._start(self.sql)
        batches = (batch for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(tables.schema, batches)

    # ------------------------------------------------------------ rows as they arrive

    def tables(self) -> ResultTables:
        """Starts the query; returns its columns at once, and its rows as they arrive. Raises for a query without an
        end."""
        if self._endless:
            raise InvalidStatement(
                "this query goes on forever, so there is no last row to wait for",
                hint="Iterate over it, give it a LIMIT, or leave EMIT CHANGES out to ask once.",
            )
        return self._start(self.sql)

    def live(self) -> ResultTables:
        """Like `tables`, but also for a query without an end; `close` ends it, from any thread."""
        return self._start(self.sql)

    def __iter__(self) -> Iterator[pa.Table]:
        return iter(self._start(self.sql))

    async def __aiter__(self) -> AsyncIterator[pa.Table]:
        """Batches for `async for`; the query runs in a thread, and ends when the loop ends."""
        tables = await asyncio.to_thread(self._start, self.sql)
        batches = iter(tables)
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            tables.close()

    # ------------------------------------------------------------ display

    def live_table(self, *, rows_max: int = 1000) -> LiveTable:
        """A table in the notebook that is updated as rows arrive: the newest `rows_max` of them. Needs anywidget.

        A query that would answer once becomes a live query, as with EMIT CHANGES.
        """
        from .notebook.widgets import LiveTable

        return LiveTable(self._start(self._emitting()), rows_max)

    def live_chart(
        self, x: str | None = None, y: str | Sequence[str] | None = None, *,
        by: str | None = None, kind: Kind | None = None, title: str = "", rows_max: int = 2000,
    ) -> LiveChart:  # fmt: skip
        """A chart in the notebook that is updated as rows arrive: `y` over `x`, a series for each value of `by`.

        Defaults: `x` is a window's start or another time, else the time at which rows arrive; `y` is the numeric
        columns; `by` is the key. It draws lines, or bars if `x` is neither a number nor a time. Needs anywidget.
        """
        from .notebook.chart_widget import LiveChart

        return LiveChart(self._start(self._emitting()), rows_max, x=x, y=y, by=by, kind=kind, title=title)

    def _emitting(self) -> str:
        """The query as a live query, unless its text determines when it ends."""
        words = {str(token).upper() for token in tokenize(self.sql)}
        return self.sql if words & {"EMIT", "LIMIT", "ORDER"} else f"{self._text} EMIT CHANGES;"

    def __repr__(self) -> str:
        if self._endless:
            return f"<live query: {self.sql}>"
        return text_of(self._preview(_PREVIEW_ROWS + 1)[0], _PREVIEW_ROWS)

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The notebook's display; it includes errors of the query, because nobody could catch them there."""
        from .notebook.display import error_html

        try:
            return self.bundle()
        except MillstreamError as error:
            return {"text/plain": error.render(), "text/html": error_html(error)}

    def bundle(self) -> dict[str, str]:
        """Columns, types and the first rows, as text and HTML; an endless query's text. Raises `MillstreamError`."""
        from .notebook.display import live_html, rows_html

        if self._endless:
            return {"text/plain": repr(self), "text/html": live_html(self.sql)}
        rows, types = self._preview(_PREVIEW_ROWS + 1)
        return {"text/plain": text_of(rows, _PREVIEW_ROWS), "text/html": rows_html(rows, types, _PREVIEW_ROWS)}

    def _preview(self, count: int) -> tuple[pa.Table, tuple[str, ...]]:
        """The first rows and the columns' types; the query ends as soon as it has enough rows."""
        with self.tables() as tables:
            found = [tables.schema.empty_table()]
            for table in tables:
                found.append(table)
                if sum(map(len, found)) >= count:
                    break
        return pa.concat_tables(found).slice(0, count), tables.sql_types

    def _over(self, text: str) -> Relation:
        if self._endless:
            raise InvalidStatement("only a query that answers once can be built upon", hint="Write it as one query.")
        if self._order or self._limit:
            raise InvalidStatement("order_by and limit come last", hint="Filter and select first.")
        return Relation(self._start, text, endless=False)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """
    >>> rows_of(pa.table({"a": [1, 2], "b": ["x", None]}))
    [(1, 'x'), (2, None)]
    >>> rows_of(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))}))
    [({'a': 1},)]
    """
    return list(zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in table.columns), strict=True))


def text_of(table: pa.Table, rows_max: int) -> str:
    """The rows in columns, for a terminal.

    >>> print(text_of(pa.table({"ID": [1, 20], "NAME": ["x", None]}), 1))
    ID  NAME
    1   x
    …
    """
    shown = [["NULL" if value is None else str(value) for value in row] for row in rows_of(table.slice(0, rows_max))]
    lines = [table.column_names, *shown]
    widths = [max(len(line[i]) for line in lines) for i in range(table.num_columns)]
    written = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    ]
    return "\n".join([*written, "…"] if table.num_rows > rows_max else written)
