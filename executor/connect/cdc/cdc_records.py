"""Names of tables and topics, and Debezium's envelope, for the sources of change data capture."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..connector import ConnectRecord

ENVELOPE_VERSION: Final = "1.0"
_NOT_IN_A_TOPIC: Final = re.compile(r"[^a-zA-Z0-9._-]")


def topic_of(prefix: str, schema: str, table: str) -> str:
    return _NOT_IN_A_TOPIC.sub("_", f"{prefix}.{schema}.{table}")


def is_named(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether the patterns of the settings select a name such as `schema.table`."""

    def among(patterns: Sequence[str]) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in patterns)

    return (not include or among(include)) and not among(exclude)


def change_record(
    topic: str,
    key: Mapping[str, Any] | None,
    op: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    source: Mapping[str, Any],
    transaction: Mapping[str, Any] | None,
) -> ConnectRecord:
    """A record with a change in Debezium's envelope. In: `source`: contains the time of the change in `ts_ms`."""
    value = {
        "before": before, "after": after, "source": source, "transaction": transaction, "op": op,
        "ts_ms": time.time_ns() // 1_000_000,
    }  # fmt: skip
    return ConnectRecord(topic, key, value, source["ts_ms"])
