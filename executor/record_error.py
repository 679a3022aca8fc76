"""A record that a query had to leave out, and why; or a row of which a part could not be computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..sql.functions.failures import CallFailure


@dataclass(frozen=True, slots=True)
class RecordError:
    """`key` and `value` are the record's bytes, where they are still at hand.

    `kind`: the record could not be decoded; an expression failed on it; a row that it gave could not be encoded; or
    only a user's function failed, whose result is NULL then, and the record is not left out.
    """

    kind: Literal["decode", "compute", "encode", "function"]
    message: str
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    in_key: bool = False  # the key is what could not be decoded or encoded


def of_functions(failures: Iterable[CallFailure]) -> list[RecordError]:
    """Which row a function was called for, only its arguments tell."""
    return [
        RecordError("function", failure.message, topic="", partition=-1, offset=-1, value=failure.arguments.encode())
        for failure in failures
    ]


def left_out(errors: Iterable[RecordError]) -> int:
    """How many records these errors made a query leave out."""
    return sum(error.kind != "function" for error in errors)
