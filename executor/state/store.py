"""Keyed state of operators, with the changes that rebuild it elsewhere.

All keys of a store are in memory, each with a slot and the number of its newest row (`key_index.py`). Rows are in
memory, too, as long as there is room; the others are in a temporary file (`cached_rows.py`). Batches read and write
there, so their cost does not grow with the size of the store. DuckDB's table (`state_table.py`) gets the current row of
each changed key with `settle`; a store is loaded from it when it is opened. A join with that table would read all of
it: 6 ms for 100 keys of 1M rows, 34 ms for 10M rows. This index takes 0.1 ms for rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.types import SqlType
from ..operators.columns import Bools, Ints, conform, flat, ints, last_of_group, take
from .cached_rows import CachedRows
from .key_hash import Hashes, key_hashes
from .key_index import KeyIndex, Numbered, PartialIndex, SlotCounter, SlotRange, grown, numbered_pairs, slots_of
from .memory_shares import room_of_a_store
from .spilled_rows import SpilledRows, spill_folder
from .state_table import NUMBER, StateTable, TableSettlement
from .zones import Zones

ROOM_BYTES: Final = 512 * 1024 * 1024  # for the rows of one store; keys take about 36 bytes each in addition
_HELD_MAX = 500_000  # written rows that are held until DuckDB gets them; if there are more, they are read again then
_COMPACT_FROM = 8_000  # outdated rows of the table, or keys without a row: fewer are not worth the work
_PIECE_ROWS = 100_000  # rows that are moved at once
_PIECE_BYTES = 64 * 1024 * 1024  # of rows that are moved at once, on average
_SAMPLE_ROWS = 1_000
_ROWS_AT_ONCE = 1_000_000  # this many may always be read at once, however little memory there is

_EXPIRED = b"millstream.expired"


@dataclass(frozen=True, slots=True)
class StoreChanges:
    """Changes of a store, in order: key columns, value columns and `_deleted`. Replaying them, once or several times,
    from any earlier point, rebuilds the store (`StateStore.restore`).

    `key`: the key columns; if a key has several rows, the last one counts. `expired_column`: the column by which rows
    have expired. Then `rows` has only this column and `_part`: stored rows below that value are removed.
    """

    store: str
    rows: pa.Table
    key: tuple[str, ...] = ()

    @property
    def expired_column(self) -> str | None:
        return _expired_column(self.rows)


@dataclass(frozen=True, slots=True)
class _Born:
    """New rows, of keys that had none, with all columns and their numbers. They are held until the table gets them, in
    addition to the columns in memory. Rows that replace others are not held: a group may be written in every batch."""

    slots: Ints
    rows: pa.Table


class StateStore:
    """Rows by key. Not thread-safe.

    A key column may be NULL; NULLs are equal. For the rows that `expire` removes, the changes only contain the bound,
    so that compaction can remove these rows from the changelog. With `names_expired`, the changes delete each row by
    key, for logs that can only compact by key.

    Invariants: a slot has a row if its number is not -1. A row that is not in the table, or has another number there,
    is in `_unsettled`. "In the table" means: once all settlements are applied.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        key: Mapping[str, SqlType],
        value: Mapping[str, SqlType],
        *,
        writes_new_keys: bool = False,
    ) -> None:
        """In: `writes_new_keys`: each key is written once and removed by `expire` only, so no write needs to look up
        its slot. This holds for a join's rows: indexing all their keys took a tenth of the processor time of Nexmark's
        q4 and q20."""
        self.name = name
        self.key: Mapping[str, SqlType] = MappingProxyType(dict(key))
        self.value: Mapping[str, SqlType] = MappingProxyType(dict(value))
        self.key_schema = pa.schema([(column, type_.arrow) for column, type_ in key.items()])
        self._row_schema = pa.schema([(column, type_.arrow) for column, type_ in {**key, **value}.items()])
        self.change_schema = self._row_schema.append(pa.field("_deleted", pa.bool_()))
        self._read_schema = pa.schema([("_index", pa.int64()), *self._row_schema])
        self._key, self._row = tuple(key), tuple(self._row_schema.names)
        self._connection = connection
        self._table = StateTable(connection, name, {**key, **value})
        self._share = room_of_a_store(connection)
        self._room = min(ROOM_BYTES, self._share)
        self.names_expired = False
        self._changes: list[pa.Table] = []
        self._version = self._numbering = 0
        self._next = 0 if self._table.last is None else self._table.last + 1
        self._parts: dict[tuple[str, ...], PartialIndex] = {}
        self._zones: dict[str, Zones] = {}
        self._ranged: dict[str, Ints] = {}  # per slot, the value of a key column that is used in range lookups
        self._writes_new_keys = writes_new_keys
        self._index: KeyIndex | SlotCounter = KeyIndex()
        self._spill = partial(SpilledRows, self._row_schema, spill_folder(connection))
        self._rows = self._no_rows()
        self._number = np.empty(0, np.int64)  # per slot, the number of its row; -1: no row
        self._stored = np.empty(0, np.bool_)  # the table has rows of this key
        self._live = 0
        self._unsettled: list[Ints] = []
        self._born: list[_Born] = []  # the unsettled ones whose rows need not be read again
        self._unsettled_count = 0
        self._expired: dict[tuple[int, str], int] = {}  # bounds below which the table must still delete rows
        self._expired_count = 0  # rows of the table below these bounds, without outdated ones
        self._loaded = not self._table.rows

    def __len__(self) -> int:
        self._load()
        return self._live

    @property
    def version(self) -> int:
        """Increases with every write and restore. While it is unchanged, values that were read are still valid."""
        return self._version

    @property
    def numbering(self) -> int:
        """Increases when keys get new slots."""
        return self._numbering

    # -------------------------------------------------------------- reading

    def read(self, keys: pa.Table, by: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys: `_index` (the key's position), the key and the value columns. In: distinct `keys`.

        `by`: reads by these key columns only; then a key may have several rows, ordered by the other key columns.
        Raises `MemoryError` if there is no room for so many rows.
        """
        self._load()
        columns = self._key if by is None else tuple(by)
        if not self._live or not len(keys):
            return self._read_schema.empty_table()
        if len(columns) == len(self._key):
            slots = self._keys().find(self._hashes(keys, self._key))
            position = np.flatnonzero(slots >= 0)
            position = position[self._number[slots[position]] >= 0]
            return self._found(position, slots[position])
        hashes = self._hashes(keys, columns)
        position, slots = self._by(columns).find(hashes, self._number, room=self._rows_at_once)
        rest = [column for column in self._key if column not in columns]
        return _sorted(self._found(position, slots), ["_index", *rest])

    def locate_between(self, asked: pa.Table, by: Sequence[str], column: str) -> tuple[Ints, Ints]:
        """For each asked row, the rows that have its values in the key columns `by` and a `column` from its `_low` to
        its `_high`, both inclusive. Out: the asked row's position and the slot, unordered. Asked rows need not be
        distinct. NULL equals nothing here. Slots are valid until the next `settle`. Raises `MemoryError`."""
        self._load()
        if not self._live or not len(asked):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        columns = tuple(by)
        low, high = ints(asked, "_low"), ints(asked, "_high")
        for name in columns:
            if asked.column(name).null_count:
                low = np.where(asked.column(name).is_null().to_numpy(), high + 1, low)
        within = SlotRange(self._ranged_by(column), low, high)
        return self._by(columns).find(self._hashes(asked, columns), self._number, within, self._rows_at_once)

    def between(self, part: int, column: str, low: int, high: int) -> pa.Table:
        """The task's rows with low < `column` <= high, ordered by the key."""
        self._load()
        return self._ordered(self._within(part, column, low, high))

    def rows(self, part: int | None = None) -> pa.Table:
        """All rows (of one task), key and value columns, ordered by the key."""
        self._load()
        slots = np.flatnonzero(self._number[: self._index.count] >= 0)
        if part is not None:
            slots = slots[self._values(slots, "_part") == part]
        return self._ordered(slots)

    def is_empty(self) -> bool:
        self._load()
        return not self._live

    def measure(self) -> tuple[int, int]:
        """The number of rows, and about how many bytes they take as Arrow."""
        self._load()
        sample = np.flatnonzero(self._number[: self._index.count] >= 0)[:_SAMPLE_ROWS]
        bytes_ = sum(column.nbytes for column in self._rows.get(sample, self._row))
        return self._live, bytes_ * self._live // max(1, len(sample))

    def by_task(self, column: str) -> list[tuple[int, int, int]]:
        """For each task: its number, its number of rows, and the smallest value of this key column."""
        self._load()
        found: dict[int, tuple[int, int]] = {}
        for _, keys in self._all_keys():
            parts, values = ints(keys, "_part"), ints(keys, column)
            for part in np.unique(parts).tolist():
                own = values[parts == part]
                count, least = found.get(part, (0, int(own[0])))
                found[part] = count + len(own), min(least, int(own.min()))
        return [(part, *found[part]) for part in sorted(found)]

    # -------------------------------------------------------------- writing

    def write(self, rows: pa.Table) -> None:
        """Upserts rows of key and value columns; keys are distinct."""
        self.change(rows.append_column("_deleted", pa.array(np.zeros(len(rows), dtype=np.bool_))))

    def delete(self, keys: pa.Table) -> None:
        self.change(keys.append_column("_deleted", pa.array(np.ones(len(keys), np.bool_))))

    def change(self, rows: pa.Table) -> None:
        """Upserts and deletes. In: rows of key and value columns and `_deleted`; keys are distinct."""
        if len(rows):
            rows = conform(rows, self.change_schema)
            self._load()
            self._put(self._slots_for(rows), rows)
            self._changes.append(rows)

    def restore(self, rows: pa.Table) -> None:
        """Applies recorded changes, in order; a key may occur several times. They are not recorded again."""
        self._load()
        column = _expired_column(rows)
        if column is not None:
            for part, below in zip(rows["_part"].to_pylist(), rows[column].to_pylist(), strict=True):
                self._expire(part, column, below)
        elif len(rows):
            rows = conform(rows, self.change_schema)
            numbered = self._keys().number(self._hashes(rows, self._key))
            if len(numbered) < len(rows):
                rows = take(rows, last_of_group(numbered.group, len(numbered)))
            self._put(numbered.slot, rows)

    def expire(self, part: int, column: str, below: int) -> None:
        """Removes the task's rows whose `column` is less than `below`."""
        self._load()
        if self.names_expired:
            self._name_expired(self._within(part, column, np.iinfo(np.int64).min, below - 1))
        elif self._index.count or self._table.rows:
            expired = pa.table({"_part": pa.array([part], pa.int32()), column: pa.array([below], pa.int64())})
            self._changes.append(expired.replace_schema_metadata({_EXPIRED: column.encode()}))
        self._expire(part, column, below)

    def _name_expired(self, slots: Ints) -> None:
        if len(slots):
            keys = pa.table(self._rows.get(slots, self._key), schema=self.key_schema)
            deleted = keys.append_column("_deleted", pa.array(np.ones(len(keys), np.bool_)))
            self._changes.append(conform(deleted, self.change_schema))

    def take_changes(self) -> list[StoreChanges]:
        """The changes since the last call, oldest first."""
        taken, self._changes = self._changes, []
        return [StoreChanges(self.name, rows, self._key) for rows in taken]

    # -------------------------------------------------------------- by slot

    def locate(self, columns: Sequence[pa.Array]) -> tuple[Numbered, Bools]:
        """Groups rows by key. Out: the groups, and which of them have a stored row. In: the key columns, in the store's
        order. Slots are valid until the next `settle`."""
        self._load()
        numbered = self._keys().number(key_hashes(columns))
        self._grow()
        return numbered, self._number[numbered.slot] >= 0

    def locate_marked(self, columns: Sequence[pa.Array], rows: Ints, marks: Ints) -> tuple[Numbered, Bools]:
        """Like `locate`, for rows that occur several times, each time with another value of the last key column. In:
        the other key columns; for each place of the result, its row and its value of the last key column.

        Each row's key is hashed once, and each group of places is looked up once. A window of 10 s that advances by 2 s
        has five places per row: hashing and finding each of them took a fifth of Nexmark's q5."""
        keys = KeyIndex().number(key_hashes(columns))
        group, first = numbered_pairs(keys.group[rows], marks)
        taken = pa.array(rows[first])
        distinct, known = self.locate([*[column.take(taken) for column in columns], pa.array(marks[first])])
        return Numbered(group, first, distinct.slot), known

    def locate_by(self, columns: Sequence[pa.Array], by: Sequence[str]) -> tuple[Numbered, Ints, Ints]:
        """Groups rows by some of the key columns. Out: the groups; for each stored row of a group, the group and the
        slot. In: the columns `by`. Slots are valid until the next `settle`. Raises `MemoryError`."""
        self._load()
        part = self._by(tuple(by))
        numbered = part.number(key_hashes(columns))
        groups, slots = part.rows_of(numbered.slot, self._number, room=self._rows_at_once)
        return numbered, groups, slots

    def values_at(self, slots: Ints, names: Sequence[str]) -> list[pa.Array]:
        """The values of each column in these slots, which must have a row."""
        return self._rows.get(slots, names)

    def values(self, slots: Ints) -> pa.Table:
        """The value columns, one row per slot: NULLs if the slot has no row."""
        names = tuple(self.value)
        there = self._number[slots] >= 0
        if there.all():
            return pa.table(self._rows.get(slots, names), names=list(names))
        found = pa.table(self._rows.get(slots[there], names), names=list(names))
        return take(found, np.where(there, np.cumsum(there) - 1, -1))

    def write_at(self, slots: Ints, rows: pa.Table) -> None:
        """Like `write`, if the slots of the rows' keys are known."""
        self.change_at(slots, rows.append_column("_deleted", pa.array(np.zeros(len(rows), dtype=np.bool_))))

    def change_at(self, slots: Ints, rows: pa.Table) -> None:
        """Like `change`, if the slots of the rows' keys are known."""
        if len(rows):
            rows = conform(rows, self.change_schema)
            self._put(slots, rows)
            self._changes.append(rows)

    def pieces(self, names: Sequence[str]) -> Iterator[tuple[Ints, pa.Table]]:
        """The slots that have a row, and these columns of their rows, piece by piece."""
        self._load()
        return self._all(tuple(names))

    # -------------------------------------------------------------- the table

    def settle(self) -> None:
        """Brings the table up to date with all writes, inside the caller's transaction."""
        settlement = self.take_settlement()
        if settlement is not None:
            settlement.apply(self._connection)

    def take_settlement(self) -> TableSettlement | None:
        """The changes that bring the table up to date with all writes; None if there are none. They must be applied
        before the next settlement is taken."""
        if not self._loaded:
            return None
        rows, kept = list(self._unsettled_rows()), None
        row_count = self._table.rows - self._expired_count + sum(map(len, rows))
        expired, self._expired, self._expired_count = self._expired, {}, 0
        if row_count > _COMPACT_FROM + 2 * self._live:
            number = self._number[: self._index.count]
            kept = number[number >= 0]
            self._stored[: self._index.count] = number >= 0
        if self._index.count > _COMPACT_FROM + 2 * self._live:
            self._renumber()
        return TableSettlement(self._table, expired, rows, kept) if expired or rows or kept is not None else None

    def _unsettled_rows(self) -> Iterator[pa.Table]:
        """The rows and deletions that the table is to get. From then on they count as being in the table."""
        if not self._unsettled:
            return
        slots = _distinct(np.concatenate(self._unsettled))
        self._unsettled, self._unsettled_count = [], 0
        born = self._take_born()
        if born:
            yield pa.concat_tables([each.rows for each in born])
            settled = np.zeros(self._index.count, np.bool_)
            for each in born:
                self._stored[each.slots] = settled[each.slots] = True
            slots = slots[~settled[slots]]
        slots = slots[(self._number[slots] >= 0) | self._stored[slots]]
        size = self._piece_rows
        for first in range(0, len(slots), size):
            yield self._as_they_are(slots[first : first + size])

    def _take_born(self) -> list[_Born]:
        """The held new rows that have not been written again since."""
        taken, self._born = self._born, []
        found: list[_Born] = []
        for born in taken:
            current = self._number[born.slots] == ints(born.rows, NUMBER)
            if current.all():
                found.append(born)
            elif current.any():
                found.append(_Born(born.slots[current], born.rows.filter(pa.array(current))))
        return found

    def _as_they_are(self, slots: Ints) -> pa.Table:
        """The current rows of these slots, in the form of the table."""
        number = self._number[slots]
        gone = number < 0
        number = np.where(gone, self._next + np.arange(len(slots)), number)
        self._next += len(slots)
        self._stored[slots] = True
        columns = [*self._rows.get(slots, self._row), pa.array(gone), pa.array(number)]
        return pa.table(columns, schema=self._table.schema)

    def _renumber(self) -> None:
        """Gives new slots to the keys that have a row, and drops the other keys."""
        kept = np.flatnonzero(self._number[: self._index.count] >= 0)
        index, rows = self._index.renumbered(kept), self._no_rows()
        size = self._piece_rows
        for first in range(0, len(kept), size):
            piece = kept[first : first + size]
            moved = pa.table(self._rows.get(piece, self._row), schema=self._row_schema)
            rows.set(first + np.arange(len(piece)), moved)
        self._index, self._rows = index, rows
        self._number, self._stored = self._number[kept], self._stored[kept]
        self._parts = {columns: part.renumbered(kept) for columns, part in self._parts.items()}
        self._zones, self._ranged = {}, {}
        self._numbering += 1

    def _load(self) -> None:
        """Loads the store from the table, unless it is loaded."""
        if self._loaded:
            return
        self._loaded = True
        deleted = np.empty(0, np.bool_)
        for piece in self._table.load(self._row):
            number = ints(piece, NUMBER)
            numbered = self._keys().number(self._hashes(piece, self._key))
            self._grow()
            deleted = grown(deleted, self._index.count, 0)
            slots = numbered.slot[numbered.group]
            np.maximum.at(self._number, slots, number)
            newest = np.flatnonzero(self._number[slots] == number)
            slots = slots[newest]
            deleted[slots] = flat(piece, "_deleted").to_numpy(zero_copy_only=False)[newest]
            self._rows.set(slots, conform(take(piece, newest), self._row_schema))
        count = self._index.count
        self._number[:count][deleted[:count]] = -1
        self._stored[:count] = True
        self._live = int((self._number[:count] >= 0).sum())

    # -------------------------------------------------------------- in memory

    def _hashes(self, rows: pa.Table, columns: Sequence[str]) -> Hashes:
        types = self._row_schema
        return key_hashes([_typed(flat(rows, name), types.field(name).type) for name in columns])

    def _slots_for(self, rows: pa.Table) -> Ints:
        """The slots of the keys of rows to write."""
        if not self._writes_new_keys:
            return slots_of(self._keys().number(self._hashes(rows, self._key)))
        if isinstance(self._index, KeyIndex):  # it has the restored keys, and is replaced by a counter
            self._index = SlotCounter(self._index.count)
        return self._index.take(len(rows))

    def _keys(self) -> KeyIndex:
        """The index of all keys. If it was replaced by a counter, it is made again. Slots without a row no longer have
        a key; in the index they have their own number as a hash."""
        if isinstance(self._index, KeyIndex):
            return self._index
        hashes = np.empty((2, self._index.count), np.uint64)
        hashes[:] = np.arange(self._index.count, dtype=np.uint64)
        for slots, keys in self._all_keys():
            hashes[:, slots] = self._hashes(keys, self._key)
        self._index = index = KeyIndex()
        index.number(hashes)
        return index

    def _grow(self) -> None:
        count = self._index.count
        self._number = grown(self._number, count, -1)
        self._stored = grown(self._stored, count, 0)

    def _put(self, slots: Ints, rows: pa.Table) -> None:
        """In: rows of all columns and `_deleted`."""
        self._grow()
        gone = flat(rows, "_deleted").to_numpy(zero_copy_only=False)
        had = self._number[slots] >= 0
        number = self._next + np.arange(len(slots))
        self._number[slots] = np.where(gone, -1, number)
        self._next += len(slots)
        self._live += int((~gone).sum()) - int(had.sum())
        self._rows.set(slots, rows)
        self._unsettled.append(slots)
        self._unsettled_count += len(slots)
        self._version += 1
        born = np.flatnonzero(~gone & ~had)
        if len(born) == len(rows):
            self._born.append(_Born(slots, rows.append_column(NUMBER, pa.array(number))))
        if len(born):
            self._note_born(slots[born], rows if len(born) == len(rows) else take(rows, born))
        if self._unsettled_count >= _HELD_MAX:
            self._born = []

    def _no_rows(self) -> CachedRows:
        return CachedRows(self._row_schema, self._room, self._spill)

    def _note_born(self, slots: Ints, rows: pa.Table) -> None:
        for columns, part in self._parts.items():
            part.add(self._hashes(rows, columns), slots)
        for column, zones in self._zones.items():
            zones.widen(slots, ints(rows, column))
        for column, values in self._ranged.items():
            self._ranged[column] = values = grown(values, self._index.count, 0)
            values[slots] = ints(rows, column)

    def _values(self, slots: Ints, column: str) -> Ints:
        (values,) = self._rows.get(slots, (column,))
        return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)

    def _found(self, position: Ints, slots: Ints) -> pa.Table:
        return pa.table([pa.array(position), *self._rows.get(slots, self._row)], schema=self._read_schema)

    def _ordered(self, slots: Ints) -> pa.Table:
        return _sorted(pa.table(self._rows.get(slots, self._row), schema=self._row_schema), self._key)

    def _all_keys(self) -> Iterator[tuple[Ints, pa.Table]]:
        return self._all(self._key)

    def _all(self, names: tuple[str, ...]) -> Iterator[tuple[Ints, pa.Table]]:
        slots = np.flatnonzero(self._number[: self._index.count] >= 0)
        size = self._piece_rows
        for first in range(0, len(slots), size):
            piece = slots[first : first + size]
            yield piece, pa.table(self._rows.get(piece, names), names=list(names))

    def _by(self, columns: tuple[str, ...]) -> PartialIndex:
        if columns not in self._parts:
            self._parts[columns] = part = PartialIndex()
            for slots, keys in self._all_keys():
                part.add(self._hashes(keys, columns), slots)
        return self._parts[columns]

    def _ranged_by(self, column: str) -> Ints:
        if column not in self._ranged:
            self._ranged[column] = values = np.zeros(self._index.count, np.int64)
            for slots, keys in self._all_keys():
                values[slots] = ints(keys, column)
        return self._ranged[column]

    @property
    def _piece_rows(self) -> int:
        return max(1, min(_PIECE_ROWS, _PIECE_BYTES // max(1, self._rows.row_bytes)))

    @property
    def _rows_at_once(self) -> int:
        """How many rows may be read at once: they must not take more than the store's share of the memory."""
        return max(_ROWS_AT_ONCE, self._share // (64 + self._rows.row_bytes))

    def _zones_of(self, column: str) -> Zones:
        if column not in self._zones:
            self._zones[column] = zones = Zones()
            for slots, keys in self._all_keys():
                zones.widen(slots, ints(keys, column))
        return self._zones[column]

    def _within(self, part: int, column: str, low: int, high: int) -> Ints:
        """The slots of the task's rows with low < `column` <= high. In: `column`: a key column."""
        slots = self._zones_of(column).slots(low, high, self._index.count)
        slots = slots[self._number[slots] >= 0]
        values = self._values(slots, column)
        slots = slots[(values > low) & (values <= high)]
        return slots[self._values(slots, "_part") == part]

    def _expire(self, part: int, column: str, below: int) -> None:
        slots = self._within(part, column, np.iinfo(np.int64).min, below - 1)
        if not len(slots):
            return
        self._number[slots] = -1
        self._live -= len(slots)
        stored = int(np.count_nonzero(self._stored[slots]))
        if stored:
            self._expired[part, column] = max(below, self._expired.get((part, column), below))
            self._expired_count += stored
            self._stored[slots] = False
        self._narrow(column, below - 1)

    def _narrow(self, column: str, high: int) -> None:
        """Computes the bounds of zones again, after rows up to `high` were removed."""
        zones, low = self._zones_of(column), np.iinfo(np.int64).min
        slots = zones.slots(low, high, self._index.count)
        slots = slots[self._number[slots] >= 0]
        zones.clear(low, high)
        zones.widen(slots, self._values(slots, column))


def _distinct(slots: Ints) -> Ints:
    """The distinct slots in order; new slots already are. `np.unique` uses a hash table and takes ten times as long."""
    if (slots[1:] > slots[:-1]).all():
        return slots
    slots = np.sort(slots)
    return slots[np.diff(slots, prepend=-1) > 0]


def _sorted(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows sorted by these columns, except nested ones: these have no order."""
    flat_names = [name for name in names if not pa.types.is_nested(rows.schema.field(name).type)]
    return rows.sort_by([(name, "ascending") for name in flat_names])


def _typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


def _expired_column(rows: pa.Table) -> str | None:
    name = (rows.schema.metadata or {}).get(_EXPIRED)
    return None if name is None else name.decode()
