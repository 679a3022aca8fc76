"""Which records of a partition a share group's members have, and when somebody else gets them."""

from __future__ import annotations

import random

import pytest

from millstream.logcore.cores.share_partition import (
    AckBatch,
    AcquiredSpan,
    LoggedBatch,
    ShareFault,
    SharePartition,
    ShareSpan,
    ShareStanding,
    Verdict,
)
from millstream.logcore.cores.share_settings import ShareLimits, duration_ms, reset_problem

LIMITS = ShareLimits(lock_ms=1_000, deliveries_max=5, in_flight_max=100)
MANY = 1_000
TEN = (LoggedBatch(0, 9),)


def acquire(
    partition: SharePartition,
    who: str,
    *batches: LoggedBatch,
    now_ms: int = 0,
    most: int = MANY,
    exact: bool = False,
    limits: ShareLimits = LIMITS,
) -> list[AcquiredSpan]:
    return partition.acquire(who, batches, most, now_ms, limits, exact=exact)


def acknowledge(
    partition: SharePartition, who: str, *batches: AckBatch, now_ms: int = 0, limits: ShareLimits = LIMITS
) -> ShareFault:
    return partition.acknowledge(who, batches, now_ms, limits)


def all_of(first: int, last: int, verdict: int) -> AckBatch:
    return AckBatch(first, last, (verdict,))


def offsets(spans: list[AcquiredSpan]) -> list[tuple[int, int]]:
    return [(span.first, span.last) for span in spans]


def standings(partition: SharePartition) -> list[tuple[int, int, str, int]]:
    return [(span.first, span.last, span.standing.name.lower(), span.deliveries) for span in partition.spans]


def given(first: int = 0, last: int = 9, *, who: str = "a") -> SharePartition:
    """A partition of which a member has these records."""
    partition = SharePartition(first)
    assert offsets(acquire(partition, who, LoggedBatch(first, last))) == [(first, last)]
    return partition


# Acquiring


def test_nobody_gets_what_somebody_has() -> None:
    partition = given()
    assert acquire(partition, "b", *TEN) == []
    assert acquire(partition, "a", *TEN) == []
    assert partition.look(0, LIMITS) == 10
    assert acquire(partition, "b", *TEN, LoggedBatch(10, 12)) == [AcquiredSpan(10, 12, 1)]


def test_whole_batches_are_given_until_there_are_enough() -> None:
    partition = SharePartition(0)
    assert offsets(acquire(partition, "a", LoggedBatch(0, 4), LoggedBatch(5, 9), LoggedBatch(10, 14), most=6)) == [
        (0, 4),
        (5, 9),
    ]
    assert partition.end_offset == 10


@pytest.mark.parametrize(("most", "last"), [(1, 0), (3, 2), (5, 4), (6, 5)])
def test_no_record_too_many_is_given_to_who_says_exactly(most: int, last: int) -> None:
    partition = SharePartition(0)
    acquire(partition, "a", LoggedBatch(0, 4), LoggedBatch(5, 9), most=most, exact=True)
    assert (partition.in_flight, partition.end_offset) == (most, last + 1)


def test_as_many_are_in_flight_as_the_limit_says_and_none_more() -> None:
    partition = SharePartition(0)
    assert offsets(acquire(partition, "a", LoggedBatch(0, 98))) == [(0, 98)]
    assert partition.look(0, LIMITS) == 99
    assert offsets(acquire(partition, "a", LoggedBatch(99, 120))) == [(99, 99)]
    assert partition.look(0, LIMITS) is None
    assert acquire(partition, "b", LoggedBatch(99, 120)) == []
    acknowledge(partition, "a", all_of(50, 50, Verdict.ACCEPT))  # the first ones are still somebody's
    assert partition.look(0, LIMITS) == 100
    assert offsets(acquire(partition, "b", LoggedBatch(99, 120))) == [(100, 100)]


def test_what_was_given_back_comes_again_though_the_limit_is_reached() -> None:
    partition = given(0, 99)
    acknowledge(partition, "a", all_of(3, 3, Verdict.RELEASE))
    assert partition.look(0, LIMITS) == 3
    assert acquire(partition, "b", LoggedBatch(0, 200)) == [AcquiredSpan(3, 3, 2)]


def test_batches_that_do_not_follow_the_end_are_left() -> None:
    partition = given()
    assert acquire(partition, "b", LoggedBatch(11, 20)) == []
    assert partition.end_offset == 10


