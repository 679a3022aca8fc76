"""Planted bugs of the throttle. What it must never touch is what the high watermark waits for (R11)."""

from __future__ import annotations

from typing import Any, Final

from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.replica.replica_follower import Follower
from millstream.logcore.replication.replica.replica_leader import Leader
from millstream.logcore.replication.replica.throttle import Allowance

from .base import Mutant, cluster_mutant


def _slows_everybody(self: Leader, node: NodeId) -> bool:
    return self._core.throttle.leading.rate is not None


def _slows_proposed_members(self: Leader, node: NodeId) -> bool:
    return self._core.throttle.leading.rate is not None and node not in self.in_sync.committed


def _slows_itself(self: Follower) -> bool:
    return not self._core.throttle.following.allows(self._core.partition, self._core.now_ms)


def _first_come_first_served(self: Allowance, partition: Any) -> bool:
    return True


def _waits_for_the_dead(self: Allowance, partition: Any) -> bool:
    return not self._waiting or next(iter(self._waiting)) == partition


def _mutant(name: str, what: str, found_by: str, *patch: Any) -> Mutant:
    return cluster_mutant(name, "R11", what, found_by, patch)


_PROPOSED: Final = "test_a_proposed_member_is_not_slowed_down_though_it_is_no_member_yet"

MUTANTS: Final = [
    _mutant(
        "throttles_in_sync",
        "slows down followers in sync, too",
        "a_follower_in_sync_is_never_slowed_down",
        Leader,
        "_is_throttled",
        _slows_everybody,
    ),
    _mutant(
        "throttles_proposed",
        "slows down whom the high watermark waits for already",
        _PROPOSED,
        Leader,
        "_is_throttled",
        _slows_proposed_members,
    ),
    _mutant(
        "throttles_itself",
        "a follower slows itself down though it has caught up",
        _PROPOSED,
        Follower,
        "_has_to_wait",
        _slows_itself,
    ),
    _mutant(
        "throttle_starves",
        "lets one partition catch up before any other may",
        "test_partitions_take_turns",
        Allowance,
        "_is_next",
        _first_come_first_served,
    ),
    _mutant(
        "throttle_waits_for_the_dead",
        "keeps a turn for a partition that is gone",
        "test_who_does_not_ask_any_more_keeps_nobody_waiting",
        Allowance,
        "_is_next",
        _waits_for_the_dead,
    ),
]
