"""Rows by slot: as many as fit are in memory, the others in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from ..operators.columns import Ints, flat
from .key_index import grown
from .placed_rows import PlacedRows
from .spilled_rows import SpilledRows

_FEWEST: Final = 1_024  # rows that are in memory, however little room there is
_FEWEST_BYTES: Final = 256 * 1024 * 1024  # unless they take more than this
_PART_AT_ONCE: Final = 4  # divisor: this part of the places may be given to other rows at once
_PART_TRIMMED: Final = 16  # divisor: this part of the places is emptied at once if rows have become wider
_SLACK: Final = 8  # divisor: rows may exceed the room by this part before places are emptied


class CachedRows:
    """The owner knows which slots have a row. A slot that was never set is NULL in each column.

    Rows in memory have places. As long as there is room, each new row gets a new place. After that, the places are a
    ring, and a new row gets the place that was assigned longest ago. The row in it is written to the file, unless the
    file already has it. Rows that are read from the file also come into memory, if they are few compared to those
    there.

    Invariants: the `_free` places from `_head` on, wrapping around at the end, are empty. If a slot has a `_place`, its
    row is there, and `_slot` of that place is the slot.
    """

    def __init__(self, schema: pa.Schema, room: int, spill: Callable[[], SpilledRows]) -> None:
        """In: `room`: in bytes; `spill`: makes the file; called when the first row must leave memory."""
        self._schema = schema
        self._room = room
        self._spill = spill
        self._memory = PlacedRows(schema)
        self._file: SpilledRows | None = None
        self._place = np.empty(0, np.int32)  # per slot; -1: not in memory
        self._slot = np.empty(0, np.int32)  # per place; -1: empty
        self._unsaved = np.empty(0, np.bool_)  # per place: the file does not have this row
        self._places = self._head = self._free = 0
        self._is_ring = False

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._memory.nbytes

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes in memory; 0 if there is none yet."""
        held = self._places - self._free
        return self.nbytes // held if held else 0

    def get(self, slots: Ints, names: Sequence[str]) -> list[pa.Array]:
        """The values of these slots in each column."""
        self._know(slots)
        places = self._place[slots]
        if (places >= 0).all():
            return self._memory.get(places, names)
        here, absent = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        distinct, which = np.unique(slots[absent], return_inverse=True)
        are_few = len(distinct) * _PART_AT_ONCE <= self._places
        read = self._schema.names if are_few else list(names)
        found = dict(zip(read, self._from_file(distinct, read), strict=True))
        back = np.empty(len(slots), np.int64)
        back[here], back[absent] = np.arange(len(here)), len(here) + which
        order = pa.array(back)
        columns = [
            pa.concat_arrays([column, found[name]]).take(order)
            for name, column in zip(names, self._memory.get(places[here], names), strict=True)
        ]
        if are_few and self._file is not None:
            self._put(distinct, list(found.values()), unsaved=False)
        return columns

    def set(self, slots: Ints, rows: pa.Table) -> None:
        """In: distinct slots; the rows have all columns."""
        if not len(slots):
            return
        self._know(slots)
        columns = [flat(rows, name) for name in self._schema.names]
        row_bytes = self.row_bytes or sum(column.nbytes for column in columns) // len(slots)
        fits = not self._is_ring and self.nbytes + len(slots) * row_bytes <= self._room
        piece = len(slots) if fits else max(_FEWEST, self._places // _PART_AT_ONCE)
        for first in range(0, len(slots), piece):
            self._put(slots[first : first + piece], [column.slice(first, piece) for column in columns], unsaved=True)

    def _know(self, slots: Ints) -> None:
        self._place = grown(self._place, int(slots.max(initial=-1)) + 1, -1)

    def _from_file(self, slots: Ints, names: Sequence[str]) -> list[pa.Array]:
        if self._file is None:
            return [pa.nulls(len(slots), self._schema.field(name).type) for name in names]
        return self._file.get(slots, names)

    def _put(self, slots: Ints, columns: Sequence[pa.Array], unsaved: bool) -> None:
        new = self._reserve(slots)
        places = self._place[slots]
        if len(new):
            given = (self._head + np.arange(len(new))) % self._places
            places[new] = self._place[slots[new]] = given
            self._slot[given] = slots[new]
            self._free -= len(new)
            self._head = int(given[-1]) + 1
        self._memory.set(places, columns)
        self._unsaved[places] = unsaved
        self._trim()

    def _reserve(self, slots: Ints) -> Ints:
        """Frees a place for each of these slots that has none. Out: the positions of these slots; evictions may have
        added some of them."""
        while True:
            new = np.flatnonzero(self._place[slots] < 0)
            more = len(new) - self._free
            if more <= 0:
                return new
            if not self._is_ring and (self._places < _FEWEST or self.nbytes + more * self.row_bytes <= self._room):
                self._add_places(more)
            else:
                self._is_ring = True
                self._evict(more)

    def _add_places(self, count: int) -> None:
        self._places += count
        self._free += count
        self._slot, self._unsaved = grown(self._slot, self._places, -1), grown(self._unsaved, self._places, 0)

    def _evict(self, count: int) -> None:
        """Empties the `count` places after the free ones."""
        places = (self._head + self._free + np.arange(count)) % self._places
        slots = self._slot[places]
        held = slots >= 0
        places, slots = places[held], slots[held]
        unsaved = self._unsaved[places]
        if unsaved.any():
            self._file = self._file or self._spill()
            self._file.put(slots[unsaved].astype(np.int64), self._memory.get(places[unsaved], self._schema.names))
        self._memory.clear(places)
        self._place[slots] = self._slot[places] = -1
        self._free += count

    def _trim(self) -> None:
        while self._is_too_much(self._places - self._free):
            self._is_ring = True
            self._evict(min(self._places - self._free, -(-self._places // _PART_TRIMMED)))

    def _is_too_much(self, held: int) -> bool:
        """In: `held`: the number of rows in memory."""
        if self.nbytes <= self._room + self._room // _SLACK:
            return False
        return held > _FEWEST or (held > 1 and self.nbytes > self._room + _FEWEST_BYTES)
