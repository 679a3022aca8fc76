"""Metadata records as bytes: JSON `[kind, fields…]`. Records that this release does not know are refused."""

from __future__ import annotations

from typing import Any, Final, get_args

import orjson

from ..cluster_version import VERSIONS
from ..raft.quorum_messages import LogRecord
from .metadata_records import SingleRecord, Together, VersionRaised

_KINDS: Final[dict[str, type[LogRecord]]] = {kind.__name__: kind for kind in get_args(LogRecord)}


class LaterRecord(ValueError):
    """A metadata record or an image was written by a later release."""


def check_known(version: int) -> None:
    """In: `version`: of the cluster. Raises `LaterRecord`."""
    if version > VERSIONS.newest:
        raise LaterRecord(f"the cluster uses version {version}, and this release knows {VERSIONS}")


def encode_record(record: LogRecord) -> bytes:
    """Raises TypeError if it is not a metadata record."""
    return orjson.dumps(_plain(record))


def decode_record(content: bytes) -> LogRecord:
    """Raises `LaterRecord` if only a later release can have written it, ValueError if no release can have."""
    return _record(orjson.loads(content))


def _plain(record: LogRecord) -> list[Any]:
    name = record.__class__.__name__
    if _KINDS.get(name) is not record.__class__:
        raise TypeError(f"not a metadata record: {record!r}")
    if isinstance(record, Together):
        return [name, *(_plain(each) for each in record.records)]
    return [name, *record]


def _record(content: list[Any]) -> LogRecord:
    kind = _KINDS.get(content[0])
    if kind is None:
        raise LaterRecord(f"a metadata record of an unknown kind, {content[0]}")
    if kind is Together:
        return Together(tuple(_single(each) for each in content[1:]))
    if kind is VersionRaised:
        check_known(content[1])
    try:
        return kind(*map(tuples, content[1:]))
    except TypeError as error:
        raise LaterRecord(f"a metadata record with other fields: {error}") from error


def _single(content: list[Any]) -> SingleRecord:
    record = _record(content)
    if not isinstance(record, SingleRecord):
        raise ValueError(f"a {content[0]} is decided by itself")
    return record


def tuples(value: Any) -> Any:
    """JSON has lists where records have tuples."""
    return tuple(map(tuples, value)) if value.__class__ is list else value
