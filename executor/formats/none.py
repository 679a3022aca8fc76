"""NONE: no key. It ignores the bytes of keys that it reads, and writes null."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...planner.formats.none import NONE
from .codec import Decoded, Decoder, Encoder, boolean_array
from .coding import Coding, RecordPart, codes


class NoneCodec:
    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        return Decoded([], boolean_array(np.ones(len(data), np.bool_)))

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        count = len(columns[0]) if columns else 0 if null_rows is None else len(null_rows)
        return pa.nulls(count, pa.binary())


@codes(NONE.name)
class NoneCoding(Coding):
    def decoder(self, part: RecordPart) -> Decoder:
        return NoneCodec()

    def encoder(self, part: RecordPart) -> Encoder:
        return NoneCodec()
