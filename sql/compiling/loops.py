"""Loops that numba compiles: `@loop` is how all of them are declared.

Compiled code is kept on disk where numba finds a place to write to. numba is imported with this module, before there
are threads: where two threads import it at the same time, one may see half of it, and it stays broken for the whole
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba.extending
import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

_njit: Final[Any] = numba.njit
intrinsic: Final[Any] = numba.extending.intrinsic
"""A machine operation for loops."""
_Scalar = TypeVar("_Scalar", bound=np.generic)


def loop(function: Callable[..., Any]) -> Any:
    """Compiled at its first call, for the types of its arguments."""
    return _compiled(function, "never")


def inlined_loop(function: Callable[..., Any]) -> Any:
    """The same, copied into each loop that calls it."""
    return _compiled(function, "always")


def _compiled(function: Callable[..., Any], inline: str) -> Any:
    try:
        return _njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:  # there is no place to keep it
        return _njit(nogil=True, inline=inline)(function)


@intrinsic
def _prefetch(typing_context: Any, array: Any, position: Any):  # pyright: ignore[reportUnusedParameter]
    """Asks for the cache line of an element (of a matrix: by rows), which is read soon: nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        index = context.cast(builder, arguments[1], signature.args[1], numba.types.intp)
        line, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        ask = builder.module.declare_intrinsic(
            "llvm.prefetch", [line], ir.FunctionType(ir.VoidType(), [line, number, number, number])
        )
        place = builder.bitcast(builder.gep(data, [index]), line)
        builder.call(ask, [place, *(ir.Constant(number, what) for what in (0, 3, 1))])  # to read, to keep, data
        return context.get_dummy_value()

    return numba.types.void(array, position), generate


prefetch: Callable[[NDArray[Any], Any], None] = _prefetch  # pyright: ignore[reportAssignmentType]
AHEAD: Final = 16
"""How many rows before they are used `prefetch` asks for them. Where a batch is larger than the nearest caches, a look
at one place of each row waits for memory most of the time, and much longer where others use the machine: parsing whole
numbers took a fifth of Nexmark's q0, and takes a twentieth."""


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A read-only view: loops see one kind of input, whether it came from Arrow or from numpy. For each kind that comes
    numba compiles a loop once more, in a user's first query."""
    view = array.view()
    view.flags.writeable = False
    return view
