"""Notices that a server has not written the WAL that a position names: it is another server, or it has an older copy of
the data.

Such a server would skip its own transactions up to the position without a word. A number names each cluster of data.
Its WAL has timelines: a server that is promoted, or restored to a point in time, begins the next one where it left the
one before. An older copy of the files has the same timeline, and is noticed as long as its WAL ends before the
position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .pg_connections import ReplicationStream, ServerWal, lsn_of, lsn_text, slot_lost


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """`wal`: of the server, now. `left`: where the WAL left each of its timelines of before."""

    wal: ServerWal
    left: Mapping[int, int]

    @staticmethod
    def of(stream: ReplicationStream) -> ServerHistory:
        """In: a stream that is not started yet."""
        wal = stream.identify()
        return ServerHistory(wal, _left(stream.timeline_history(wal.timeline)) if wal.timeline > 1 else {})

    @property
    def position(self) -> dict[str, Any]:
        """This part of the source's position."""
        return {"server": {"system": self.wal.system, "timeline": self.wal.timeline}}

    def check(self, slot: str, lsn: int, known: Mapping[str, Any] | None) -> None:
        """Raises `ConnectorFailed` if this server has not written the WAL up to `lsn`. In: `known`: the part of the
        position; None if an earlier version has written it."""
        read = f"this connector has read up to {lsn_text(lsn)}"
        if known is not None and known["system"] != self.wal.system:
            raise slot_lost(slot, f"it is of another server, with the system identifier {self.wal.system}")
        if self.wal.end_lsn < lsn:
            end = f"the server's WAL ends at {lsn_text(self.wal.end_lsn)}"
            raise slot_lost(slot, f"{end}, but {read}: the server has an older copy of the data")
        if known is None or known["timeline"] == self.wal.timeline:
            return
        left = self.left.get(known["timeline"])
        if left is None or left < lsn:
            at = "does not know it" if left is None else f"left it at {lsn_text(left)}"
            raise slot_lost(slot, f"{read} of timeline {known['timeline']}, but the server {at}: it was promoted, or "
                                  "restored, without the rest")  # fmt: skip


def _left(history: str) -> dict[int, int]:
    """The file of a timeline: `1 <tab> 0/3000148 <tab> a reason` for each one before it."""
    parts = (line.split(None, 2) for line in history.splitlines())
    return {int(line[0]): lsn_of(line[1]) for line in parts if len(line) >= 2 and line[0].isdecimal()}
