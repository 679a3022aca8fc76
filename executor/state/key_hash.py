# pyrefly: ignore-errors[unannotated-return]
"""Hashes keys of any columns to 128-bit numbers, with SipHash-1-3 and a secret of the process.

A store compares keys only by these numbers. With 128 bits and a secret, the probability that any two of ten thousand
million keys collide is 2^-63, whatever keys an attacker sends. ClickHouse groups by the same function.
SipHash: Aumasson and Bernstein, https://github.com/veorq/SipHash (the variant with an output of 128 bits).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ...sql.compiling.loops import inlined_loop, loop, read_only
from ...sql.functions.aggregation.aggregate_values import as_physical
from ..formats.compiled.words import load_word
from ..work_pool import slices, work_pool
from .equal_keys import with_one_zero

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
"""An array of the shape (2, keys)."""
Vector = np.ndarray[Any, Any]  # an argument of a compiled loop

_SECRET = (np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64)))


def key_hashes(columns: Sequence[pa.Array], secret: tuple[np.uint64, np.uint64] = _SECRET) -> Hashes:
    """One number per row. Two rows have the same number if their values are equal in each column; NULL equals NULL, NaN
    equals NaN, and 0.0 equals -0.0. Many rows are hashed in parallel."""
    parts = slices(len(columns[0]))
    if len(parts) < 2:
        return _hashes(columns, secret)
    calls = [partial(_hashes, [column.slice(begin, end - begin) for column in columns], secret) for begin, end in parts]
    return np.concatenate(work_pool().side_by_side(calls), axis=1)


def _hashes(columns: Sequence[pa.Array], secret: tuple[np.uint64, np.uint64]) -> Hashes:
    rows = len(columns[0])
    words = np.empty((1 + sum(_width(column.type) for column in columns), rows), np.uint64)
    words[0] = 0  # which of the columns are NULL
    first = 1
    for number, column in enumerate(columns):
        if column.null_count:
            words[0] |= column.is_null().to_numpy(zero_copy_only=False).astype(np.uint64) << np.uint64(number)
        end = first + _width(column.type)
        _put_words(words[first:end], column, secret)
        first = end
    return _hash_words(words, *secret)


def _is_whole(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)


def _width(type_: pa.DataType) -> int:
    """The number of 64-bit words of a value."""
    return 1 if _is_whole(type_) or pa.types.is_floating(type_) else 2


def _put_words(words: Vector, column: pa.Array, secret: tuple[np.uint64, np.uint64]) -> None:
    """Writes the values as words; those of NULL are always the same."""
    type_ = column.type
    if pa.types.is_floating(type_):
        words[0] = _float_bits(column)
    elif _is_whole(type_):
        kept = as_physical(column)
        if kept.null_count:
            kept = kept.fill_null(False if pa.types.is_boolean(kept.type) else 0)
        words[0].view(np.int64)[:] = kept.to_numpy(zero_copy_only=False)
    else:
        words[:] = _hash_bytes(*bytes_of(_as_bytes(column)), *secret)


def _as_bytes(column: pa.Array) -> pa.Array:
    """The values as text or bytes. Equal values give equal bytes."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return column
    if pa.types.is_decimal128(type_):
        validity, data = column.buffers()
        fixed = pa.Array.from_buffers(pa.binary(16), len(column), [validity, data], offset=column.offset)
        return fixed.cast(pa.binary())
    return pa.array(
        [None if value is None else repr(value) for value in with_one_zero(column).to_pylist()], pa.string()
    )


def _float_bits(column: pa.Array) -> Vector:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # -0.0 is 0.0
    return np.where(np.isnan(values), np.where(_valid(column), np.nan, 0.0), values).view(np.uint64)


def _valid(column: pa.Array) -> Vector:
    return column.is_valid().to_numpy(zero_copy_only=False)


def bytes_of(column: pa.Array) -> tuple[Vector, Vector]:
    """For a text or binary column: where each value begins and the last one ends; and all bytes. NULLs have none."""
    if column.null_count:
        column = column.fill_null("" if pa.types.is_string(column.type) else b"")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return read_only(starts), read_only(content)


_C0, _C1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_C2, _C3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_WIDE, _LAST, _MORE = np.uint64(0xEE), np.uint64(0xEE), np.uint64(0xDD)
_R13, _R16, _R17, _R21, _R32 = (np.uint64(bits) for bits in (13, 16, 17, 21, 32))
_L13, _L16, _L17, _L21, _L32 = (np.uint64(64 - bits) for bits in (13, 16, 17, 21, 32))
_EIGHT, _TOP = np.uint64(8), np.uint64(56)


