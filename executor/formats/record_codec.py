"""The decoder and the encoder of formats that are read record by record, each by the schema that it names: AVRO,
PROTOBUF and PROTOBUF_NOSR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...planner.formats import FORMATS
from ...planner.formats.avro import AVRO
from ...planner.formats.protobuf import PROTOBUF, PROTOBUF_NOSR
from ...planner.schema import Column
from ...planner.schemas.registry import InvalidSchema
from ...planner.specs import FormatSpec, RecordSchema
from ..errors import QueryFailed
from .avro import avro_codec
from .codec import Decoded, Decoder, Encoder, RowError, boolean_array, one_array
from .coding import Coding, Part, codes
from .compiled.avro_scan import NULL_ROW, REDO, FlatRecord, flat_record, scan
from .protobuf import protobuf_codec
from .reading import Convert, FieldReader, Mismatch, convert_fields
from .typed_values import converter, plain_columns
from .wire import SchemaLookup, Unreadable, Unwritable, schema_id_of

SMALL_BATCH = 64  # rows; below, the reading record by record is faster than a compiled pass

_Read = tuple[list[pa.Array], NDArray[np.bool_], list[RowError]]


class RecordCodec(Protocol):
    """Plain values and bytes, by one schema."""

    def read(self, data: bytes) -> Any: ...

    def write(self, value: Any) -> bytes: ...


def codec_of(spec: FormatSpec, schema: RecordSchema) -> RecordCodec:
    """Raises `InvalidSchema`."""
    if spec.name == AVRO.name:
        return avro_codec(schema)
    return protobuf_codec(schema, framed=spec.name == PROTOBUF.name)


class RecordReader:
    """From one record's bytes to its plain value."""

    def __init__(self, spec: FormatSpec, schemas: SchemaLookup) -> None:
        self._spec = spec
        self._schemas = schemas
        self._codecs: dict[int, RecordCodec] = {}
        self._flat: dict[int, FlatRecord | None] = {}
        self._unnamed: int | None = None  # the schema of records that name none
        if spec.name == PROTOBUF_NOSR.name:
            assert spec.schema is not None, "the planner gives every source of this format a schema"
            self._unnamed = spec.schema.id
        if spec.schema is not None and spec.schema.kind == FORMATS[spec.name].schema_kind:
            self._codecs[spec.schema.id] = codec_of(spec, spec.schema)

    def read(self, data: bytes) -> Any:
        """Raises `Unreadable`."""
        schema_id = schema_id_of(data) if self._unnamed is None else self._unnamed
        codec = self._codecs.get(schema_id)
        if codec is None:
            codec = self._codecs[schema_id] = self._codec(schema_id)
        return codec.read(data)

    def flat_record(self, rows: pa.BinaryArray, columns: Sequence[Column]) -> FlatRecord | None:
        """How to read the batch by one pass, if its first record's schema and the columns allow it."""
        if self._spec.name != AVRO.name:
            return None
        first = next((row.as_py() for row in rows if row.is_valid), None)
        try:
            schema_id = schema_id_of(first or b"")
        except Unreadable:
            return None
        if schema_id not in self._flat:
            schema = self._schema(schema_id)
            if schema is None:
                return None  # it may be registered later
            self._flat[schema_id] = flat_record(schema, columns) if schema.kind == AVRO.schema_kind else None
        return self._flat[schema_id]

    def _schema(self, schema_id: int) -> RecordSchema | None:
        own = self._spec.schema
        return own if own is not None and own.id == schema_id else self._schemas(schema_id)

    def _codec(self, schema_id: int) -> RecordCodec:
        schema = self._schemas(schema_id)
        if schema is None:
            raise Unreadable(f"the record names the schema {schema_id}, which the schema registry does not have")
        wanted = FORMATS[self._spec.name].schema_kind
        if schema.kind != wanted:
            raise Unreadable(f"the record names the schema {schema_id}, which is {schema.kind}, not {wanted}")
        try:
            return codec_of(self._spec, schema)
        except InvalidSchema as error:
            raise Unreadable(str(error)) from None


