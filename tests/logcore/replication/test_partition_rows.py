"""The partitions of a topic are what a list of them would be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.controller.partition_rows import PartitionRows
from millstream.logcore.replication.machine import NodeId

ONE = NodeId(1)


def state(number: int, epoch: int) -> PartitionState:
    return PartitionState("id", number, ONE, epoch, epoch, (ONE,), (ONE,), (), 1)


changes = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=12), max_size=6)


@given(st.integers(0, 30), changes)
def test_rows_are_what_a_list_would_be(count: int, batches: list[list[tuple[int, int]]]) -> None:
    listed = [state(number, 0) for number in range(count)]
    rows = PartitionRows.of(listed)
    for batch in batches:
        new = [state(min(number, len(listed)), epoch) for number, epoch in batch]
        for each in new:
            listed[each.partition : each.partition + 1] = (each,)
        rows = rows.with_states(new)
        assert list(rows) == listed and len(rows) == len(listed) and rows == tuple(listed)
        assert [rows[number] for number in range(len(listed))] == listed
        assert rows == PartitionRows.of(listed)
        assert all(before.first[2:] != after.first[2:] for before, after in zip(rows.rows, rows.rows[1:], strict=False))


def test_ten_thousand_that_are_alike_are_one_row() -> None:
    rows = PartitionRows.of(state(number, 3) for number in range(10_000))
    assert len(rows.rows) == 1 and rows[9_999] == state(9_999, 3) and rows[-1] == rows[9_999]
    apart = rows.with_states([state(5_000, 4)])
    assert [row.of for row in apart.rows] == [5_000, 1, 4_999]
    assert apart.with_states([state(5_000, 3)]) == rows
    assert rows.mapped(lambda each: each) is rows
    raised = rows.mapped(lambda each: each._replace(leader_epoch=4))
    assert len(raised.rows) == 1 and raised[7].leader_epoch == 4
    assert rows[2:4] == (state(2, 3), state(3, 3))
