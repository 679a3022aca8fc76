"""The checker: what must never be seen in a log, whatever happened to its nodes.

The kinds of anomalies are those of Jepsen's workload for Kafka (`jepsen.tests.kafka`; its reports on Redpanda 21.10.1
and Bufstream 0.1.0 explain them), Adya's G1a among them, and what groups and copying promise besides. Cycles of writes
between transactions (G0) are no anomaly here: Kafka's transactions write side by side.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final as Constant
from typing import NamedTuple

from .observed import Observed, Place, Reading, Seen, Send


class Anomaly(NamedTuple):
    kind: str
    what: str


def anomalies(observed: Observed) -> list[Anomaly]:
    """All of them; none where the log kept its promises."""
    return [Anomaly(kind, what) for kind, check in CHECKS.items() for what in check(observed)]


def lost_writes(observed: Observed) -> Iterator[str]:
    """Acknowledged, and not there though what came after it is."""
    for send, end in _missing(observed):
        if send.offset is None or send.offset < end:
            yield f"{_shown(send)} was acknowledged at {send.offset}; {send.place} ends at {end} without it"


def unseen_writes(observed: Observed) -> Iterator[str]:
    """Acknowledged, and behind the end of the log."""
    for send, end in _missing(observed):
        if send.offset is not None and send.offset >= end:
            yield f"{_shown(send)} was acknowledged at {send.offset}; {send.place} ends at {end}"


def duplicates(observed: Observed) -> Iterator[str]:
    """One record at two offsets."""
    offsets: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for place, offset, value in _sightings(observed):
        offsets[value].add((place, offset))
    for value, found in offsets.items():
        if len(found) > 1:
            yield f"{value} is at {sorted(found)}"


def inconsistent_offsets(observed: Observed) -> Iterator[str]:
    """Two records at one offset."""
    values: dict[tuple[Place, int], set[str]] = defaultdict(set)
    for place, offset, value in _sightings(observed):
        values[place, offset].add(value)
    for (place, offset), found in values.items():
        if len(found) > 1:
            yield f"{place} at {offset} had {sorted(found)}"


def aborted_reads(observed: Observed) -> Iterator[str]:
    """G1a: what was aborted, refused or left open, and was read nevertheless."""
    for place, seen in observed.everything_read():
        send = observed.sends.get(seen.value)
        if send is not None and observed.never_there(send):
            yield f"{_shown(send)} was read in {place} at {seen.offset}"


def early_reads(observed: Observed) -> Iterator[str]:
    """Read before anybody asked to commit it ("precommitted read")."""
    for reading in observed.readings:
        for poll in reading.polls:
            for seen in poll.records:
                send = observed.sends.get(seen.value)
                transaction = None if send is None else observed.transaction_of(send)
                if transaction is not None and poll.at < transaction.committing_at:
                    yield f"{seen.value} was read by {reading.consumer} before {transaction.name} was to be committed"


def invented_records(observed: Observed) -> Iterator[str]:
    """Read, but never sent."""
    for place, seen in observed.everything_read():
        if seen.value not in observed.sends:
            yield f"{seen.value} was read in {place} at {seen.offset}; nobody sent it"


def torn_transactions(observed: Observed) -> Iterator[str]:
    """Some of its records are there, and others are not."""
    there = {seen.value for finals in observed.finals.values() for final in finals for seen in final.records}
    for transaction in observed.transactions.values():
        sends = [send for send in transaction.sends if not send.failed]
        missing = [send for send in sends if send.value not in there]
        if missing and len(missing) < len(sends):
            yield f"{transaction.name} is there without {[_shown(send) for send in missing]}"


def polls_that_go_back(observed: Observed) -> Iterator[str]:
    """Non-monotonic polls: offsets that do not rise, within a poll or from one to the next."""
    for reading in observed.readings:
        offsets = [seen.offset for seen in _records(reading)]
        for before, after in pairwise([reading.start - 1, *offsets]):
            if after <= before:
                yield f"{reading.consumer} read {reading.place} at {after} after {before}"


def polls_that_skip(observed: Observed) -> Iterator[str]:
    """A record that is there was passed over, within a poll or from one to the next."""
    visible = {place: _offsets(finals[-1].records) for place, finals in observed.finals.items()}
    for reading in observed.readings:
        there, position = visible.get(reading.place, []), reading.start
        for seen in _records(reading):
            first = bisect.bisect_left(there, position)
            if first < len(there) and there[first] < seen.offset:
                yield f"{reading.consumer} read {reading.place} at {seen.offset}, and skipped {there[first]}"
            position = seen.offset + 1


def sends_that_go_back(observed: Observed) -> Iterator[str]:
    """Non-monotonic sends: a producer's records in another order than it sent them, within a transaction or not."""
    last: dict[tuple[str, Place], Send] = {}
    for send in observed.sends.values():
        if send.offset is None:
            continue
        before = last.get((send.producer, send.place))
        if before is not None and before.offset is not None and before.offset >= send.offset:
            yield f"{_shown(send)} is at {send.offset} of {send.place}, before {before.value} at {before.offset}"
        last[send.producer, send.place] = send


