"""JSON_SR: JSON behind the id of a schema. The schema says nothing that reading needs: it is read as JSON is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...planner.formats.json import JSON_SR
from .codec import Decoded, Decoder, Encoder, RowError, boolean_array, one_array, valid_flags
from .coding import Coding, RecordPart, codes
from .json_format import JsonCoding
from .wire import HEADER_BYTES, Unreadable, blank_header, header, schema_id_of, with_header


class JsonSrDecoder:
    """Leaves what is behind the header to `inner`."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        blanked, good = blank_header(rows)
        decoded = self._inner.decode(blanked)
        bad = (valid_flags(rows) != 0) & ~good
        if not bad.any():
            return decoded
        errors = [RowError(int(row), _problem(rows[int(row)].as_py())) for row in np.flatnonzero(bad)]
        null_rows = boolean_array(decoded.null_rows.to_numpy(zero_copy_only=False) & ~bad)
        return Decoded(decoded.columns, null_rows, sorted(decoded.errors + errors, key=lambda error: error.row))


def _problem(data: bytes) -> str:
    try:
        schema_id_of(data)
    except Unreadable as error:
        return str(error)
    raise AssertionError("the row has a header")


class JsonSrEncoder:
    """Puts the header before what `inner` writes."""

    def __init__(self, inner: Encoder, schema_id: int) -> None:
        self._inner = inner
        self._schema_id = schema_id

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        return with_header(self._inner.encode(columns, null_rows=null_rows), self._schema_id)


@codes(JSON_SR.name)
class JsonSrCoding(Coding):
    _json = JsonCoding()

    def decoder(self, part: RecordPart) -> Decoder:
        return JsonSrDecoder(self._json.decoder(part))

    def encoder(self, part: RecordPart) -> Encoder:
        assert part.spec.schema is not None, "the planner gives every source of this format a schema"
        return JsonSrEncoder(self._json.encoder(part), part.spec.schema.id)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        if part.spec.schema is None:
            return super().encode_one(part, value)
        return header(part.spec.schema.id) + self._json.encode_one(part, value)

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        schema_id_of(data)
        return self._json.decode_one(part, data[HEADER_BYTES:])
