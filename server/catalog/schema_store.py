"""The schema registry of this server: the fold of the topic `_schemas`, and writes to it.

Rules that the state itself does not need (levels, ids, references) are in `planner/schemas/registry.py`; the HTTP API
is in `server/registry/`. The engine's lock ensures that there is one writer at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import pyarrow as pa

from ...executor.sources.schemas_topic import SCHEMAS_TOPIC, SchemasTopic
from ...logcore.client import LogClient, RowRecords
from ...planner.schemas.registry import (
    GLOBAL,
    Record,
    Registry,
    Version,
    ids_record,
    level_record,
    mode_record,
    removal_record,
    version_record,
)
from ...planner.specs import RecordSchema

_SCHEMA = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


class SchemaStore:
    """Reads and writes the registry of one log. The first schema creates the topic."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._topic = SchemasTopic(log)
        self.default_level: str | None = None  # the compatibility level if the topic has none, instead of BACKWARD

    @property
    def registry(self) -> Registry:
        """The current registry."""
        registry = self._topic.registry()
        if self.default_level is None or GLOBAL in registry.levels:
            return registry
        return registry.with_level(GLOBAL, self.default_level)

    def schema(self, schema_id: int) -> RecordSchema | None:
        """The schema with this id, for decoding records."""
        return self._topic.schema(schema_id)

    def append(self, versions: Iterable[Version]) -> None:
        """Registers the versions, or writes them again if they changed."""
        self._write(version_record(version) for version in versions)

    def remove(self, subject: str, numbers: Iterable[int]) -> None:
        """Removes versions permanently. Their ids are not reused."""
        removals = [removal_record(subject, number) for number in numbers]
        if removals:
            self._write([ids_record(self._topic.registry().highest_id), *removals])

    def set_level(self, subject: str, level: str | None) -> None:
        """Sets the compatibility level of a subject, or (empty subject) of all others; None removes it."""
        self._write([level_record(subject, level)])

    def set_mode(self, subject: str, mode: str | None) -> None:
        """Sets the mode of a subject, or (empty subject) of all others; None removes it."""
        self._write([mode_record(subject, mode)])

    def _write(self, records: Iterable[Record]) -> None:
        rows = list(records)
        if not rows:
            return
        if SCHEMAS_TOPIC not in self._log.topics():
            self._log.create_topic(SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})
        now = int(time.time() * 1000)
        columns = {
            "timestamp": [now] * len(rows),
            "key": [key for key, _ in rows],
            "value": [value for _, value in rows],
        }
        self._log.append(SCHEMAS_TOPIC, 0, RowRecords(pa.table(columns, schema=_SCHEMA)))
