# pyrefly: ignore-errors[unannotated-return]
"""Operations on eight bytes at a time that compiled loops over text need and numba lacks; the type of their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from ....sql.compiling.loops import intrinsic

Vector = NDArray[Any]  # an argument of a compiled loop

# Eight digits as a word: exclusive or with ZEROS gives their values. Then adding NO_DIGITS sets the high bit of each
# byte that is more than 9.
ZEROS = np.uint64(0x3030303030303030)
NO_DIGITS = np.uint64(0x7676767676767676)
HIGH_BITS = np.uint64(0x8080808080808080)

ONES = np.uint64(0x0101010101010101)
SPACES = np.uint64(0x2020202020202020)
QUOTES = np.uint64(0x2222222222222222)
BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)


@intrinsic
def _load_word(typing_context: Any, data: Any, position: Any):
    """The eight bytes of a uint8 array at `position`, which need not be aligned, as a little-endian uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = builder.gep(array.data, [index])
        word = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(data, position), generate


@intrinsic
def _store_word(typing_context: Any, data: Any, position: Any, word: Any):
    """Writes a uint64 as the eight bytes of a uint8 array at `position`, which need not be aligned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = builder.bitcast(builder.gep(array.data, [index]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(data, position, types.uint64), generate


@intrinsic
def _trailing_zeros(typing_context: Any, word: Any):
    """The number of zero bits below the lowest one bit of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def _first_special(typing_context: Any, data: Any, position: Any):
    """The index, among the 16 bytes from `position` on, of the first one that is not plain in a JSON string; 16:
    none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.intp)
        lanes = ir.VectorType(ir.IntType(8), 16)
        chunk = builder.load(builder.bitcast(builder.gep(array.data, [index]), lanes.as_pointer()))
        chunk.align = 1

        def of(byte: int) -> Any:
            return ir.Constant(lanes, [byte] * 16)

        special = builder.icmp_unsigned("==", chunk, of(34))
        special = builder.or_(special, builder.icmp_unsigned("==", chunk, of(92)))
        special = builder.or_(special, builder.icmp_signed("<", chunk, of(32)))  # controls, and all outside ASCII
        bits = builder.zext(builder.bitcast(special, ir.IntType(16)), ir.IntType(64))
        return builder.cttz(builder.or_(bits, ir.Constant(ir.IntType(64), 1 << 16)), ir.Constant(ir.IntType(1), 1))

    return types.int64(data, position), generate


# The types that compiled loops see: numba passes the typing context itself.
load_word: Callable[[Vector, int], np.uint64] = _load_word
store_word: Callable[[Vector, int, np.uint64], None] = _store_word
trailing_zeros: Callable[[np.uint64], np.uint64] = _trailing_zeros
first_special: Callable[[Vector, int], int] = _first_special