def test_batches_without_records_are_passed_over() -> None:
    """What compaction removed, markers of transactions, and records of aborted ones."""
    partition = SharePartition(0)
    assert acquire(partition, "a", LoggedBatch(0, 4, True)) == []
    assert (partition.start_offset, partition.spans) == (5, [])
    assert offsets(acquire(partition, "a", LoggedBatch(5, 6), LoggedBatch(7, 8, True), LoggedBatch(9, 9))) == [
        (5, 6),
        (9, 9),
    ]
    acknowledge(partition, "a", all_of(5, 6, Verdict.ACCEPT))
    assert partition.start_offset == 9


def test_a_batch_without_records_takes_nothing_from_its_owner() -> None:
    partition = given(0, 4)
    acknowledge(partition, "a", all_of(2, 2, Verdict.RELEASE))
    acquire(partition, "b", LoggedBatch(0, 4, True))  # the group came to read committed records only
    assert [each[2] for each in standings(partition)] == ["acquired", "archived", "acquired"]
    assert acknowledge(partition, "a", all_of(0, 1, Verdict.ACCEPT)) is ShareFault.NONE
    assert partition.start_offset == 3


# Time


def test_a_lock_ends_at_its_time_and_not_before() -> None:
    partition = given()
    assert partition.next_deadline_ms() == 1_000
    partition.expire(999, LIMITS)
    assert acquire(partition, "b", *TEN, now_ms=999) == []
    assert acquire(partition, "b", *TEN, now_ms=1_000) == [AcquiredSpan(0, 9, 2)]


def test_who_acknowledges_at_the_end_of_the_lock_is_too_late() -> None:
    partition = given()
    assert acknowledge(partition, "a", all_of(0, 4, Verdict.ACCEPT), now_ms=999) is ShareFault.NONE
    assert acknowledge(partition, "a", all_of(5, 9, Verdict.ACCEPT), now_ms=1_000) is ShareFault.INVALID_RECORD_STATE
    assert partition.start_offset == 5


def test_a_renewed_lock_begins_anew() -> None:
    partition = given()
    assert acknowledge(partition, "a", all_of(0, 4, Verdict.RENEW), now_ms=600) is ShareFault.NONE
    assert offsets(acquire(partition, "b", *TEN, now_ms=1_000)) == [(5, 9)]
    assert offsets(acquire(partition, "b", *TEN, now_ms=1_599)) == []
    assert acquire(partition, "b", *TEN, now_ms=1_600) == [AcquiredSpan(0, 4, 2)]


def test_locks_are_not_renewed_where_that_is_switched_off() -> None:
    partition, limits = given(), ShareLimits(1_000, renews=False)
    assert acknowledge(partition, "a", all_of(0, 9, Verdict.RENEW), limits=limits) is ShareFault.INVALID_REQUEST


def test_a_new_coordinator_gives_owners_a_whole_lock() -> None:
    partition = given()
    partition.begin(5_000, LIMITS)
    assert partition.next_deadline_ms() == 6_000


# Deliveries


@pytest.mark.parametrize("gives_back", ["release", "time", "leave"])
def test_a_record_is_delivered_five_times(gives_back: str) -> None:
    partition, now_ms = SharePartition(0), 0
    for time in range(1, 6):
        assert acquire(partition, "a", LoggedBatch(0, 0), now_ms=now_ms) == [AcquiredSpan(0, 0, time)]
        assert partition.start_offset == 0
        match gives_back:
            case "release":
                acknowledge(partition, "a", all_of(0, 0, Verdict.RELEASE), now_ms=now_ms)
            case "time":
                now_ms += 1_000
                partition.expire(now_ms, LIMITS)
            case _:
                partition.release("a", LIMITS)
    assert (partition.start_offset, partition.spans) == (1, [])


def test_a_lower_limit_holds_for_what_was_given_back_before() -> None:
    partition = given()
    acknowledge(partition, "a", all_of(0, 9, Verdict.RELEASE))
    once = ShareLimits(1_000, deliveries_max=1)
    assert acquire(partition, "b", *TEN, limits=once) == []
    assert partition.start_offset == 10


# Acknowledging


def test_a_batch_is_split_by_what_is_said_of_its_parts() -> None:
    partition = given()
    verdicts = (1, 1, 2, 3, 1, 0, 2, 2, 1, 4)
    assert acknowledge(partition, "a", AckBatch(0, 9, verdicts), now_ms=10) is ShareFault.NONE
    assert partition.start_offset == 2
    assert standings(partition) == [
        (2, 2, "available", 1),
        (3, 3, "archived", 1),
        (4, 4, "acknowledged", 1),
        (5, 5, "archived", 1),
        (6, 7, "available", 1),
        (8, 8, "acknowledged", 1),
        (9, 9, "acquired", 1),
    ]
    assert acquire(partition, "b", *TEN, now_ms=10) == [AcquiredSpan(2, 2, 2), AcquiredSpan(6, 7, 2)]


