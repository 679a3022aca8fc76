"""Finds the codec of a format, for batches and for single values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.errors import FormatError

from ...planner.formats import FORMATS
from ...planner.schema import Column
from ...planner.specs import FormatSpec, KeyWindow
from .codec import Decoder, Encoder
from .coding import Coding, RecordPart, coded_formats, find_coding
from .windows import WindowedDecoder, WindowedEncoder
from .wire import SchemaLookup, no_schemas


def decoder(
    spec: FormatSpec,
    columns: Sequence[Column],
    *,
    needed: Sequence[bool] | None = None,
    window: KeyWindow | None = None,
    schemas: SchemaLookup = no_schemas,
) -> Decoder:
    """A decoder of `columns`. Columns that are not `needed` are all NULL, and errors in them are not reported.

    In: `schemas`: finds the schemas that records name.

    Raises: FormatError if the format does not exist or cannot hold the columns.
    """
    part = RecordPart(spec, columns, schemas, needed)
    inner = _coding(part).decoder(part)
    return inner if window is None else WindowedDecoder(inner, window)


def encoder(spec: FormatSpec, columns: Sequence[Column], window: KeyWindow | None = None) -> Encoder:
    """An encoder of `columns`, in their order.

    Raises: FormatError if the format does not exist or cannot hold the columns.
    """
    part = RecordPart(spec, columns, no_schemas)
    inner = _coding(part).encoder(part)
    return inner if window is None else WindowedEncoder(inner, window)


def encode_logical(spec: FormatSpec, columns: Sequence[Column], value: Any) -> bytes | None:
    """The bytes of `value`, without conversion: JSON keeps all digits and its own names, DELIMITED is text, KAFKA is a
    number or text, depending on the column's type (text without columns). AVRO and PROTOBUF find fields by name, in any
    case. None is null. Raises: Unwritable if the value does not fit the schema."""
    return None if value is None else _single(spec).encode_one(RecordPart(spec, columns, no_schemas), value)


def decode_logical(
    spec: FormatSpec, columns: Sequence[Column], data: bytes | None, schemas: SchemaLookup = no_schemas
) -> Any:
    """One record's key or value as a plain Python value, like those of the conformance driver: a dict for an object,
    Decimal with its scale for DECIMAL, days or milliseconds for times, base64 text for BYTES inside JSON, the whole
    text for DELIMITED. The column's type determines what a number inside JSON becomes.

    Raises: InvalidJson, Unreadable, UnicodeDecodeError, struct.error if the bytes are not of this format.
    """
    return None if data is None else _single(spec).decode_one(RecordPart(spec, columns, schemas), data)


def _single(spec: FormatSpec) -> Coding:
    """The coding of this name. A format without its own coding is text."""
    return find_coding(spec.name) or Coding()


def _coding(part: RecordPart) -> Coding:
    """The coding of the part's format. Raises `FormatError` if the format does not exist, or if it cannot hold the
    columns and cannot code them anyway (`codes_more`)."""
    name = part.spec.name
    found = find_coding(name)
    if found is None:
        raise FormatError(f"unknown format {name}", hint=f"The formats are {', '.join(sorted(coded_formats()))}.")
    reason = None if FORMATS[name].codes_more else FORMATS[name].refusal(part.held, "Value")
    if reason is not None:
        raise FormatError(reason, hint="JSON holds columns of every type.")
    return found
