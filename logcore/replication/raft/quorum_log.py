"""The metadata log in memory: the entries after a base, and the voters at each index."""

from __future__ import annotations

from collections.abc import Iterable

from .quorum_messages import Entry, QuorumRecovered, Snapshot, VotersChanged


class QuorumLog:
    """Indexes start at 1. Invariant: base <= snapshot.index <= last_index (and snapshot.index <= commit)."""

    __slots__ = ("_voters", "base", "base_term", "entries", "snapshot")

    def __init__(self, recovered: QuorumRecovered) -> None:
        self.snapshot = recovered.snapshot
        self.base = recovered.log_base
        self.base_term = recovered.log_base_term
        self.entries: list[Entry] = []
        self._voters: list[tuple[int, VotersChanged]] = [(self.snapshot.index, self.snapshot.voters)]
        self.append(recovered.entries)

    @property
    def last_index(self) -> int:
        return self.base + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.base_term

    @property
    def voters(self) -> VotersChanged:
        """The voters of the last `VotersChanged` record, committed or not."""
        return self._voters[-1][1]

    @property
    def voters_index(self) -> int:
        """The index of that record; the snapshot's index if the record is no longer in the log."""
        return self._voters[-1][0]

    @property
    def voters_before(self) -> VotersChanged:
        """The voters before the last `VotersChanged` record; those of `voters` if the log no longer has them."""
        return self._voters[-2 if len(self._voters) > 1 else -1][1]

    def voters_at(self, index: int) -> VotersChanged:
        """In: `index`: at least the snapshot's index."""
        return next(voters for at, voters in reversed(self._voters) if at <= index)

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None if the log does not have it, or no longer has it."""
        place = index - self.base - 1
        if place >= 0:
            return self.entries[place].term if place < len(self.entries) else None
        return self.base_term if place == -1 else None

    def after(self, index: int, count_max: int) -> tuple[Entry, ...]:
        """At most `count_max` entries after `index`, which is at least the base."""
        start = index - self.base
        return tuple(self.entries[start : start + count_max])

    def first_of_term(self, index: int) -> int:
        """The first index of the run of entries with the term of the entry at `index`, as far as the log goes back."""
        term = self.term_at(index)
        while index - 1 > self.base and self.entries[index - self.base - 2].term == term:
            index -= 1
        return index

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.append(entry)
            if isinstance(entry.record, VotersChanged) and self.last_index > self.snapshot.index:
                self._voters.append((self.last_index, entry.record))

    def truncate(self, first_gone: int) -> None:
        """Removes the entry at this index and all later ones."""
        del self.entries[first_gone - self.base - 1 :]
        while len(self._voters) > 1 and self._voters[-1][0] >= first_gone:
            self._voters.pop()

    def compact(self, snapshot: Snapshot, base: int) -> None:
        """Drops the entries up to `base`; the snapshot contains them."""
        term = self.term_at(base)
        assert term is not None and base <= snapshot.index <= self.last_index
        del self.entries[: base - self.base]
        self.base, self.base_term = base, term
        self._begin_voters(snapshot)

    def reset(self, snapshot: Snapshot) -> None:
        """The snapshot replaces everything."""
        self.entries.clear()
        self.base, self.base_term = snapshot.index, snapshot.term
        self._begin_voters(snapshot)

    def _begin_voters(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        later = [(at, voters) for at, voters in self._voters if at > snapshot.index and at <= self.last_index]
        self._voters = [(snapshot.index, snapshot.voters), *later]
