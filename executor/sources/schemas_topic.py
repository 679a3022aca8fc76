"""The schemas to which records refer by id. They are in the topic `_schemas`, which is read when they are needed.

Every process that reads records has its own `SchemasTopic` over its log, so it does not ask a server. Kafka clients may
write to the topic and delete it, as another schema registry and tools that copy one do. So records that no registry can
have written are skipped, and a topic that was made anew is read from its start.
"""

from __future__ import annotations

import threading
import uuid
from typing import Final

from ...logcore.client import FetchedRows, LogClient
from ...planner.schemas.registry import InvalidSchema, Registry, apply_record
from ...planner.specs import RecordSchema

SCHEMAS_TOPIC: Final = "_schemas"


class SchemasTopic:
    """The schema registry, which is the fold of the topic. Thread-safe."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._registry = Registry()
        self._position = 0
        self._topic_id: uuid.UUID | None = None  # of the topic that was read up to `_position`
        self._known: dict[int, RecordSchema] = {}

    def registry(self) -> Registry:
        """The registry as of now."""
        with self._lock:
            topic_id = self._log.topic_id(SCHEMAS_TOPIC)
            if topic_id is not None and topic_id != self._topic_id:
                self._registry, self._position, self._topic_id = Registry(), 0, topic_id
                self._known.clear()
            if topic_id is not None or SCHEMAS_TOPIC in self._log.topics():
                self._read_on()
            return self._registry

    def schema(self, schema_id: int) -> RecordSchema | None:
        """The schema with this id; None if there is none, or if its references are missing."""
        found = self._known.get(schema_id)
        if found is None:
            registry = self.registry()
            version = registry.by_id(schema_id)
            if version is None:
                return None
            try:
                found = self._known[schema_id] = registry.record_schema(version)
            except InvalidSchema:
                return None
        return found

    def _read_on(self) -> None:
        while True:
            fetched = self._log.fetch(SCHEMAS_TOPIC, 0, self._position)
            for run in fetched.runs:
                if isinstance(run, FetchedRows):
                    for key, value in zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True):
                        self._apply(key, value)
            if fetched.next_offset <= self._position:
                return
            self._position = fetched.next_offset

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        """Applies a record. Skips one that no registry can have written."""
        try:
            self._registry = apply_record(self._registry, key, value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
