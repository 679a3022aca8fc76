"""Reads of consumer instances: takes exactly the records that fit into one response from the consumer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...executor.formats.wire import Unreadable
from ...logcore.client import FetchedColumns, TopicPartition
from ...logcore.clients.consumer import Consumed
from .consumer_instances import ConsumerInstance
from .embedded_formats import SchemaLookup, decode
from .proxied_log import ProxiedLog
from .proxy_errors import UNREADABLE, ProxyRefusal

BYTES_DEFAULT: Final = 1024 * 1024
BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit of one response, counting keys, values and names; a single larger record is still returned."""
_RECORD_BYTES: Final = 80  # the JSON around a key and a value
_ROWS_MAX: Final = BYTES_MAX // _RECORD_BYTES
_STEP_S: Final = 0.25  # how soon a read notices that its instance ends


@dataclass(slots=True)
class _Taken:
    """State: the response so far."""

    records: list[dict[str, Any]]
    bytes: int = 0
    is_full: bool = False


class InstanceReader:
    """Not for the event loop: it waits for records."""

    def __init__(self, log: ProxiedLog, schemas: SchemaLookup, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._schemas, self._clock = log, schemas, clock

    def read(self, instance: ConsumerInstance, wait_ms: int, bytes_max: int) -> list[dict[str, Any]]:
        """Records in JSON form, at least one if there is any. Raises `ProxyRefusal` if the first record cannot be read
        in the instance's format; `LogError`. After an error the consumer is where it was: it skips no record."""
        began: dict[TopicPartition, int] = {}
        try:
            return self._read(instance, wait_ms, bytes_max, began)
        except BaseException:
            instance.go_back(began)
            raise

    def _read(
        self, instance: ConsumerInstance, wait_ms: int, bytes_max: int, began: dict[TopicPartition, int]
    ) -> list[dict[str, Any]]:
        """In: `began`: gets the first offset that was read in each partition."""
        taken = _Taken([])
        deadline, goes_on = self._clock() + wait_ms / 1000, False
        while True:
            instance.look_for_topics(self._clock())
            left_s = max(0.0, deadline - self._clock())
            found = instance.consumer.poll(min(left_s, _STEP_S), bytes_max - taken.bytes, goes_on=goes_on)
            goes_on = True  # the client has not received the records of this read
            for consumed in found:
                began.setdefault(consumed.partition, _first_offset(consumed))
            self._take(instance, found, taken, bytes_max)
            is_enough = taken.is_full or taken.bytes >= min(instance.settings.bytes_min, bytes_max)
            if (taken.records and is_enough) or self._clock() >= deadline or instance.ending.is_set():
                return taken.records

    def _take(self, instance: ConsumerInstance, found: list[Consumed], taken: _Taken, bytes_max: int) -> None:
        """Adds records to the response. The consumer goes back to records that do not fit, so they are read again."""
        left_behind: set[TopicPartition] = set()
        for consumed in found:
            where = consumed.partition
            if where in left_behind:
                continue
            stop = self._take_run(instance, consumed, taken, bytes_max)
            if stop is not None:
                left_behind.add(where)
                instance.consumer.seek(where, stop)

    def _take_run(self, instance: ConsumerInstance, consumed: Consumed, taken: _Taken, bytes_max: int) -> int | None:
        """The offset at which it stopped; None if all records were taken."""
        offsets, rows, total = self._rows(consumed)
        where, format = consumed.partition, instance.settings.format
        for offset, row in zip(offsets, rows, strict=True):
            key, value = row["key"], row["value"]
            size = len(key or b"") + len(value or b"") + len(where.topic) + _RECORD_BYTES
            if taken.is_full or (taken.records and taken.bytes + size > bytes_max):
                taken.is_full = True
                return offset
            try:
                shown_key, shown = decode(format, key, self._schemas), decode(format, value, self._schemas)
            except Unreadable as error:
                if not taken.records:
                    place = f"record {offset} of partition {where.partition} of topic {where.topic}"
                    raise ProxyRefusal(UNREADABLE, f"{place} cannot be read as {format.value}: {error}") from None
                taken.is_full = True
                return offset
            taken.records.append(
                {
                    "topic": where.topic,
                    "key": shown_key,
                    "value": shown,
                    "partition": where.partition,
                    "offset": offset,
                }
            )
            taken.bytes += size
        return None if len(offsets) == total else offsets[-1] + 1

    def _rows(self, consumed: Consumed) -> tuple[list[int], list[dict[str, Any]], int]:
        """Offsets, keys and values of the first rows, and the total number of rows. Columnar batches become rows as for
        Kafka clients."""
        run = consumed.run
        if isinstance(run, FetchedColumns):
            topic = self._log.topic(consumed.partition.topic)
            table: pa.Table = self._log.as_rows(topic, run.batch.slice(0, _ROWS_MAX), run.timestamp_ms)
            total, offsets = run.batch.num_rows, run.row_offsets[:_ROWS_MAX].tolist()
        else:
            total, table = run.table.num_rows, run.table.slice(0, _ROWS_MAX)
            offsets = table["offset"].to_pylist()
        return offsets, table.select(["key", "value"]).to_pylist(), total


def _first_offset(consumed: Consumed) -> int:
    run = consumed.run
    return int(run.row_offsets[0]) if isinstance(run, FetchedColumns) else int(run.table["offset"][0].as_py())
