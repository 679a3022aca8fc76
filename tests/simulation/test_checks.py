"""The checks of groups: what they take for a contradiction, and what not."""

from __future__ import annotations

import pytest

from millstream.logcore.client import TopicPartition

from .group_checks import GroupChecks
from .group_members import PATIENCE_MS
from .kernel import MILLISECOND, InvariantViolated, Kernel
from .share_clients import ShareChecks
from .sightings import Sighting

_PLACE = TopicPartition("events", 0)
_HALF_NS = PATIENCE_MS * MILLISECOND // 2
_LOCK_HALF_NS = 750 * MILLISECOND


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(seed=1)


def pass_time(kernel: Kernel, ns: int) -> None:
    kernel.run(until_ns=kernel.now_ns + ns)


def jump(kernel: Kernel) -> None:
    kernel.counters["fault clock_jump"] += 1


class TestOwners:
    @pytest.fixture
    def checks(self, kernel: Kernel) -> GroupChecks:
        """`old` reads the place in generation 2, and was seen now."""
        checks = GroupChecks(kernel)
        checks.knows("old", Sighting.now(kernel))
        checks.owns("g", 2, "old", [_PLACE])
        return checks

    def test_two_members_of_a_generation(self, checks: GroupChecks, kernel: Kernel) -> None:
        pass_time(kernel, _HALF_NS - 1)
        with pytest.raises(InvariantViolated, match="old and new read"):
            checks.owns("g", 2, "new", [_PLACE])

    def test_another_generation_or_group(self, checks: GroupChecks) -> None:
        checks.owns("g", 3, "new", [_PLACE])
        checks.owns("h", 2, "new", [_PLACE])

    def test_a_silent_member_may_be_forgotten(self, checks: GroupChecks, kernel: Kernel) -> None:
        pass_time(kernel, _HALF_NS)
        checks.owns("g", 2, "new", [_PLACE])

    def test_a_member_may_have_left(self, checks: GroupChecks) -> None:
        checks.leaves("old")
        checks.owns("g", 2, "new", [_PLACE])

    def test_a_member_of_old_may_begin_anew_without_what_it_had(self, checks: GroupChecks, kernel: Kernel) -> None:
        checks.owns("g", 2, "old", [])
        checks.knows("old", Sighting.now(kernel))
        checks.owns("g", 2, "new", [_PLACE])
        checks.knows("new", Sighting.now(kernel))
        with pytest.raises(InvariantViolated, match="new and old read"):
            checks.owns("g", 2, "old", [_PLACE])

    def test_a_clock_that_jumps_ends_sessions(self, checks: GroupChecks, kernel: Kernel) -> None:
        jump(kernel)
        checks.owns("g", 2, "new", [_PLACE])
        checks.knows("new", Sighting.now(kernel))
        with pytest.raises(InvariantViolated, match="new and third read"):
            checks.owns("g", 2, "third", [_PLACE])


class TestRecordsOfShareGroups:
    @pytest.fixture
    def checks(self, kernel: Kernel) -> ShareChecks:
        """`old` has record 4."""
        checks = ShareChecks(kernel)
        checks.beaten("old", Sighting.now(kernel))
        checks.acquired("old", 4, 1, Sighting.now(kernel))
        return checks

    def test_two_members_with_a_record(self, checks: ShareChecks, kernel: Kernel) -> None:
        pass_time(kernel, _LOCK_HALF_NS - 1)
        with pytest.raises(InvariantViolated, match="new gets record 4, which old has"):
            checks.acquired("new", 4, 2, Sighting.now(kernel))

    def test_its_lock_may_be_over(self, checks: ShareChecks, kernel: Kernel) -> None:
        pass_time(kernel, _LOCK_HALF_NS)
        checks.acquired("new", 4, 2, Sighting.now(kernel))

    def test_a_clock_that_jumps_ends_locks(self, checks: ShareChecks, kernel: Kernel) -> None:
        jump(kernel)
        checks.acquired("new", 4, 2, Sighting.now(kernel))

    def test_a_member_may_have_said_that_it_is_done(self, checks: ShareChecks, kernel: Kernel) -> None:
        checks.gives_up("old", 4)
        checks.acquired("new", 4, 2, Sighting.now(kernel))

    def test_a_record_that_was_accepted(self, checks: ShareChecks, kernel: Kernel) -> None:
        checks.gives_up("old")
        checks.accepted.add(4)
        with pytest.raises(InvariantViolated, match="was accepted"):
            checks.acquired("new", 4, 2, Sighting.now(kernel))
