"""Random streams and tables, with their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.executor.partitioning import sink_partitions
from millstream.logcore.client import RowRecords

from .values import NESTED, SCALARS, Col, encode_key, encode_value, malformed_value, random_value

START_MS = 600_000  # of the records' times: not 0, so that windows reach before it


@dataclass(frozen=True, slots=True)
class Record:
    """`value`: None is a null value. `malformed`: the bytes of a value that cannot be read."""

    partition: int
    time_ms: int
    key: tuple[Any, ...]
    value: Mapping[str, Any] | None
    key_bytes: bytes | None
    value_bytes: bytes | None
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A declared stream or table. `name` is also its topic, in lower case."""

    name: str
    kind: str
    keys: tuple[Col, ...]
    cols: tuple[Col, ...]
    key_format: str
    value_format: str
    partitions: int
    records: tuple[Record, ...] = ()

    @property
    def topic(self) -> str:
        return self.name.lower()

    @property
    def statement(self) -> str:
        word = "PRIMARY KEY" if self.kind == "TABLE" else "KEY"
        columns = [f"{col.name} {col.type} {word}" for col in self.keys] + [f"{c.name} {c.type}" for c in self.cols]
        return (
            f"CREATE {self.kind} {self.name} ({', '.join(columns)}) WITH (kafka_topic='{self.topic}', "
            f"key_format='{self.key_format}', value_format='{self.value_format}', partitions={self.partitions});"
        )

    def batches(self, rng: Random) -> list[tuple[int, RowRecords]]:
        """The records in pieces of up to four, each of one partition."""
        pieces: list[tuple[int, RowRecords]] = []
        queues = {p: [r for r in self.records if r.partition == p] for p in range(self.partitions)}
        while any(queues.values()):
            partition = rng.choice([p for p, queue in queues.items() if queue])
            size = rng.randint(1, 4)
            taken, queues[partition] = queues[partition][:size], queues[partition][size:]
            pieces.append((partition, row_records(taken)))
        return pieces


def row_records(records: list[Record]) -> RowRecords:
    return RowRecords(
        pa.table(
            {
                "timestamp": pa.array([record.time_ms for record in records], pa.int64()),
                "key": pa.array([record.key_bytes for record in records], pa.binary()),
                "value": pa.array([record.value_bytes for record in records], pa.binary()),
            }
        )
    )


def random_columns(rng: Random, value_format: str) -> tuple[Col, ...]:
    if value_format == "KAFKA":
        return (Col("V0", rng.choice(("INT", "BIGINT", "DOUBLE", "STRING")), rng.random() < 0.3),)
    types = SCALARS if value_format == "DELIMITED" else (*SCALARS, *SCALARS, *NESTED)
    chosen = ["INT", *(rng.choice(types) for _ in range(rng.randint(1, 4)))]
    return tuple(Col(f"V{i}", type_, i > 0 and rng.random() < 0.25) for i, type_ in enumerate(chosen))


def random_source(
    rng: Random,
    name: str,
    kind: str,
    *,
    size: int,
    partitions: int | None = None,
    key: Col | None = None,
    key_format: str | None = None,
    sorted_times: bool = False,
    null_values: bool = True,
    formats: Sequence[str] = ("JSON", "JSON", "JSON", "DELIMITED", "KAFKA"),
) -> SourceSpec:
    """`key`: the type of the one key column. The first value column is an INT, but in KAFKA."""
    alone = key is not None
    key_format = key_format or rng.choice(("KAFKA", "KAFKA", "JSON", "DELIMITED"))
    key = key or Col("K", rng.choice(("STRING", "INT", "BIGINT")))
    keys = (replace(key, name="K"),)
    if key_format == "JSON" and rng.random() < 0.2 and kind == "STREAM" and not alone:
        keys = (*keys, Col("K2", "INT"))
    value_format = rng.choice(formats)
    cols = random_columns(rng, value_format)
    spec = SourceSpec(name, kind, keys, cols, key_format, value_format, partitions or rng.choice((1, 1, 2, 3)), ())
    return with_records(rng, spec, size, sorted_times=sorted_times, null_values=null_values)


def with_records(
    rng: Random, spec: SourceSpec, size: int, *, sorted_times: bool = False, null_values: bool = True
) -> SourceSpec:
    return replace(spec, records=tuple(_records(rng, spec, size, sorted_times, null_values)))


def _records(rng: Random, spec: SourceSpec, size: int, sorted_times: bool, null_values: bool) -> list[Record]:
    spread = rng.choice((1, 1_000, 20_000, 400_000))
    times = [START_MS + rng.randint(0, spread) for _ in range(size)]
    if sorted_times:
        times.sort()
    made = [_record(rng, spec, time, null_values) for time in times]
    keys = pa.array([record.key_bytes for record in made], pa.binary())
    partitions = sink_partitions(keys, pa.array(np.zeros(size, np.int32)), spec.partitions)
    placed: list[Record] = []
    for record, partition in zip(made, partitions.tolist(), strict=True):
        keyless = record.key_bytes is None
        placed.append(replace(record, partition=rng.randrange(spec.partitions) if keyless else partition))
    return placed


def _record(rng: Random, spec: SourceSpec, time_ms: int, null_values: bool) -> Record:
    key = tuple(_key_part(rng, spec, col) for col in spec.keys)
    if spec.kind == "TABLE" or null_values:
        null_share = 0.2 if spec.kind == "TABLE" else 0.08
    else:
        null_share = 0.0
    value: dict[str, Any] | None = {col.name: _value(rng, spec, col) for col in spec.cols}
    if rng.random() < null_share or (spec.value_format == "KAFKA" and value["V0"] is None):  # pyrefly: ignore[unsupported-operation]
        value = None
    malformed = rng.random() < 0.04 and not (spec.value_format == "KAFKA" and spec.cols[0].type == "STRING")
    key_bytes = encode_key(spec.key_format, spec.keys, key)
    if malformed:
        return Record(0, time_ms, key, None, key_bytes, malformed_value(spec.value_format, spec.cols, rng), True)
    return Record(0, time_ms, key, value, key_bytes, encode_value(spec.value_format, spec.cols, value, rng))


def _key_part(rng: Random, spec: SourceSpec, col: Col) -> Any:
    """Few different ones. Of a table never NULL; DELIMITED reads an empty text as NULL."""
    if spec.kind == "STREAM" and rng.random() < 0.06:
        return None
    if col.type == "STRING":
        return rng.choice(("a", "b", "c", "d") if spec.key_format == "DELIMITED" else ("a", "b", "c", ""))
    return rng.randint(0, 3)


def _value(rng: Random, spec: SourceSpec, col: Col) -> Any:
    # A KAFKA value that is NULL is a null value as a whole, which `_record` decides.
    share = 0.0 if spec.value_format == "KAFKA" else 0.15
    value = random_value(rng, col, share)
    return None if spec.value_format == "DELIMITED" and value == "" else value
