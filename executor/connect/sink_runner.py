"""Runs one task of a sink: reads topics, writes to the other system, then commits the offsets.

The sink determines the guarantee. A transactional sink stores offsets with its rows, and continues from them. For the
others, the group `connect-<name>` in the log stores the offsets, so a batch that was written but not committed is
written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import structlog

from ...logcore.client import HEADERS, FetchedColumns, FetchedRows, LogClient, Topic, TopicPartition
from ...logcore.errors import OffsetOutOfRange
from ...logcore.failpoints import fp
from ...logcore.murmur2 import partition_of
from ..formats.wire import SchemaLookup, no_schemas
from .connector import ConnectRecord, RecordsRefused, SinkConnector, TaskInfo
from .connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from .converters import Converter, converter_hint, sink_converter_of
from .dead_letters import DeadLetters
from .task_positions import TopicsRead
from .transforms import transformed, transforms_of

_BATCH_BYTES: Final = 4 * 1024 * 1024
_FIRST_RECORDS: Final = 10_000
_RECORDS_MAX: Final = 10_000_000
_LOOK_S: Final = 5.0  # how often to look for new topics of a pattern and new partitions

Transcoder = Callable[[Topic, pa.RecordBatch, int], pa.Table]
"""Converts a columnar batch of a topic, with its largest time, to records in row form."""

_log = structlog.get_logger("millstream.connect")


def group_of(connector: str) -> str:
    """The consumer group of a sink, named as in Kafka Connect."""
    return f"connect-{connector}"


def topics_problem(config: Mapping[str, str]) -> None:
    """Checks the settings that select topics. Raises `InvalidConnector`."""
    if bool(config.get("topics")) == bool(config.get("topics.regex")):
        raise InvalidConnector("a sink needs one of topics and topics.regex", setting="topics")
    try:
        re.compile(config.get("topics.regex", ""))
    except re.error as error:
        raise InvalidConnector(f"topics.regex is no regular expression: {error}", setting="topics.regex") from None


def topics_read(config: Mapping[str, str], log: LogClient) -> list[str]:
    """The existing topics that the settings select; others may be created later."""
    if names := _listed_topics(config):
        return [name for name in names if log.topic(name) is not None]
    pattern = re.compile(config["topics.regex"])
    return sorted(name for name in log.topics() if pattern.fullmatch(name) and not name.startswith("_"))


def _listed_topics(config: Mapping[str, str]) -> list[str]:
    names = [name.strip() for name in config.get("topics", "").split(",")]
    return list(dict.fromkeys(name for name in names if name))


def reading(task: TaskInfo, log: LogClient) -> TaskInfo:
    """The task with functions that tell a sink about the topics that it reads."""

    def topic_id(topic: str) -> str | None:
        found = log.topic_id(topic)
        return None if found is None else found.hex

    return replace(task, log_end=lambda at: log.offsets(*at).log_end_offset, topic_id=topic_id)


class _Placed(NamedTuple):
    """A record, and where it was read: a transform may have changed its topic. `raw`: the record as in the log."""

    at: TopicPartition
    offset: int
    record: ConnectRecord
    raw: ConnectRecord


class SinkRunner:
    """One life of a task. State: the position and the committed offset of each of its partitions; and the most records
    of the next step. The first step takes few records, so that a task that is far behind commits something even if it
    dies early; each next step takes twice as many."""

    def __init__(
        self,
        log: LogClient,
        sink: SinkConnector,
        task: TaskInfo,
        config: Mapping[str, str],
        transcoder: Transcoder,
        schemas: SchemaLookup = no_schemas,
    ) -> None:
        """In: `schemas`: finds the schemas that records name. Raises `InvalidConnector`."""
        topics_problem(config)
        self._log = log
        self._sink = sink
        self._task = task
        self._config = config
        self._transcoder = transcoder
        self._schemas = schemas
        self._key, self._value = (sink_converter_of(config, part, schemas) for part in ("key", "value"))
        self._transforms = transforms_of(config)
        self._dead_letters = DeadLetters(log, task, config)
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._next_look = task.clock.monotonic()
        self._most = _FIRST_RECORDS
        self._turns = 0
        self.records = 0

    @property
    def pause_s(self) -> float:
        return self._sink.pause_s

    def step(self, timeout_s: float) -> bool:
        """Writes one batch of each partition. False if there was nothing to write."""
        if (pause_s := self._sink.pause_s) > 0:
            self._task.clock.sleep(min(pause_s, timeout_s))
            return False
        if self._task.clock.monotonic() >= self._next_look:
            self._look()
        if not self._log.wait(self._positions, timeout_s):
            self._task.tenure.check()
            self._sink.tick()
            self._commit()
            return False
        self._check_topics()
        records, moved, count = self._next()
        if not moved:
            return False
        fp("connect.sink_after_read")
        for batch, positions in self._batches(records, moved):
            self._write(batch, positions)
            fp("connect.sink_after_write")
            self._positions.update(positions)
            self._commit()
            fp("connect.sink_after_commit")
        self.records += count
        self._most = min(2 * self._most, _RECORDS_MAX)
        return True

    def _next(self) -> tuple[list[_Placed], dict[TopicPartition, int], int]:
        """The decoded records of this step, the positions after them, and how many records were read."""
        records: list[_Placed] = []
        moved: dict[TopicPartition, int] = {}
        count = 0
        for at, position in self._in_turn():
            if count >= self._most:
                break
            fetched = self._fetched(at, position)
            next_offset = fetched.next_offset
            for run in fetched.runs:
                rows = self._rows(at.topic, run)
                taken = rows.slice(0, self._most - count)
                count += taken.num_rows
                records += self._decoded(at, taken)
                if count >= self._most:
                    next_offset = taken.column("offset")[taken.num_rows - 1].as_py() + 1
                    break
            if next_offset > position:
                moved[at] = next_offset
        return records, moved, count

    def _in_turn(self) -> list[tuple[TopicPartition, int]]:
        """The partitions, each time beginning with another one, so that none waits until the others are read."""
        all_, self._turns = list(self._positions.items()), self._turns + 1
        begin = self._turns % len(all_) if all_ else 0
        return all_[begin:] + all_[:begin]

    def _write(self, batch: list[_Placed], positions: Mapping[TopicPartition, int]) -> None:
        """Writes a batch. If the sink stores positions itself, refused records become dead letters before these
        advance."""
        records = [placed.record for placed in batch]
        while True:
            self._task.tenure.check()
            try:
                self._sink.write(records, positions)
                return
            except RecordsRefused as refused:
                self._refuse_written(refused, batch)
                if refused.others_written:
                    return
                gone = {id(record) for record, _ in refused.records}
                records = [record for record in records if id(record) not in gone]

    def _commit(self) -> None:
        """Commits the offsets up to the first record of each partition that the sink still holds."""
        held = self._sink.held()
        durable = {at: min(position, held.get(at, position)) for at, position in self._positions.items()}
        moved = {at: position for at, position in durable.items() if self._committed.get(at) != position}
        if moved:
            with self._task.tenure:
                self._log.commit_offsets(group_of(self._task.connector), moved)
            self._committed.update(moved)

    def _batches(
        self, records: list[_Placed], moved: dict[TopicPartition, int]
    ) -> Iterator[tuple[list[_Placed], Mapping[TopicPartition, int]]]:
        """The batches, each with the positions after it. The last positions are also after dropped records."""
        most = self._sink.batch_records
        for begin in range(0, max(len(records) - most, 0), most):
            batch = records[begin : begin + most]
            yield batch, {placed.at: placed.offset + 1 for placed in batch}
        last = records[-(len(records) % most or most) :] if records else []
        yield last, moved

    def lag(self) -> int | None:
        return sum(
            max(0, self._log.offsets(*at).last_stable_offset - position) for at, position in self._positions.items()
        )

    def close(self) -> None:
        self._sink.close()

    # What is read

    def _look(self) -> None:
        """Takes this task's share of new partitions."""
        self._next_look = self._task.clock.monotonic() + _LOOK_S
        self._check_topics()
        new = [at for at in self._share() if at not in self._positions]
        if not new:
            return
        self._task.tenure.check()
        read = TopicsRead(self._log, self._task.connector, self._task.number)
        anew = self._made_anew(new, read)
        stored = self._sink.positions(new)
        if anew and stored is not None:
            name = min(anew).topic
            raise ConnectorFailed(
                f"the topic {name} was deleted and created again, and the other system has offsets of the old one",
                hint="DROP CONNECTOR, and create it again: then it reads all of the topic.",
            )
        known = self._log.committed_offsets(group_of(self._task.connector)) if stored is None else stored
        for at in new:
            begin = self._log.offsets(*at).log_start_offset
            self._positions[at] = begin if at in anew else known.get(at, begin)
            self._committed[at] = self._positions[at]
        with self._task.tenure:
            if anew:  # first the offsets: a death after the note would leave those of the earlier topic
                self._log.commit_offsets(group_of(self._task.connector), {at: self._positions[at] for at in anew})
            read.note({at: self._topic_ids[at.topic] for at in new if at.topic in self._topic_ids})

    def _made_anew(self, places: Sequence[TopicPartition], read: TopicsRead) -> set[TopicPartition]:
        """The partitions of topics that were recreated since a task read topics of these names."""
        found = {topic: self._task.topic_id(topic) for topic in {at.topic for at in places}}
        self._topic_ids |= {topic: id_ for topic, id_ in found.items() if id_ is not None}
        known = [at for at in places if at.topic in self._topic_ids]
        return {at for at in known if read.id_of(at) not in (None, self._topic_ids[at.topic])}

    def _check_topics(self) -> None:
        """Raises `SystemUnavailable` if a topic was recreated, because its offsets differ; the next life handles that.
        Call it before a fetch."""
        for topic, known in self._topic_ids.items():
            if self._task.topic_id(topic) not in (known, None):
                raise SystemUnavailable(f"the topic {topic} was deleted and created again, and is read as a new one")

    def _share(self) -> list[TopicPartition]:
        """The partitions of this task. A partition has the same task whichever other topics and partitions there are:
        otherwise a new one would give it to a second task while the first one still reads it."""
        of, listed = int(self._task.config.get("of", 1)), _listed_topics(self._config)
        found: list[TopicPartition] = []
        for topic in topics_read(self._config, self._log):
            first = listed.index(topic) if listed else partition_of(topic.encode(), of)
            numbers = range(self._log.partition_count(topic))
            found += [TopicPartition(topic, at) for at in numbers if (first + at) % of == self._task.number]
        return found

    def _fetched(self, at: TopicPartition, position: int) -> Any:
        try:
            return self._log.fetch(at.topic, at.partition, position, max_bytes=_BATCH_BYTES)
        except OffsetOutOfRange:
            begin = self._log.offsets(*at).log_start_offset
            if position >= begin:
                raise
            _log.warning(
                "records were deleted before a sink read them",
                connector=self._task.connector, topic=at.topic, partition=at.partition, count=begin - position,
            )  # fmt: skip
            return self._log.fetch(at.topic, at.partition, begin, max_bytes=_BATCH_BYTES)

    def _rows(self, topic: str, run: FetchedRows | FetchedColumns) -> pa.Table:
        if isinstance(run, FetchedRows):
            return run.table
        known = self._log.topic(topic)
        assert known is not None
        rows = self._transcoder(known, run.batch, run.timestamp_ms)
        empty = pa.nulls(rows.num_rows, HEADERS)
        return rows.append_column("offset", pa.array(run.row_offsets)).append_column("headers", empty)

    def _decoded(self, at: TopicPartition, rows: pa.Table) -> list[_Placed]:
        found: list[_Placed] = []
        for row in rows.to_pylist():
            headers = tuple((item["key"], item["value"]) for item in row["headers"] or ())
            raw = ConnectRecord(
                at.topic, row["key"], row["value"], row["timestamp"], headers, at.partition, row["offset"], at.topic
            )
            try:
                record = transformed(self._read(raw), self._transforms)
            except _Unconverted as error:
                self._refuse(raw, f"is not in the format of its converter: {error}", error.hint)
                continue
            except ValueError as error:
                self._refuse(raw, f"cannot be transformed: {error}", "Change the transforms.")
                continue
            if record is not None:
                found.append(_Placed(at, row["offset"], record, raw))
        return found

    def _read(self, raw: ConnectRecord) -> ConnectRecord:
        """Decodes key and value. Raises `_Unconverted`."""
        key = self._part_read("key", self._key, raw.key)
        return replace(raw, key=key, value=self._part_read("value", self._value, raw.value))

    def _part_read(self, part: str, converter: Converter, data: bytes | None) -> Any:
        try:
            return converter.from_bytes(data)
        except ValueError as error:
            hint = converter_hint(part, converter, data, self._schemas)
            raise _Unconverted(f"the {part}: {error}", hint) from None

    def _refuse_written(self, refused: RecordsRefused, batch: list[_Placed]) -> None:
        raws = {(placed.raw.topic, placed.raw.partition, placed.offset): placed.raw for placed in batch}
        for record, reason in refused.records:
            raw = raws[record.read_from or record.topic, record.partition, record.offset or 0]
            self._refuse(raw, f"cannot be written: {reason}", refused.hint)

    def _refuse(self, raw: ConnectRecord, reason: str, hint: str) -> None:
        """Adds the record to the dead letters, or ends the task."""
        place = f"{raw.topic}, partition {raw.partition}, offset {raw.offset}"
        letter = self._dead_letters.refuse(
            f"the record at {place} {reason}",
            hint,
            raw.key, raw.value, raw.timestamp_ms, raw.headers,
            topic=raw.topic, partition=raw.partition, offset=raw.offset,
        )  # fmt: skip
        if letter is not None:
            with self._task.tenure:
                self._log.append(letter[0], 0, letter[1])


class _Unconverted(Exception):
    """A key or a value that its converter cannot read. `hint`: what a user can do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
