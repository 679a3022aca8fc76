"""DEBEZIUM: a value is Debezium's envelope, `{"before": …, "after": {…}, "op": "u", …}`; a key is an object of its
columns.

The row is in `after`. A delete has no value, like a tombstone: a table loses the row at the delete, and the tombstone
after it changes nothing. The envelope may also be in `payload`, beside its `schema`. An object that is no envelope is
the row itself, as after the transform ExtractNewRecordState.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...planner.formats.debezium import DEBEZIUM
from ...planner.schema import Column
from ...sql.types import STRING
from .codec import Decoded, Decoder, Encoder, RowError, one_array
from .coding import Coding, RecordPart, codes
from .json_format import WrappedJson
from .json_text import parse_json, write_json
from .logical import typed_value
from .text_decoder import TextDecoder
from .text_encoder import JsonObject, TextEncoder

_PARTS: Final = tuple(Column(name, STRING) for name in ("payload", "after", "op"))
_DELETE: Final = "d"
_CREATED: Final = b'{"before":null,"after":', b',"op":"c"}'


class EnvelopeDecoder:
    """Extracts the row from each envelope; `rows` decodes it."""

    def __init__(self, rows: Decoder) -> None:
        self._rows = rows
        self._parts = TextDecoder(WrappedJson(_PARTS), _PARTS, [True] * len(_PARTS))

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        taken, errors = self._taken(one_array(data), deep=True)
        decoded = self._rows.decode(taken)
        failed = {error.row for error in errors}
        others = [error for error in decoded.errors if error.row not in failed]
        return Decoded(decoded.columns, decoded.null_rows, sorted([*errors, *others], key=lambda error: error.row))

    def _taken(self, data: pa.BinaryArray, *, deep: bool) -> tuple[pa.BinaryArray, list[RowError]]:
        """The JSON of each row; null if there is none."""
        parts = self._parts.decode(data)
        payload, after, op = (column.cast(pa.binary()) for column in parts.columns)
        if deep and payload.null_count < len(payload):
            unpacked = pc.if_else(pc.is_valid(payload), payload, data)
            return self._taken(one_array(unpacked), deep=False)
        nothing = pa.scalar(None, pa.binary())
        is_delete = pc.fill_null(pc.equal(op, _DELETE.encode()), False)
        rows = pc.if_else(is_delete, nothing, after)
        return one_array(pc.if_else(pc.is_valid(op), rows, data)), list(parts.errors)


class EnvelopeEncoder:
    """Writes rows as created rows, and deleted rows as tombstones. The previous row is not known here."""

    def __init__(self, rows: Encoder) -> None:
        self._rows = rows

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        rows = self._rows.encode(columns, null_rows=null_rows, window_start=window_start, window_end=window_end)
        before, after = (pa.scalar(part, pa.binary()) for part in _CREATED)
        return one_array(pc.binary_join_element_wise(before, rows, after, pa.scalar(b"", pa.binary())))


@codes(DEBEZIUM.name)
class DebeziumCoding(Coding):
    def decoder(self, part: RecordPart) -> Decoder:
        rows = TextDecoder(WrappedJson(part.read), part.columns, part.wanted)
        return rows if _is_key(part) else EnvelopeDecoder(rows)

    def encoder(self, part: RecordPart) -> Encoder:
        rows = TextEncoder(JsonObject([column.name for column in part.held]), part.held, part.numbers)
        return rows if _is_key(part) else EnvelopeEncoder(rows)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        return write_json(value).encode()

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        value = parse_json(data)
        if not _is_key(part) and isinstance(value, dict) and "op" in value:
            value = value.get("after")
        return typed_value(value, part.held, bare=False)


def _is_key(part: RecordPart) -> bool:
    return any(column.role == "KEY" for column in part.columns)