@inlined_loop
def _round(v0: Any, v1: Any, v2: Any, v3: Any):
    v0 += v1
    v1 = ((v1 << _R13) | (v1 >> _L13)) ^ v0
    v0 = (v0 << _R32) | (v0 >> _L32)
    v2 += v3
    v3 = ((v3 << _R16) | (v3 >> _L16)) ^ v2
    v0 += v3
    v3 = ((v3 << _R21) | (v3 >> _L21)) ^ v0
    v2 += v1
    v1 = ((v1 << _R17) | (v1 >> _L17)) ^ v2
    v2 = (v2 << _R32) | (v2 >> _L32)
    return v0, v1, v2, v3


@inlined_loop
def _finished(v0: Any, v1: Any, v2: Any, v3: Any):
    v2 ^= _LAST
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _MORE
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


# Many batches have few distinct keys. Then a loop looks at the last row with the same cheap number, and takes over its
# hash if it is the same key: for a word and a text of nine letters 28 ns in place of 54; where half of the rows occur
# again, it costs as much as it saves (77 and 70). An attacker who makes cheap numbers equal gains nothing but that each
# row is hashed.

_RECENT_BITS = 8
_MIXED, _HIGH = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - _RECENT_BITS)  # 2^64 divided by the golden ratio
_TRIED = 1024  # after so many rows it goes on only if a quarter of them occurred before


@loop
def _hash_words(words: Vector, k0: Any, k1: Any):
    """The hash of each column of the matrix: of its words, and of their number of bytes, with which SipHash ends a
    message."""
    width, rows = words.shape
    out = np.empty((2, rows), np.uint64)
    end = np.uint64((8 * width) & 0xFF) << _TOP
    recent, again, looks = np.full(1 << _RECENT_BITS, -1, np.int32), 0, True
    for row in range(rows):
        if looks:
            looks = row != _TRIED or 4 * again >= row
            mixed = np.uint64(0)
            for position in range(width):
                mixed = (mixed ^ words[position, row]) * _MIXED
            slot = mixed >> _HIGH
            other = recent[slot]
            if other >= 0 and _are_same_words(words, row, other):
                out[0, row], out[1, row] = out[0, other], out[1, other]
                again += 1
                continue
            recent[slot] = row
        v0, v1, v2, v3 = k0 ^ _C0, k1 ^ _C1 ^ _WIDE, k0 ^ _C2, k1 ^ _C3
        for position in range(width):
            word = words[position, row]
            v3 ^= word
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
        v3 ^= end
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= end
        out[0, row], out[1, row] = _finished(v0, v1, v2, v3)
    return out


@inlined_loop
def _are_same_words(words: Vector, row: Any, other: Any):
    same = True
    for position in range(words.shape[0]):
        same = same and words[position, row] == words[position, other]
    return same


@loop
def _hash_bytes(starts: Vector, content: Vector, k0: Any, k1: Any):
    rows = len(starts) - 1
    out = np.empty((2, rows), np.uint64)
    recent, again, looks = np.full(1 << _RECENT_BITS, -1, np.int32), 0, True
    for row in range(rows):
        at, end = starts[row], starts[row + 1]
        last = _last_word(content, at, end)
        if looks:
            looks = row != _TRIED or 4 * again >= row
            mixed = last ^ np.uint64(end - at)
            if end - at > 8:
                mixed = (mixed * _MIXED) ^ load_word(content, at)
            slot = (mixed * _MIXED) >> _HIGH
            other = recent[slot]
            if other >= 0 and _are_same_bytes(starts, content, row, other):
                out[0, row], out[1, row] = out[0, other], out[1, other]
                again += 1
                continue
            recent[slot] = row
        v0, v1, v2, v3 = k0 ^ _C0, k1 ^ _C1 ^ _WIDE, k0 ^ _C2, k1 ^ _C3
        size = end - at
        while end - at >= 8:
            word = load_word(content, at)
            at += 8
            v3 ^= word
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
        word = np.uint64(size & 0xFF) << _TOP
        if end > at:
            word |= last >> (_EIGHT * np.uint64(8 - (end - at)))
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        out[0, row], out[1, row] = _finished(v0, v1, v2, v3)
    return out


@inlined_loop
def _last_word(content: Vector, at: Any, end: Any):
    """The last eight bytes of a value, the last one highest; zeros stand for those that it does not have."""
    if end - at >= 8:
        return load_word(content, end - 8)
    word = np.uint64(0)
    for position in range(at, end):
        word = (word >> _EIGHT) | (np.uint64(content[position]) << _TOP)
    return word


@inlined_loop
def _are_same_bytes(starts: Vector, content: Vector, row: Any, other: Any):
    at, end, there, its_end = starts[row], starts[row + 1], starts[other], starts[other + 1]
    if end - at != its_end - there or _last_word(content, at, end) != _last_word(content, there, its_end):
        return False
    while end - at > 8:
        if load_word(content, at) != load_word(content, there):
            return False
        at += 8
        there += 8
    return True
