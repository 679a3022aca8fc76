"""What third-party Kafka clients see: rows of columnar topics as bytes, and the names that they may not use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import orjson
import pyarrow as pa

from ..executor.columnar import ARROW, own_columns, split_columnar
from ..executor.formats import Encoder, encoder
from ..executor.partitioning import key_encoder
from ..logcore.client import Topic
from ..planner.catalog import Catalog
from ..planner.source_info import SourceInfo
from ..planner.specs import FormatSpec
from .engine.topic_records import stored_columns

_FORMAT = "millstream.value.format"
_JSON = "JSON"
_OWN = ("_millstream", "millstream-insert")


class ForeignRows:
    """A `Transcoder`: encodes keys as they are hashed, and values as JSON or in the topic's `millstream.value.format`.

    State: the encoders of each topic, created again when its source changes.
    """

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._encoders: dict[str, tuple[SourceInfo, str, Encoder, Encoder]] = {}

    def __call__(self, topic: Topic, batch: pa.RecordBatch, timestamp_ms: int) -> pa.Table:
        """Raises `FormatError`."""
        source = next((found for found in self._catalog().sources.values() if _is_of(found, topic)), None)
        if source is None:
            return _plain(batch, timestamp_ms)
        keys, values = stored_columns(source, "KEY"), stored_columns(source, "VALUE")
        part = split_columnar(batch, (*keys, *values), timestamp_ms)
        keys_of, values_of = self._encoders_of(source, topic.config.get(_FORMAT, _JSON))
        return pa.table(
            {
                "timestamp": part.timestamps,
                "key": keys_of.encode(
                    part.columns[: len(keys)],
                    null_rows=None if keys else _all_true(batch.num_rows),
                    window_start=part.window_start,
                    window_end=part.window_end,
                ),
                "value": values_of.encode(part.columns[len(keys) :], null_rows=part.null_rows),
            }
        )

    def _encoders_of(self, source: SourceInfo, value_format: str) -> tuple[Encoder, Encoder]:
        known = self._encoders.get(source.topic)
        if known is None or known[0] is not source or known[1] != value_format:
            keys = key_encoder(source.key_format, source.schema.key, source.key_window)
            values = encoder(FormatSpec(value_format), stored_columns(source, "VALUE"))
            known = (source, value_format, keys, values)
            self._encoders = {**self._of_present_sources(), source.topic: known}
        return known[2], known[3]

    def _of_present_sources(self) -> dict[str, tuple[SourceInfo, str, Encoder, Encoder]]:
        sources = {id(source) for source in self._catalog().sources.values()}
        return {topic: known for topic, known in self._encoders.items() if id(known[0]) in sources}


def is_own_name(catalog: Catalog, name: str) -> bool:
    """Whether a group or a transactional id belongs to a query or to one of its buckets: their names begin with the
    query's id."""
    owner, separator, bucket = name.rpartition("-")
    of_bucket = bool(separator) and bucket.isdecimal() and owner in catalog.queries
    return of_bucket or name in catalog.queries or name.startswith(_OWN)


def _is_of(source: SourceInfo, topic: Topic) -> bool:
    return source.topic == topic.name and source.value_format.name == ARROW


def _all_true(count: int) -> pa.BooleanArray:
    return pa.array(np.full(count, True))


def _plain(batch: pa.RecordBatch, timestamp_ms: int) -> pa.Table:
    """The rows of a topic without a stream or table: values are objects of all columns, keys are NULL."""
    part = split_columnar(batch, (), timestamp_ms)
    rows = own_columns(batch).to_pylist(maps_as_pydicts="lossy")
    values = [
        None if null else orjson.dumps(row, default=str)
        for row, null in zip(rows, part.null_rows.to_pylist(), strict=True)
    ]
    return pa.table(
        {
            "timestamp": part.timestamps,
            "key": pa.nulls(batch.num_rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
