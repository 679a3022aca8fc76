"""From a segment to Arrow and back, beside aiokafka's compiled reader and writer of record batches."""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.logcore.client import ColumnarRecords, RowRecords
from millstream.logcore.cluster.node_folder import replica_folder, topics_of_node
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.codec import encode

from ..measuring import Measured, median, timed
from ..report import Line, rate_line

_ROWS_PER_APPEND: Final = 4_000
_COLUMNS_PER_APPEND: Final = 20_000  # rows; what a query writes at once
_THEIRS_BATCH_BYTES: Final = 1 << 20


def codec_lines(rows: int, rounds: int) -> list[Line]:
    """Records of 100 bytes of JSON without a key; `columnar`: what they say, as an Arrow column per field."""
    if importlib.util.find_spec("aiokafka") is None:
        return [Line("aiokafka: not measured, it is not installed")]
    columns = _columns(rows)
    values = pa.array([b"%-100b" % json.dumps(row).encode() for row in columns.to_pylist()], pa.binary())
    table = pa.table({"timestamp": columns["time"], "key": pa.nulls(rows, pa.binary()), "value": values})
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder, open_log(folder, sync="never") as log:
        _fill(log, table, columns)
        rows_topic = topics_of_node(Path(folder))["rows"]
        segments = sorted(replica_folder(Path(folder), rows_topic, 0).glob("*.log"))
        plain, columnar, theirs = _in_turn(
            rounds,
            lambda: timed(rows, lambda: _read_ours(log, "rows", rows)),
            lambda: timed(rows, lambda: _read_ours(log, "columns", rows)),
            lambda: timed(rows, lambda: _read_theirs(segments, rows)),
        )
    content = values.to_pylist()
    encoded, written = _in_turn(
        rounds,
        lambda: timed(rows, lambda: encode(RowRecords(table))),
        lambda: timed(rows, lambda: _write_theirs(content)),
    )
    reader, writer = "aiokafka's decoder", "aiokafka's encoder"
    return [
        rate_line("aiokafka's compiled decoder, 100 B", theirs),
        rate_line("segment → Arrow, 100 B", plain, of=theirs, base=reader, wanted="≥ 3"),
        rate_line("segment → Arrow, columnar batches", columnar, of=theirs, base=reader, wanted="≥ 20"),
        rate_line("aiokafka's compiled encoder, 100 B", written),
        rate_line("Arrow → record batches, 100 B", encoded, of=written, base=writer, wanted="≥ 3"),
    ]


def _in_turn(rounds: int, *works: Callable[[], Measured]) -> Sequence[Measured]:
    for work in works:
        work()  # loads what is compiled
    runs = [[work() for work in works] for _ in range(rounds)]
    return [median(of_one) for of_one in zip(*runs, strict=True)]


def _columns(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "auction": numbers + 1000,
            "bidder": numbers + 1000,
            "price": numbers * 1.5,
            "time": numbers + 1_700_000_000_000,
            "channel": [f"channel-{number % 100}" for number in range(rows)],
        }
    )


def _fill(log: Log, table: pa.Table, columns: pa.Table) -> None:
    log.create_topic("rows", 1)
    log.create_topic("columns", 1)
    for start in range(0, table.num_rows, _ROWS_PER_APPEND):
        log.append("rows", 0, RowRecords(table.slice(start, _ROWS_PER_APPEND)))
    for start in range(0, table.num_rows, _COLUMNS_PER_APPEND):
        (batch,) = columns.slice(start, _COLUMNS_PER_APPEND).combine_chunks().to_batches()
        log.append("columns", 0, ColumnarRecords(batch, 1))


def _read_ours(log: Log, topic: str, rows: int) -> None:
    offset = 0
    while offset < rows:
        offset = log.fetch(topic, 0, offset).next_offset


def _read_theirs(segments: Sequence[Path], rows: int) -> None:
    """As its consumer does: each record is an object. The file is read here, as our reader does."""
    kind: Any = importlib.import_module("aiokafka.record.memory_records").MemoryRecords
    seen = 0
    for path in segments:
        records = kind(path.read_bytes())
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("a batch whose checksum does not fit")
            for record in batch:
                seen += record.value is not None
    if seen != rows:
        raise ValueError(f"{seen} records of {rows}")


def _write_theirs(values: Sequence[bytes]) -> None:
    kind: Any = importlib.import_module("aiokafka.record.default_records").DefaultRecordBatchBuilder

    def begin() -> Any:
        return kind(
            magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=_THEIRS_BATCH_BYTES,
        )  # fmt: skip

    builder, offset = begin(), 0
    for value in values:
        if builder.append(offset, 1, None, value, []) is None:
            builder.build()
            builder, offset = begin(), 0
            builder.append(offset, 1, None, value, [])
        offset += 1
    builder.build()
