"""Directed scenarios of replicas that are slowed down while they catch up."""

from __future__ import annotations

from typing import Final

from tests.logcore.replication.test_throttle import (
    test_a_proposed_member_is_not_slowed_down_though_it_is_no_member_yet,
    test_partitions_take_turns,
    test_who_does_not_ask_any_more_keeps_nobody_waiting,
    test_who_has_caught_up_joins_and_is_not_slowed_down_any_more,
)


def a_follower_in_sync_is_never_slowed_down() -> None:
    for side in ("leading", "following"):
        test_who_has_caught_up_joins_and_is_not_slowed_down_any_more(side)


CASES: Final = (
    a_follower_in_sync_is_never_slowed_down,
    test_a_proposed_member_is_not_slowed_down_though_it_is_no_member_yet,
    test_partitions_take_turns,
    test_who_does_not_ask_any_more_keeps_nobody_waiting,
)
