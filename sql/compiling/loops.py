"""Loops that numba compiles, each at its first call.

    @loop
    def _count(...): ...

numba itself is imported with this module, before there are threads: where two threads import it at the same time, one
may see half of it, and it stays broken for the whole process (a server with four queries ended so when it started).

A loop that calls another one finds it among the globals of its module, where numba wants what it made itself. So before
a loop is compiled, the loops and intrinsics that its code names take their compiled forms there. Compiled code is kept
on disk where numba finds a place to write to.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

import numba.extending

_njit: Any = numba.njit
_intrinsic_of: Any = numba.extending.intrinsic
_making: Final = threading.RLock()


class _Later:
    """A function, and what numba makes of it once. `py_func`: the function itself, as numba calls it, too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        own: Any = self
        functools.update_wrapper(own, function)
        self._made: Any = None

    def made(self) -> Any:
        with _making:
            if self._made is None:
                names = self.py_func.__globals__
                for name in _names(self.py_func.__code__):
                    if isinstance(names.get(name), _Later):
                        names[name] = names[name].made()
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        raise NotImplementedError


class _Loop(_Later):
    def __init__(self, function: Callable[..., Any], inline: str) -> None:
        super().__init__(function)
        self._inline = inline

    def __call__(self, *arguments: Any) -> Any:
        return (self._made or self.made())(*arguments)

    def _make(self) -> Any:
        try:
            return _njit(cache=True, nogil=True, inline=self._inline)(self.py_func)
        except RuntimeError:  # there is no place to keep it
            return _njit(nogil=True, inline=self._inline)(self.py_func)


class _Intrinsic(_Later):
    def _make(self) -> Any:
        return _intrinsic_of(self.py_func)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def loop(function: Callable[..., Any]) -> Any:
    """Compiled at its first call."""
    return _Loop(function, "never")


def inlined_loop(function: Callable[..., Any]) -> Any:
    """The same, copied into each loop that calls it."""
    return _Loop(function, "always")


def intrinsic(function: Callable[..., Any]) -> Any:
    """A machine operation for loops, as in `numba.extending`."""
    return _Intrinsic(function)
