"""Record batches from the network are looked at before they are stored."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from crc32c import crc32c

from millstream.logcore.errors import InvalidRecords
from millstream.logcore.protocol.incoming import CorruptRecords, checked_batches
from millstream.logcore.records.batch import COLUMNAR, CONTROL, TRANSACTIONAL
from millstream.logcore.records.codec import encode
from millstream.logcore.records.varint import write_varint

from ..log_records import columnar, rows

ATTRIBUTES, LAST_OFFSET_DELTA, RECORD_COUNT, RECORDS = 21, 23, 57, 61


def batch_of(*values: bytes) -> bytearray:
    (batch,) = encode(rows(*values))
    return bytearray(b"".join(batch.buffers))


def sealed(batch: bytearray) -> bytearray:
    """With the checksum that a liar computes."""
    struct.pack_into(">I", batch, 17, crc32c(batch[ATTRIBUTES:]))
    return batch


def test_batches_are_found_one_behind_the_other_and_not_copied() -> None:
    columns = bytearray(b"".join(encode(columnar(1, 2))[0].buffers))
    data = batch_of(b"a", b"b") + columns + batch_of(b"c")
    found = checked_batches(memoryview(data))
    assert [batch.header.last_offset_delta for batch in found] == [1, 1, 0]
    memoryview(found[0].buffers[0])[0] = 9
    assert data[0] == 9


def test_every_flipped_bit_under_the_checksum_is_found() -> None:
    good = batch_of(b"value")
    for position in range(ATTRIBUTES - 4, len(good)):
        bad = bytearray(good)
        bad[position] ^= 4
        with pytest.raises(CorruptRecords):
            checked_batches(memoryview(bad))


def test_data_that_is_cut_off_is_refused_at_every_byte() -> None:
    good = batch_of(b"a", b"b")
    for end in range(len(good)):
        with pytest.raises(InvalidRecords):
            checked_batches(memoryview(good[:end]))


def _attributes(bits: int) -> Callable[[bytearray], None]:
    def set_bits(batch: bytearray) -> None:
        struct.pack_into(">h", batch, ATTRIBUTES, bits)

    return set_bits


def _number(layout: str, position: int, value: int) -> Callable[[bytearray], None]:
    def write(batch: bytearray) -> None:
        struct.pack_into(layout, batch, position, value)

    return write


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (_attributes(CONTROL), "control batch"),
        (_attributes(TRANSACTIONAL), "without a producer"),
        (_attributes(7), "unknown compression"),
        (_attributes(1), "cannot be read"),
        (_attributes(2), "cannot be read"),
        (_attributes(3), "cannot be read"),
        (_attributes(4), "cannot be read"),
        (_attributes(COLUMNAR), "cannot be read"),
        (_number(">i", LAST_OFFSET_DELTA, 5), "takes 6 offsets"),
        (_number(">i", LAST_OFFSET_DELTA, 0x7FFFFFFF), "offsets"),
        (_number(">i", RECORD_COUNT, 1), "bytes after the last record"),
        (_number(">i", RECORD_COUNT, 3), "cannot be read"),
        (_number(">i", RECORD_COUNT, 0), "bytes after the last record"),
        (_number(">i", RECORD_COUNT, 0x7FFFFFFF), "cannot be read"),
        (_number(">b", RECORDS, 0x7E), "cannot be read"),
        (_number(">b", RECORDS + 3, 2), "do not follow each other"),
    ],
)
def test_batches_that_readers_would_choke_on_are_refused(lie: Callable[[bytearray], None], message: str) -> None:
    batch = batch_of(b"a", b"b")
    lie(batch)
    with pytest.raises(InvalidRecords, match=message):
        checked_batches(memoryview(sealed(batch)))


def test_messages_of_older_formats_are_named() -> None:
    batch = batch_of(b"a")
    batch[16] = 1
    with pytest.raises(InvalidRecords, match="version 1 are not supported"):
        checked_batches(memoryview(batch))


def test_no_data_is_refused() -> None:
    with pytest.raises(InvalidRecords, match="no record batch"):
        checked_batches(memoryview(b""))


@pytest.mark.parametrize(("codec", "code"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_compressed_records_are_taken_unless_they_grow_out_of_all_proportion(codec: str, code: int) -> None:
    def compressed(batch: bytearray) -> bytearray:
        if codec == "snappy":
            records = pa.Codec(codec).compress(bytes(batch[RECORDS:]))
        else:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, codec) as stream:
                stream.write(bytes(batch[RECORDS:]))
            records = sink.getvalue()
        packed = batch[:RECORDS] + bytes(records)
        struct.pack_into(">i", packed, 8, len(packed) - 12)
        struct.pack_into(">h", packed, ATTRIBUTES, code)
        return sealed(packed)

    (taken,) = checked_batches(memoryview(compressed(batch_of(b"a" * 1000, b"b"))))
    assert taken.header.attributes == code
    bomb = compressed(batch_of(bytes(64 * 1024 * 1024)))
    if codec == "snappy":  # does not compress so well: a lie about the size must do
        bomb = compressed(batch_of(b"a" * 1000))
        bomb[RECORDS : RECORDS + 2] = b"\xff\xff\xff\xff\x07"
        struct.pack_into(">i", bomb, 8, len(bomb) - 12)
        sealed(bomb)
    with pytest.raises(InvalidRecords, match="once uncompressed"):
        checked_batches(memoryview(bomb))


def columns_of(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytearray:
    """A columnar batch as a client that knows the envelope may make it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    payload = sink.getvalue().to_pybytes()
    (plain,) = encode(columnar(*range(batch.num_rows)))
    head = bytearray(b"".join(plain.buffers))[:RECORDS]
    fields = bytearray(1)
    for number in (0, batch.num_rows - 1, -1, len(payload)):
        write_varint(fields, number)
    record = fields + payload + b"\x02\x0cms.enc\x0aarrow"
    out = head
    write_varint(out, len(record))
    out += record
    struct.pack_into(">i", out, 8, len(out) - 12)
    return sealed(out)


@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_columns_that_may_grow_without_bound_are_refused(codec: str, encoded: bool) -> None:
    column = pa.array(["a" * 1000] * 1000)
    batch = pa.record_batch({"x": column.dictionary_encode() if encoded else column})
    (taken,) = checked_batches(memoryview(columns_of(batch)))
    assert taken.header.columnar
    with pytest.raises(InvalidRecords, match="compressed"):
        checked_batches(memoryview(columns_of(batch, pa.ipc.IpcWriteOptions(compression=codec))))


def test_columns_that_point_outside_of_their_bytes_are_refused() -> None:
    good = columns_of(pa.record_batch({"x": pa.array(["abc", "defg", "hi"])}))
    ends = struct.pack("<4i", 0, 3, 7, 9)
    at = good.index(ends)
    for lie in (1 << 30, -5):
        bad = bytearray(good)
        struct.pack_into("<i", bad, at + 8, lie)
        with pytest.raises(InvalidRecords, match="cannot be read"):
            checked_batches(memoryview(sealed(bad)))
    not_text = bytearray(good)
    not_text[not_text.index(b"abcdefghi")] = 0xFF
    with pytest.raises(InvalidRecords, match="cannot be read"):
        checked_batches(memoryview(sealed(not_text)))


def test_any_changed_byte_of_columns_is_refused_or_harmless() -> None:
    good = columns_of(pa.record_batch({"x": pa.array(["abc", None]), "y": pa.array([[1], [2, 3]])}))
    for position in range(RECORDS, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0xFF
        with contextlib.suppress(InvalidRecords):
            checked_batches(memoryview(sealed(bad)))
