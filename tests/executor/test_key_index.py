"""Keys as numbers, and the tables that find them."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.state import key_index
from millstream.executor.state.key_hash import key_hashes
from millstream.executor.state.key_index import KeyIndex, PartialIndex, grown, numbered_pairs

_BITS = (1 << 64) - 1


def siphash_1_3_wide(message: bytes, k0: int, k1: int) -> tuple[int, int]:
    """Written down from the paper, as slowly as it is there."""
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & _BITS

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, c, d, first, second in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a], v[c] = (v[a] + v[b]) & _BITS, (v[c] + v[d]) & _BITS
                v[b], v[d] = turned(v[b], first) ^ v[a], turned(v[d], second) ^ v[c]
                v[a] = turned(v[a], 32)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    out: list[int] = []
    for position, mark in ((2, 0xEE), (1, 0xDD)):
        v[position] ^= mark
        rounds(3)
        out.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return out[0], out[1]


def hashed(*columns: pa.Array) -> list[tuple[int, int]]:
    return [(int(high), int(low)) for high, low in key_hashes(list(columns)).T]


def test_integers_are_hashed_as_siphash_says() -> None:
    secret = (np.uint64(0x0706050403020100), np.uint64(0x0F0E0D0C0B0A0908))
    found = key_hashes([pa.array([5, -1], pa.int64()), pa.array([7, None], pa.int32())], secret)
    for row, words in enumerate([(0, 5, 7), (2, -1, 0)]):  # which ones are NULL, and the values
        message = b"".join((word & _BITS).to_bytes(8, "little") for word in words)
        assert tuple(map(int, found[:, row])) == siphash_1_3_wide(message, *map(int, secret))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255, 256, 300])
def test_text_is_hashed_as_siphash_says(size: int) -> None:
    secret = (np.uint64(11), np.uint64(2**63 + 5))
    text = "x" * (size // 2) + "y" * (size - size // 2)
    column = pa.array(["before", text, "behind"], pa.string()).slice(1, 1)
    inner = siphash_1_3_wide(text.encode(), *map(int, secret))
    message = b"".join(word.to_bytes(8, "little") for word in (0, *inner))
    assert tuple(map(int, key_hashes([column], secret)[:, 0])) == siphash_1_3_wide(message, *map(int, secret))


@pytest.mark.parametrize("distinct", [1, 3, 200, 3_000])
def test_a_key_that_occurred_before_has_its_number(distinct: int) -> None:
    """The loops look whether they hashed the same row just before. Texts differ at the front, inside, or at the end."""
    rng = random.Random(distinct)
    forms = ("{}", "{}" + "b" * 8, "a" * 8 + "{}", "a" * 8 + "{}" + "b" * 8, "a" * 7 + "{}" + "b" * 30, "")
    texts = [rng.choice(forms).format(rng.choice("xyz") * (number % 3) + str(number)) for number in range(distinct)]
    rows = [rng.choice(texts) for _ in range(3_000)]
    found = hashed(pa.array(rows), pa.array([len(text) for text in rows]))
    alone = {text: hashed(pa.array([text]), pa.array([len(text)]))[0] for text in set(rows)}
    assert found == [alone[text] for text in rows]
    assert len(set(alone.values())) == len(alone)


def test_a_text_that_begins_with_zeros_is_another_one() -> None:
    texts = [zeros + str(number) for number in range(1_000) for zeros in ("", "\0", "\0\0")]
    found = hashed(pa.array([text for text in texts for _ in range(2)]))
    assert len(set(found)) == len(texts)
    one_of_each_kind = [hashed(pa.array(texts[first : first + 3] * 2)) for first in range(0, len(texts), 3)]
    assert all(len(set(numbers)) == 3 for numbers in one_of_each_kind)


DIFFERENT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [0, 1, -1, None]),
    (pa.int64(), [0, 2**62, -(2**62), None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, None]),
    (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1), None]),
    (pa.string(), ["", "a", "aa", "a" * 8, "a" * 9, "ä", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"a", None]),
    (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("1.00"), Decimal("-1.00"), Decimal(10**35), None]),
    (pa.list_(pa.int64()), [[], [1], [1, 2], [None], None]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)], None]),
]


@pytest.mark.parametrize(("type_", "values"), DIFFERENT, ids=lambda given: str(given)[:20])
def test_equal_values_have_the_same_number_and_others_have_not(type_: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values * 2, type_)
    numbers = hashed(column)
    assert numbers == hashed(pa.concat_arrays([column.slice(0, 1), column]).slice(1))
    assert numbers[: len(values)] == numbers[len(values) :]
    assert len(set(numbers)) == len(values)


def test_what_is_equal_in_sql_is_one_key() -> None:
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    assert len(set(hashed(pa.array([0.0, -0.0])))) == 1
    nested = [[{"a": zero, "b": 1}, None] for zero in (0.0, -0.0)]
    assert len(set(hashed(pa.array([[], *nested, None]).slice(1, 2)))) == 1
    assert len(set(hashed(pa.array(np.concatenate([[math.nan], other_nan]))))) == 1


def test_a_null_belongs_to_its_column() -> None:
    first, second = pa.array([None, 0, 0, None], pa.int64()), pa.array([0, None, 0, None], pa.int64())
    assert len(set(hashed(first, second))) == 4


def test_columns_do_not_run_into_each_other() -> None:
    assert len(set(hashed(pa.array(["ab", "a", ""]), pa.array(["c", "bc", "abc"])))) == 3


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(-3, 3), st.text("ab", max_size=2)), max_size=60), max_size=4))
def test_equal_keys_get_the_same_slot_for_good(batches: list[list[tuple[int, str]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_CAPACITY", 2)  # it grows in the middle of a batch
        index = KeyIndex()
        known: dict[tuple[int, str], int] = {}
        for batch in batches:
            numbers, texts = [key[0] for key in batch], [key[1] for key in batch]
            hashes = key_hashes([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())])
            expected = [known.get(key, -1) for key in batch]
            assert index.find(hashes).tolist() == expected
            groups = index.number(hashes)
            assert [batch[row] for row in groups.first.tolist()] == list(dict.fromkeys(batch))
            assert [batch[row] for row in groups.first[groups.group].tolist()] == batch
            for row, slot in zip(groups.first.tolist(), groups.slot.tolist(), strict=True):
                assert known.setdefault(batch[row], slot) == slot
            assert index.find(hashes).tolist() == [known[key] for key in batch]
        assert sorted(known.values()) == list(range(len(known)))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1, 0, 1, 2_000, 4_000, 1 << 40])), max_size=80))
def test_pairs_are_numbered_as_they_first_come(pairs: list[tuple[int, int]]) -> None:
    one, other = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    group, first = numbered_pairs(one, other)
    assert [pairs[at] for at in first.tolist()] == list(dict.fromkeys(pairs))
    assert [pairs[at] for at in first[group].tolist()] == pairs
    assert first.tolist() == sorted(first.tolist())


def of_numbers(*numbers: int) -> Any:
    return key_hashes([pa.array(numbers, pa.int64())])


def test_an_index_grows() -> None:
    index = KeyIndex()
    values = range(0, 350_000, 7)
    assert index.number(of_numbers(*values)).slot.tolist() == list(range(50_000))
    assert index.number(of_numbers(*values[49_990:])).slot.tolist() == list(range(49_990, 50_000))
    assert index.count == 50_000 and index.nbytes < 50_000 * 37


def test_a_renumbered_index_knows_the_chosen_keys_only_in_their_new_order() -> None:
    index = KeyIndex()
    index.number(of_numbers(10, 11, 12, 13))
    again = index.renumbered(np.array([3, 1]))
    assert again.count == 2
    assert again.find(of_numbers(10, 11, 12, 13)).tolist() == [-1, 1, -1, 0]
    assert index.find(of_numbers(10, 13)).tolist() == [0, 3]


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_column_with_room_enough_stays_as_it_is(count: int) -> None:
    column = np.arange(3)
    assert grown(column, count, -1) is column
    assert grown(column, 4, -1).tolist()[:4] == [0, 1, 2, -1]


def test_the_first_slot_and_the_first_row_count_like_others() -> None:
    """A slot that gets a new row comes before older ones, slot 0 as well."""
    parts = PartialIndex()
    parts.add(of_numbers(7), np.array([1]))
    parts.add(of_numbers(7), np.array([0]))
    assert parts.find(of_numbers(7), np.array([0, 5]))[1].tolist() == [0, 1]
    assert parts.find(of_numbers(7), np.array([0, -1]))[1].tolist() == [0]
    parts.add(of_numbers(8), np.array([1]))
    assert [parts.find(of_numbers(part), np.array([0, 6]))[1].tolist() for part in (7, 8)] == [[0], [1]]


def test_slots_of_a_part_are_found_while_they_have_a_row() -> None:
    parts = PartialIndex()
    parts.add(of_numbers(7, 8, 7, 7), np.arange(4))
    rows = np.array([10, 11, 12, 13])

    def found(*asked: int) -> list[tuple[int, int]]:
        position, slots = parts.find(of_numbers(*asked), rows)
        return sorted(zip(position.tolist(), slots.tolist(), strict=True))

    assert found(8, 7, 9) == [(0, 1), (1, 0), (1, 2), (1, 3)]
    assert len(parts.find(of_numbers(7, 8), rows, room=4)[0]) == 4
    with pytest.raises(MemoryError, match="4 rows meet in one batch, and there is room for 3"):
        parts.find(of_numbers(7, 8), rows, room=3)
    for gone in (3, 0, 2):  # the newest, the oldest, the last one
        rows[gone] = -1
        assert (0, gone) not in found(7)
    assert found(7) == []
    rows[2] = 20
    assert found(7) == [], "it is not added again"
    parts.add(of_numbers(7), np.array([2]))
    parts.add(of_numbers(7), np.array([2]))  # twice: once is enough
    assert found(7) == [(0, 2)]
    again = parts.renumbered(np.array([2, 1, 0]))
    position, slots = again.find(of_numbers(7, 8), np.array([1, 1, 1]))
    assert sorted(zip(position.tolist(), slots.tolist(), strict=True)) == [(0, 0), (1, 1)]
