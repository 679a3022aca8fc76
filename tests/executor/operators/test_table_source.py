"""A table's topic as changes that carry the old rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import brief, plan, run, table

SOURCE = table()


def changes(rows: list[dict[str, Any]], ends: list[int], **options: Any) -> list[tuple[Any, ...]]:
    return brief(run(plan(table(**options)), rows, ends), "k0", "v0", "v1", "_weight", "_ts")


def test_an_update_takes_the_old_row_back_and_a_tombstone_takes_it_away() -> None:
    """Also of the row whose key is NULL."""
    rows = [
        {"k0": "a"},
        {"k0": "a", "v0": "x", "v1": 1, "ts": 1},
        {"k0": "b", "v0": "y", "v1": 2, "ts": 2},
        {"k0": "a", "v0": "z", "v1": 3, "ts": 3},
        {"k0": "a", "ts": 4},
        {"k0": None, "v0": "kept", "v1": 0, "ts": 5},
        {"k0": "a", "v0": "new", "v1": 5, "ts": 6},
        {"k0": None, "ts": 7},
    ]
    expected = [
        ("a", "x", 1, 1, 1),
        ("b", "y", 2, 1, 2),
        ("a", "x", 1, -1, 3),
        ("a", "z", 3, 1, 3),
        ("a", "z", 3, -1, 4),
        (None, "kept", 0, 1, 5),
        ("a", "new", 5, 1, 6),
        (None, "kept", 0, -1, 7),
    ]
    for ends in ([], [3], [1, 2, 3, 4, 5, 6]):
        assert changes(rows, ends) == expected


def test_without_a_store_a_tombstone_is_a_deletion_without_values() -> None:
    rows = [{"k0": "a", "v0": "x", "v1": 1}, {"k0": "a"}]
    assert changes(rows, [], materialized=False) == [("a", "x", 1, 1, 0), ("a", None, None, -1, 0)]


RECORD = st.fixed_dictionaries({"k0": st.sampled_from("ab"), "part": st.integers(0, 1)}) | st.fixed_dictionaries(
    {"k0": st.sampled_from("ab"), "part": st.integers(0, 1), "v0": st.sampled_from("xy"), "v1": st.integers(0, 3)}
)


@given(rows=st.lists(RECORD), data=st.data())
@settings(max_examples=25)
def test_the_changes_add_up_to_the_table_wherever_batches_end(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=3)))
    current: dict[tuple[int, str], dict[str, Any]] = {}
    expected: list[tuple[Any, ...]] = []
    for row in rows:
        place = row["part"], row["k0"]
        if place in current:
            old = current.pop(place)
            expected.append((row["k0"], old["v0"], old["v1"], -1, 0))
        if "v0" in row:
            current[place] = row
            expected.append((row["k0"], row["v0"], row["v1"], 1, 0))
    assert changes(rows, ends) == expected
