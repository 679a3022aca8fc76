"""Converts records to rows of tables, with their key and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..connector import ConnectRecord, RecordsRefused

_HINT: Final = "Set pk.mode, pk.fields, key.converter and value.converter as the topic is written."


@dataclass(frozen=True, slots=True)
class KeyedRow:
    """`values`: all columns, including those of the key; None for a tombstone. `record`: the record of the row."""

    key: dict[str, Any]
    values: dict[str, Any] | None
    record: ConnectRecord | None = field(default=None, compare=False, repr=False)


def rows_of(records: Iterable[ConnectRecord], pk_mode: str, pk_fields: Sequence[str]) -> list[KeyedRow]:
    """A row for each record. Raises `RecordsRefused` for records that are not rows."""
    rows: list[KeyedRow] = []
    refused: list[tuple[ConnectRecord, str]] = []
    for record in records:
        try:
            rows.append(_row_of(record, pk_mode, pk_fields))
        except _NoRow as error:
            refused.append((record, f"it is no row: {error}"))
    if refused:
        raise RecordsRefused(refused, others_written=False, hint=_HINT)
    return rows


class _NoRow(Exception):
    """The record is not a row. In: a clause with the reason."""


def _row_of(record: ConnectRecord, pk_mode: str, pk_fields: Sequence[str]) -> KeyedRow:
    value = record.value
    if value is not None and not isinstance(value, dict):
        raise _NoRow(f"its value is of type {type(value).__name__}, not an object")
    if pk_mode == "none":
        return KeyedRow({}, value, record)
    if pk_mode == "record_value":
        if value is None:
            return KeyedRow({}, None, record)
        missing = [name for name in pk_fields if name not in value]
        if missing:
            raise _NoRow(f"its value has no {missing[0]}")
        return KeyedRow({name: value[name] for name in pk_fields}, value, record)
    key = _key_of(record, pk_fields)
    return KeyedRow(key, None if value is None else {**key, **value}, record)


def _key_of(record: ConnectRecord, pk_fields: Sequence[str]) -> dict[str, Any]:
    key = record.key
    if isinstance(key, dict):
        names = pk_fields or tuple(key)
        if all(name in key for name in names):
            return {name: key[name] for name in names}
        raise _NoRow(f"its key has not all of {', '.join(names)}")
    if key is None:
        raise _NoRow("it has no key")
    if len(pk_fields) != 1:
        raise _NoRow("its key is one value, and pk.fields does not name one column for it")
    return {pk_fields[0]: key}


def last_of_each_key(rows: Iterable[KeyedRow]) -> list[KeyedRow]:
    """The last row of each key. In: rows with keys, in order. Keys may contain any JSON values."""
    return list({repr(row.key): row for row in rows}.values())


def after_the_last_tombstone(rows: Iterable[KeyedRow]) -> list[KeyedRow]:
    """Without the rows that a later tombstone of their key deletes, so that all tombstones can be written first."""
    kept: list[KeyedRow] = []
    deleted: set[str] = set()
    for row in reversed(list(rows)):
        key = repr(row.key)
        if key not in deleted:
            kept.append(row)
        if row.values is None:
            deleted.add(key)
    kept.reverse()
    return kept
