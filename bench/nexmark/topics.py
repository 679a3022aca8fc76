"""Nexmark's topics in an engine, and the streams and the table declared on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from millstream.executor.columnar import columnar_batch
from millstream.logcore.client import ColumnarRecords, LogClient, RowRecords
from millstream.logcore.murmur2 import partitions_of
from millstream.planner.source_info import SourceInfo
from millstream.server.engine.engine import Engine
from millstream.server.engine.session import Session

from .events import ARRIVAL_MS, STREAMS, Events

ValueFormat = Literal["JSON", "ARROW"]
SIDE_INPUT_KEYS: Final = 10_000
_BATCH_ROWS: Final = 50_000  # in one append

_DECLARATIONS: Final = """
CREATE STREAM person (id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
    dateTime TIMESTAMP, extra STRING)
  WITH (KAFKA_TOPIC='person', {common}, TIMESTAMP='dateTime');
CREATE STREAM auction (id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
    dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING)
  WITH (KAFKA_TOPIC='auction', {common}, TIMESTAMP='dateTime');
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP,
    extra STRING)
  WITH (KAFKA_TOPIC='bid', {common}, TIMESTAMP='dateTime');
CREATE STREAM bid_arrivals (bidder BIGINT)
  WITH (KAFKA_TOPIC='bid', {common});
CREATE TABLE side_input (key BIGINT PRIMARY KEY, value STRING)
  WITH (KAFKA_TOPIC='side_input', KEY_FORMAT='JSON', VALUE_FORMAT='JSON', PARTITIONS={partitions});
"""


def declare(engine: Engine, session: Session, format: ValueFormat, partitions: int) -> None:
    """Results inherit the formats: keys and values in JSON, or both as columns."""
    common = f"KEY_FORMAT='JSON', VALUE_FORMAT='{format}', PARTITIONS={partitions}"
    engine.execute(_DECLARATIONS.format(common=common, partitions=partitions), session)


def produce(engine: Engine, events: Events, format: ValueFormat) -> None:
    """Appends all events, each partition's in order, and the side input."""
    for stream in STREAMS:
        source = engine.catalog.source(stream.upper())
        for partition in range(events.partitions):
            for records in _records(events, source, partition, format):
                engine.log.append(stream, partition, records)
    _produce_side_input(engine.log, events.partitions)


def _records(
    events: Events, source: SourceInfo, partition: int, format: ValueFormat
) -> Iterator[RowRecords | ColumnarRecords]:
    columns = events.columns(source.topic, partition)
    arrived = pa.array(columns["dateTime"].to_numpy().astype("datetime64[ms]").astype(np.int64) + ARRIVAL_MS)
    if format == "ARROW":
        for begin in range(0, len(columns), _BATCH_ROWS):
            yield _columnar(source, columns.slice(begin, _BATCH_ROWS), arrived.slice(begin, _BATCH_ROWS))
        return
    begin = 0
    for lines in events.lines(source.topic, partition):
        for within in range(0, len(lines), _BATCH_ROWS):
            values = lines.slice(within, _BATCH_ROWS)
            times = arrived.slice(begin, len(values))
            keys = pa.nulls(len(values), pa.binary())
            yield RowRecords(pa.table({"timestamp": times, "key": keys, "value": values}))
            begin += len(values)


def _columnar(source: SourceInfo, rows: pa.Table, arrived: pa.Array) -> ColumnarRecords:
    arrays = [column.combine_chunks() for column in rows.columns]
    meta = {"_ts": arrived, "_null": pa.array(np.zeros(len(rows), dtype=np.bool_))}
    batch = columnar_batch(source.schema.columns, arrays, meta)
    return ColumnarRecords(batch, int(np.max(arrived.to_numpy())))


def _produce_side_input(log: LogClient, partitions: int) -> None:
    """Before all events in time. The keys are spread as queries expect it: by murmur2."""
    keys = pa.array([str(key).encode() for key in range(SIDE_INPUT_KEYS)], pa.binary())
    values = pa.array([f'{{"VALUE":"{side_value(key)}"}}'.encode() for key in range(SIDE_INPUT_KEYS)], pa.binary())
    table = pa.table({"timestamp": pa.array(np.zeros(len(keys), dtype=np.int64)), "key": keys, "value": values})
    chosen = partitions_of(keys, partitions)
    for partition in range(partitions):
        log.append("side_input", partition, RowRecords(table.filter(pa.array(chosen == partition))))


def side_value(key: int) -> str:
    return f"value of {key}"
