"""A stream's rows meet a table's rows as they were at that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import open_pipeline, plan, rows_of, schema, shown, stream, table

from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.stream_table_join import StreamTableJoin
from millstream.sql.types import BIGINT, STRING

LEFT = stream(values=(BIGINT,), id="left")
RIGHT = table(values=(STRING,), id="right", materialized=False)


def joined(kind: Any) -> PhysicalPlan:
    result = schema([STRING], [BIGINT, STRING, STRING])
    return plan(StreamTableJoin("join", LEFT, RIGHT, kind, result, LEFT.schema, RIGHT.schema))


def run(kind: Any, rows: Sequence[Mapping[str, Any]], ends: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    """Rows with `side`; the left's have v0 numbers, the right's v0 texts."""
    pipeline = open_pipeline(joined(kind))
    out: list[tuple[Any, ...]] = []
    numbered = [{**row, "seq": i} for i, row in enumerate(rows)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = numbered[start:end]
        batches = {
            side.id: rows_of(side, [row for row in part if row["side"] == side.id] or [])
            for side in (LEFT, RIGHT)
            if any(row["side"] == side.id for row in part)
        }
        out += [(r["k0"], r["v0"], r["v1"], r["v2"], r["_ts"]) for r in shown(pipeline.process(batches))]
    return out


def left(key: str | None, value: int | None, ts: int = 0) -> dict[str, Any]:
    return {"side": "left", "k0": key, "v0": value, "ts": ts}


def right(key: str, text: str | None, ts: int = 0) -> dict[str, Any]:
    row = {"side": "right", "k0": key, "ts": ts}
    return row if text is None else {**row, "v0": text}


ROWS = [
    left("a", 1, 5),
    right("a", "x", 9),
    left("a", 2, 6),
    right("a", "y"),
    right("b", "z"),
    left("a", 3, 7),
    left("b", 4, 8),
    right("a", None),
    left("a", 5, 9),
]


@pytest.mark.parametrize("ends", [[], [1], [4], [3, 5, 8], list(range(1, 9))])
def test_each_row_meets_the_version_of_its_moment(ends: list[int]) -> None:
    matched = [("a", 2, "a", "x", 6), ("a", 3, "a", "y", 7), ("b", 4, "b", "z", 8)]
    assert run("INNER", ROWS, ends) == matched
    unmatched = [("a", 1, None, None, 5)], [("a", 5, None, None, 9)]
    assert run("LEFT", ROWS, ends) == [*unmatched[0], *matched, *unmatched[1]]


def test_rows_without_a_key_or_a_value_join_nothing() -> None:
    rows = [right("a", "x"), left(None, 1), {"side": "left", "k0": "a"}, left("a", 2)]
    for kind in ("INNER", "LEFT"):
        assert run(kind, rows) == [("a", 2, "a", "x", 0)]


@given(
    rows=st.lists(
        st.builds(left, st.sampled_from("ab"), st.integers(0, 9))
        | st.builds(right, st.sampled_from("ab"), st.sampled_from(["x", "y", None]))
    ),
    data=st.data(),
)
@settings(max_examples=25)
def test_where_a_batch_ends_changes_nothing_and_a_dict_says_the_same(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=3)))
    state: dict[str, str | None] = {}
    expected: list[tuple[Any, ...]] = []
    for row in rows:
        if row["side"] == "right":
            state[row["k0"]] = row.get("v0")
        else:
            text = state.get(row["k0"])
            expected.append((row["k0"], row["v0"], row["k0"] if text else None, text, 0))
    assert run("LEFT", rows, ends) == expected
