"""Rows that are written like the one before are read by comparison: the result is that of the exact reading."""

from __future__ import annotations

import pyarrow as pa
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.formats.codec import Decoded
from millstream.executor.formats.registry import decoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import BIGINT, BOOLEAN, DOUBLE, STRING, Array

COLUMNS = [
    Column("A", BIGINT),
    Column("B", STRING),
    Column("C", DOUBLE),
    Column("D", BOOLEAN),
    Column("E", Array(BIGINT)),
]
JSON = FormatSpec("JSON")

# Texts that stand where a value should be, good and bad.
NUMBERS = ["0", "-0", "7", "-12", "007", "-", "12345678", "1234567812345678", "123456781", "1.5", "1e3", "1.", "12a"]
TEXTS = ['""', '"x"', '"fifteen letters"', '"sixteen letters!"', '"a\\"b"', '"\\u0041"', '"é"', '"a\tb"', '"open', '"']
OTHERS = ["true", "false", "null", "[1,2]", "[]", "{}", '{"A":1}', "[1,", "tru", ""]
values = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
keys = st.sampled_from(["A", "a", "B", "C", "c", "D", "E", "other", "é", "a longer name", "x", "\\u0041"])
gaps = st.sampled_from(["", "", " ", "  ", "\n"])


@st.composite
def documents(draw: st.DrawFn) -> list[bytes]:
    """Rows of one shape, now and then of another one, of which some are cut off."""
    shapes = draw(st.lists(st.lists(st.tuples(keys, gaps, gaps), max_size=6), min_size=1, max_size=2))
    rows: list[bytes] = []
    for _ in range(draw(st.integers(14, 40))):
        shape = shapes[draw(st.integers(0, len(shapes) - 1))] if draw(st.integers(0, 9)) == 0 else shapes[0]
        fields = [f'"{key}"{before}:{after}{draw(values)}{before}' for key, before, after in shape]
        text = "{" + ",".join(fields) + "}"
        cut = draw(st.integers(0, 30))
        rows.append((text[: -cut + 25] if cut > 25 else text).encode())
    return rows


def _result(decoded: Decoded) -> tuple[list[list[object]], list[object], list[tuple[int, str]]]:
    errors = [(error.row, error.message) for error in decoded.errors]
    return [column.to_pylist() for column in decoded.columns], decoded.null_rows.to_pylist(), errors


@settings(max_examples=drawn(150), deadline=None)
@given(documents())
def test_rows_of_one_shape_are_read_as_each_alone(rows: list[bytes]) -> None:
    together = _result(decoder(JSON, COLUMNS).decode(pa.array(rows, pa.binary())))
    alone = [_result(decoder(JSON, COLUMNS).decode(pa.array([row], pa.binary()))) for row in rows]
    assert together[0] == [[row[0][i][0] for row in alone] for i in range(len(COLUMNS))]
    assert together[1] == [row[1][0] for row in alone]
    assert together[2] == [(number, message) for number, row in enumerate(alone) for _, message in row[2]]


def test_the_last_of_equal_keys_counts_in_every_row() -> None:
    rows = [f'{{"a":{n},"A":{n + 1},"a":{n + 2},"B":"x","B":"y"}}'.encode() for n in range(50)]
    decoded = decoder(JSON, COLUMNS).decode(pa.array(rows, pa.binary()))
    assert decoded.columns[0].to_pylist() == list(range(1, 51))
    assert decoded.columns[1].to_pylist() == ["y"] * 50
