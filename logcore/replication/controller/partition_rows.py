"""The partitions of a topic, as a sequence that stores equal neighbours as one row.

A topic may have ten thousand partitions that differ only in their number: one node has led them since the same record,
or they have no leader. Work on all partitions is then done once per row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from .metadata_records import PartitionState


class PartitionRow(NamedTuple):
    """A run of partitions that differ only in their number: the first, and how many there are (`of`)."""

    first: PartitionState
    of: int

    def states(self, start: int = 0, end: int | None = None) -> Iterator[PartitionState]:
        """In: a range of positions in this row."""
        first, rest = self.first, self.first[2:]
        for place in range(start, self.of if end is None else end):
            yield PartitionState._make((first.topic_id, first.partition + place, *rest))

    def part(self, start: int, end: int) -> PartitionRow:
        return PartitionRow(self.first._replace(partition=self.first.partition + start), end - start)


class PartitionRows(Sequence[PartitionState]):
    """State: the rows. It is immutable. Invariant: two neighbouring rows differ."""

    __slots__ = ("_ends", "rows", "size")

    def __init__(self, rows: Iterable[PartitionRow] = ()) -> None:
        """In: rows in the order of their partitions."""
        self.rows = _joined(rows)
        self._ends = list(accumulate(row.of for row in self.rows))
        self.size = self._ends[-1] if self._ends else 0

    @classmethod
    def of(cls, states: Iterable[PartitionState]) -> PartitionRows:
        return cls(PartitionRow(state, 1) for state in states)

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, number: int) -> PartitionState: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[PartitionState]: ...

    def __getitem__(self, number: int | slice) -> PartitionState | Sequence[PartitionState]:
        if isinstance(number, slice):
            return tuple(self)[number]
        place = range(self.size)[number]
        found = bisect_right(self._ends, place)
        row = self.rows[found]
        within = place - self._ends[found] + row.of
        return row.first if not within else next(row.states(within))

    def __iter__(self) -> Iterator[PartitionState]:
        for row in self.rows:
            yield from row.states()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionRows):
            return self.rows == other.rows
        return isinstance(other, tuple) and tuple(self) == other

    def with_states(self, states: Iterable[PartitionState]) -> PartitionRows:
        """With these states of partitions; the last state of a number counts. New partitions follow the others."""
        changed = {state.partition: state for state in states}
        numbers = sorted(changed)
        rows: list[PartitionRow] = []
        taken = 0
        for row, end in zip(self.rows, self._ends, strict=True):
            begin = kept = end - row.of
            while taken < len(numbers) and numbers[taken] < end:
                number = numbers[taken]
                if number > kept:
                    rows.append(row.part(kept - begin, number - begin))
                rows.append(PartitionRow(changed[number], 1))
                kept, taken = number + 1, taken + 1
            if kept < end:
                rows.append(row.part(kept - begin, end - begin))
        return PartitionRows((*rows, *(PartitionRow(changed[number], 1) for number in numbers[taken:])))

    def mapped(self, rule: Callable[[PartitionState], PartitionState]) -> PartitionRows:
        """Applies a rule that does not depend on partition numbers; returns itself if nothing changes."""
        rows = tuple(PartitionRow(rule(row.first), row.of) for row in self.rows)
        return self if rows == self.rows else PartitionRows(rows)

    def __repr__(self) -> str:
        return f"PartitionRows({self.rows!r})"


def _joined(rows: Iterable[PartitionRow]) -> tuple[PartitionRow, ...]:
    joined: list[PartitionRow] = []
    alike: tuple[object, ...] | None = None
    for row in rows:
        if alike is not None and row.first[2:] == alike:
            last = joined[-1]
            joined[-1] = PartitionRow(last.first, last.of + row.of)
        else:
            joined.append(row)
            alike = row.first[2:]
    return tuple(joined)
