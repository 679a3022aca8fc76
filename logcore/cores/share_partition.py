"""One partition as a share group reads it (KIP-932): which member has acquired which records, and which are done.

    start offset                end offset
         |  done  acquired  available  |  not delivered yet
    -----+-----------------------------+------------------------------> offsets

Records from the end offset on are available. A member that acquires a record has it until a deadline; it accepts,
releases or rejects the record. A record that is released, or whose deadline passes, is available again, unless it was
delivered as often as the limit allows: then it is archived, like a rejected record. The start offset moves past records
that are acknowledged or archived.

This is a pure state machine. Its durable part is the fold of the changes that `take_change` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from .share_settings import ShareLimits

_NEVER: Final = 1 << 62


class ShareStanding(IntEnum):
    """The state of a record. The numbers are those of Kafka's records about share groups."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class Verdict(IntEnum):
    """A member's decision about a record that it has acquired. The numbers are the protocol's."""

    GAP = 0  # there is no such record
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareFault(IntEnum):
    """Why an acknowledgement is refused. The numbers are the protocol's error codes."""

    NONE = 0
    INVALID_REQUEST = 42
    INVALID_RECORD_STATE = 121


class ShareSpan(NamedTuple):
    """Consecutive records in the same state. `deliveries`: how often they were acquired; `owner`: the member that
    acquired them, or decided about them, if still known; `until_ms`: the deadline of acquired records."""

    first: int
    last: int
    standing: ShareStanding
    deliveries: int
    owner: str = ""
    until_ms: int = _NEVER


class LoggedBatch(NamedTuple):
    """The offsets of one batch of the log. `dead`: it has no records that the group may see."""

    first: int
    last: int
    dead: bool = False


class AcquiredSpan(NamedTuple):
    first: int
    last: int
    deliveries: int


class AckBatch(NamedTuple):
    """`verdicts`: one for all offsets, or one for each."""

    first: int
    last: int
    verdicts: tuple[int, ...]


class ShareChange(NamedTuple):
    """A change to write: the start offset, and spans that replace the earlier state of their offsets."""

    start_offset: int
    spans: tuple[ShareSpan, ...]


