"""Converts changes of rows to the records that Debezium documents: envelope, key, tombstone and topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..cdc.cdc_records import ENVELOPE_VERSION, change_record, topic_of
from ..connector import ConnectRecord
from .pg_values import Reader, ValueModes, value_reader
from .pgoutput import RowChange, TableRelation, TupleValues, Unchanged


@dataclass(frozen=True, slots=True)
class EnvelopeSettings:
    prefix: str
    database: str
    tombstones: bool
    placeholder: str
    modes: ValueModes


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """The origin of a change. `order`: its place in the transaction, from 1; None for a row of a snapshot.
    `incremental`: whether the snapshot was taken while the stream continued."""

    lsn: int
    commit_ms: int
    xid: int | None = None
    commit_lsn: int = 0
    order: int | None = None
    incremental: bool = False


class TableEnvelope:
    """Converts rows of one table to records. In: `key`: the names of the key's columns."""

    def __init__(self, relation: TableRelation, key: tuple[str, ...], settings: EnvelopeSettings) -> None:
        self.relation = relation
        self.key = key
        self._settings = settings
        self._names = tuple(column.name for column in relation.columns)
        self._readers: tuple[Reader, ...] = tuple(
            value_reader(column.type_oid, column.modifier, settings.modes) for column in relation.columns
        )
        identity = tuple(index for index, column in enumerate(relation.columns) if column.is_key)
        self._identity = frozenset(identity)  # what an old row has that is only a key
        self._key = tuple(index for index, name in enumerate(self._names) if name in key)
        self.topic = topic_of(settings.prefix, relation.schema, relation.name)

    def snapshot_row(self, values: TupleValues, origin: ChangeOrigin) -> ConnectRecord:
        row = self._row(values)
        return self._record("r", self._key_of(row), None, row, origin)

    def change(self, change: RowChange, origin: ChangeOrigin) -> Iterator[ConnectRecord]:
        """The records for a change. An UPDATE of the key becomes a delete of the old key and a row with the new key."""
        old = None if change.old is None else self._row(change.old, only_key=change.old_is_key)
        if change.new is None:
            assert old is not None  # the server sends it with every DELETE
            yield from self._deleted(old, origin)
            return
        new = self._row(self._completed(change.new, change))
        if old is not None and self._key and self._key_of(old) != self._key_of(new):
            yield from self._deleted(old, origin)
            yield self._record("c", self._key_of(new), None, new, origin)
            return
        yield self._record(change.kind, self._key_of(new), None if change.old_is_key else old, new, origin)

    def _deleted(self, old: dict[str, Any], origin: ChangeOrigin) -> Iterator[ConnectRecord]:
        key = self._key_of(old)
        yield self._record("d", key, old, None, origin)
        if self._settings.tombstones and key is not None:
            yield ConnectRecord(self.topic, key, None, origin.commit_ms)

    def _completed(self, values: TupleValues, change: RowChange) -> TupleValues:
        """The new row, with the unchanged TOAST values that the old row has, if it was sent."""
        old = change.old
        if old is None:
            return values
        known = self._identity if change.old_is_key else range(len(old))
        return tuple(
            old[index] if isinstance(value, Unchanged) and index in known else value
            for index, value in enumerate(values)
        )

    def _row(self, values: TupleValues, *, only_key: bool = False) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for index, (name, read, value) in enumerate(zip(self._names, self._readers, values, strict=True)):
            if only_key and index not in self._key:
                continue
            if not isinstance(value, Unchanged):
                row[name] = None if value is None else read(value)
            elif index in self._key:
                raise ValueError(f"PostgreSQL does not say the value of its key column {name}")
            else:
                row[name] = self._settings.placeholder
        return row

    def _key_of(self, row: dict[str, Any]) -> dict[str, Any] | None:
        return {self._names[index]: row[self._names[index]] for index in self._key} if self._key else None

    def _record(
        self, op: str, key: Any, before: dict[str, Any] | None, after: dict[str, Any] | None, origin: ChangeOrigin
    ) -> ConnectRecord:
        snapshot = origin.order is None
        source = {
            "version": ENVELOPE_VERSION,
            "connector": "postgresql",
            "name": self._settings.prefix,
            "ts_ms": origin.commit_ms,
            "snapshot": "incremental" if origin.incremental else "true" if snapshot else "false",
            "db": self._settings.database,
            "sequence": f'["{origin.commit_lsn}","{origin.lsn}"]',
            "schema": self.relation.schema,
            "table": self.relation.name,
            "txId": origin.xid,
            "lsn": origin.lsn,
            "xmin": None,
        }
        transaction = None
        if not snapshot:
            transaction = {"id": f"{origin.xid}:{origin.commit_lsn}", "total_order": origin.order}
        return change_record(self.topic, key, op, before, after, source, transaction)
