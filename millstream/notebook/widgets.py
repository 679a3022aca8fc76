"""The live table as a widget, and the base of both live widgets. The chart is in `chart_widget`.

The page gets whole snapshots through traits, not changes. So a second view, a reloaded page and a saved notebook show
the same, and a page that falls behind misses only outdated states.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, cast

import pyarrow as pa

from millstream.errors import InvalidStatement
from millstream.server.client_tables import ResultTables

from .cell_runs import belongs_to_this_cell
from .cells import is_number, page_cell
from .feed import Feed, Status
from .live_rows import LiveRows

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("live tables and charts need anywidget: pip install 'millstream[notebook]'") from error

TOMBSTONE: Final = "@tombstone"
_UNSEEN_SECONDS: Final = 15.0  # how long a query continues after its last view was closed, because a cell may be moved


def page_file(name: str) -> str:
    """A file of the JavaScript part, which notebooks share with the web console."""
    return (files("millstream.server.console") / "page" / "live" / name).read_text(encoding="utf-8")


def page_module(name: str) -> str:
    """A module and its imports as one text: a notebook has no address to load the second module from.

    >>> "import " in page_module("chart.js"), page_module("chart.js").count("export default")
    (False, 1)
    """
    shared = page_file("shared.js").replace("export function", "function").replace("export const", "const")
    lines = page_file(name).splitlines(keepends=True)
    return shared + "".join(line for line in lines if not line.startswith("import "))


class LiveWidget(anywidget.AnyWidget):
    """A live query with a view. It ends with `stop`, its button, its last view, its cell's next run, or the kernel."""

    _css = page_file("live.css")
    _status = traitlets.Dict().tag(sync=True)

    def __init__(self, tables: ResultTables, rows_max: int, **traits: Any) -> None:
        if rows_max < 1:
            tables.close()
            raise InvalidStatement("rows_max must be 1 or more")
        self._columns_of_rows = [name for name in tables.schema.names if name != TOMBSTONE]
        self._key = tables.key
        self._rows_max = rows_max
        self._kept = LiveRows(tables.key, rows_max)
        self._views = 0
        self._unseen: threading.Timer | None = None
        self._fresh = False
        self._feed = Feed(tables, self._take, self._publish)
        super().__init__(_status=Status().as_dict(), **traits)
        self.on_msg(self._told)
        belongs_to_this_cell(self)
        self._feed.start()

    def __repr__(self) -> str:
        status = self.status
        return f"<{type(self).__name__}: {status.state}, {status.received} rows>"

    @property
    def status(self) -> Status:
        """Whether the query runs, how many rows have arrived, and how many arrive per second."""
        return self._feed.status

    def stop(self) -> None:
        """Ends the query; received rows stay."""
        self._feed.stop()
        self._look_again()

    def close(self) -> None:
        """Ends the query, and removes the view."""
        if hasattr(self, "_feed"):  # refused widgets close themselves, too
            self.stop()
        super().close()

    def wait(self, until: int | Callable[[Any], bool] | None = None, seconds: float = 30.0) -> Status:
        """Waits until `until` rows have arrived, until a condition on `rows` (of a chart, `series`) holds, or the query
        is over.

        It is for programs, and for notebooks that run by themselves; for watching rows it is not needed. Raises
        `TimeoutError` after `seconds`.
        """

        def reached(status: Status) -> bool:
            if status.state != "running" or until is None:
                return status.state != "running"
            return status.received >= until if isinstance(until, int) else until(self._now())

        if not self._feed.wait(reached, seconds):
            raise TimeoutError(f"not within {seconds:g} seconds: {self!r} has {self._now()}")
        return self.status

    def _now(self) -> Any:
        """The argument of the condition in `wait`. Subclasses define it."""
        raise AssertionError("a child's")

    def _received(self, values: list[tuple[Any, ...]], gone: list[bool] | None) -> None:
        """Handles received rows. Subclasses define it."""
        raise AssertionError("a child's")

    def _snapshot(self) -> dict[str, Any]:
        """The traits of the current state. Subclasses define it."""
        raise AssertionError("a child's")

    def _take(self, table: pa.Table) -> None:
        if self._key is None and table.num_rows > self._rows_max:
            self._kept.skip(table.num_rows - self._rows_max)
            table = table.slice(table.num_rows - self._rows_max)
        gone = table[TOMBSTONE].to_pylist() if TOMBSTONE in table.column_names else None
        columns = [table[name].to_pylist() for name in self._columns_of_rows]
        self._received(list(zip(*columns, strict=True)), cast("list[bool] | None", gone))
        self._fresh = True

    def _publish(self, status: Status) -> int:
        """Returns approximately how many bytes were sent."""
        sent = 0
        with self.hold_sync():
            if self._fresh:
                self._fresh = False
                traits = self._snapshot()
                sent = sum(len(str(value)) for value in traits.values())
                for name, value in traits.items():
                    setattr(self, name, value)
            self._status = status.as_dict()
        return sent

    def _told(self, _: object, content: dict[str, Any], buffers: object) -> None:
        """Handles messages of the page: `stop`, or that a view was opened or closed."""
        match content.get("kind"):
            case "stop":
                self.stop()
            case "opened":
                self._views += 1
                self._look_again()
            case "closed":
                self._views = max(0, self._views - 1)
                if self._views == 0 and self.status.state == "running":
                    self._unseen = threading.Timer(_UNSEEN_SECONDS, self._nobody_looks)
                    self._unseen.daemon = True
                    self._unseen.start()
            case _:
                pass

    def _look_again(self) -> None:
        if self._unseen is not None:
            self._unseen.cancel()

    def _nobody_looks(self) -> None:
        if self._views == 0:
            self._feed.stop("its view was closed")


class LiveTable(LiveWidget):
    """The newest rows of a query, in a table: with a key each row keeps its place, else the latest change is on top."""

    _esm = page_module("table.js")
    _columns = traitlets.List().tag(sync=True)
    _keyed = traitlets.Bool().tag(sync=True)
    _rows = traitlets.Dict().tag(sync=True)

    def __init__(self, tables: ResultTables, rows_max: int) -> None:
        key = tables.key or ()
        columns = [
            {"name": name, "type": type_, "number": is_number(type_), "key": position in key}
            for position, (name, type_) in enumerate(zip(tables.schema.names, tables.sql_types, strict=False))
        ]
        super().__init__(tables, rows_max, _columns=columns, _keyed=tables.key is not None, _rows={})

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The current rows, as Python values; deletions among changes are left out."""
        with self._feed.quiet():
            return [row.values for row in self._kept if not row.gone]

    def _now(self) -> list[tuple[Any, ...]]:
        return self.rows

    def _received(self, values: list[tuple[Any, ...]], gone: list[bool] | None) -> None:
        self._kept.take(values, gone)

    def _snapshot(self) -> dict[str, Any]:
        rows = list(self._kept)
        return {
            "_rows": {
                "ids": [row.number for row in rows],
                "cells": [list(map(page_cell, row.values)) for row in rows],
                "gone": [row.number for row in rows if row.gone],
                "forgotten": self._kept.forgotten,
            }
        }
