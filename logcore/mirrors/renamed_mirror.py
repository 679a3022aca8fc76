"""Renamed mode: topics become `<alias>.topic`, with MirrorMaker 2's internal topics in addition.

    fetch → begin → records → offset syncs → commit

The last offset sync of a partition is its position. It is committed together with the records, so each record is copied
once. The transactional id fences older copiers of the mirror.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.errors import LogError

from ..client import RowRecords, TopicPartition
from ..errors import OffsetOutOfRange, TopicExists, UnknownTopic
from ..topic_settings import MIRRORED_ID
from .copied_batches import CopiedBatches, copied_batches
from .mirror_board import MirrorBoard
from .mirror_errors import DivergedMirror
from .mirror_maker_formats import (
    GroupCheckpoint,
    OffsetSync,
    SourceHeartbeat,
    checkpoints_topic,
    heartbeats_topic,
    is_copied,
    offset_syncs_topic,
    remote_topic,
)
from .mirror_source import MirrorSource, SourceTopic, TopicFilter
from .mirror_target import MirrorLog
from .mirrored_acls import MirroredAcls
from .mirrored_groups import MirroredGroups, Translated
from .offset_translation import OffsetTranslation
from .own_log import check_is_another
from .source_fetcher import SourceAnswer, SourceFetcher

_AGAIN_S: Final = 0.5
_SUSPECT_S: Final = 3.0
_COMPACTED: Final = {"cleanup.policy": "compact"}
_SCHEMA: Final = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class RenamedMirrorSettings:
    """`alias`: that of the source, the prefix of its topics' names. `target`: that of this log; topics that came from
    it are not copied back. `commits`: offsets of groups are also committed here, not only written to checkpoints.
    `acls`: whether ACLs of topics are copied."""

    name: str
    alias: str
    target: str
    topics: TopicFilter
    groups: TopicFilter
    commits: bool = True
    look_ms: int = 3_000
    acls: bool = True


class RenamedMirror:
    """One run of a mirror: after any exception, `close` it and open another one. One thread uses it. Raises
    `MirrorOfItself`; `LogUnavailable` if the source does not answer.

    State: the syncs, with the position of each partition; and the checkpoints that were written last.
    """

    def __init__(
        self, log: MirrorLog, source: MirrorSource, settings: RenamedMirrorSettings, board: MirrorBoard | None = None
    ) -> None:
        self._log, self._source, self._settings = log, source, settings
        self.board = board or MirrorBoard()
        self.board.begin()
        check_is_another(log, source, settings.topics)
        self._syncs, self._checkpoints = offset_syncs_topic(settings.alias), checkpoints_topic(settings.alias)
        for topic in (self._syncs, self._checkpoints, heartbeats_topic(settings.alias)):
            self._create(topic, 1, _COMPACTED)
        self._producer = log.transactional_producer(f"_millstream-mirror-{settings.name}")
        self._translation = OffsetTranslation()
        self._translation.read(log, self._syncs)
        self._groups = MirroredGroups(log, source, settings.groups)
        self._acls = MirroredAcls(log, source, settings.name, writable=False) if settings.acls else None
        self._told: dict[bytes, bytes] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._suspect_since: dict[TopicPartition, float] = {}  # partitions whose source ends before the position
        self._known: dict[str, dict[str, str]] = {}
        self._marks = log.capabilities.copies
        self._fetcher = SourceFetcher(source.router)
        self._next_look = 0.0
        self._open = False
        self._copied_before = self.board.records

    @property
    def records(self) -> int:
        return self.board.records - self._copied_before

    @property
    def pause_s(self) -> float:
        return 0.0

    def lag(self) -> int | None:
        return self.board.lag

    def step(self, timeout_s: float) -> bool:
        """Takes the answer of one broker, and commits its records. True if it had any."""
        if time.monotonic() >= self._next_look:
            self.look()
        usable = [answer for answer in self._fetcher.take(timeout_s) if self._is_usable(answer)]
        answers = [(answer, came) for answer in usable if (came := self._came(answer)) is not None]
        if not answers:
            return False
        self._producer.begin()
        self._open = True
        syncs: list[OffsetSync] = []
        counts = [self._append(answer, came, syncs) for answer, came in answers]
        if syncs:
            self._producer.append(self._syncs, 0, _rows((sync.key, sync.value) for sync in syncs))
            self._producer.commit()
        else:
            self._producer.abort()
        self._open = False
        for sync in syncs:
            self._translation.add(sync)
        for (answer, _), (size, records) in zip(answers, counts, strict=True):
            self._note(answer, size, records)
        return bool(syncs)

    def look(self) -> None:
        """Copies changes of the source's topics, partitions, settings and groups."""
        there = {
            name: topic
            for name, topic in self._source.topics(self._settings.topics).items()
            if is_copied(name, self._settings.alias, self._settings.target)
        }
        settings = self._source.settings(sorted(there)) if there else {}
        for name, topic in there.items():
            if name in settings:
                self._follow(topic, settings[name].followed)
        self._fetcher.name({name: topic.id for name, topic in there.items() if topic.id is not None})
        self._tell_groups()
        if self._acls is not None:
            self._acls.copy({name: remote_topic(self._settings.alias, name) for name in sorted(there)})
        beat = SourceHeartbeat(self._settings.alias, self._settings.target, time.time_ns() // 1_000_000)
        self._log.append(heartbeats_topic(self._settings.alias), 0, _rows([(beat.key, beat.value)]))
        self._next_look = time.monotonic() + self._settings.look_ms / 1000

    def is_level(self) -> bool:
        """Whether every partition has reached the current end of the source."""
        self.look()
        return all(self._source.ends(where).high_watermark <= offset for where, offset in self._positions.items())

    def close(self) -> None:
        """Drops uncommitted records. It never fails: the next run of the mirror decides an open transaction."""
        self._fetcher.close()
        self._source.close()
        if self._open:
            with contextlib.suppress(Exception):
                self._producer.abort()

    # Topics

    def _follow(self, topic: SourceTopic, settings: Mapping[str, str]) -> None:
        name = remote_topic(self._settings.alias, topic.name)
        here = self._log.topic(name)
        marked = {**settings, MIRRORED_ID: topic.id} if topic.id is not None and self._marks else dict(settings)
        copied = None if here is None else here.config.get(MIRRORED_ID)
        if copied is not None and topic.id not in (None, copied):
            self._stop_topic(topic)
            return
        self.board.refuse(topic.name, None)
        if here is None:
            self._begin_anew(topic)
            self._create(name, topic.partition_count, marked)
        else:
            if here.partition_count < topic.partition_count:
                self._log.add_partitions(name, topic.partition_count)
            if self._known.get(name) not in (None, marked):
                self._log.alter_topic(name, marked)
            elif copied is None and marked != settings:
                self._log.alter_topic(name, {**here.config, MIRRORED_ID: marked[MIRRORED_ID]})
        self._known[name] = marked
        for number in range(topic.partition_count):
            where = TopicPartition(topic.name, number)
            if where not in self._positions:
                self._begin(where)

    def _stop_topic(self, topic: SourceTopic) -> None:
        name = remote_topic(self._settings.alias, topic.name)
        why = f"the topic was deleted at the source and made anew. Delete {name} here, and the new one is copied"
        self.board.refuse(topic.name, f"{topic.name}: {why}")
        for number in range(topic.partition_count):
            self._stop(TopicPartition(topic.name, number), why)

    def _stop(self, where: TopicPartition, why: str) -> None:
        """Nothing more of the partition is copied, and nobody waits for it."""
        self._fetcher.leave(where)
        self._positions.pop(where, None)
        self.board.note(where, phase="STOPPED", error=f"{where.topic}-{where.partition}: {why}")

    def _begin_anew(self, topic: SourceTopic) -> None:
        """The copy is not here any more, so the source is read from its start. This is noted before the topic is made:
        afterwards it would be taken for the one that the positions are about."""
        syncs: list[OffsetSync] = []
        for number in range(topic.partition_count):
            where = TopicPartition(topic.name, number)
            self._positions.pop(where, None)
            if self._translation.next_offset(where) is not None:
                syncs.append(OffsetSync(*where, 0, 0))
        if syncs:
            self._log.append(self._syncs, 0, _rows((sync.key, sync.value) for sync in syncs))
        for sync in syncs:
            self._translation.add(sync)

    def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        if self._log.topic(name) is None:
            with contextlib.suppress(TopicExists):
                self._log.create_topic(name, partitions, settings)

    def _begin(self, where: TopicPartition) -> None:
        """Reads from the position, or from the source's start if the records after the position were removed."""
        ends = self._source.ends(where)
        position = self._translation.next_offset(where)
        if position is not None and position > ends.high_watermark:
            why = f"the source ends at offset {ends.high_watermark}, and {position} was copied already"
            if self._may_pass(where):
                self._positions[where] = position
                self.board.note(where, phase="WAITING", error=why)
                self._fetcher.seek(where, position, after_s=_AGAIN_S)
                return
            self._fetcher.leave(where)
            self._positions[where] = ends.high_watermark
            self.board.note(where, phase="STOPPED", error=f"{where.topic}-{where.partition}: {why}")
            return
        self._suspect_since.pop(where, None)
        self._positions[where] = max(position or 0, ends.log_start_offset)
        self.board.note(where, end_offset=self._positions[where], lag=ends.high_watermark - self._positions[where])
        self._fetcher.seek(where, self._positions[where])

    def _may_pass(self, where: TopicPartition) -> bool:
        """Whether the source's end may soon be right: a new leader does not know its own end immediately."""
        now = time.monotonic()
        return now - self._suspect_since.setdefault(where, now) < _SUSPECT_S

    # Records

    def _is_usable(self, answer: SourceAnswer) -> bool:
        if answer.where not in self._positions:  # it came before the partition was stopped
            return False
        if answer.fetched is not None:
            if not answer.fetched.size:
                self._note(answer, 0, 0)
            return answer.fetched.size > 0
        if isinstance(answer.error, OffsetOutOfRange):
            self._begin(answer.where)
        elif isinstance(answer.error, UnknownTopic):
            self._stop(answer.where, "the source has no such topic any more")
        else:
            self.board.note(answer.where, phase="WAITING", error=None if answer.error is None else answer.error.message)
        return False

    def _came(self, answer: SourceAnswer) -> CopiedBatches | None:
        """The batches of an answer; None if they do not continue the copy, and the partition stops."""
        where, fetched = answer.where, answer.fetched
        assert fetched is not None
        try:
            return copied_batches(fetched, self._positions[where], answer.offset)
        except DivergedMirror as error:
            self._stop(where, str(error))
        except ValueError as error:
            raise LogError(f"{where.topic}-{where.partition}: {error}") from error
        return None

    def _append(self, answer: SourceAnswer, came: CopiedBatches, syncs: list[OffsetSync]) -> tuple[int, int]:
        """Appends an answer in the open transaction. Returns the number of bytes and of records."""
        where = answer.where
        position = self._positions[where]
        name, size, records, downstream = remote_topic(self._settings.alias, where.topic), 0, 0, None
        for batch in came.batches:
            if not batch.header.record_count:
                continue
            upstream = batch.header.base_offset
            downstream = self._producer.append_batch(name, where.partition, batch)
            syncs.append(OffsetSync(*where, upstream, downstream))
            downstream += batch.header.last_offset_delta + 1
            size, records = size + batch.header.size, records + batch.header.record_count
        if came.end_offset > position:
            end = self._log.offsets(name, where.partition).log_end_offset if downstream is None else downstream
            syncs.append(OffsetSync(*where, came.end_offset, end))
            self._positions[where] = came.end_offset
        return size, records

    def _note(self, answer: SourceAnswer, size: int, records: int) -> None:
        assert answer.fetched is not None
        position = self._positions[answer.where]
        lag = max(0, answer.fetched.high_watermark - position)
        self.board.copied(size, records)
        self.board.note(answer.where, phase="COPYING", error=None, end_offset=position, lag=lag)

    # Groups

    def _translate(self, where: TopicPartition, offset: int) -> Translated | None:
        found = self._translation.translated(where, offset)
        name = remote_topic(self._settings.alias, where.topic)
        return None if found is None else Translated(TopicPartition(name, where.partition), found)

    def _tell_groups(self) -> None:
        news: dict[bytes, bytes] = {}
        for group, offsets in self._groups.translated(self._translate):
            for (topic, partition), found in offsets.items():
                told = GroupCheckpoint(group, topic, partition, found.upstream, found.offset, found.metadata)
                if self._told.get(told.key) != told.value:
                    news[told.key] = told.value
        if news:
            self._log.append(self._checkpoints, 0, _rows(news.items()))
            self._told |= news
        if self._settings.commits:
            self.board.offsets_of_groups += self._groups.copy(self._translate)


def _rows(pairs: Iterable[tuple[bytes, bytes]]) -> RowRecords:
    found = list(pairs)
    now_ms = time.time_ns() // 1_000_000
    columns = {
        "timestamp": [now_ms] * len(found),
        "key": [key for key, _ in found],
        "value": [value for _, value in found],
    }
    return RowRecords(pa.table(columns, schema=_SCHEMA))