def lost_group_offsets(observed: Observed) -> Iterator[str]:
    """A member began in front of what its group had committed before."""
    for reading in observed.readings:
        for stored in observed.stored.values():
            offset = stored.offsets.get(reading.place, 0)
            if stored.group == reading.group and stored.done_at < reading.asked_at and offset > reading.start:
                yield f"{reading.consumer} began {reading.place} at {reading.start}; the group had stored {offset}"
                break


def invented_group_offsets(observed: Observed) -> Iterator[str]:
    """A member began behind all that its group ever tried to commit."""
    tried: dict[tuple[str, Place], int] = defaultdict(int)
    for stored in observed.stored.values():
        transaction = None if stored.transaction is None else observed.transactions[stored.transaction]
        if transaction is None or not transaction.impossible:
            for place, offset in stored.offsets.items():
                tried[stored.group, place] = max(tried[stored.group, place], offset)
    for reading in observed.readings:
        most = tried[reading.group, reading.place]
        if reading.start > most:
            yield f"{reading.consumer} began {reading.place} at {reading.start}; {reading.group} stored {most} at most"


def records_no_member_got(observed: Observed) -> Iterator[str]:
    """Nobody in the group ever read it, though the group is done ("poll skip" over assignments)."""
    got: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for reading in observed.readings:
        got[reading.group, reading.place].update(seen.offset for seen in _records(reading))
    for (group, place), offsets in got.items():
        for final in observed.finals.get(place, ())[-1:]:
            for seen in final.records:
                if seen.offset not in offsets:
                    yield f"nobody in {group} got {seen.value}, {place} at {seen.offset}"


def wrong_copies(observed: Observed) -> Iterator[str]:
    """A source that was not copied exactly once, by transactions that commit the offsets of what they copy."""
    copies: dict[str, int] = defaultdict(int)
    groups = {stored.group for stored in observed.stored.values() if stored.transaction is not None}
    if not groups:
        return
    copied = {reading.place for reading in observed.readings if reading.group in groups}
    for finals in observed.finals.values():
        for seen in finals[-1].records:
            if seen.source:
                copies[seen.source] += 1
    for place in copied & observed.finals.keys():
        for seen in observed.finals[place][-1].records:
            if (count := copies.pop(seen.value, 0)) != 1:
                yield f"{seen.value}, {place} at {seen.offset}, was copied {count} times"
    for source, count in copies.items():
        yield f"{source} is not there, and was copied {count} times"


def final_reads_that_differ(observed: Observed) -> Iterator[str]:
    """All is well, and two readers get different records: copies of the log differ."""
    for place, finals in observed.finals.items():
        for before, after in pairwise(finals):
            if before.records != after.records:
                differing = sorted(set(before.records) ^ set(after.records))[:3]
                yield f"{place} is not the same for {before.reader} and {after.reader}: {differing} …"


CHECKS: Constant[dict[str, Callable[[Observed], Iterable[str]]]] = {
    "lost write": lost_writes,
    "unseen write": unseen_writes,
    "duplicate": duplicates,
    "inconsistent offset": inconsistent_offsets,
    "aborted read": aborted_reads,
    "early read": early_reads,
    "invented record": invented_records,
    "torn transaction": torn_transactions,
    "non-monotonic poll": polls_that_go_back,
    "poll skip": polls_that_skip,
    "non-monotonic send": sends_that_go_back,
    "lost group offset": lost_group_offsets,
    "invented group offset": invented_group_offsets,
    "record no member got": records_no_member_got,
    "wrong copy": wrong_copies,
    "final reads differ": final_reads_that_differ,
}


def _missing(observed: Observed) -> Iterator[tuple[Send, int]]:
    """What surely has to be there and is not, each with the end of its partition."""
    finals = {place: finals[-1] for place, finals in observed.finals.items()}
    there = {seen.value for final in finals.values() for seen in final.records}
    for send in observed.sends.values():
        if observed.surely_there(send) and send.value not in there and send.place in finals:
            yield send, finals[send.place].end


def _sightings(observed: Observed) -> Iterator[tuple[Place, int, str]]:
    for send in observed.sends.values():
        if send.offset is not None:
            yield send.place, send.offset, send.value
    for place, seen in observed.everything_read():
        yield place, seen.offset, seen.value


def _records(reading: Reading) -> Iterator[Seen]:
    for poll in reading.polls:
        yield from poll.records


def _offsets(records: Sequence[Seen]) -> list[int]:
    return sorted(seen.offset for seen in records)


def _shown(send: Send) -> str:
    within = "" if send.transaction is None else f" of {send.transaction}"
    return f"{send.value}{within}"
