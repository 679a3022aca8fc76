"""What a lane has pending."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.executor.sources.lane import LanePiece, headers_of, joined
from millstream.executor.sources.source_decoder import DecodedRecords, RecordError


def piece(offsets: list[int], headers: list[str] | None, failed: int | None = None) -> LanePiece:
    ok = np.array([offset != failed for offset in offsets])
    errors = [] if failed is None else [RecordError("decode", "no JSON", "t", 1, failed)]
    table = pa.table({"v0": pa.array([f"v{offset}" for offset in offsets], mask=~ok)})
    decoded = DecodedRecords(table, np.where(ok, np.array(offsets) * 10, -1), ok, errors)
    listed = None if headers is None else pa.array(headers)
    return LanePiece(1, np.array(offsets), (decoded, decoded), listed, 8 * len(offsets))


def test_pieces_are_joined_in_the_order_of_their_offsets() -> None:
    whole = joined([piece([5, 7], ["h5", "h7"]), piece([1, 2, 4], None, failed=2)])
    assert (whole.partition, whole.offsets.tolist(), whole.byte_count) == (1, [1, 2, 4, 5, 7], 40)
    assert whole.headers is not None and whole.headers.to_pylist() == [None, None, None, "h5", "h7"]
    assert len(whole.decoded) == 2
    for part in whole.decoded:
        assert part.table["v0"].num_chunks == 1
        assert part.table["v0"].to_pylist() == ["v1", None, "v4", "v5", "v7"]
        assert part.times.tolist() == [10, -1, 40, 50, 70]
        assert part.ok.tolist() == [True, False, True, True, True]
        assert [error.offset for error in part.errors] == [2]
    assert whole.slice(1, 2).decoded[0].errors != []
    assert whole.slice(2, 5).decoded[0].errors == []


def test_pieces_without_headers_have_none_together() -> None:
    assert headers_of([piece([1], None), piece([2], None)]) is None