class SharePartition:
    """State: the spans, and the offsets that have changed since `take_change`.

    Invariants: the spans are in order, without a gap, and begin at the start offset; the first one is neither
    acknowledged nor archived.
    """

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self._spans: list[ShareSpan] = []
        self._changed: list[tuple[int, int]] = []
        self._moved = True

    @property
    def end_offset(self) -> int:
        return self._spans[-1].last + 1 if self._spans else self.start_offset

    @property
    def in_flight(self) -> int:
        """The number of records that are acquired, or available again after a delivery."""
        return sum(span.last - span.first + 1 for span in self._spans if span.standing <= ShareStanding.ACQUIRED)

    @property
    def spans(self) -> Sequence[ShareSpan]:
        return self._spans

    # The durable part

    def take_change(self) -> ShareChange | None:
        """The change to write now, if any."""
        if not self._moved and not self._changed:
            return None
        touched = [span for span in self._spans if any(self._overlaps(span, *each) for each in self._changed)]
        self._changed, self._moved = [], False
        return ShareChange(self.start_offset, tuple(touched))

    def whole(self) -> ShareChange:
        """The whole state as one change, which replaces all earlier ones."""
        self._changed, self._moved = [], False
        return ShareChange(self.start_offset, tuple(self._spans))

    def apply(self, change: ShareChange) -> None:
        """Applies a change that was written."""
        for span in change.spans:
            before = [cut for each in self._spans if (cut := _cut(each, each.first, span.first - 1))]
            behind = [cut for each in self._spans if (cut := _cut(each, span.last + 1, each.last))]
            self._spans = [*before, span, *behind]
        self._begin_at(change.start_offset)
        self._changed, self._moved = [], False

    def begin(self, now_ms: int, limits: ShareLimits) -> None:
        """Call it after the last change: acquired records stay acquired for a whole lock duration from now on."""
        until_ms = now_ms + limits.lock_ms
        acquired = ShareStanding.ACQUIRED
        self._spans = [each._replace(until_ms=until_ms) if each.standing is acquired else each for each in self._spans]

    # Operations of members

    def look(self, now_ms: int, limits: ShareLimits) -> int | None:
        """The first offset that may be acquired; None if too many records are in flight."""
        self.expire(now_ms, limits)
        for span in self._spans:
            if span.standing is ShareStanding.AVAILABLE:
                return span.first
        return self.end_offset if self.in_flight < limits.in_flight_max else None

    def acquire(
        self,
        owner: str,
        batches: Iterable[LoggedBatch],
        records_max: int,
        now_ms: int,
        limits: ShareLimits,
        *,
        exact: bool = False,
    ) -> list[AcquiredSpan]:
        """In: `batches`: consecutive batches of the log; `records_max`: whole batches are given until this many records
        are reached; with `exact`, never more than this many."""
        self.expire(now_ms, limits)
        self._archive_exhausted(limits)
        given: list[AcquiredSpan] = []
        count = 0
        for batch in batches:
            if batch.first > self.end_offset:
                break  # there may be records in between
            if batch.dead:
                self._pass_over(batch)
                continue
            if count >= records_max:
                break
            for first, last in self._wanted(batch, limits):
                last = min(last, first + records_max - count - 1) if exact else last
                if first > last:
                    break
                given += self._give(owner, first, last, now_ms + limits.lock_ms)
                count += last - first + 1
        return given

    def _archive_exhausted(self, limits: ShareLimits) -> None:
        """Archives available records over the limit, which may have been lowered since they were given back."""
        available = [span for span in self._spans if span.standing is ShareStanding.AVAILABLE]
        for span in [span for span in available if span.deliveries >= limits.deliveries_max]:
            self._set(span.first, span.last, lambda each: each._replace(standing=ShareStanding.ARCHIVED))
            self._advance()

    def _wanted(self, batch: LoggedBatch, limits: ShareLimits) -> list[tuple[int, int]]:
        """The ranges of the batch that can be acquired."""
        wanted = [
            (cut.first, cut.last)
            for span in self._spans
            if span.standing is ShareStanding.AVAILABLE and (cut := _cut(span, batch.first, batch.last))
        ]
        first = max(batch.first, self.end_offset)
        last = min(batch.last, first + limits.in_flight_max - self.in_flight - 1)
        return [*wanted, (first, last)] if first <= last else wanted

    def _give(self, owner: str, first: int, last: int, until_ms: int) -> list[AcquiredSpan]:
        self._extend(first, last)

        def acquired(span: ShareSpan) -> ShareSpan:
            return span._replace(
                standing=ShareStanding.ACQUIRED, deliveries=span.deliveries + 1, owner=owner, until_ms=until_ms
            )

        self._set(first, last, acquired)
        cuts = (cut for span in self._spans if (cut := _cut(span, first, last)))
        return [AcquiredSpan(cut.first, cut.last, cut.deliveries) for cut in cuts]

    def _pass_over(self, batch: LoggedBatch) -> None:
        """Archives a batch without records that the group may see."""
        if batch.last < self.start_offset:
            return
        self._extend(max(batch.first, self.end_offset), batch.last)

        def archived(span: ShareSpan) -> ShareSpan:
            unread = span.standing is ShareStanding.AVAILABLE
            return span._replace(standing=ShareStanding.ARCHIVED) if unread else span

        self._set(batch.first, batch.last, archived)
        self._advance()

    def _extend(self, first: int, last: int) -> None:
        """In: `first`: at most the end offset."""
        if last >= self.end_offset:
            self._spans.append(ShareSpan(self.end_offset, last, ShareStanding.AVAILABLE, 0))

    def acknowledge(self, owner: str, batches: Sequence[AckBatch], now_ms: int, limits: ShareLimits) -> ShareFault:
        """Applies all of it or nothing. Records before the start offset are done. A repeated accept or reject, whose
        answer was lost, gets the same answer again."""
        self.expire(now_ms, limits)
        fault = self._problem(owner, batches, limits)
        if fault is not ShareFault.NONE:
            return fault
        for batch in batches:
            for first, last, verdict in _verdicts(batch):
                self._set(first, last, self._change_of(Verdict(verdict), owner, now_ms, limits))
        self._advance()
        if len(self._spans) > _SPANS_OF_OWNERS:
            self._spans = _joined(map(_of_nobody, self._spans))
        return ShareFault.NONE

    def _problem(self, owner: str, batches: Sequence[AckBatch], limits: ShareLimits) -> ShareFault:
        for first, last, verdicts in batches:
            fits = 0 <= first <= last and len(verdicts) in (1, last - first + 1)
            if not fits or any(verdict not in _KNOWN for verdict in verdicts):
                return ShareFault.INVALID_REQUEST
            if Verdict.RENEW in verdicts and not limits.renews:
                return ShareFault.INVALID_REQUEST
            if not all(self._may_decide(owner, *stretch) for stretch in _verdicts(AckBatch(first, last, verdicts))):
                return ShareFault.INVALID_RECORD_STATE
        return ShareFault.NONE

    def _may_decide(self, owner: str, first: int, last: int, verdict: int) -> bool:
        """Whether this member has acquired all of these records from the start offset on, or has already decided the
        same about them."""
        if last < self.start_offset:
            return True
        may_be = (ShareStanding.ACQUIRED, _DECIDED.get(Verdict(verdict)))
        return last < self.end_offset and all(
            span.standing in may_be and span.owner == owner for span in self._spans if self._overlaps(span, first, last)
        )

    def _change_of(
        self, verdict: Verdict, owner: str, now_ms: int, limits: ShareLimits
    ) -> Callable[[ShareSpan], ShareSpan]:
        def changed(span: ShareSpan) -> ShareSpan:
            if span.standing is not ShareStanding.ACQUIRED or span.owner != owner:
                return span  # the request named it twice
            match verdict:
                case Verdict.ACCEPT | Verdict.REJECT | Verdict.GAP:
                    return span._replace(standing=_DECIDED[verdict], until_ms=_NEVER)
                case Verdict.RELEASE:
                    return _given_back(span, limits)
                case Verdict.RENEW:
                    return span._replace(until_ms=now_ms + limits.lock_ms)

        return changed

    def release(self, owner: str, limits: ShareLimits) -> None:
        """Releases all records of a member that has gone."""
        self._give_back(lambda span: span.owner == owner, limits)

    def expire(self, now_ms: int, limits: ShareLimits) -> None:
        """Makes records whose deadline has passed available again."""
        self._give_back(lambda span: span.until_ms <= now_ms, limits)

    def _give_back(self, concerned: Callable[[ShareSpan], bool], limits: ShareLimits) -> None:
        late = [span for span in self._spans if span.standing is ShareStanding.ACQUIRED and concerned(span)]
        for span in late:
            self._set(span.first, span.last, lambda each: _given_back(each, limits))
        if late:
            self._advance()

    def next_deadline_ms(self) -> int:
        return min((span.until_ms for span in self._spans if span.standing is ShareStanding.ACQUIRED), default=_NEVER)

    # Operations of others

    def log_starts_at(self, offset: int) -> None:
        """The log has deleted the records before this offset."""
        if offset > self.start_offset:
            self._begin_at(offset)
            self._advance()

    def reset(self, offset: int) -> None:
        """An administrator chose where the group continues."""
        self._spans, self._changed = [], []
        self.start_offset, self._moved = offset, True

    # Spans

    @staticmethod
    def _overlaps(span: ShareSpan, first: int, last: int) -> bool:
        return span.first <= last and first <= span.last

    def _set(self, first: int, last: int, change: Callable[[ShareSpan], ShareSpan]) -> None:
        """Changes the spans between these offsets, both included."""
        spans: list[ShareSpan] = []
        for span in self._spans:
            if not self._overlaps(span, first, last):
                spans.append(span)
                continue
            inner = span._replace(first=max(span.first, first), last=min(span.last, last))
            parts = (_cut(span, span.first, first - 1), change(inner), _cut(span, last + 1, span.last))
            spans += [part for part in parts if part is not None]
        self._spans = _joined(spans)
        self._changed.append((first, last))

    def _advance(self) -> None:
        """Moves the start offset past records that are done."""
        done = 0
        while done < len(self._spans) and self._spans[done].standing > ShareStanding.ACQUIRED:
            done += 1
        if done:
            self._begin_at(self._spans[done - 1].last + 1)

    def _begin_at(self, offset: int) -> None:
        self._spans = [cut for span in self._spans if (cut := _cut(span, offset, span.last))]
        self._moved |= offset != self.start_offset
        self.start_offset = offset


