"""A record that a query left out, with the reason; or a row with a value that could not be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ..sql.functions.failures import CallFailure


@dataclass(frozen=True, slots=True)
class RecordError:
    """`key` and `value` are the record's bytes, if they are still available.

    `kind`: "decode": the record could not be decoded. "compute": it made its batch fail. "encode": one of its output
    rows could not be encoded. "expression": only an expression or a user's function failed; its result is NULL, and the
    record is not left out. `in_key`: the key is what could not be decoded or encoded. `in_time`: the record or one of
    its rows has no usable timestamp. `sequence`: the row's `_seq`, if the record's origin is not known yet.
    """

    kind: Literal["decode", "compute", "encode", "expression"]
    message: str
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    in_key: bool = False
    in_time: bool = False
    sequence: int | None = None


def of_expressions(failures: Iterable[CallFailure]) -> list[RecordError]:
    """The failures as errors. The entry has the function's arguments instead of the row."""
    return [
        RecordError("expression", each.message, "", -1, -1, value=each.arguments.encode(), sequence=each.sequence)
        for each in failures
    ]


def located(errors: Iterable[RecordError], origin: Callable[[int], tuple[str, int, int]]) -> list[RecordError]:
    """The errors, each with topic, partition and offset of its record. In: `origin`: finds these by `_seq`."""
    return [each if each.sequence is None else _at(each, *origin(each.sequence)) for each in errors]


def _at(error: RecordError, topic: str, partition: int, offset: int) -> RecordError:
    return replace(error, topic=topic, partition=partition, offset=offset, sequence=None)


def left_out(errors: Iterable[RecordError]) -> int:
    """How many records a query left out because of these errors."""
    return sum(error.kind != "expression" for error in errors)
