"""Frames of functions OVER partitions: ROWS and RANGE as generated SQL, and how long rows have to be kept.

A distance of RANGE is counted in the smallest unit of the ORDER BY column: ms of a BIGINT, which may be a time, the
last digit of a DECIMAL, µs of a TIMESTAMP. A distance between two units bounds the same rows as the lower one. Only for
DOUBLE the distance is used unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from decimal import Decimal as Number

from sqlglot import exp

from millstream.errors import InvalidStatement, TypeMismatch

from ...sql.ast import span_of
from ...sql.functions.over_functions import OverFunction
from ...sql.printing import print_expression
from ...sql.types import BIGINT, DATE, DOUBLE, INTEGER, TIME, TIMESTAMP, Decimal, SqlType
from ..limits import REMEMBERED_MS_MAX
from ..steps.over import Lateness
from ..steps.over_calls import LogicalSortKey

_DEFAULT = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_TIMES = (TIMESTAMP, DATE, TIME)
_US = 1_000  # of one ms
_FARTHEST = 7 * 10**37  # added to the largest DECIMAL it still fits into a HUGEINT
_EXACT = Context(prec=200)


@dataclass(frozen=True, slots=True)
class OverFrame:
    """A frame for `LogicalOverCall`. `lateness`: set if the frame has a GRACE PERIOD."""

    sql: str = ""
    measured: bool = False
    lateness: Lateness | None = None


def frame_of(window: exp.Window, function: OverFunction, order: Sequence[LogicalSortKey]) -> OverFrame:
    """Raises `InvalidStatement`, `TypeMismatch`."""
    spec = window.args.get("spec")
    if spec is None:
        return OverFrame(_DEFAULT if function.takes_frame and function.breaks_ties else "")  # DuckDB's default fits
    kind: str = spec.args["kind"]
    if not function.takes_frame:
        raise InvalidStatement(
            f"{function.name} looks at its whole partition: it takes no {kind}",
            span=span_of(spec),
            hint=f"Leave {kind} … out.",
        )
    sides = [(spec.args[side], spec.args.get(f"{side}_side")) for side in ("start", "end")]
    distances = [distance for distance, side in sides if side is not None and not isinstance(distance, str)]
    measured = kind == "RANGE" and bool(distances)
    by = _measured_by(spec, order) if measured else None
    start, end = (_bound(distance, side, by) for distance, side in sides)
    lateness = None if "grace" not in spec.args else _lateness(spec, sides, order)
    return OverFrame(f"{kind} BETWEEN {start} AND {end}", measured, lateness)


def _bound(distance: exp.Expression | str, side: str | None, by: SqlType | None) -> str:
    """A bound as generated SQL. In: `by`: the type in which distances are measured; None: they count rows."""
    if side is None:
        return "CURRENT ROW"
    if isinstance(distance, str):
        return f"UNBOUNDED {side}"
    if by is None:
        return f"{int(distance.name)} {side}"
    return f"{_far(distance)!r}::DOUBLE {side}" if by == DOUBLE else f"{_units(distance, by)}::HUGEINT {side}"


def _measured_by(spec: exp.Expression, order: Sequence[LogicalSortKey]) -> SqlType:
    if len(order) != 1:
        counted = "nothing" if not order else f"{len(order)} columns"
        raise InvalidStatement(
            f"a RANGE frame with a distance goes by one column, and its ORDER BY has {counted}",
            span=span_of(spec),
            hint="Order by the column that the distance is measured in, or count rows with ROWS.",
        )
    by = order[0].expression.type
    if by not in (INTEGER, BIGINT, DOUBLE, *_TIMES) and not isinstance(by, Decimal):
        raise TypeMismatch(
            f"a RANGE frame with a distance goes by a number or a time, not by {by}",
            span=span_of(spec),
            hint="Order by such a column, or count rows with ROWS.",
        )
    return by


def _units(distance: exp.Expression, by: SqlType) -> int:
    is_time = isinstance(distance, exp.Interval)
    if is_time is not (by in _TIMES) and not (is_time and by == BIGINT):
        hint = "Write a number, such as 10 PRECEDING." if is_time else "Write a length of time, such as 10 MINUTES."
        raise TypeMismatch(
            f"{print_expression(distance)} is no distance between values of {by}", span=span_of(distance), hint=hint
        )
    if by in _TIMES:
        return int(distance.name) * _US
    number = Number(distance.name)
    scale = by.scale if isinstance(by, Decimal) else 0
    if number and number.adjusted() + scale > 38:
        raise _too_far(distance)
    units = int(number.scaleb(scale, _EXACT).to_integral_value(ROUND_FLOOR, _EXACT))
    if units > _FARTHEST:
        raise _too_far(distance)
    return units


def _far(distance: exp.Expression) -> float:
    if isinstance(distance, exp.Interval):
        raise TypeMismatch(
            f"{print_expression(distance)} is no distance between values of DOUBLE",
            span=span_of(distance),
            hint="Write a number, such as 0.5 PRECEDING.",
        )
    number = float(distance.name)
    if not math.isfinite(number):
        raise _too_far(distance)
    return number


def _too_far(distance: exp.Expression) -> InvalidStatement:
    return InvalidStatement(
        f"the frame reaches too far: {print_expression(distance)}", span=span_of(distance), hint="Write UNBOUNDED."
    )


# ------------------------------------------------------------------ GRACE PERIOD


def _lateness(
    spec: exp.Expression, sides: Sequence[tuple[exp.Expression | str, str | None]], order: Sequence[LogicalSortKey]
) -> Lateness:
    """How late rows may come. It requires ORDER BY ROWTIME, because only stream time advances with every row."""
    if len(order) != 1 or order[0].expression.column != "ROWTIME" or order[0].descending:
        raise InvalidStatement(
            "a GRACE PERIOD needs a frame over ORDER BY ROWTIME",
            span=span_of(spec),
            hint="Declare the column that holds the time: WITH (TIMESTAMP='…'); then it is ROWTIME.",
        )
    if any(isinstance(distance, str) and side is not None for distance, side in sides):
        raise InvalidStatement(
            "with a GRACE PERIOD a frame has two ends, and UNBOUNDED is none",
            span=span_of(spec),
            hint="Leave GRACE PERIOD out: what is read forever is kept forever.",
        )
    reach = {"PRECEDING": 0, "FOLLOWING": 0}
    for distance, side in sides:
        if side is not None and not isinstance(distance, str):
            reach[side] = max(reach[side], _units(distance, BIGINT))
    lateness = Lateness(int(spec.args["grace"].name), reach["PRECEDING"], reach["FOLLOWING"])
    if lateness.kept_ms > REMEMBERED_MS_MAX:
        raise InvalidStatement(
            "a frame and its GRACE PERIOD reach over 100 years at most",
            span=span_of(spec),
            hint="Leave GRACE PERIOD out: then no row is late, and all are kept.",
        )
    return lateness


def common_lateness(
    frames: Sequence[tuple[exp.Window, OverFrame]], *, stream: bool, partitions: int
) -> Lateness | None:
    """The lateness for all calls of a SELECT: a row that is late for one call is dropped for all of them.

    Raises `InvalidStatement`.
    """
    late = [(window, frame.lateness) for window, frame in frames if frame.lateness is not None]
    if not late:
        return None
    window, first = late[0]
    if not stream:
        raise InvalidStatement(
            "over a table a frame takes no GRACE PERIOD",
            span=span_of(window),
            hint="Leave it out: a row of a table stays until it is deleted.",
        )
    if partitions > 1 or len(late) < len(frames) or any(each.grace_ms != first.grace_ms for _, each in late):
        raise InvalidStatement(
            "functions OVER … with a GRACE PERIOD share it, and PARTITION BY, with all others of their SELECT",
            span=span_of(window),
            hint="Write the same of both in each, or put some into a query of their own.",
        )
    before = max(each.before_ms for _, each in late)
    return Lateness(first.grace_ms, before, max(each.after_ms for _, each in late))
