"""The live chart as a widget."""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence
from typing import Any

import traitlets

from millstream.server.client_tables import ResultTables

from .chart_data import SERIES_MAX, Kind, choose_axes, series_of
from .widgets import TOMBSTONE, LiveWidget, page_module


class LiveChart(LiveWidget):
    """Columns of a live query over time, as lines or bars.

    With an `x` column and a key, a row's point moves when the row is updated. Without an `x`, points do not move: each
    is a value and the time at which it arrived.
    """

    _esm = page_module("chart.js")
    _axes = traitlets.Dict().tag(sync=True)
    _series = traitlets.List().tag(sync=True)
    _left_out = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, tables: ResultTables, rows_max: int,
        *, x: str | None, y: str | Sequence[str] | None, by: str | None, kind: Kind | None, title: str,
    ) -> None:  # fmt: skip
        try:
            names = [name for name in tables.schema.names if name != TOMBSTONE]
            self._chosen = choose_axes(names, tables.sql_types, tables.key, x=x, y=y, by=by, kind=kind)
        except BaseException:
            tables.close()
            raise
        self._history: collections.deque[tuple[float, tuple[Any, ...]]] = collections.deque(maxlen=rows_max)
        axes = {
            "kind": self._chosen.kind,
            "scale": self._chosen.scale,
            "arrival": self._chosen.x is None,
            "x": self._chosen.x_title,
            "y": self._chosen.y_title,
            "windows": self._chosen.of_windows,
            "title": title,
        }
        super().__init__(tables, rows_max, _axes=axes, _series=[])

    @property
    def series(self) -> list[dict[str, Any]]:
        """The series to draw now, with `name`, `x` (ms if it is a time) and `y`."""
        with self._feed.quiet():
            return series_of(self._chosen, self._rows_with_time())

    def _now(self) -> list[dict[str, Any]]:
        return self.series

    def _received(self, values: list[tuple[Any, ...]], gone: list[bool] | None) -> None:
        if self._chosen.x is not None:
            self._kept.take(values, gone)
            return
        now_ms = time.time() * 1000
        for row, deleted in zip(values, gone or [False] * len(values), strict=True):
            if not deleted:
                self._history.append((now_ms, row))

    def _snapshot(self) -> dict[str, Any]:
        series = series_of(self._chosen, self._rows_with_time())
        return {"_series": series[:SERIES_MAX], "_left_out": max(0, len(series) - SERIES_MAX)}

    def _rows_with_time(self) -> list[tuple[float, tuple[Any, ...]]]:
        if self._chosen.x is None:
            return list(self._history)
        return [(0.0, row.values) for row in self._kept if not row.gone]