@pytest.mark.parametrize("verdict", [Verdict.ACCEPT, Verdict.REJECT])
def test_a_decision_that_comes_again_is_answered_as_before(verdict: Verdict) -> None:
    """The answer may have been lost. Another decision, or that of another member, is none that was made."""
    partition = given()
    other = Verdict.REJECT if verdict is Verdict.ACCEPT else Verdict.ACCEPT
    for _ in range(2):
        assert acknowledge(partition, "a", all_of(3, 5, verdict)) is ShareFault.NONE
    assert acknowledge(partition, "a", all_of(3, 5, other)) is ShareFault.INVALID_RECORD_STATE
    assert acknowledge(partition, "b", all_of(3, 5, verdict)) is ShareFault.INVALID_RECORD_STATE
    assert acknowledge(partition, "a", all_of(2, 6, verdict)) is ShareFault.NONE
    assert standings(partition)[1][:2] == (2, 6)


def test_a_release_that_comes_again_is_refused_since_somebody_else_may_have_the_record() -> None:
    partition = given()
    assert acknowledge(partition, "a", all_of(3, 3, Verdict.RELEASE)) is ShareFault.NONE
    assert acknowledge(partition, "a", all_of(3, 3, Verdict.RELEASE)) is ShareFault.INVALID_RECORD_STATE


def test_what_many_members_have_decided_is_few_spans() -> None:
    """While the first record is with somebody who takes long."""
    partition = SharePartition(0)
    acquire(partition, "slow", LoggedBatch(0, 0))
    for number in range(1, 1_000):
        assert acquire(partition, f"m{number % 7}", LoggedBatch(number, number)) != []
        assert acknowledge(partition, f"m{number % 7}", all_of(number, number, Verdict.ACCEPT)) is ShareFault.NONE
    assert len(partition.spans) < 210


def test_only_the_owner_decides() -> None:
    partition = given()
    assert acknowledge(partition, "b", all_of(0, 9, Verdict.ACCEPT)) is ShareFault.INVALID_RECORD_STATE
    assert acknowledge(partition, "a", all_of(0, 10, Verdict.ACCEPT)) is ShareFault.INVALID_RECORD_STATE
    assert acknowledge(partition, "a", all_of(0, 9, Verdict.ACCEPT)) is ShareFault.NONE


def test_all_that_is_said_at_once_is_done_or_nothing() -> None:
    partition = given()
    said = (all_of(0, 3, Verdict.ACCEPT), all_of(20, 21, Verdict.ACCEPT))
    assert acknowledge(partition, "a", *said) is ShareFault.INVALID_RECORD_STATE
    assert standings(partition) == [(0, 9, "acquired", 1)]


def test_the_first_word_on_a_record_counts() -> None:
    partition = given()
    assert acknowledge(partition, "a", all_of(0, 9, 1), all_of(0, 9, 2)) is ShareFault.NONE
    assert (partition.start_offset, partition.spans) == (10, [])


def test_what_lies_before_the_start_is_done_with() -> None:
    partition = given()
    acknowledge(partition, "a", all_of(0, 4, Verdict.ACCEPT))
    assert acknowledge(partition, "b", all_of(0, 4, Verdict.RELEASE)) is ShareFault.NONE
    assert acknowledge(partition, "a", all_of(3, 6, Verdict.ACCEPT)) is ShareFault.NONE
    assert partition.start_offset == 7


@pytest.mark.parametrize(
    "batch",
    [
        AckBatch(3, 2, (1,)),
        AckBatch(-1, 2, (1,)),
        AckBatch(0, 2, (1, 1)),
        AckBatch(0, 2, ()),
        AckBatch(0, 2, (5,)),
        AckBatch(0, 2, (-1,)),
    ],
)
def test_what_makes_no_sense_is_refused(batch: AckBatch) -> None:
    partition = given()
    assert acknowledge(partition, "a", batch) is ShareFault.INVALID_REQUEST
    assert standings(partition) == [(0, 9, "acquired", 1)]


def test_a_range_of_all_offsets_costs_nothing() -> None:
    partition = given()
    assert acknowledge(partition, "a", all_of(0, (1 << 63) - 1, 1)) is ShareFault.INVALID_RECORD_STATE


def test_what_a_member_had_that_is_gone_is_free() -> None:
    partition = given(0, 4)
    acquire(partition, "b", LoggedBatch(5, 9))
    partition.release("a", LIMITS)
    assert standings(partition) == [(0, 4, "available", 1), (5, 9, "acquired", 1)]


