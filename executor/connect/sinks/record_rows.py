"""Records as rows of tables: what their key is, and which columns they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..connector import ConnectRecord
from ..connector_errors import ConnectorFailed


@dataclass(frozen=True, slots=True)
class KeyedRow:
    """`values`: all columns, those of the key among them; None of a tombstone."""

    key: dict[str, Any]
    values: dict[str, Any] | None


def row_of(record: ConnectRecord, pk_mode: str, pk_fields: Sequence[str]) -> KeyedRow:
    """Raises `ConnectorFailed` for a record that is no row."""
    value = record.value
    if value is not None and not isinstance(value, dict):
        raise _no_row(record, f"its value is of type {type(value).__name__}, not an object")
    if pk_mode == "none":
        return KeyedRow({}, value)
    if pk_mode == "record_value":
        if value is None:
            return KeyedRow({}, None)
        missing = [name for name in pk_fields if name not in value]
        if missing:
            raise _no_row(record, f"its value has no {missing[0]}")
        return KeyedRow({name: value[name] for name in pk_fields}, value)
    key = _key_of(record, pk_fields)
    return KeyedRow(key, None if value is None else {**key, **value})


def _key_of(record: ConnectRecord, pk_fields: Sequence[str]) -> dict[str, Any]:
    key = record.key
    if isinstance(key, dict):
        names = pk_fields or tuple(key)
        if all(name in key for name in names):
            return {name: key[name] for name in names}
        raise _no_row(record, f"its key has not all of {', '.join(names)}")
    if key is None:
        raise _no_row(record, "it has no key")
    if len(pk_fields) != 1:
        raise _no_row(record, "its key is one value, and pk.fields does not name one column for it")
    return {pk_fields[0]: key}


def _no_row(record: ConnectRecord, why: str) -> ConnectorFailed:
    return ConnectorFailed(
        f"the record at {record.topic}, partition {record.partition}, offset {record.offset} is no row: {why}",
        hint="Set pk.mode, pk.fields, key.converter and value.converter as the topic is written.",
    )


def last_of_each_key(rows: Iterable[KeyedRow]) -> list[KeyedRow]:
    """In: rows with keys, in order. Keys may be of any JSON value."""
    return list({repr(row.key): row for row in rows}.values())
