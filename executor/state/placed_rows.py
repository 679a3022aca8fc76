"""Rows in memory by place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .key_hash import Vector
from .state_columns import StateColumn, is_number, state_column

_BITS = 20  # of a place within its block: growing copies a block, and reading visits each block that has a place


class _Block:
    def __init__(self, schema: pa.Schema) -> None:
        self.columns: list[StateColumn] = [state_column(field.type) for field in schema]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)


class PlacedRows:
    """In: the columns of a row. The owner (`CachedRows`) knows which places have a row."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._position = {name: number for number, name in enumerate(schema.names)}
        self._bits = _BITS
        self._within = (1 << _BITS) - 1
        self._blocks: list[_Block] = []
        self._has_pools = not all(is_number(field.type) for field in schema)

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def get(self, places: Vector, names: Sequence[str]) -> list[pa.Array]:
        """The values of these places in each column; NULL if there was never a row."""
        columns = [self._position[name] for name in names]
        number = places >> self._bits
        if not number.any():
            block = self._grown(0, places)
            return [block.columns[column].get(places) for column in columns]
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        pieces: list[list[pa.Array]] = [[] for _ in columns]
        for own in np.split(order, starts[1:]):
            within = places[own] & self._within
            block = self._grown(int(number[own[0]]), within)
            for piece, column in zip(pieces, columns, strict=True):
                piece.append(block.columns[column].get(within))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        back = pa.array(back)
        return [pa.concat_arrays(piece).take(back) for piece in pieces]

    def set(self, places: Vector, columns: Sequence[pa.Array]) -> None:
        """In: distinct places, and all columns of their rows."""
        if not len(places):
            return
        number = places >> self._bits
        first, last = int(number.min()), int(number.max())
        if first == last:
            self._set_within(first, places & self._within, columns)
            return
        for each in np.flatnonzero(np.bincount(number - first)) + first:
            own = np.flatnonzero(number == each)
            chosen = pa.array(own)
            self._set_within(int(each), places[own] & self._within, [column.take(chosen) for column in columns])

    def clear(self, places: Vector) -> None:
        """Drops the values in these places; they are no longer needed."""
        if not self._has_pools:
            return
        number = places >> self._bits
        for each in np.unique(number).tolist():
            for column in self._blocks[each].columns:
                column.clear(places[number == each] & self._within)

    def _set_within(self, number: int, places: Vector, columns: Sequence[pa.Array]) -> None:
        block = self._grown(number, places)
        for column, values in zip(block.columns, columns, strict=True):
            column.set(places, values)

    def _grown(self, number: int, places: Vector) -> _Block:
        """The block, with room for these places."""
        while len(self._blocks) <= number:
            self._blocks.append(_Block(self._schema))
        block = self._blocks[number]
        count = int(places.max(initial=-1)) + 1
        for column in block.columns:
            column.grow(count)
        return block
