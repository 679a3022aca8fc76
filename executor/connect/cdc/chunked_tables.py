"""Tables that a source of change data capture reads chunk by chunk, while the stream gives their changes (DBLog). This
module keeps the progress of each table and the chunk whose window is open. The source reads the chunks, and decides
where a window ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from ..connector import ConnectRecord, Sweep
from ..converters import json_text

_AGAIN_S: Final = 0.05
_log = structlog.get_logger("millstream.connect")


@dataclass(slots=True)
class ChunkWindow:
    """`rows`: the rows of the chunk, by key. `last`: the key values of its last row; None if the table has no more
    rows."""

    topic: str
    rows: dict[str, ConnectRecord]
    last: list[Any] | None

    def leave_out(self, records: Iterable[ConnectRecord]) -> None:
        """Removes rows from the chunk because the stream has newer rows with these keys."""
        for record in records:
            if record.topic == self.topic:
                self.rows.pop(json_text(record.key), None)


_Window = TypeVar("_Window", bound=ChunkWindow)


class ChunkedTables(Generic[_Window]):
    """State: the tables whose rows are or will be in topics, the tables that are not completely read, and the open
    window.

    In: `pending`: tables, each with the key after which it is still to be read. If a table is read again, `since` is
    the end of its topic when that was requested.
    """

    def __init__(self, pending: Iterable[Mapping[str, Any]], tables: Sequence[str]) -> None:
        self._pending: list[Mapping[str, Any]] = list(pending)
        self.tables = list(tables)
        self._window: _Window | None = None
        self._next_attempt = 0.0
        self._sweeps: list[Sweep] = []
        self.moved = False
        """Whether the position has changed since this was last set to False."""

    @property
    def position(self) -> dict[str, Any]:
        """This part of the source's position."""
        return {"tables": self.tables, **({"backfill": self._pending} if self._pending else {})}

    def close_window(self) -> list[ConnectRecord]:
        """Closes the window. Out: the rows of the chunk that are still valid."""
        window, self._window = self._window, None
        assert window is not None
        first, *others = self._pending
        if window.last is None:
            _log.info("table read", table=first["table"])
            if first.get("since"):
                self._sweeps.append(Sweep(window.topic, first["since"]))
            self._pending = others
        else:
            self._pending = [{**first, "after": window.last}, *others]
        self.moved = True
        return list(window.rows.values())

    def take_sweeps(self) -> list[Sweep]:
        """The sweeps of the tables that were read completely. They belong after the rows that were returned last."""
        sweeps, self._sweeps = self._sweeps, []
        return sweeps

    def _is_due(self) -> bool:
        """Whether to read a chunk now. If it cannot be read yet, the next attempt follows after a short time."""
        if self._window is not None or not self._pending or time.monotonic() < self._next_attempt:
            return False
        self._next_attempt = time.monotonic() + _AGAIN_S
        return True

    def _open(self, window: _Window) -> None:
        self._window, self._next_attempt = window, 0.0

    def _skip(self) -> None:
        """Skips the next table."""
        name = self._pending[0]["table"]
        _log.warning("a table without a primary key, or that is gone, cannot be read in chunks", table=name)
        self._pending, self.moved = self._pending[1:], True
