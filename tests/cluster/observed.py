"""The events of a run, put together: what was sent, which transactions ended how, what was read, what groups stored."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from . import events
from .events import Event

Place = str
"""A partition: "topic/number"."""


class Seen(NamedTuple):
    """A record that was read. `source` is the value that it is a copy of, or empty."""

    offset: int
    value: str
    source: str


@dataclass(slots=True)
class Send:
    """`offset` is None where nothing was acknowledged: then `failed` or the transaction may know what became of it."""

    value: str
    place: Place
    producer: str
    transaction: str | None
    offset: int | None = None
    failed: bool = False


@dataclass(slots=True)
class Stored:
    """Offsets that a group committed, or tried to."""

    group: str
    transaction: str | None
    began_at: float
    offsets: dict[Place, int]
    done_at: float = math.inf


@dataclass(slots=True)
class Transaction:
    """Nobody asked to commit it before `committing_at`; after that the outcome is unknown until one is told."""

    name: str
    sends: list[Send] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    committing_at: float = math.inf
    committed: bool = False
    aborted: bool = False

    @property
    def impossible(self) -> bool:
        """Nobody may ever see it."""
        return self.aborted or self.committing_at == math.inf


class Poll(NamedTuple):
    """What one call gave of one partition."""

    at: float
    records: list[Seen]


@dataclass(slots=True)
class Reading:
    """One partition, read by one consumer in one go: from `start` on, without a seek or a new assignment."""

    consumer: str
    group: str
    place: Place
    asked_at: float  # when it asked where to start
    start: int
    polls: list[Poll] = field(default_factory=list)


class Final(NamedTuple):
    """All that is in a partition once all is well; `end`: the offset behind it."""

    reader: str
    end: int
    records: list[Seen]


class Observed:
    """State: everything below is in the order in which it began."""

    def __init__(self, happened: Iterable[Event]) -> None:
        self.sends: dict[str, Send] = {}
        self.transactions: dict[str, Transaction] = {}
        self.readings: list[Reading] = []
        self.stored: dict[str, Stored] = {}
        self.finals: dict[Place, list[Final]] = defaultdict(list)
        self._current: dict[tuple[str, Place], Reading] = {}
        for event in happened:
            self._take(event)

    def transaction_of(self, send: Send) -> Transaction | None:
        return None if send.transaction is None else self.transactions[send.transaction]

    def surely_there(self, send: Send) -> bool:
        """It was acknowledged: by itself, or with its transaction."""
        transaction = self.transaction_of(send)
        return send.offset is not None if transaction is None else transaction.committed

    def never_there(self, send: Send) -> bool:
        transaction = self.transaction_of(send)
        return send.failed or (transaction is not None and transaction.impossible)

    def everything_read(self) -> Iterable[tuple[Place, Seen]]:
        for reading in self.readings:
            for poll in reading.polls:
                yield from ((reading.place, seen) for seen in poll.records)
        for place, finals in self.finals.items():
            for final in finals:
                yield from ((place, seen) for seen in final.records)

    def _take(self, event: Event) -> None:
        match event["kind"]:
            case events.SEND:
                self._begin_sends(event)
            case events.SENT:
                for value, place, offset in event["records"]:
                    self.sends[value].offset, self.sends[value].place = offset, place
            case events.NOT_SENT:
                for value in event["values"]:
                    self.sends[value].failed = True
            case events.COMMITTING:
                self._transaction(event).committing_at = event["at"]
            case events.COMMITTED:
                self._end(event, committed=True)
            case events.ABORTED:
                self._end(event, committed=False)
            case _:
                self._take_read(event)

    def _take_read(self, event: Event) -> None:
        match event["kind"]:
            case events.STARTED:
                self._start_readings(event)
            case events.REVOKED:
                for place in event["places"]:
                    self._current.pop((event["consumer"], place), None)
            case events.POLLED:
                for place, records in event["records"].items():
                    poll = Poll(event["at"], [Seen(*record) for record in records])
                    self._current[event["consumer"], place].polls.append(poll)
            case events.STORING:
                stored = Stored(event["group"], event["transaction"], event["at"], event["offsets"])
                self.stored[event["commit"]] = stored
                if stored.transaction is not None:
                    self._transaction(event).stored.append(stored)
            case events.STORED:
                self.stored[event["commit"]].done_at = event["at"]
            case events.FINAL:
                records = [Seen(*record) for record in event["records"]]
                self.finals[event["place"]].append(Final(event["reader"], event["end"], records))
            case kind:
                raise ValueError(f"no such event: {kind}")

    def _begin_sends(self, event: Event) -> None:
        transaction = self._transaction(event) if event["transaction"] is not None else None
        for value, place in event["records"]:
            send = Send(value, place, event["producer"], event["transaction"])
            assert value not in self.sends, f"the workload sends {value} twice"
            self.sends[value] = send
            if transaction is not None:
                transaction.sends.append(send)

    def _start_readings(self, event: Event) -> None:
        for place, start in event["starts"].items():
            reading = Reading(event["consumer"], event["group"], place, event["asked_at"], start)
            self.readings.append(reading)
            self._current[event["consumer"], place] = reading

    def _transaction(self, event: Event) -> Transaction:
        name = event["transaction"]
        return self.transactions.setdefault(name, Transaction(name))

    def _end(self, event: Event, *, committed: bool) -> None:
        transaction = self._transaction(event)
        transaction.committed, transaction.aborted = committed, not committed
        if committed:
            for stored in transaction.stored:
                stored.done_at = event["at"]
