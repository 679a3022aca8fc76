"""Loops that numba compiles, declared with `@loop`.

Compiled code is cached on disk if numba finds a writable place. numba is imported with this module, before there are
threads: if two threads import it concurrently, one may see an incomplete module, and numba stays broken for the whole
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
"""Declares a machine operation for loops."""
_Scalar = TypeVar("_Scalar", bound=np.generic)


def loop(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call for the types of its arguments."""
    return _compiled(function, "never")


def inlined_loop(function: Callable[..., Any]) -> Any:
    """Like `loop`, but inlined into each loop that calls it."""
    return _compiled(function, "always")


def _compiled(function: Callable[..., Any], inline: str) -> Any:
    try:
        return _njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:  # there is no place for the cache
        return _njit(nogil=True, inline=inline)(function)


@intrinsic
def _prefetch(typing_context: Any, array: Any, position: Any) -> tuple[Any, Callable[..., Any]]:
    """Prefetches the cache line of an element that will be read soon (of a matrix: by rows), without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        index = context.cast(builder, arguments[1], signature.args[1], numba.types.intp)
        line, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        ask = builder.module.declare_intrinsic(
            "llvm.prefetch", [line], ir.FunctionType(ir.VoidType(), [line, number, number, number])
        )
        place = builder.bitcast(builder.gep(data, [index]), line)
        builder.call(ask, [place, *(ir.Constant(number, what) for what in (0, 3, 1))])  # read, keep, data
        return context.get_dummy_value()

    return numba.types.void(array, position), generate


prefetch: Callable[[NDArray[Any], Any], None] = _prefetch
AHEAD: Final = 16
"""How many rows ahead `prefetch` runs. If a batch is larger than the nearest caches, reading one place of each row
mostly waits for memory, and much longer while others use the machine: parsing whole numbers took a fifth of Nexmark's
q0, and takes a twentieth with prefetching."""


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A read-only view, so that loops get one kind of array, both from Arrow and from numpy. For each further kind,
    numba would compile a loop again, during a user's first query."""
    view = array.view()
    view.flags.writeable = False
    return view
