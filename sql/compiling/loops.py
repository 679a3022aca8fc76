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


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A read-only view: loops see one kind of input, whether it came from Arrow or from numpy. For each kind that comes
    numba compiles a loop once more, in a user's first query."""
    view = array.view()
    view.flags.writeable = False
    return view
