"""Records of coordinators as bytes: what is read is what was written, and damage is noticed, not believed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.group_offset_bytes import (
    AppliedKey,
    Held,
    HeldKey,
    OffsetKey,
    Settled,
    SettledKey,
    StoredOffset,
    applied_record,
    decode_applied,
    decode_held,
    decode_offset_key,
    decode_settled,
    decode_stored,
    held_record,
    offset_record,
    settled_record,
)
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.records.batch import EncodedBatch
from millstream.logcore.records.codec import decode_rows, stored_batch
from millstream.logcore.records.key_values import KeyValue, decode_key_values, encode_key_values

TEXTS = st.text(max_size=20)
NUMBERS = st.integers(0, 2**62)
PLACES = st.builds(TopicPartition, TEXTS, st.integers(0, 2**31 - 1))
OFFSETS = st.builds(CommittedOffset, NUMBERS, TEXTS, st.integers(-1, 2**31 - 1), NUMBERS)
ENTRIES = st.builds(KeyValue, st.binary(max_size=30), st.none() | st.binary(max_size=300))


@given(st.builds(OffsetKey, TEXTS, PLACES), OFFSETS, st.none() | st.binary(min_size=16, max_size=16))
def test_committed_offsets_are_read_as_they_were_written(
    key: OffsetKey, committed: CommittedOffset, topic_id: bytes | None
) -> None:
    record = offset_record(key, StoredOffset(committed, topic_id))
    assert decode_offset_key(record.key) == key
    assert decode_stored(record.value or b"") == StoredOffset(committed, topic_id)


def test_committed_offsets_are_laid_out_as_kafka_does() -> None:
    """Versions 1 of the key and 4 of the value, in which the topic's id is the tagged field 0."""
    stored = StoredOffset(CommittedOffset(7, "m", 4, 9), bytes(range(16)))
    record = offset_record(OffsetKey("g", TopicPartition("t", 2)), stored)
    assert record.key == struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 2)
    assert record.value == struct.pack(">hqiB1sqBBB", 4, 7, 4, 2, b"m", 9, 1, 0, 16) + bytes(range(16))


@given(st.builds(HeldKey, TEXTS, NUMBERS), st.builds(Held, NUMBERS, st.frozensets(PLACES, max_size=4)))
def test_held_offsets_are_read_as_they_were_written(key: HeldKey, held: Held) -> None:
    record = held_record(key, held)
    assert (decode_offset_key(record.key), decode_held(record.value or b"")) == (key, held)
    assert held_record(key, None) == KeyValue(record.key, None)


@given(st.builds(SettledKey, TEXTS, NUMBERS), st.builds(Settled, NUMBERS, NUMBERS))
def test_settled_transactions_are_read_as_they_were_written(key: SettledKey, settled: Settled) -> None:
    record = settled_record(key, settled)
    assert (decode_offset_key(record.key), decode_settled(record.value or b"")) == (key, settled)


def test_applied_transactions_are_read_as_they_were_written() -> None:
    record = applied_record("id", 5)
    assert (decode_offset_key(record.key), decode_applied(record.value or b"")) == (AppliedKey("id"), 5)


def test_records_that_end_too_early_are_errors() -> None:
    record = offset_record(
        OffsetKey("g", TopicPartition("t", 2)), StoredOffset(CommittedOffset(7, "m", 4, 9), bytes(16))
    )
    for content, decode in ((record.key, decode_offset_key), (record.value or b"", decode_stored)):
        for size in range(len(content)):
            with pytest.raises(ValueError, match="ends too early"):
                decode(content[:size])


# Batches of them


@given(st.lists(ENTRIES, min_size=1, max_size=20), st.integers(0, 2**45))
def test_entries_are_read_as_they_were_written_by_both_codecs(entries: list[KeyValue], now_ms: int) -> None:
    batch = encode_key_values(entries, now_ms)
    assert decode_key_values(batch) == entries
    rows = decode_rows([stored_batch(batch.header, memoryview(b"".join(batch.buffers)))], 0)
    assert rows.column("key").to_pylist() == [entry.key for entry in entries]
    assert rows.column("value").to_pylist() == [entry.value for entry in entries]
    assert set(rows.column("timestamp").to_pylist()) == {now_ms}


def test_entries_that_are_cut_off_are_errors() -> None:
    batch = encode_key_values([KeyValue(b"key", b"value")], 0)
    whole = b"".join(batch.buffers)
    with pytest.raises(ValueError, match=r"records|record|field"):
        decode_key_values(EncodedBatch([whole[:-3]], batch.header))
