"""Ends push queries after a number of rows or after a time. Pull queries end by themselves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

from ..server.client import Row, Rows
from .settings import Settings

if TYPE_CHECKING:
    from ..server.client import ResultTables

LIMIT_REACHED: Final = "Limit Reached"


@contextlib.contextmanager
def bounded_rows(rows: Rows, settings: Settings) -> Generator[Rows]:
    """Limits the rows by the settings `limit` and `timeout`; the final message says which limit ended them."""
    if rows.kind == "PULL" or not (settings.limit or settings.timeout):
        yield rows
        return
    ended: list[str] = []

    def taken() -> Iterator[Row]:
        for row in rows:
            yield row
            if settings.limit and rows.count >= settings.limit:
                ended.append(LIMIT_REACHED)
                return

    bounded = Rows(
        rows.kind,
        rows.query_id,
        rows.column_names,
        rows.column_types,
        taken(),
        rows.close,
        lambda: ended[0] if ended else rows.final_message,
        rows.key,
        rows.progress,
    )
    with _closed_in_time(rows, settings.timeout, ended):
        yield bounded


@contextlib.contextmanager
def bounded_tables(tables: ResultTables, settings: Settings) -> Generator[ResultTables]:
    """Like `bounded_rows`, for tables."""
    if tables.kind == "PULL" or not (settings.limit or settings.timeout):
        yield tables
        return

    with _closed_in_time(tables, settings.timeout, []):
        yield tables.limited(settings.limit) if settings.limit else tables


@contextlib.contextmanager
def _closed_in_time(rows: Rows | ResultTables, timeout_ms: int, ended: list[str]) -> Generator[None]:
    def close() -> None:
        ended.append(f"The query ran for {timeout_ms} ms")
        rows.close()

    timer = threading.Timer(timeout_ms / 1000, close)
    timer.daemon = True
    if timeout_ms:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
