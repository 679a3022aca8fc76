"""Translates offsets of the source to offsets here, with the offset syncs that were written with the records."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from ..client import FetchedRows, LogClient, TopicPartition
from .mirror_maker_formats import OffsetSync

_KEPT: Final = 100_000  # syncs of a partition


class OffsetTranslation:
    """State: the syncs of each partition of the source, in order; the last one tells where to continue reading."""

    def __init__(self) -> None:
        self._upstream: dict[TopicPartition, list[int]] = {}
        self._downstream: dict[TopicPartition, list[int]] = {}

    def read(self, log: LogClient, topic: str) -> None:
        """Reads the whole topic of syncs."""
        offset = log.offsets(topic, 0).log_start_offset
        while True:
            fetched = log.fetch(topic, 0, offset)
            for run in fetched.runs:
                assert isinstance(run, FetchedRows)
                for key, value in zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                    if key is not None and value is not None:
                        self.add(OffsetSync.read(key, value))
            if fetched.next_offset <= offset:
                return
            offset = fetched.next_offset

    def add(self, sync: OffsetSync) -> None:
        where = TopicPartition(sync.topic, sync.partition)
        upstream = self._upstream.setdefault(where, [])
        downstream = self._downstream.setdefault(where, [])
        while upstream and upstream[-1] >= sync.upstream:  # the end noted before is the start of this one
            upstream.pop()
            downstream.pop()
        upstream.append(sync.upstream)
        downstream.append(sync.downstream)
        del upstream[: max(0, len(upstream) - _KEPT)], downstream[: max(0, len(downstream) - _KEPT)]

    def next_offset(self, where: TopicPartition) -> int | None:
        """The next offset of the source to copy; None if nothing was copied yet."""
        found = self._upstream.get(where)
        return found[-1] if found else None

    def translated(self, where: TopicPartition, offset: int) -> int | None:
        """The offset here; None if it is older than the syncs. Between two syncs records have the same distances as at
        the source, followed only by markers. So no record is skipped, and none is read twice."""
        upstream, downstream = self._upstream.get(where, []), self._downstream.get(where, [])
        place = bisect_right(upstream, offset) - 1
        if place < 0:
            return None
        if place + 1 == len(upstream):
            return downstream[place]
        return min(downstream[place] + offset - upstream[place], downstream[place + 1])
