"""Texts are quoted eight bytes at a time where nothing is to be escaped: every length, and an escape at every place."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from millstream.executor.formats import encoder
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import STRING

LENGTHS = range(1, 19)
MANY = 20  # few rows are written one by one


def written(texts: Sequence[str | None]) -> list[str | None]:
    column = encoder(FormatSpec("JSON"), [Column("V", STRING)])
    return [json.loads(row)["V"] for row in column.encode([pa.array(texts)]).to_pylist()]


@pytest.mark.parametrize(
    "escaped", ['"', "\\", "\x00", "\x1f", "\n", "\x7f", " ", "!", "#", "[", "]", "é", "\ud7ff", "😀"]
)
def test_every_place_of_every_length(escaped: str) -> None:
    texts = ["x" * at + escaped + "x" * (length - 1 - at) for length in LENGTHS for at in range(length)]
    assert written(list(texts)) == texts
    for last in texts:  # the bytes end behind it
        assert written(["x"] * MANY + [last])[-1] == last


def test_escapes_only_and_nothing_at_all() -> None:
    texts: list[str | None] = ["\x01" * 33, None, "", '"\\' * 20, *["y" * length for length in range(40)], "\x01" * 7]
    assert written(texts) == texts


def test_a_slice_of_a_column_is_written_from_where_it_begins() -> None:
    column = encoder(FormatSpec("JSON"), [Column("V", STRING)])
    whole = pa.array(['"' * 50, *(f'text "{number}"' for number in range(MANY)), "\x02" * 50])
    rows = column.encode([whole.slice(1, MANY)]).to_pylist()
    assert rows == [json.dumps({"V": f'text "{number}"'}, separators=(",", ":")).encode() for number in range(MANY)]
