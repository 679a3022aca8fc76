"""Compiled access to memory by address, for the numba codec, whose bytes are in buffers of several owners."""

from __future__ import annotations

from typing import Any

import numba.extending
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.core import cgutils

# Compiled functions take other argument types than their Python source declares, so they are typed as Any.
compiled: Any = numba.njit
_intrinsic: Any = numba.extending.intrinsic


@_intrinsic
def load_byte(typing_context: Any, address: Any) -> Any:
    """The byte at `address`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(types.int64), generate


@_intrinsic
def store_byte(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes the low eight bits of `value` to `address`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(8)), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """memcpy: LLVM does not turn a loop over bytes into one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        target, source, count = arguments
        cgutils.raw_memcpy(
            builder, builder.inttoptr(target, pointer), builder.inttoptr(source, pointer), count, itemsize=1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _word(bits: int) -> tuple[Any, Any]:
    """Functions that read and write this many bits at an address, which need not be aligned."""

    @_intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            word.align = 1
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return types.uint64(types.int64), generate

    @_intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            stored = builder.store(word, builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64), generate

    return load, store


_load_8, _store_8 = _word(64)
_load_4, _store_4 = _word(32)
_SHORT = 128  # bytes; for fewer bytes a call of memcpy costs more than the copy


@compiled("void(int64, int64, int64)", nogil=True, cache=True, inline="always")
def copy_short(target: int, source: int, count: int) -> None:
    """`copy_bytes` for mostly short data. It reads no byte outside: the last word overlaps the previous one."""
    if count > _SHORT:
        copy_bytes(target, source, count)
    elif count >= 8:
        last = count - 8
        at = 0
        while at < last:
            _store_8(target + at, _load_8(source + at))
            at += 8
        _store_8(target + last, _load_8(source + last))
    elif count >= 4:
        _store_4(target, _load_4(source))
        _store_4(target + count - 4, _load_4(source + count - 4))
    else:
        for at in range(count):
            store_byte(target + at, load_byte(source + at))


@_intrinsic
def bit_length(typing_context: Any, value: Any) -> Any:
    """The number of bits of a positive number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return builder.sub(ir.Constant(ir.IntType(64), 64), zeros)

    return types.int64(types.uint64), generate


def address_of(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of a binary, string or list column: one more than its number of rows."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(column) + 1, column.offset * 4)


def data_address_of(column: pa.Array) -> int:
    """The address of the bytes of a binary or string column; 0 if there are none."""
    buffer = column.buffers()[2]
    return 0 if buffer is None else int(buffer.address)


def validity_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """For each row, whether it is not NULL; empty if no row is NULL."""
    if not column.null_count:
        return np.zeros(0, np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def bitmap_of(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """An Arrow validity bitmap; None if all rows are valid."""
    return None if bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))
