"""Tables that a source of change data capture reads chunk by chunk, while the stream gives their changes (DBLog): where
each of them stands, and the chunk whose window is open. How a chunk is read, and where its window ends, is the
source's."""

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
    """`rows`: of the chunk, by key. `last`: the values of the key of its last row; None where the table has no more."""

    topic: str
    rows: dict[str, ConnectRecord]
    last: list[Any] | None

    def leave_out(self, records: Iterable[ConnectRecord]) -> None:
        """The stream has newer rows of these keys."""
        for record in records:
            if record.topic == self.topic:
                self.rows.pop(json_text(record.key), None)


_Window = TypeVar("_Window", bound=ChunkWindow)


class ChunkedTables(Generic[_Window]):
    """State: the tables whose rows the topics have or get, those that are not read to their end, and the open window.

    In: `pending`: tables, and the keys behind which they are not read; `since`, of one that was read before: where its
    topic ended when that was asked for.
    """

    def __init__(self, pending: Iterable[Mapping[str, Any]], tables: Sequence[str]) -> None:
        self._pending: list[Mapping[str, Any]] = list(pending)
        self.tables = list(tables)
        self._window: _Window | None = None
        self._next_attempt = 0.0
        self._sweeps: list[Sweep] = []
        self.moved = False
        """Whether the position has moved since somebody has last set this to False."""

    @property
    def position(self) -> dict[str, Any]:
        """The part of the source's position that is about this."""
        return {"tables": self.tables, **({"backfill": self._pending} if self._pending else {})}

    def close_window(self) -> list[ConnectRecord]:
        """The rows of the chunk that are still right."""
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
        """Of the tables that were read to their end; they belong behind the rows that were given out last."""
        sweeps, self._sweeps = self._sweeps, []
        return sweeps

    def _is_due(self) -> bool:
        """Whether there is a chunk to read now. If it cannot be read yet, it is due again a little later."""
        if self._window is not None or not self._pending or time.monotonic() < self._next_attempt:
            return False
        self._next_attempt = time.monotonic() + _AGAIN_S
        return True

    def _open(self, window: _Window) -> None:
        self._window, self._next_attempt = window, 0.0

    def _skip(self) -> None:
        """The table that is next is not read."""
        name = self._pending[0]["table"]
        _log.warning("a table without a primary key, or that is gone, cannot be read in chunks", table=name)
        self._pending, self.moved = self._pending[1:], True
