"""COUNT, SUM, AVG, MIN, MAX, SUM_LIST, STDDEV_SAMP, STDDEV_SAMPLE, CORRELATION."""

from __future__ import annotations

import bisect
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.errors import QueryError

from ...types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    PRECISION_MAX,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    SqlType,
    is_numeric,
)
from .aggregate_fold import AggregateExample, AggregateFunction, Fold, State
from .aggregate_kernels import (
    average_kernel,
    correlation_kernel,
    count_kernel,
    deviation_kernel,
    extreme_kernel,
    ordered_extreme_kernel,
    sum_kernel,
)
from .aggregate_values import rank

_ORDERED = (INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP)
_KEPT_AS_NUMBERS = (INTEGER, BIGINT, DOUBLE, DATE, TIME, TIMESTAMP)
_EXACT = decimal.Context(prec=80)

Types = Sequence[SqlType]
Properties = Mapping[str, str]


# ------------------------------------------------------------------ COUNT


def _count(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) > 1:
        return None

    def step(by: int) -> Callable[..., State]:
        return lambda state, *args: (state[0] + by,) if not args or args[0] is not None else state

    return Fold(
        parameter_types=tuple(types),
        state_types=(BIGINT,),
        return_type=BIGINT,
        initial=(0,),
        add=step(1),
        undo=step(-1),
        merge=lambda a, b: (a[0] + b[0],),
        result=lambda state: state[0],
        kernel=count_kernel,
    )


# ------------------------------------------------------------------ SUM


def wrap(value: int, bits: int) -> int:
    """The integer as it is in so many bits, where it runs over (as in Java)."""
    half = 1 << (bits - 1)
    return (value + half & (1 << bits) - 1) - half


def adder(type_: SqlType) -> tuple[Any, Callable[[Any, Any, int], Any]]:
    """Zero and `(total, value, sign) → total` of a numeric type. Integers wrap; a DECIMAL that does not fit raises."""
    if isinstance(type_, Decimal):
        zero = decimal.Decimal(0).scaleb(-type_.scale)
        bound = decimal.Decimal(10) ** (type_.precision - type_.scale)

        def add_decimal(total: Any, value: Any, sign: int) -> Any:
            result = _EXACT.add(total, value) if sign > 0 else _EXACT.subtract(total, value)
            if result.copy_abs() >= bound:  # not abs(), which rounds to 28 digits
                raise QueryError(
                    f"Exception caught in process: Numeric field overflow: a sum of {type_} became {result}",
                    hint=_wider(type_),
                )
            return result

        return zero, add_decimal
    if type_ == DOUBLE:
        return 0.0, lambda total, value, sign: total + value if sign > 0 else total - value
    bits = 32 if type_ == INTEGER else 64
    return 0, lambda total, value, sign: wrap(total + sign * value, bits)


def _wider(type_: Decimal) -> str:
    """What to do about a sum that this type cannot hold."""
    if type_.precision < PRECISION_MAX:
        return f"Cast the argument to a wider type, such as DECIMAL({PRECISION_MAX}, {type_.scale})."
    fewer = f" to a DECIMAL with fewer digits after the point than {type_.scale}, or" if type_.scale else ""
    return f"Cast the argument{fewer} to DOUBLE: no DECIMAL has more than {PRECISION_MAX} digits."


def _sum(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) != 1 or not is_numeric(types[0]):
        return None
    zero, plus = adder(types[0])
    return Fold(
        parameter_types=(types[0],),
        state_types=(types[0],),
        return_type=types[0],
        initial=(zero,),
        add=lambda state, x: state if x is None else (plus(state[0], x, 1),),
        undo=lambda state, x: state if x is None else (plus(state[0], x, -1),),
        merge=lambda a, b: (plus(a[0], b[0], 1),),
        result=lambda state: state[0],
        kernel=None if isinstance(types[0], Decimal) else sum_kernel,
    )


