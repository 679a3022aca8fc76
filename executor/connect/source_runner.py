"""Runs one task of a source. It commits records and position in one transaction of the log.

    read(position) → begin → records → position → commit → acknowledge

So wherever a task dies, either both are visible or neither. Acquiring the transactional id fences an older task of the
same number, wherever it runs, and decides its open transaction. The position is read after that.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ...logcore.client import HEADERS, LogClient, RowRecords
from ...logcore.errors import TopicExists
from ...logcore.failpoints import fp
from ...logcore.murmur2 import partition_of
from ...logcore.topic_rules import is_reserved
from .connector import ConnectRecord, Position, RefusedRecord, SourceConnector, TaskInfo
from .connector_errors import ConnectorFailed, InvalidConnector
from .converters import converter_of, readable
from .dead_letters import DeadLetters
from .live_keys import live_keys
from .task_positions import POSITIONS_TOPIC, create_positions_topic, position_record, read_position
from .transforms import routed, transformed, transforms_of

_PARTITIONS: Final = "topic.creation.default.partitions"


def transactional_id(connector: str, task: int) -> str:
    return f"_millstream-connect-{connector}-{task}"


class SourceRunner:
    """One life of a task: after any exception, the caller closes it and opens another one.

    State: the committed position, the position up to which it has read, and whether a transaction is open.
    """

    def __init__(self, log: LogClient, source: SourceConnector, task: TaskInfo, config: Mapping[str, str]) -> None:
        """Raises `InvalidConnector`."""
        self._log = log
        self._source = source
        self._task = task
        self._key, self._value = converter_of(config, "key"), converter_of(config, "value")
        self._transforms = transforms_of(config)
        self._config = config
        self._new_partitions = new_partitions(config)
        with task.tenure:
            create_positions_topic(log)
            self._producer = log.transactional_producer(transactional_id(task.connector, task.number))
        self.position = read_position(log, task.connector, task.number)
        self._read_up_to: Position | None = self.position
        self._open = False
        self._turn = 0  # selects the partition of the next record without a key (round robin)
        self._dead_letters = DeadLetters(log, task, config)
        self._partition_counts: dict[str, int] = {}
        self.records = 0
        self._uncommitted = 0
        self._open_keys: dict[tuple[str, int], dict[bytes, bool]] = defaultdict(dict)

    @property
    def pause_s(self) -> float:
        return 0.0

    def step(self, timeout_s: float) -> bool:
        """Reads one chunk and writes it. False if there was none."""
        chunk = self._source.read(self._read_up_to, timeout_s)
        if chunk is None:
            return False
        self._task.tenure.check()
        fp("connect.after_read")
        letters: list[tuple[str, RowRecords]] = []
        for refused in chunk.refused:
            self._refuse(refused, letters)
        by_place = self._placed(chunk.records, letters)
        if not self._open:
            self._producer.begin()
            self._open = True
        for topic in chunk.empties:
            self._empty(routed(topic, self._config))
        for (topic, partition), records in by_place.items():
            self._producer.append(topic, partition, self._encoded(records))
            self._uncommitted += len(records)
            if self._source.may_empty and not chunk.complete:
                self._open_keys[(topic, partition)].update(
                    (record.key, record.value is not None) for record in records if record.key is not None
                )
        for sweep in chunk.sweeps:
            self._sweep(routed(sweep.topic, self._config), sweep.since, by_place)
        for topic, letter in letters:
            self._producer.append(topic, 0, letter)
        fp("connect.after_records")
        self._read_up_to = chunk.position
        if chunk.complete:
            self._commit(chunk.position)
        return True

    def _empty(self, topic: str) -> None:
        """Writes a tombstone for each key that has a value, in the open transaction."""
        if self._log.topic(topic) is None:
            return
        for partition in range(self._log.partition_count(topic)):
            known = self._open_keys[(topic, partition)]
            for keys in live_keys(self._log, topic, partition, known):
                tombstones = [ConnectRecord(topic, key, None) for key in keys]
                self._producer.append(topic, partition, self._encoded(tombstones))
                self._uncommitted += len(keys)
                known.update(dict.fromkeys(keys, False))
                fp("connect.after_tombstones")

    def _sweep(
        self, topic: str, since: Mapping[str, int], written: Mapping[tuple[str, int], Sequence[ConnectRecord]]
    ) -> None:
        """Writes a tombstone for each key whose last record is older than `since`, in the open transaction. In:
        `written`: the records of this chunk."""
        for number, before in since.items():
            place = (topic, int(number))
            known = dict(self._open_keys[place])
            known.update((record.key, True) for record in written.get(place, ()) if record.key is not None)
            for keys in live_keys(self._log, *place, known, before=before):
                tombstones = [ConnectRecord(topic, key, None) for key in keys]
                self._producer.append(topic, place[1], self._encoded(tombstones))
                self._uncommitted += len(keys)
                fp("connect.after_tombstones")

    def _commit(self, position: Position) -> None:
        record = position_record(self._task.connector, self._task.number, position)
        self._producer.append(POSITIONS_TOPIC, 0, record)
        fp("connect.after_position")
        self._producer.commit()
        self._open = False
        self._open_keys.clear()
        self._partition_counts.clear()  # a topic may have more by now
        self.position = position
        self.records, self._uncommitted = self.records + self._uncommitted, 0
        fp("connect.after_commit")
        self._source.acknowledge(position)
        fp("connect.after_acknowledge")

    def lag(self) -> int | None:
        return self._source.lag()

    def close(self) -> None:
        """Drops what is not committed. Never fails: the next life aborts a transaction that this one cannot abort."""
        self._source.close()
        if self._open:
            with contextlib.suppress(Exception):
                self._producer.abort()

    # Where records go

    def _placed(
        self, records: Sequence[ConnectRecord], letters: list[tuple[str, RowRecords]]
    ) -> dict[tuple[str, int], list[ConnectRecord]]:
        """The encoded records by topic and partition. Creates missing topics, before the transaction. Out: adds records
        that cannot be converted to `letters`."""
        placed: dict[tuple[str, int], list[ConnectRecord]] = defaultdict(list)
        for record in records:
            try:
                encoded = self._converted(record)
            except (ConnectorFailed, ValueError) as error:
                self._refuse(_refused(record, error), letters)
                continue
            if encoded is not None:
                placed[(encoded.topic, self._partition_of(encoded.topic, encoded.key))].append(encoded)
        return placed

    def _converted(self, record: ConnectRecord) -> ConnectRecord | None:
        """The encoded record; None if a transform drops it. Raises `ConnectorFailed`, ValueError."""
        found = transformed(record, self._transforms) if self._transforms else record
        if found is None:
            return None
        key, value = self._key.to_bytes(found.key), self._value.to_bytes(found.value)
        return ConnectRecord(found.topic, key, value, found.timestamp_ms, found.headers)

    def _refuse(self, refused: RefusedRecord, letters: list[tuple[str, RowRecords]]) -> None:
        """Handles a refused record. Raises `ConnectorFailed` if that ends the task."""
        letter = self._dead_letters.refuse(
            refused.reason, refused.hint, refused.key, refused.value, None, topic=refused.topic
        )
        if letter is not None:
            letters.append(letter)

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._created(topic)
        if key is not None:
            return partition_of(key, count)
        self._turn += 1
        return self._turn % count

    def _created(self, topic: str) -> int:
        """Creates the topic if it is missing. Out: the number of its partitions."""
        if is_reserved(topic, self._log.capabilities.reserved):
            raise InvalidConnector(
                f'the topic "{topic}" is reserved', hint="Set topic.prefix, topic or a RegexRouter otherwise."
            )
        if self._log.topic(topic) is None:
            with contextlib.suppress(TopicExists):
                self._log.create_topic(topic, self._new_partitions)
        return self._log.partition_count(topic)

    def _encoded(self, records: list[ConnectRecord]) -> RowRecords:
        now_ms = self._task.clock.now_ms()
        times = np.fromiter(
            (now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records),
            np.int64,
            len(records),
        )
        columns = {
            "timestamp": pa.array(times),
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
        }
        if any(record.headers for record in records):
            rows = [[{"key": name, "value": data} for name, data in record.headers] for record in records]
            columns["headers"] = pa.array(rows, HEADERS)
        return RowRecords(pa.table(columns))


def _refused(record: ConnectRecord, error: Exception) -> RefusedRecord:
    """The refused record, with readable key and value."""
    hint = error.hint if isinstance(error, ConnectorFailed) and error.hint else "Change the transforms."
    reason = f"a record of the topic {record.topic} cannot be written: {error}"
    return RefusedRecord(record.topic, readable(record.value), reason, hint, readable(record.key))


def new_partitions(config: Mapping[str, str]) -> int:
    """The number of partitions of topics that the connector creates. Raises `InvalidConnector`."""
    text = config.get(_PARTITIONS, "1")
    if not text.isdecimal() or int(text) < 1:
        raise InvalidConnector(f'{_PARTITIONS} is "{text}", which is no number of partitions', setting=_PARTITIONS)
    return int(text)
