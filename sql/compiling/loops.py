"""Loops that numba compiles: `@loop` is how all of them are declared.

Compiled code is kept on disk where numba finds a place to write to. numba is imported with this module, before there
are threads: where two threads import it at the same time, one may see half of it, and it stays broken for the whole
process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numba.extending

_njit: Final[Any] = numba.njit
intrinsic: Final[Any] = numba.extending.intrinsic
"""A machine operation for loops."""


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