def _sum_list(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) != 1 or not isinstance(types[0], Array) or types[0].element not in (INTEGER, BIGINT, DOUBLE):
        return None
    element = types[0].element
    zero, plus = adder(element)

    def fold_list(total: Any, values: Sequence[Any] | None, sign: int) -> State:
        for value in values or ():
            if value is not None:
                total = plus(total, value, sign)
        return (total,)

    return Fold(
        parameter_types=(types[0],),
        state_types=(element,),
        return_type=element,
        initial=(zero,),
        add=lambda state, values: fold_list(state[0], values, 1),
        undo=lambda state, values: fold_list(state[0], values, -1),
        merge=lambda a, b: (plus(a[0], b[0], 1),),
        result=lambda state: state[0],
    )


# ------------------------------------------------------------------ AVG


def _average(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) != 1 or not is_numeric(types[0]):
        return None
    kept = BIGINT if types[0] in (INTEGER, BIGINT) else DOUBLE
    zero, plus = adder(kept)
    return Fold(
        parameter_types=(kept,),
        state_types=(kept, BIGINT),
        return_type=DOUBLE,
        initial=(zero, 0),
        add=lambda state, x: state if x is None else (plus(state[0], x, 1), state[1] + 1),
        undo=lambda state, x: state if x is None else (plus(state[0], x, -1), state[1] - 1),
        merge=lambda a, b: (plus(a[0], b[0], 1), a[1] + b[1]),
        result=lambda state: float(state[0]) / float(state[1]) if state[1] else 0.0,
        kernel=average_kernel,
    )


# ------------------------------------------------------------------ MIN, MAX