# The log


@pytest.mark.parametrize(("log_start", "start"), [(0, 0), (1, 1), (9, 9), (10, 10), (25, 25)])
def test_the_start_follows_the_log(log_start: int, start: int) -> None:
    partition = given()
    partition.log_starts_at(log_start)
    assert (partition.start_offset, partition.end_offset) == (start, max(10, start))


def test_retention_uncovers_what_is_done_with() -> None:
    partition = given()
    acknowledge(partition, "a", all_of(5, 9, Verdict.ACCEPT))
    partition.log_starts_at(5)
    assert (partition.start_offset, partition.spans) == (10, [])


def test_the_log_never_moves_the_start_back() -> None:
    partition = SharePartition(7)
    partition.log_starts_at(3)
    assert partition.start_offset == 7


# What is written down


def test_a_partition_is_the_fold_of_its_changes() -> None:
    for seed in range(40):
        _fold_of(random.Random(seed))


def _fold_of(chance: random.Random) -> None:
    """Whatever is done; and no record is ever at two members."""
    partition, copy = SharePartition(0), SharePartition(0)
    now_ms = end = 0
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1:
                batch = LoggedBatch(end, end + chance.randrange(4), chance.random() < 0.2)
                end = batch.last + 1
                acquire(partition, chance.choice("abc"), LoggedBatch(0, batch.first - 1), batch, now_ms=now_ms, most=3)
            case 2:
                first = chance.randrange(partition.end_offset + 1)
                verdicts = tuple(chance.randrange(5) for _ in range(chance.randrange(1, 5)))
                batch = AckBatch(first, first + len(verdicts) - 1, verdicts)
                acknowledge(partition, chance.choice("abc"), batch, now_ms=now_ms)
            case 3:
                partition.release(chance.choice("abc"), LIMITS)
            case 4:
                now_ms += chance.choice([1, 500, 1_000])
                partition.expire(now_ms, LIMITS)
            case _:
                partition.log_starts_at(chance.randrange(partition.end_offset + 1))
        end = partition.end_offset
        if (change := partition.take_change()) is not None:
            copy.apply(change)
        _check(partition)
        assert (_said(copy), copy.start_offset) == (_said(partition), partition.start_offset)
    whole = SharePartition(0)
    whole.apply(partition.whole())
    assert _said(whole) == _said(partition)


def _said(partition: SharePartition) -> list[tuple[int, str, int, str]]:
    """Of each record."""
    return [
        (offset, span.standing.name, span.deliveries, span.owner)
        for span in partition.spans
        for offset in range(span.first, span.last + 1)
    ]


def _check(partition: SharePartition) -> None:
    at = partition.start_offset
    for span in partition.spans:
        assert span.first == at and span.last >= span.first
        at = span.last + 1
    assert not partition.spans or partition.spans[0].standing <= ShareStanding.ACQUIRED


def test_nothing_is_written_where_nothing_changes() -> None:
    partition = given()
    assert partition.take_change() is not None
    acquire(partition, "b", *TEN)
    partition.expire(10, LIMITS)
    assert partition.take_change() is None


def test_a_change_says_only_what_is_new() -> None:
    partition = given(0, 4)
    acquire(partition, "b", LoggedBatch(5, 9))
    partition.take_change()
    acknowledge(partition, "b", all_of(9, 9, Verdict.RELEASE))
    change = partition.take_change()
    assert change is not None and change.spans == (ShareSpan(9, 9, ShareStanding.AVAILABLE, 1),)


def test_an_administrator_chooses_where_to_go_on() -> None:
    partition = given(10, 19)
    partition.reset(3)
    assert (partition.start_offset, partition.end_offset, partition.look(0, LIMITS)) == (3, 3, 3)


# Settings


@pytest.mark.parametrize("text", ["earliest", "latest", "by_duration:PT0S", "by_duration:P3D", "by_duration:pt1h2m"])
def test_a_group_may_begin_at(text: str) -> None:
    assert reset_problem(text) is None


@pytest.mark.parametrize("text", ["", "none", "by_duration:", "by_duration:PT", "by_duration:-PT1H", "by_duration:P1Y"])
def test_a_group_may_not_begin_at(text: str) -> None:
    assert reset_problem(text) is not None


def test_a_duration_is_in_milliseconds() -> None:
    assert [duration_ms(f"by_duration:{text}") for text in ("PT1H", "P1D", "PT0.25S")] == [3_600_000, 86_400_000, 250]
