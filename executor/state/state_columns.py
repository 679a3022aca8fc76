"""One column of many rows, in memory: numbers in numpy, everything else in Arrow."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...sql.functions.aggregation.aggregate_values import as_physical, physical
from ..operators.columns import Ints

_OUTDATED_MIN = 5_000  # fewer are not worth removing
_CLEARED = 8  # divisor: this part of a pooled column may be outdated when values are cleared
_PIECES_MAX = 32  # of a pooled column: taking rows from many pieces is slow
_MANY = 8  # divisor: if more than this part of a pooled column is read, Arrow may first concatenate all of it


class StateColumn(Protocol):
    """A column of values by slot. Each is NULL until it is set."""

    @property
    def nbytes(self) -> int: ...

    def grow(self, count: int) -> None:
        """Makes room for this many rows."""
        ...

    def get(self, slots: Ints) -> pa.Array: ...

    def set(self, slots: Ints, values: pa.Array) -> None:
        """`slots` are distinct."""
        ...

    def clear(self, slots: Ints) -> None:
        """Drops the values of these distinct slots; they are no longer needed."""
        ...


def state_column(type_: pa.DataType) -> StateColumn:
    return NumberColumn(type_) if is_number(type_) else PooledColumn(type_)


def is_number(type_: pa.DataType) -> bool:
    """Whether values of this type are kept as numbers of a fixed width; times are, too."""
    kept = physical(type_)
    return pa.types.is_integer(kept) or pa.types.is_float64(kept) or pa.types.is_boolean(kept)


class NumberColumn:
    """Numbers, and values that are kept as numbers, stored in place."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._values = np.zeros(0, physical(type_).to_pandas_dtype())
        self._valid = np.zeros(0, np.bool_)
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Without the unused rest of the arrays: it is zero and was never touched, so it takes no memory yet."""
        return self._count * (self._values.itemsize + 1)

    def grow(self, count: int) -> None:
        self._count = max(self._count, count)
        if count > len(self._valid):
            room = _room_for(count)
            self._values, self._valid = _longer(self._values, room), _longer(self._valid, room)

    def get(self, slots: Ints) -> pa.Array:
        valid = self._valid[slots]
        column = pa.array(self._values[slots], mask=None if valid.all() else ~valid)
        return column if column.type == self._type else column.cast(self._type)

    def set(self, slots: Ints, values: pa.Array) -> None:
        kept = as_physical(values)
        if kept.null_count:
            self._valid[slots] = kept.is_valid().to_numpy(zero_copy_only=False)
            kept = kept.fill_null(False if pa.types.is_boolean(kept.type) else 0)
        else:
            self._valid[slots] = True
        self._values[slots] = kept.to_numpy(zero_copy_only=False)

    def clear(self, slots: Ints) -> None:
        """Does nothing: numbers always take the same space."""


def _room_for(count: int) -> int:
    """The next power of 4; the last one is a whole block of `PlacedRows`. Growing to four times the current size did
    not end at a block, and a million rows were copied for the last few thousand places of a block."""
    return 1 << ((count - 1).bit_length() + 1 & ~1)


def _longer(values: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    longer = np.zeros(count, values.dtype)
    longer[: len(values)] = values
    return longer


class PooledColumn:
    """Values of any type: they are appended, and found by their place. Outdated values are removed once they are more
    than the rest.

    Invariant: slots that have a place have distinct places. So places in use can be counted and marked, and need no
    sorting.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._places = np.zeros(0, np.int64)  # 0 is the NULL at the start of the pool
        self._pieces: list[pa.Array] = [pa.nulls(1, type_)]
        self._rows = 1
        self._outdated = 0
        self._bytes = 0  # of all pieces

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + self._bytes

    def grow(self, count: int) -> None:
        more = count - len(self._places)
        if more > 0:
            self._places = np.concatenate([self._places, np.zeros(max(more, len(self._places)), np.int64)])

    def get(self, slots: Ints) -> pa.Array:
        places = self._places[slots]
        if len(self._pieces) > 2 and len(places) * _MANY < self._rows:
            return self._from_pieces(places)
        taken: Any = pa.chunked_array(self._pieces, self._type).take(pa.array(places))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def _from_pieces(self, places: Ints) -> pa.Array:
        """Takes from each piece separately. For a text column in several pieces, Arrow's `take` copies all pieces into
        one: 7 ms for 100 of 3M names."""
        ends = np.cumsum([len(piece) for piece in self._pieces])
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], ends)
        found: list[pa.Array] = []
        begin = 0
        for piece, end, cut in zip(self._pieces, ends.tolist(), cuts.tolist(), strict=True):
            if cut > begin:
                found.append(piece.take(pa.array(places[order[begin:cut]] - (end - len(piece)))))
            begin = cut
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(found or [self._pieces[0].slice(0, 0)]).take(pa.array(back))

    def set(self, slots: Ints, values: pa.Array) -> None:
        if not len(slots):
            return
        self._outdated += int(np.count_nonzero(self._places[slots]))
        self._places[slots] = self._rows + np.arange(len(slots), dtype=np.int64)
        self._pieces.append(values)
        self._rows += len(values)
        self._bytes += values.nbytes
        if self._outdated > self._rows // 2 + _OUTDATED_MIN:
            self._compact()
        elif len(self._pieces) > _PIECES_MAX:
            self._merge()

    def clear(self, slots: Ints) -> None:
        """Drops the values. It removes outdated ones sooner than `set` does: values are cleared when memory is
        short."""
        self._outdated += int(np.count_nonzero(self._places[slots]))
        self._places[slots] = 0
        if self._outdated > self._rows // _CLEARED + _OUTDATED_MIN:
            self._compact()

    def _merge(self) -> None:
        """Merges small pieces at the end, so that each piece is at least twice as long as the next one."""
        tail = [self._pieces.pop()]
        rows = len(tail[0])
        while len(self._pieces) > 1 and len(self._pieces[-1]) < 2 * rows:
            rows += len(self._pieces[-1])
            tail.append(self._pieces.pop())
        self._pieces.append(pa.concat_arrays(tail[::-1]))

    def _compact(self) -> None:
        used = np.zeros(self._rows, np.bool_)
        used[self._places] = used[0] = True
        kept: Any = pa.chunked_array(self._pieces, self._type).filter(pa.array(used))
        self._pieces = [kept.combine_chunks() if kept.num_chunks != 1 else kept.chunk(0)]
        self._places = (np.cumsum(used) - 1)[self._places]
        self._rows, self._outdated, self._bytes = len(self._pieces[0]), 0, self._pieces[0].nbytes
