"""The limits of a function's cost for one row, and how a function reports that it exceeds them.

Values come from anybody who may write to a topic, so a function must end for every value. Functions whose cost grows
with their argument's *value* check before they start (`check_bytes`) and between steps (`check_time`). A function that
exceeds a limit raises `BoundExceeded`. As with other failures of a row its result is NULL, but the row is also recorded
with the name of the setting (`failures.py`). A persistent query writes it to the processing log; a pull query fails.

The limits are those of the query for which the function runs, stored per thread. Without a query the defaults apply.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from ..settings.property import Property
from ..settings.property_table import FUNCTION_SECONDS, VALUE_BYTES

CALL_BYTES_MAX = 256 * 1024 * 1024  # of what one call of a function makes for many rows, which are in memory together


class BoundExceeded(Exception):
    """A row needs more than it may have. `setting`: the property that says how much that is."""

    def __init__(self, message: str, setting: Property[object]) -> None:
        super().__init__(message)
        self.message, self.setting = message, setting.name


class CallTooLarge(BoundExceeded):
    """What a function makes for many rows at once does not fit: fewer rows may, so it is nothing that a row is at fault
    for."""

    def __init__(self) -> None:
        message = f"a function makes more than {CALL_BYTES_MAX:,} bytes for the rows that are computed together"
        super().__init__(message, VALUE_BYTES)


@dataclass(slots=True)
class CallBounds:
    """`value_bytes`: of one value. `seconds`: of one function for one row. `ends_at`: when the whole query ends, on the
    monotonic clock; None for a query that runs on."""

    value_bytes: int = VALUE_BYTES.usual
    seconds: float = FUNCTION_SECONDS.usual
    ends_at: float | None = None

    @staticmethod
    def of(properties: Mapping[str, str]) -> CallBounds:
        return CallBounds(VALUE_BYTES.of(properties), FUNCTION_SECONDS.of(properties))

    @property
    def over(self) -> bool:
        """Whether the query's own time is over: nothing needs to be computed any more."""
        return self.ends_at is not None and time.monotonic() >= self.ends_at


class _Current(threading.local):
    bounds: CallBounds | None = None
    made: int = 0  # bytes, by the call that runs now


_current = _Current()
_USUAL = CallBounds()


@contextlib.contextmanager
def bounded_by(bounds: CallBounds) -> Generator[None]:
    """What functions run in this thread meanwhile keeps to these bounds."""
    before, _current.bounds = _current.bounds, bounds
    try:
        yield
    finally:
        _current.bounds = before


def current_bounds() -> CallBounds:
    """The bounds of the query for which this thread computes."""
    return _current.bounds or _USUAL


def begin_call() -> None:
    """A function begins to compute its next rows."""
    _current.made = 0


def check_bytes(size: int) -> None:
    """Raises `BoundExceeded` for a value of so many bytes."""
    most = current_bounds().value_bytes
    if size > most:
        raise BoundExceeded(f"a value of {size:,} bytes is larger than {VALUE_BYTES} = {most:,}", VALUE_BYTES)


def count_bytes(size: int) -> None:
    """For a value that is made now, beside those of the other rows. Raises `BoundExceeded`."""
    check_bytes(size)
    _current.made += size
    if _current.made > CALL_BYTES_MAX:
        raise CallTooLarge


class Timer:
    """The time that a function has for the row that it computes now."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        bounds = current_bounds()
        ends_at = time.monotonic() + bounds.seconds
        self._ends_at = ends_at if bounds.ends_at is None else min(ends_at, bounds.ends_at)

    @property
    def left_s(self) -> float:
        """Raises `BoundExceeded` where nothing is left."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise out_of_time()
        return left


def out_of_time() -> BoundExceeded:
    """For who finds that a row has used up its time."""
    seconds = current_bounds().seconds
    return BoundExceeded(
        f"the function took longer for this row than {FUNCTION_SECONDS} = {seconds:g}", FUNCTION_SECONDS
    )
