"""Rows by slot, in memory, in blocks that are let go one by one when there are too many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..operators.columns import Ints, flat
from .state_columns import StateColumn, state_column

_BITS = 20  # of a slot's place in its block: reading costs a look into each block, and what is let go is a block


class _Block:
    def __init__(self, schema: pa.Schema) -> None:
        self.columns: list[StateColumn] = [state_column(field.type) for field in schema]
        self.used_at = 0

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)


class SlotRows:
    """In: the columns of a row. Which slots have their row here is the owner's to know (`StateStore`)."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._position = {name: number for number, name in enumerate(schema.names)}
        self._bits = _BITS
        self._within = (1 << _BITS) - 1
        self._blocks: list[_Block] = []
        self._clock = 0

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def get(self, slots: Ints, names: Sequence[str]) -> list[pa.Array]:
        """Of each column the values of these slots; NULL where there was never a row."""
        places = [self._position[name] for name in names]
        number = slots >> self._bits
        if not number.any():
            block = self._grown(0, slots)
            return [block.columns[place].get(slots) for place in places]
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        pieces: list[list[pa.Array]] = [[] for _ in places]
        for own in np.split(order, starts[1:]):
            within = slots[own] & self._within
            block = self._grown(int(number[own[0]]), within)
            for column, place in zip(pieces, places, strict=True):
                column.append(block.columns[place].get(within))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        back = pa.array(back)
        return [pa.concat_arrays(column).take(back) for column in pieces]

    def set(self, slots: Ints, rows: pa.Table) -> None:
        """`slots` are distinct; the rows have all columns."""
        columns = [flat(rows, name) for name in self._schema.names]
        if not len(slots):
            return
        number = slots >> self._bits
        first, last = int(number.min()), int(number.max())
        if first == last:
            self._set_within(first, slots & self._within, columns)
            return
        for each in np.flatnonzero(np.bincount(number - first)) + first:
            own = np.flatnonzero(number == each)
            chosen = pa.array(own)
            self._set_within(int(each), slots[own] & self._within, [column.take(chosen) for column in columns])

    def let_go(self, room: int) -> list[slice]:
        """Of blocks until the rest fits into so many bytes, those first that were used longest ago. Out: the slots
        whose rows are gone from here."""
        gone: list[slice] = []
        total = self.nbytes
        for number in sorted(range(len(self._blocks)), key=lambda number: self._blocks[number].used_at):
            if total <= room:
                break
            total -= self._blocks[number].nbytes
            self._blocks[number] = _Block(self._schema)
            gone.append(slice(number << self._bits, (number + 1) << self._bits))
        return gone

    def _set_within(self, number: int, slots: Ints, columns: Sequence[pa.Array]) -> None:
        block = self._grown(number, slots)
        for column, values in zip(block.columns, columns, strict=True):
            column.set(slots, values)

    def _grown(self, number: int, slots: Ints) -> _Block:
        """The block, with room for these slots."""
        while len(self._blocks) <= number:
            self._blocks.append(_Block(self._schema))
        block = self._blocks[number]
        self._clock += 1
        block.used_at = self._clock
        count = int(slots.max(initial=-1)) + 1
        for column in block.columns:
            column.grow(count)
        return block
