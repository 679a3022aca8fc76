"""A record that a query had to leave out, and why; or a row of which a part could not be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ..sql.functions.failures import CallFailure


@dataclass(frozen=True, slots=True)
class RecordError:
    """`key` and `value` are the record's bytes, where they are still at hand.

    `kind`: the record could not be decoded; it made its batch fail; a row that it gave could not be encoded; or only an
    expression or a user's function failed, whose result is NULL then, and the record is not left out. `sequence`: of
    the row, where that is known and the origin is not yet.
    """

    kind: Literal["decode", "compute", "encode", "expression"]
    message: str
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    in_key: bool = False  # the key is what could not be decoded or encoded
    sequence: int | None = None


def of_expressions(failures: Iterable[CallFailure]) -> list[RecordError]:
    """Which row a function was called for, only its arguments tell."""
    return [
        RecordError("expression", each.message, "", -1, -1, value=each.arguments.encode(), sequence=each.sequence)
        for each in failures
    ]


def located(errors: Iterable[RecordError], origin: Callable[[int], tuple[str, int, int]]) -> list[RecordError]:
    """The errors, each with topic, partition and offset of its record. In: `origin`: of the row with this `_seq`."""
    return [each if each.sequence is None else _at(each, *origin(each.sequence)) for each in errors]


def _at(error: RecordError, topic: str, partition: int, offset: int) -> RecordError:
    return replace(error, topic=topic, partition=partition, offset=offset, sequence=None)


def left_out(errors: Iterable[RecordError]) -> int:
    """How many records these errors made a query leave out."""
    return sum(error.kind != "expression" for error in errors)