def _extreme(greatest: bool) -> Callable[[Types, Sequence[Any], Properties], Fold | None]:
    def better(best: Any, x: Any) -> Any:
        if x is None or best is None:
            return best if x is None else x
        one, other = (x, best) if greatest else (best, x)
        return x if rank(one) > rank(other) else best

    def make(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
        if len(types) != 1 or not (types[0] in _ORDERED or isinstance(types[0], Decimal)):
            return None
        return Fold(
            parameter_types=(types[0],),
            state_types=(types[0],),
            return_type=types[0],
            initial=(None,),
            add=lambda state, x: (better(state[0], x),),
            merge=lambda a, b: (better(a[0], b[0]),),
            result=lambda state: state[0],
            kernel=(extreme_kernel if types[0] in _KEPT_AS_NUMBERS else ordered_extreme_kernel)(greatest=greatest),
        )

    return make


def _kept_extreme(greatest: bool) -> Callable[[Types, Sequence[Any], Properties], Fold | None]:
    """State: the different values in their order, and how often each is there. NaN is no value, as it has no place.

    For plans of earlier versions: later ones keep the values in a store (`AggregateCall.ordered`).
    """

    def counted(state: State, x: Any, by: int) -> State:
        if x is None or x != x:
            return state
        values, counts = state
        at = bisect.bisect_left(values, x)
        if at == len(values) or values[at] != x:
            if by < 0:
                return state
            return [*values[:at], x, *values[at:]], [*counts[:at], by, *counts[at:]]
        if counts[at] + by > 0:
            return values, [*counts[:at], counts[at] + by, *counts[at + 1 :]]
        return [*values[:at], *values[at + 1 :]], [*counts[:at], *counts[at + 1 :]]

    def merge(a: State, b: State) -> State:
        for value, count in zip(*b, strict=True):
            a = counted(a, value, count)
        return a

    def make(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
        if len(types) != 1 or not (types[0] in _ORDERED or isinstance(types[0], Decimal)):
            return None
        return Fold(
            parameter_types=(types[0],),
            state_types=(Array(types[0]), Array(BIGINT)),
            return_type=types[0],
            initial=([], []),
            add=lambda state, x: counted(state, x, 1),
            undo=lambda state, x: counted(state, x, -1),
            merge=merge,
            result=lambda state: (state[0][-1] if greatest else state[0][0]) if state[0] else None,
        )

    return make


# ------------------------------------------------------------------ STDDEV_SAMP, STDDEV_SAMPLE


def _deviation(rooted: bool) -> Callable[[Types, Sequence[Any], Properties], Fold | None]:
    """State: count, sum, and the sum of the squared distances from the mean, updated as Youngs and Cramer do it."""

    def distance(n: int, total: float, x: float) -> float:
        d = n * x - total
        return d * d / (n * (n - 1.0))

    def add(state: State, x: Any) -> State:
        if x is None:
            return state
        n, total = state[0] + 1, state[1] + x
        return n, total, state[2] + distance(n, total, x) if n > 1 else state[2]

    def undo(state: State, x: Any) -> State:
        if x is None:
            return state
        n, total, squares = state
        return n - 1, total - x, squares - distance(n, total, x) if n > 1 else squares

    def merge(a: State, b: State) -> State:
        if not a[0] or not b[0]:
            return a if a[0] else b
        n = a[0] + b[0]
        apart = b[1] / b[0] - a[1] / a[0]
        return n, a[1] + b[1], a[2] + b[2] + apart * apart * a[0] * b[0] / n

    def result(state: State) -> float:
        variance = 0.0 if state[0] < 2 else state[2] / (state[0] - 1.0)
        if not rooted:
            return variance
        return math.sqrt(variance) if variance >= 0 else math.nan

    def make(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
        if len(types) != 1 or not is_numeric(types[0]):
            return None
        return Fold(
            parameter_types=(DOUBLE,),
            state_types=(BIGINT, DOUBLE, DOUBLE),
            return_type=DOUBLE,
            initial=(0, 0.0, 0.0),
            add=add,
            undo=undo,
            merge=merge,
            result=result,
            kernel=deviation_kernel(rooted=rooted),
        )

    return make


# ------------------------------------------------------------------ CORRELATION


def _correlation(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    """State: count, and the sums of x, y, x², y², xy over the rows where both are there."""
    if len(types) != 2 or not all(map(is_numeric, types)):
        return None

    def fold_row(state: State, x: Any, y: Any, sign: float) -> State:
        if x is None or y is None:
            return state
        n, sx, sy, sxx, syy, sxy = state
        n += 1 if sign > 0 else -1
        return n, sx + sign * x, sy + sign * y, sxx + sign * (x * x), syy + sign * (y * y), sxy + sign * (x * y)

    def result(state: State) -> float:
        n, sx, sy, sxx, syy, sxy = map(float, state)
        spread = (n * sxx - sx * sx) * (n * syy - sy * sy)
        return (n * sxy - sx * sy) / math.sqrt(spread) if spread > 0 else math.nan

    return Fold(
        parameter_types=(DOUBLE, DOUBLE),
        state_types=(BIGINT, DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE),
        return_type=DOUBLE,
        initial=(0, 0.0, 0.0, 0.0, 0.0, 0.0),
        add=lambda state, x, y: fold_row(state, x, y, 1.0),
        undo=lambda state, x, y: fold_row(state, x, y, -1.0),
        merge=lambda a, b: tuple(left + right for left, right in zip(a, b, strict=True)),
        result=result,
        kernel=correlation_kernel,
    )


# ------------------------------------------------------------------ entries

_NUMBERS = ((1,), (None,), (3,), (2,))

NUMERIC = (
    AggregateFunction(
        "COUNT",
        doc="Count the rows, or with an argument those in which it is not NULL.",
        signatures=("COUNT(*)", "COUNT(value ANY)"),
        examples=(
            AggregateExample((), ((), ()), 2),
            AggregateExample((STRING,), (("a",), (None,), ("a",)), 2),
            AggregateExample((STRING,), ((None,),), 0),
        ),
        make=_count,
        supports_undo=True,
    ),
    AggregateFunction(
        "SUM",
        doc="Add up the values; NULLs are ignored, and an empty sum is 0. The type stays: integers that "
        "grow beyond it wrap around, a DECIMAL that does fails the query.",
        signatures=("SUM(value INTEGER|BIGINT|DOUBLE|DECIMAL)",),
        examples=(
            AggregateExample((INTEGER,), _NUMBERS, 6),
            AggregateExample((DOUBLE,), ((None,),), 0.0),
        ),
        make=_sum,
        supports_undo=True,
    ),
    AggregateFunction(
        "SUM_LIST",
        doc="Add up the elements of the arrays; NULLs are ignored.",
        signatures=("SUM_LIST(values ARRAY<INTEGER|BIGINT|DOUBLE>)",),
        examples=(
            AggregateExample((Array(INTEGER),), (([1, 2],), (None,), ([3, None],)), 6),
            AggregateExample((Array(DOUBLE),), ((None,),), 0.0),
        ),
        make=_sum_list,
        supports_undo=True,
    ),
    AggregateFunction(
        "AVG",
        doc="The mean of the values that are not NULL, as a DOUBLE; 0 if there are none. Integers are added up as a "
        "BIGINT, which wraps around as in SUM: CAST them to DOUBLE if they may be that large.",
        signatures=("AVG(value INTEGER|BIGINT|DOUBLE|DECIMAL)",),
        examples=(
            AggregateExample((INTEGER,), _NUMBERS, 2.0),
            AggregateExample((INTEGER,), ((None,),), 0.0),
        ),
        make=_average,
        supports_undo=True,
    ),
    AggregateFunction(
        "MIN",
        doc="The smallest value; NULLs are ignored, and NaN is greater than all numbers.",
        signatures=("MIN(value INTEGER|BIGINT|DOUBLE|DECIMAL|STRING|BYTES|DATE|TIME|TIMESTAMP)",),
        examples=(AggregateExample((INTEGER,), _NUMBERS, 1), AggregateExample((STRING,), ((None,),), None)),
        make=_extreme(greatest=False),
        supports_undo=False,
        make_undoable=_kept_extreme(greatest=False),
        picks="least",
    ),
    AggregateFunction(
        "MAX",
        doc="The largest value; NULLs are ignored, and NaN is greater than all numbers.",
        signatures=("MAX(value INTEGER|BIGINT|DOUBLE|DECIMAL|STRING|BYTES|DATE|TIME|TIMESTAMP)",),
        examples=(AggregateExample((INTEGER,), _NUMBERS, 3), AggregateExample((STRING,), ((None,),), None)),
        make=_extreme(greatest=True),
        supports_undo=False,
        make_undoable=_kept_extreme(greatest=True),
        picks="greatest",
    ),
    AggregateFunction(
        "STDDEV_SAMPLE",
        doc="The standard deviation of a sample; 0 for fewer than two values. NULLs are ignored.",
        signatures=("STDDEV_SAMPLE(value INTEGER|BIGINT|DOUBLE|DECIMAL)",),
        examples=(
            AggregateExample((DOUBLE,), ((1.0,), (None,), (3.0,)), math.sqrt(2.0)),
            AggregateExample((DOUBLE,), ((None,),), 0.0),
        ),
        make=_deviation(rooted=True),
        supports_undo=True,
    ),
    AggregateFunction(
        "STDDEV_SAMP",
        doc="The variance of a sample: in spite of its name this is the square of STDDEV_SAMPLE, as in ksqlDB, whose "
        "users have come to rely on it.",
        signatures=("STDDEV_SAMP(value INTEGER|BIGINT|DOUBLE|DECIMAL)",),
        examples=(
            AggregateExample((DOUBLE,), ((1.0,), (None,), (3.0,)), 2.0),
            AggregateExample((DOUBLE,), ((None,),), 0.0),
        ),
        make=_deviation(rooted=False),
        supports_undo=True,
    ),
    AggregateFunction(
        "CORRELATION",
        doc="Pearson's correlation of two columns, over the rows in which neither is NULL; NaN where it has no value.",
        signatures=("CORRELATION(x INTEGER|BIGINT|DOUBLE|DECIMAL, y INTEGER|BIGINT|DOUBLE|DECIMAL)",),
        examples=(
            AggregateExample((DOUBLE, DOUBLE), ((1.0, 8.0), (None, 1.0), (-1.0, -2.0)), 1.0),
            AggregateExample((DOUBLE, DOUBLE), ((None, 1.0),), math.nan),
        ),
        make=_correlation,
        supports_undo=True,
        arguments=2,
    ),
)
