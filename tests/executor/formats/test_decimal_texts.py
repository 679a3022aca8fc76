"""Decimals are written digit by digit: every scale, and where a value does not fit into 64 bits any more."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest

from millstream.executor.formats import encoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql import types

WHOLE = [0, 1, 9, 10, 99, 100, 101, 999, 12345, 10**17, 10**18 - 1, 2**63 - 1, 2**63, 10**19, 2**64, 10**37]


def written(values: list[Decimal | None], precision: int, scale: int) -> list[str]:
    column = encoder(FormatSpec("JSON"), [Column("V", types.Decimal(precision, scale))])
    array = pa.array(values, pa.decimal128(precision, scale))
    return [row.decode()[len('{"V":') : -1] for row in column.encode([array]).to_pylist()]


def plain(value: Decimal | None) -> str:
    return "null" if value is None else f"{value:f}"


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 6, 7, 17, 18, 19, 38])
def test_every_scale(scale: int) -> None:
    exact = Context(prec=40)
    values = [Decimal(sign * whole).scaleb(-scale, exact) for whole in WHOLE for sign in (1, -1)]
    small = [value for value in values if abs(value.scaleb(scale, exact)) < 2**63]
    for some in ([None, *values, None], [None, *small, None], small[:20], [None] * 20):
        assert written(list(some), 38, scale) == [plain(value) for value in some]


def test_a_slice() -> None:
    values = [Decimal(number).scaleb(-2) for number in range(40)]
    column = encoder(FormatSpec("JSON"), [Column("V", types.Decimal(10, 2))])
    rows = column.encode([pa.array(values, pa.decimal128(10, 2)).slice(7, 20)]).to_pylist()
    assert rows == [f'{{"V":{value:f}}}'.encode() for value in values[7:27]]
