"""Exact mode: topics with the same names, partitions and offsets, which only the mirror writes.

    fetch from the end of the copy → append where the copy ends → fetch …

Partitions do not wait for each other: appends are ordered only within a partition, and the next records are fetched
meanwhile. The position of the mirror is the end of the copy itself, and each append names its offset. So each batch is
appended once, even after a crash, and an older copier that still runs can only append the same records at the same
offsets.
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
from .mirrored_acls import MirroredAcls
from .mirrored_groups import MirroredGroups, Translated
from .mirrored_topics import MirroredTopics
from .own_log import check_is_another
from .source_fetcher import SourceAnswer, SourceFetcher

_APPEND_BYTES: Final = 16 * 1024 * 1024
_SUSPECT_S: Final = 3.0
_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ExactMirrorSettings:
    """`name`: that of the mirror, which its topics have as a setting. `adopts`: existing topics are taken over if their
    records are the first ones of the source's topics. `groups`: those whose offsets are copied. `look_ms`: the interval
    for checking the topics and groups of the source. `acls`: whether ACLs of topics are copied."""

    name: str
    topics: TopicFilter
    groups: TopicFilter
    adopts: bool = False
    look_ms: int = 3_000
    acls: bool = True


@dataclass(slots=True)
class _Copy:
    """One partition. `end_offset`: that of the copy. `epoch`: that of the leader that wrote the last copied records;
    None if unknown. `suspect_since`: when the source was first found to end before the copy."""

    end_offset: int
    log_start_offset: int
    epoch: int | None = None
    suspect_since: float | None = None


class ExactMirror:
    """One run of a mirror: after any exception, `close` it and open another one. One thread uses it. Raises
    `MirrorOfItself`; `LogUnavailable` if the source does not answer.

    State: the end of each copy that the log has confirmed.
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
        self._acls = MirroredAcls(log, source, settings.name, writable=True) if settings.acls else None
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
        """Takes the answer of one broker; it is appended in the background. True if records were appended since the
        last step. Raises the error of a failed append."""
        before, self._seen = self._seen, self.board.records
        if time.monotonic() >= self._next_look:
            self.look()
        if self._lanes.has_room(timeout_s):
            for answer in self._fetcher.take(timeout_s):
                size = 0 if answer.fetched is None else answer.fetched.size
                self._lanes.give(answer.where, size, partial(self._take, answer))
        return self._seen > before

    def look(self) -> None:
        """Copies changes of the source's topics, partitions, settings and groups."""
        found = self._topics.follow(self.board)
        self._fetcher.name(found.ids)
        for where in found.partitions - self._copies.keys():
            self._begin(where)
        for topic, why in found.stopped.items():
            for where in [where for where in self._copies if where.topic == topic]:
                self._stop(where, why)
        self.board.offsets_of_groups += self._groups.copy(self._translate)
        if self._acls is not None:
            self._acls.copy({name: name for name in sorted({where.topic for where in found.partitions})})
        self._next_look = time.monotonic() + self._settings.look_ms / 1000

    def _translate(self, where: TopicPartition, offset: int) -> Translated | None:
        """Offsets are the same in both logs, but limited to the end of the copy, since later records would else be
        skipped."""
        copy = self._copies.get(where)
        return None if copy is None else Translated(where, min(offset, copy.end_offset))

    def lag(self) -> int | None:
        return self.board.lag

    def is_level(self) -> bool:
        """Whether every copied partition has reached the current end of the source."""
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
        """Compares both ends, and then continues from the end of the copy or from the start of the source."""
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
        """Whether the source's end may soon be right: a new leader does not know its own end immediately."""
        now = time.monotonic()
        copy.suspect_since = copy.suspect_since or now
        return now - copy.suspect_since < _SUSPECT_S

    def _wait(self, where: TopicPartition, copy: _Copy, why: str) -> None:
        """Tries again later: the fetch from the end of the copy shows whether the problem remains."""
        self.board.note(where, phase="WAITING", error=why)
        self._fetcher.seek(where, copy.end_offset, after_s=_AGAIN_S)

    def _stop(self, where: TopicPartition, why: str) -> None:
        """Stops this partition until the mirror is opened again. Others continue."""
        self._fetcher.leave(where)
        self.board.note(where, phase="STOPPED", error=f"{where.topic}-{where.partition}: {why}")

    # What came

    def _take(self, answer: SourceAnswer) -> None:
        """Appends an answer; for each partition one after the other. Answers to requests before the last `seek` are
        dropped."""
        where, copy = answer.where, self._copies[answer.where]
        if not self._fetcher.is_current(answer):
            return
        if answer.error is not None or answer.fetched is None:
            if isinstance(answer.error, OffsetOutOfRange):
                self._go_on(where, copy)
            elif isinstance(answer.error, UnknownTopic):
                self._next_look = 0.0  # `look` finds what happened to it
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
        except OffsetOutOfRange:  # another copier has appended the same records, or an answer was lost
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
        """Fills the offsets up to the end of the source, which has removed all records there."""
        self._append(where, copy, list(fillers(copy.end_offset, ends.high_watermark, 0)))

    def _cut(self, where: TopicPartition, copy: _Copy, log_start_offset: int) -> None:
        """Deletes the records here that the source has deleted."""
        start = min(log_start_offset, copy.end_offset)
        if start > copy.log_start_offset:
            copy.log_start_offset = self._log.delete_records(*where, start)


def _text(error: LogError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message
