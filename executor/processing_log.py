"""The processing log: a topic with the records that queries left out, in the format of ksqlDB's processing log.

An entry is written in the transaction of the batch that left out the record, so it appears exactly once.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence

import orjson
import pyarrow as pa

from ..logcore.client import LogClient, RowRecords
from ..logcore.errors import TopicExists
from .record_error import RecordError

TOPIC = "default_ksql_processing_log"

_PIECE = 1_000  # errors

_DESERIALIZATION, _COMPUTATION, _SERIALIZATION = 0, 1, 3  # the message types of ksqlDB's schema

_LOGGERS = {"decode": "deserializer", "encode": "serializer"}


def create_topic(log: LogClient) -> None:
    """Creates the topic unless it exists."""
    if log.topic(TOPIC) is None:
        with contextlib.suppress(TopicExists):  # another query was faster
            log.create_topic(TOPIC, 1)


def records_of(query_id: str, errors: Sequence[RecordError], now_ms: int) -> RowRecords:
    """The errors as records to append to partition 0."""
    # In pieces: each text that orjson returns occupies a kilobyte or more.
    pieces = [
        pa.array([orjson.dumps(_entry(query_id, error, now_ms)) for error in errors[start : start + _PIECE]])
        for start in range(0, len(errors), _PIECE)
    ]
    count = len(errors)
    return RowRecords(
        pa.table(
            {
                "timestamp": pa.array([now_ms] * count, pa.int64()),
                "key": pa.nulls(count, pa.binary()),
                "value": pa.chunked_array(pieces, pa.binary()).combine_chunks(),
            }
        )
    )


def _entry(query_id: str, error: RecordError, now_ms: int) -> dict[str, object]:
    message = {"decode": _decode_message, "encode": _encode_message}.get(error.kind, _compute_message)
    return {
        "logger": f"processing.{query_id}.{_LOGGERS.get(error.kind, 'processor')}",
        "level": "ERROR",
        "time": now_ms,
        "message": message(error),
    }


def _decode_message(error: RecordError) -> dict[str, object]:
    raw = error.key if error.in_key else error.value
    return {
        "type": _DESERIALIZATION,
        "deserializationError": {
            "target": "key" if error.in_key else "value",
            "errorMessage": error.message,
            "recordB64": None if raw is None else base64.b64encode(raw).decode(),
            **_origin(error),
        },
    }


def _encode_message(error: RecordError) -> dict[str, object]:
    return {
        "type": _SERIALIZATION,
        "serializationError": {
            "target": "key" if error.in_key else "value",
            "errorMessage": error.message,
            "record": _text(error),
            **_origin(error),
        },
    }


def _compute_message(error: RecordError) -> dict[str, object]:
    return {
        "type": _COMPUTATION,
        "recordProcessingError": {
            "errorMessage": error.message,
            "record": _text(error),
            **_origin(error),
        },
    }


def _text(error: RecordError) -> str | None:
    return None if error.value is None else error.value.decode(errors="replace")


def _origin(error: RecordError) -> dict[str, object]:
    """The last fields of messages of all types."""
    return {"cause": [], "topic": error.topic, "partition": error.partition, "offset": error.offset}
