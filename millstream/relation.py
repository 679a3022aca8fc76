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
    """Rows that a query will give: each method below runs it, a live one (`EMIT CHANGES`) for as long as it is asked.

        ms.table("totals").filter("n > 10").df()         # a pandas data frame; .pl() of Polars, .arrow(), .fetchall()
        for batch in ms.sql("SELECT * FROM totals EMIT CHANGES;"): …      # pyarrow tables, as they come

    A live query of a table has one column more, `@tombstone`, true where a row is gone. What wants all rows refuses a
    query that has no end (`InvalidStatement`): give it a LIMIT, or iterate.
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

    # ------------------------------------------------------------ more of the same

    def filter(self, condition: str) -> Relation:
        """The rows for which a SQL condition is true. Comes before `order_by` and `limit`, as `select` does."""
        return self._over(f"SELECT * FROM ({self._text}) WHERE {condition}")

    def select(self, *columns: str) -> Relation:
        """SQL expressions, `AS name` where they need one."""
        return self._over(f"SELECT {', '.join(columns)} FROM ({self._text})")

    def order_by(self, *columns: str) -> Relation:
        """SQL expressions, `DESC` behind them for the other way round."""
        over = self._over(f"SELECT * FROM ({self._text})")
        return Relation(self._start, over._text, endless=False, order=f"ORDER BY {', '.join(columns)}")

    def limit(self, count: int, offset: int = 0) -> Relation:
        """The first rows, or those after `offset` of them."""
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
        """All rows as a pandas data frame; a column that may be NULL keeps its type where pandas has one for it."""
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """All rows as a Polars data frame. Needs polars."""
        import polars

        return polars.DataFrame(self.arrow())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values."""
        return rows_of(self.arrow())

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, None where there is none."""
        with self._start(self.sql) as tables:
            return next((rows_of(table.slice(0, 1))[0] for table in tables if table.num_rows), None)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """For everything that reads Arrow's C stream: `polars.DataFrame(relation)`, `duckdb.sql("FROM relation")`."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as they come; also of a live query."""
        tables = self._start(self.sql)
        batches = (batch for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(tables.schema, batches)

    # ------------------------------------------------------------ as they come

    def tables(self) -> ResultTables:
        """Starts the query, and gives its columns at once and its rows as they come. Raises for one without an end."""
        if self._endless:
            raise InvalidStatement(
                "this query goes on for ever, so there is no last row to wait for",
                hint="Iterate over it, give it a LIMIT, or leave EMIT CHANGES out to ask once.",
            )
        return self._start(self.sql)

    def live(self) -> ResultTables:
        """As `tables`, also of a query without an end; `close` ends it, from any thread."""
        return self._start(self.sql)

    def __iter__(self) -> Iterator[pa.Table]:
        return iter(self._start(self.sql))

    async def __aiter__(self) -> AsyncIterator[pa.Table]:
        """Batches for `async for`; the query runs in a thread, and ends with the loop that reads it."""
        tables = await asyncio.to_thread(self._start, self.sql)
        batches = iter(tables)
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            tables.close()

    # ------------------------------------------------------------ for people

    def live_table(self, *, rows_max: int = 1000) -> LiveTable:
        """A table in the notebook that changes as rows come: the newest `rows_max` of them. Needs anywidget.

        A query that would answer once goes on here, as if it said EMIT CHANGES.
        """
        from .notebook.widgets import LiveTable

        return LiveTable(self._start(self._emitting()), rows_max)

    def live_chart(
        self, x: str | None = None, y: str | Sequence[str] | None = None, *,
        by: str | None = None, kind: Kind | None = None, title: str = "", rows_max: int = 2000,
    ) -> LiveChart:  # fmt: skip
        """A chart in the notebook that moves as rows come: `y` over `x`, a series for each value of `by`.

        What is not said is chosen: `x` a window's start or another time, else the time at which rows come; `y` the
        columns of numbers; `by` the key. Lines, and bars where `x` is no number and no time. Needs anywidget.
        """
        from .notebook.chart_widget import LiveChart

        return LiveChart(self._start(self._emitting()), rows_max, x=x, y=y, by=by, kind=kind, title=title)

    def _emitting(self) -> str:
        """The query as one that goes on, where it does not say itself when it ends."""
        words = {str(token).upper() for token in tokenize(self.sql)}
        return self.sql if words & {"EMIT", "LIMIT", "ORDER"} else f"{self._text} EMIT CHANGES;"

    def __repr__(self) -> str:
        if self._endless:
            return f"<live query: {self.sql}>"
        return text_of(self._preview(_PREVIEW_ROWS + 1)[0], _PREVIEW_ROWS)

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows; also of a query that fails, for there nobody could catch the error."""
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
        """The first rows and the columns' types; the query ends once they are there."""
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
    """
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


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
