"""Exact mode: topics under the same names, with the same partitions and offsets, that nobody else writes.

    fetch from the end of the copy → append where the copy ends → fetch …

Partitions do not wait for each other: each has its own order of appends, and the next records are fetched meanwhile.

The position of the mirror is the end of the copy itself, and an append says at which offset it belongs: so a batch is
there once, whoever dies, and an older copier that still runs can only append the same records at the same offsets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.errors import LogError

from ..client import TopicPartition
from ..errors import (
    LogClosed,
    OffsetOutOfRange,
    ReadOnlyTopic,
    UnknownTopic,
)
from ..records.batch import EncodedBatch
from ..records.thinning import fillers
from .append_lanes import AppendLanes
from .copied_batches import copied_batches
from .divergence import check_same
from .mirror_board import MirrorBoard
from .mirror_errors import DivergedMirror
from .mirror_source import MirrorSource, PartitionEnds, TopicFilter
from .mirror_target import MirrorLog
from .mirrored_groups import MirroredGroups, Translated
from .mirrored_topics import MirroredTopics
from .own_log import check_is_another
from .source_fetcher import SourceAnswer, SourceFetcher

_APPEND_BYTES: Final = 16 * 1024 * 1024
_SUSPECT_S: Final = 3.0
_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ExactMirrorSettings:
    """`name`: of the mirror, which its topics carry. `adopts`: topics that are here already are taken over where they
    are a beginning of the source's. `groups`: whose offsets are copied. `look_ms`: how often topics and groups of the
    source are looked at."""

    name: str
    topics: TopicFilter
    groups: TopicFilter
    adopts: bool = False
    look_ms: int = 3_000


@dataclass(slots=True)
class _Copy:
    """One partition. `end_offset`: of the copy. `epoch`: of the leader that wrote the last records that were copied;
    None where that is not known. `suspect_since`: when the source ended before the copy for the first time."""

    end_offset: int
    log_start_offset: int
    epoch: int | None = None
    suspect_since: float | None = None


class ExactMirror:
    """One life of a mirror: after any exception, `close` it and open another one. One thread uses it. Raises
    `MirrorOfItself`, `LogUnavailable` where the source does not answer.

    State: the end of each copy, as far as the log has confirmed it.
    """

    def __init__(
        self, log: MirrorLog, source: MirrorSource, settings: ExactMirrorSettings, board: MirrorBoard | None = None
    ) -> None:
        self._log, self._source, self._settings = log, source, settings
        self.board = board or MirrorBoard()
        self.board.begin()
        check_is_another(log, source, settings.topics)
        self._topics = MirroredTopics(log, source, settings.name, settings.topics, adopts=settings.adopts)
        self._groups = MirroredGroups(log, source, settings.groups)
        self._copies: dict[TopicPartition, _Copy] = {}
        self._fetcher = SourceFetcher(source.router)
        self._lanes = AppendLanes("millstream-mirror-append")
        self._next_look = 0.0
        self._copied_before = self._seen = self.board.records

    @property
    def records(self) -> int:
        return self.board.records - self._copied_before

    @property
    def pause_s(self) -> float:
        return 0.0

    def step(self, timeout_s: float) -> bool:
        """Takes what one broker has answered, to be appended while the next step goes on. True where records were
        appended since the last step. Raises why one could not be."""
        before, self._seen = self._seen, self.board.records
        if time.monotonic() >= self._next_look:
            self.look()
        if self._lanes.has_room(timeout_s):
            for answer in self._fetcher.take(timeout_s):
                size = 0 if answer.fetched is None else answer.fetched.size
                self._lanes.give(answer.where, size, partial(self._take, answer))
        return self._seen > before

    def look(self) -> None:
        """Topics, partitions, settings and groups follow the source."""
        found = self._topics.follow(self.board)
        self._fetcher.name(found.ids)
        for where in found.partitions - self._copies.keys():
            self._begin(where)
        for topic, why in found.stopped.items():
            for where in [where for where in self._copies if where.topic == topic]:
                self._stop(where, why)
        self.board.offsets_of_groups += self._groups.copy(self._translate)
        self._next_look = time.monotonic() + self._settings.look_ms / 1000

    def _translate(self, where: TopicPartition, offset: int) -> Translated | None:
        """Offsets mean the same at both logs. Nobody is sent beyond the end of the copy: what comes there later would
        be skipped."""
        copy = self._copies.get(where)
        return None if copy is None else Translated(where, min(offset, copy.end_offset))

    def lag(self) -> int | None:
        return self.board.lag

    def is_level(self) -> bool:
        """Whether every partition that is copied has come to the end that the source has now."""
        self.look()
        for where, copy in self._copies.items():
            if self._fetcher.reads(where) and self._source.ends(where).high_watermark > copy.end_offset:
                return False
        return True

    def close(self) -> None:
        self._fetcher.close()
        self._lanes.close()
        self._source.close()

    # One partition

    def _begin(self, where: TopicPartition) -> None:
        offsets = self._log.offsets(*where)
        copy = self._copies[where] = _Copy(offsets.log_end_offset, offsets.log_start_offset)
        self.board.note(where, end_offset=copy.end_offset)
        self._go_on(where, copy)

    def _go_on(self, where: TopicPartition, copy: _Copy) -> None:
        """After a look at both ends: from the end of the copy, or from where the source begins."""
        try:
            ends = self._source.ends(where)
            if copy.end_offset > ends.high_watermark and self._may_pass(copy):
                self._wait(where, copy, f"the source ends at offset {ends.high_watermark}, before the copy")
                return
            check_same(self._log, self._source, where, copy.end_offset, ends)
        except DivergedMirror as error:
            self._stop(where, _text(error))
            return
        except UnknownTopic:
            self._stop(where, "it does not exist at the source any more")
            return
        except (LogClosed, ReadOnlyTopic):
            raise
        except LogError as error:
            self._wait(where, copy, error.message)
            return
        copy.suspect_since = None
        if ends.log_start_offset == ends.high_watermark > copy.end_offset:
            self._fill(where, copy, ends)
        self.board.note(
            where,
            phase="COPYING",
            error=None,
            end_offset=copy.end_offset,
            lag=max(0, ends.high_watermark - max(copy.end_offset, ends.log_start_offset)),
        )
        self._cut(where, copy, ends.log_start_offset)
        self._fetcher.seek(where, max(copy.end_offset, ends.log_start_offset))

    def _may_pass(self, copy: _Copy) -> bool:
        """A new leader does not know its own end at once."""
        now = time.monotonic()
        copy.suspect_since = copy.suspect_since or now
        return now - copy.suspect_since < _SUSPECT_S

    def _wait(self, where: TopicPartition, copy: _Copy, why: str) -> None:
        """Asked again: the fetch from the end of the copy says whether it is still so."""
        self.board.note(where, phase="WAITING", error=why)
        self._fetcher.seek(where, copy.end_offset, after_s=_AGAIN_S)

    def _stop(self, where: TopicPartition, why: str) -> None:
        """For this life: the others go on."""
        self._fetcher.leave(where)
        self.board.note(where, phase="STOPPED", error=f"{where.topic}-{where.partition}: {why}")

    # What came

    def _take(self, answer: SourceAnswer) -> None:
        """One after the other for each partition. An answer that was asked for before the last `seek` is dropped."""
        where, copy = answer.where, self._copies[answer.where]
        if not self._fetcher.is_current(answer):
            return
        if answer.error is not None or answer.fetched is None:
            if isinstance(answer.error, OffsetOutOfRange):
                self._go_on(where, copy)
            elif isinstance(answer.error, UnknownTopic):
                self._next_look = 0.0  # which finds out what became of it
            else:
                self.board.note(where, phase="WAITING", error=None if answer.error is None else answer.error.message)
            return
        fetched = answer.fetched
        try:
            came = copied_batches(fetched, copy.end_offset, answer.offset)
            if came.epoch is not None and copy.epoch not in (None, came.epoch):
                check_same(self._log, self._source, where, copy.end_offset, self._source.ends(where))
            self._append(where, copy, came.batches)
        except DivergedMirror as error:
            self._stop(where, _text(error))
            return
        except ValueError as error:
            self.board.note(where, phase="WAITING", error=f"{where.topic}-{where.partition}: {error}")
            self._fetcher.seek(where, answer.offset, after_s=_AGAIN_S)
            return
        except OffsetOutOfRange:  # somebody else has appended the same, or an answer was lost
            self._begin(where)
            return
        copy.epoch = came.epoch if came.epoch is not None else copy.epoch
        if not self._fetcher.is_current(answer):  # it was stopped meanwhile
            return
        lag = max(0, fetched.high_watermark - max(copy.end_offset, fetched.log_start_offset))
        self.board.note(where, phase="COPYING", error=None, end_offset=copy.end_offset, lag=lag)
        if not came.batches and fetched.log_start_offset == fetched.high_watermark > copy.end_offset:
            self._fill(where, copy, PartitionEnds(fetched.log_start_offset, fetched.high_watermark))
        self._cut(where, copy, fetched.log_start_offset)

    def _append(self, where: TopicPartition, copy: _Copy, batches: Sequence[EncodedBatch]) -> None:
        begin = size = 0
        for place, batch in enumerate(batches, 1):
            size += batch.header.size
            if size >= _APPEND_BYTES or place == len(batches):
                self._log.append_copies(*where, batches[begin:place], self._settings.name)
                copy.end_offset = batch.header.last_offset + 1
                self.board.copied(size, sum(each.header.record_count for each in batches[begin:place]))
                begin, size = place, 0

    def _fill(self, where: TopicPartition, copy: _Copy, ends: PartitionEnds) -> None:
        """The source has removed everything up to its end: nothing is left to copy, but the offsets are taken."""
        self._append(where, copy, list(fillers(copy.end_offset, ends.high_watermark, 0)))

    def _cut(self, where: TopicPartition, copy: _Copy, log_start_offset: int) -> None:
        """What the source has dropped is dropped here, too."""
        start = min(log_start_offset, copy.end_offset)
        if start > copy.log_start_offset:
            copy.log_start_offset = self._log.delete_records(*where, start)


def _text(error: LogError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message
