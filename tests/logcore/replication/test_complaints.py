"""How often the same mishap is written down: who causes many must not fill the log."""

from __future__ import annotations

from millstream.logcore.replication.complaints import ADDRESSES_MAX, Complaints


def test_an_address_is_complained_of_once_a_minute_with_a_count_of_what_was_left_out() -> None:
    complaints = Complaints()
    assert complaints.note("10.0.0.1", 100.0) == 0
    assert [complaints.note("10.0.0.1", 100.0 + second) for second in (0, 30, 59)] == [None] * 3
    assert complaints.note("10.0.0.2", 130.0) == 0
    assert complaints.note("10.0.0.1", 160.0) == 3
    assert complaints.note("10.0.0.1", 161.0) is None
    assert complaints.note("10.0.0.1", 220.0) == 1


def test_many_addresses_at_once_are_complained_of_as_one_and_cost_little_memory() -> None:
    complaints = Complaints()
    said = [complaints.note(f"address {number}", 0.0) for number in range(3 * ADDRESSES_MAX)]
    assert said.count(0) == ADDRESSES_MAX + 1
    assert len(complaints) == ADDRESSES_MAX + 1
    assert complaints.note("somebody new", 60.0) == 0
    assert len(complaints) == 1
