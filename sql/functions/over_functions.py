"""Functions for OVER only, such as ROW_NUMBER: their arguments, their results, and their DuckDB names.

Aggregates with OVER are here as well, because their results over a frame may have wider types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from millstream.errors import Span, TypeMismatch

from ..types import BIGINT, DOUBLE, INTEGER, Decimal, SqlType, is_numeric

Returns = Callable[[Sequence[SqlType]], SqlType | None]


@dataclass(frozen=True, slots=True)
class OverFunction:
    """`arguments`: the fewest and the most; those from position `constants` on are literals. `returns`: the result's
    type, None for arguments that do not fit. `ranks`: the number of a row among those before it, so that rows with
    higher numbers never matter to it. `breaks_ties`: rows that the order does not tell apart count in the order of
    their arrival; else they are one. `takes_frame`: works on ROWS BETWEEN; then also DISTINCT and FILTER where
    `aggregates`."""

    name: str
    doc: str
    signature: str
    returns: Returns
    arguments: tuple[int, int] = (0, 0)
    constants: int = 1
    ranks: bool = False
    breaks_ties: bool = True
    takes_frame: bool = False
    aggregates: bool = False
    category: str = "WINDOW"

    @property
    def kind(self) -> Literal["window"]:
        return "window"

    def resolve(self, types: Sequence[SqlType], span: Span | None) -> SqlType:
        """The type of a call's result. Raises `TypeMismatch`."""
        fewest, most = self.arguments
        result = self.returns(types) if fewest <= len(types) <= most else None
        if result is None:
            given = ", ".join(map(str, types))
            raise TypeMismatch(
                f"{self.name} does not accept parameters ({given}) before OVER.",
                span=span,
                hint=f"It is {self.signature}.",
            )
        return result


def _always(type_: SqlType) -> Returns:
    return lambda types: type_


def _first(types: Sequence[SqlType]) -> SqlType | None:
    return types[0]


def _nth(types: Sequence[SqlType]) -> SqlType | None:
    return types[0] if types[1] in (INTEGER, BIGINT) else None


def _offset(types: Sequence[SqlType]) -> SqlType | None:
    return types[0] if len(types) < 2 or types[1] in (INTEGER, BIGINT) else None


def _sum(types: Sequence[SqlType]) -> SqlType | None:
    (type_,) = types
    if isinstance(type_, Decimal):
        return Decimal(38, type_.scale)
    return BIGINT if type_ in (INTEGER, BIGINT) else type_ if type_ == DOUBLE else None


def _average(types: Sequence[SqlType]) -> SqlType | None:
    return DOUBLE if is_numeric(types[0]) else None


def _whole_number(types: Sequence[SqlType]) -> SqlType | None:
    return BIGINT if types[0] in (INTEGER, BIGINT) else None


_ENTRIES = (
    OverFunction(
        "ROW_NUMBER",
        "The number of the row in its partition, from 1; rows that are equal in the order count as they came.",
        "ROW_NUMBER() -> BIGINT",
        _always(BIGINT),
        ranks=True,
    ),
    OverFunction(
        "RANK",
        "One more than the number of rows before this one in the order; equal rows have equal ranks.",
        "RANK() -> BIGINT",
        _always(BIGINT),
        ranks=True,
        breaks_ties=False,
    ),
    OverFunction(
        "DENSE_RANK",
        "As RANK, without gaps after equal rows.",
        "DENSE_RANK() -> BIGINT",
        _always(BIGINT),
        ranks=True,
        breaks_ties=False,
    ),
    OverFunction(
        "PERCENT_RANK",
        "The rank as a share of the partition, from 0 to 1.",
        "PERCENT_RANK() -> DOUBLE",
        _always(DOUBLE),
        breaks_ties=False,
    ),
    OverFunction(
        "CUME_DIST",
        "The share of the partition's rows that come before the row, or are equal to it.",
        "CUME_DIST() -> DOUBLE",
        _always(DOUBLE),
        breaks_ties=False,
    ),
    OverFunction(
        "NTILE",
        "Which of so many equal parts of the partition the row is in, from 1.",
        "NTILE(parts) -> BIGINT",
        _whole_number,
        (1, 1),
        constants=0,
    ),
    OverFunction(
        "LAG",
        "The value in the row so many rows before (1), or the default (NULL).",
        "LAG(value, [rows], [default]) -> the value's type",
        _offset,
        (1, 3),
    ),
    OverFunction(
        "LEAD",
        "The value in the row so many rows after (1), or the default (NULL).",
        "LEAD(value, [rows], [default]) -> the value's type",
        _offset,
        (1, 3),
    ),
    OverFunction(
        "FIRST_VALUE",
        "The value in the first row of the frame.",
        "FIRST_VALUE(value) -> the value's type",
        _first,
        (1, 1),
        takes_frame=True,
    ),
    OverFunction(
        "LAST_VALUE",
        "The value in the last row of the frame.",
        "LAST_VALUE(value) -> the value's type",
        _first,
        (1, 1),
        takes_frame=True,
    ),
    OverFunction(
        "NTH_VALUE",
        "The value in the row of the frame with this number, from 1.",
        "NTH_VALUE(value, number) -> the value's type",
        _nth,
        (2, 2),
        takes_frame=True,
    ),
    OverFunction(
        "COUNT",
        "How many rows of the frame have a value.",
        "COUNT(value) or COUNT(*) -> BIGINT",
        _always(BIGINT),
        (0, 1),
        breaks_ties=False,
        takes_frame=True,
        aggregates=True,
    ),
    OverFunction(
        "SUM",
        "The sum of the frame's values.",
        "SUM(number) -> BIGINT, DECIMAL or DOUBLE",
        _sum,
        (1, 1),
        breaks_ties=False,
        takes_frame=True,
        aggregates=True,
    ),
    OverFunction(
        "AVG",
        "The mean of the frame's values.",
        "AVG(number) -> DOUBLE",
        _average,
        (1, 1),
        breaks_ties=False,
        takes_frame=True,
        aggregates=True,
    ),
    OverFunction(
        "MIN",
        "The least of the frame's values.",
        "MIN(value) -> the value's type",
        _first,
        (1, 1),
        breaks_ties=False,
        takes_frame=True,
        aggregates=True,
    ),
    OverFunction(
        "MAX",
        "The greatest of the frame's values.",
        "MAX(value) -> the value's type",
        _first,
        (1, 1),
        breaks_ties=False,
        takes_frame=True,
        aggregates=True,
    ),
)

OVER_FUNCTIONS: Mapping[str, OverFunction] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