_KNOWN: Final = frozenset(Verdict)
_DECIDED: Final = {
    Verdict.ACCEPT: ShareStanding.ACKNOWLEDGED,
    Verdict.REJECT: ShareStanding.ARCHIVED,
    Verdict.GAP: ShareStanding.ARCHIVED,
}
_SPANS_OF_OWNERS: Final = 200
"""With more spans, those that are not acquired lose their owner, so that adjacent spans can be joined."""


def _cut(span: ShareSpan, first: int, last: int) -> ShareSpan | None:
    """The part of the span between these offsets, both included."""
    first, last = max(span.first, first), min(span.last, last)
    return span._replace(first=first, last=last) if first <= last else None


def _joined(spans: Iterable[ShareSpan]) -> list[ShareSpan]:
    """The spans, with adjacent spans in the same state joined."""
    joined: list[ShareSpan] = []
    for span in spans:
        if joined and joined[-1][2:] == span[2:]:
            joined[-1] = joined[-1]._replace(last=span.last)
        else:
            joined.append(span)
    return joined


def _done(span: ShareSpan, standing: ShareStanding) -> ShareSpan:
    return ShareSpan(span.first, span.last, standing, span.deliveries)


def _of_nobody(span: ShareSpan) -> ShareSpan:
    return span if span.standing is ShareStanding.ACQUIRED else span._replace(owner="")


def _given_back(span: ShareSpan, limits: ShareLimits) -> ShareSpan:
    """The span as available again, or as archived if it was delivered as often as the limit allows."""
    again = span.deliveries < limits.deliveries_max
    return _done(span, ShareStanding.AVAILABLE if again else ShareStanding.ARCHIVED)


def _verdicts(batch: AckBatch) -> Iterable[tuple[int, int, int]]:
    """The ranges with the same verdict: first offset, last offset, verdict."""
    first, last, verdicts = batch
    if len(verdicts) == 1:
        yield first, last, verdicts[0]
        return
    for verdict, run in groupby(verdicts):
        end = first + len(list(run))
        yield first, end - 1, verdict
        first = end