class RecordDecoder:
    """`needed` columns are read, the others are all NULL. `bare`: the record is the value of the only column."""

    def __init__(
        self, spec: FormatSpec, columns: Sequence[Column], needed: Sequence[bool], schemas: SchemaLookup, *, bare: bool
    ) -> None:
        self._reader = RecordReader(spec, schemas)
        self._columns = columns
        self._needed = needed
        self._bare = bare
        self._read = [column for column, wanted in zip(columns, needed, strict=True) if wanted]
        self._names = [column.name for column in self._read]
        self._fields = FieldReader(self._names)
        self._converters: list[Convert] = [converter(column.type) for column in self._read]

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        scanned = None if self._bare or len(rows) < SMALL_BATCH else self._by_scan(rows)
        arrays, null, errors = scanned or self._by_rows(rows.to_pylist())
        read = iter(arrays)
        columns = [
            next(read) if wanted else pa.nulls(len(rows), column.type.arrow)
            for column, wanted in zip(self._columns, self._needed, strict=True)
        ]
        return Decoded(columns, boolean_array(null), errors)

    def _by_scan(self, rows: pa.BinaryArray) -> _Read | None:
        """The compiled reading, as far as it goes; None where it does not apply to this batch."""
        flat = self._reader.flat_record(rows, self._read)
        scanned = None if flat is None else scan(flat, rows)
        if scanned is None:
            return None
        arrays, status = scanned
        null = status == NULL_ROW
        again = np.flatnonzero(status == REDO)
        if not len(again):
            return arrays, null, []
        exact, exact_null, errors = self._by_rows(rows.take(pa.array(again)).to_pylist())
        null[again] = exact_null
        order = np.arange(len(rows))
        order[again] = len(rows) + np.arange(len(again))
        arrays = [
            pa.concat_arrays([array, fixed]).take(pa.array(order)) for array, fixed in zip(arrays, exact, strict=True)
        ]
        return arrays, null, [RowError(int(again[error.row]), error.message) for error in errors]

    def _by_rows(self, rows: list[bytes | None]) -> _Read:
        nothing = [None] * len(self._read)
        null = np.zeros(len(rows), np.bool_)
        errors: list[RowError] = []
        values: list[list[Any]] = []
        for number, row in enumerate(rows):
            found: list[Any] | None = None
            try:
                record = None if row is None else self._reader.read(row)
                null[number] = record is None
                found = None if record is None else self._row(record)
            except (Unreadable, Mismatch) as error:
                errors.append(RowError(number, str(error)))
            values.append(nothing if found is None else found)
        arrays = [pa.array([row[i] for row in values], column.type.arrow) for i, column in enumerate(self._read)]
        return arrays, null, errors

    def _row(self, record: Any) -> list[Any]:
        if self._bare:
            return [convert(record) for convert in self._converters]
        if not isinstance(record, dict):
            raise Mismatch(f"a record wanted, {type(record).__name__} came")
        return convert_fields(self._names, self._converters, self._fields.read(record))  # pyright: ignore[reportUnknownArgumentType]


class RecordEncoder:
    """`columns` without headers columns, which no format holds; `numbers` are their places in what `encode` gets."""

    def __init__(self, spec: FormatSpec, columns: Sequence[Column], numbers: Sequence[int], *, bare: bool) -> None:
        assert spec.schema is not None, "the planner gives every source of this format a schema"
        self._codec = codec_of(spec, spec.schema)
        self._columns = columns
        self._numbers = numbers
        self._bare = bare
        self._names = [column.name for column in columns]
        self._is_key = bool(columns) and all(column.role == "KEY" for column in columns)

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        """Raises `QueryFailed` where a value does not fit the schema."""
        plain = plain_columns(self._columns, [columns[number] for number in self._numbers])
        count = len(plain[0]) if plain else 0
        absent = [False] * count if null_rows is None else null_rows.to_pylist()
        null_keys = self._is_key and null_rows is None
        rows: list[bytes | None] = []
        try:
            for row, missing in zip(zip(*plain, strict=True), absent, strict=True):
                if missing or ((null_keys or self._bare) and all(cell is None for cell in row)):
                    rows.append(None)
                else:
                    rows.append(self._codec.write(row[0] if self._bare else dict(zip(self._names, row, strict=True))))
        except Unwritable as error:
            raise QueryFailed(f"Exception caught in process: Unable to serialize record: {error}") from None
        return pa.array(rows, pa.binary())


@codes(AVRO.name, PROTOBUF.name, PROTOBUF_NOSR.name)
class RecordCoding(Coding):
    def decoder(self, part: Part) -> Decoder:
        return RecordDecoder(part.spec, part.columns, part.wanted, part.schemas, bare=part.bare)

    def encoder(self, part: Part) -> Encoder:
        return RecordEncoder(part.spec, part.held, part.numbers, bare=part.bare)

    def encode_one(self, part: Part, value: Any) -> bytes:
        if part.spec.schema is None:
            return super().encode_one(part, value)
        return codec_of(part.spec, part.spec.schema).write(value)

    def decode_one(self, part: Part, data: bytes) -> Any:
        return RecordReader(part.spec, part.schemas).read(data)
