"""The current rows of a push query, up to a limit. No threads, no widgets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LiveRow:
    """`number` identifies the row while it is kept: an update keeps it. `gone`: a deletion, displayed as a change."""

    number: int
    values: tuple[Any, ...]
    gone: bool = False


class LiveRows:
    """The newest rows of a query. With a `key` (positions of its columns), a row replaces the previous one, and a
    tombstone removes it; without a key, each row is kept as a separate change.

    >>> rows = LiveRows((0,), rows_max=2)
    >>> rows.take([("ada", 1), ("bo", 1), ("ada", 2)])
    >>> [row.values for row in rows]
    [('ada', 2), ('bo', 1)]
    >>> rows.take([("bo", None), ("cy", 1)], [True, False])
    >>> [(row.number, row.values) for row in rows]
    [(0, ('ada', 2)), (2, ('cy', 1))]

    Beyond `rows_max`, the row that has not changed for longest is removed. `forgotten` counts removed rows.
    """

    def __init__(self, key: tuple[int, ...] | None, rows_max: int) -> None:
        self.forgotten = 0
        self._key = key
        self._rows_max = rows_max
        self._numbers = itertools.count()
        self._rows: dict[Any, LiveRow] = {}  # the most recently changed row is last

    def take(self, rows: Iterable[tuple[Any, ...]], gone: Iterable[bool] | None = None) -> None:
        """In: `gone`: which of the rows are tombstones."""
        for values, deleted in zip(rows, itertools.repeat(False) if gone is None else gone, strict=False):
            self._change(values, deleted)

    def skip(self, count: int) -> None:
        """Counts rows that would have been removed at once."""
        self.forgotten += count

    def __iter__(self) -> Iterator[LiveRow]:
        """In the order in which they first arrived."""
        return iter(sorted(self._rows.values(), key=lambda row: row.number))

    def __len__(self) -> int:
        return len(self._rows)

    def _change(self, values: tuple[Any, ...], deleted: bool) -> None:
        if self._key is None:
            number = next(self._numbers)
            self._rows[number] = LiveRow(number, values, deleted)
        else:
            key = tuple(_hashable(values[i]) for i in self._key)
            before = self._rows.pop(key, None)
            if deleted:
                return
            number = next(self._numbers) if before is None else before.number
            self._rows[key] = LiveRow(number, values)
        if len(self._rows) > self._rows_max:
            del self._rows[next(iter(self._rows))]
            self.forgotten += 1


def _hashable(value: Any) -> Any:
    """
    >>> _hashable([1, {"a": 2}])
    (1, (('a', 2),))
    """
    match value:
        case list() | tuple():
            return tuple(map(_hashable, value))
        case dict():
            return tuple((name, _hashable(item)) for name, item in value.items())
        case _:
            return value
