"""Rows of an outer side of a join that wait for a partner until none can come any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...sql.types import BIGINT, INTEGER, SqlType
from ..state.store import StateStore
from .columns import Bools, Ints, conform, flat, ints, take, with_columns
from .stream_time import NEVER

_NEVER_RANK = 1 << 62
_KEY = ("_part", "_until", "_id")


class _Timeline(Protocol):
    @property
    def before(self) -> Mapping[int, int]: ...
    @property
    def after(self) -> Mapping[int, int]: ...
    def first_beyond(self, part: int, times: Ints, never: int) -> Ints: ...


class UnmatchedRows:
    """A row waits until stream time has passed its own time by more than `patience_ms`.

    Call order per batch: `met`, `add`, `close`. A partner counts only if it comes before the row that moves stream time
    past that point.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        key: Mapping[str, SqlType],
        value: Mapping[str, SqlType],
        patience_ms: int,
    ) -> None:
        self._patience = patience_ms
        rest = {column: type_ for column, type_ in key.items() if column != "_part"}
        self._first_key = next(iter(rest))
        self.store = StateStore(
            connection, name, {"_part": INTEGER, "_until": BIGINT, "_id": BIGINT}, {"_rts": BIGINT, **rest, **value}
        )
        self._schema = pa.schema(list(self.store.change_schema)[:-1])
        self._partner_id = self._partner_rank = np.zeros(0, dtype=np.int64)
        self._met = self._schema.empty_table()
        self._new = self._schema.empty_table()

    def met(self, rows: pa.Table, rank: Ints) -> None:
        """Notes that these rows of the side's buffer got a partner at these ranks."""
        order = np.lexsort((rank, ints(rows, "_id")))
        self._partner_id, first = np.unique(ints(rows, "_id")[order], return_index=True)
        self._partner_rank = rank[order][first]
        chosen = take(rows.select(["_part", "_rts", "_id"]), order[first])
        keys = with_columns(chosen, {"_until": pa.array(ints(chosen, "_rts") + self._patience)})
        self._met = take(keys, ints(self.store.read(keys), "_index"))

    def add(self, rows: pa.Table, number: Ints, time: Ints, chosen: Ints) -> None:
        """Adds the `chosen` of these rows: they have no partner yet."""
        columns = {
            "_id": pa.array(number[chosen]),
            "_rts": pa.array(time[chosen]),
            "_until": pa.array(time[chosen] + self._patience),
        }
        self._new = conform(with_columns(take(rows, chosen), columns), self._schema)

    def close(self, timeline: _Timeline) -> pa.Table:
        """The rows that remain without a partner, with `_rank` (the rank of the row that ends their wait) and `_order`
        (their order by key)."""
        closing: list[pa.Table] = [self._new]
        for part, time in timeline.after.items():
            before = timeline.before.get(part, NEVER)
            if time > before:
                closing.append(self.store.between(part, "_until", before - 1, time - 1))
                self.store.expire(part, "_until", time)
        self.store.delete(self._met.select(_KEY))
        rows = pa.concat_tables(closing)
        closed, partner = self._closed_at(rows, timeline), self._partner_at(rows)
        is_new = np.arange(len(rows)) < len(self._new)
        self.store.write(rows.filter(pa.array(is_new & (closed == _NEVER_RANK) & (partner == _NEVER_RANK))))
        alone = np.flatnonzero((closed < _NEVER_RANK) & (closed <= partner))
        rows = take(rows, alone)
        return with_columns(rows, {"_rank": pa.array(closed[alone]), "_order": pa.array(self._by_key(rows))})

    def _closed_at(self, rows: pa.Table, timeline: _Timeline) -> Ints:
        parts, until = ints(rows, "_part"), ints(rows, "_until")
        closed = np.full(len(rows), _NEVER_RANK, dtype=np.int64)
        for part in np.unique(parts).tolist():
            own: Bools = parts == part
            closed[own] = timeline.first_beyond(part, until[own], _NEVER_RANK)
        return closed

    def _partner_at(self, rows: pa.Table) -> Ints:
        if not len(self._partner_id):
            return np.full(len(rows), _NEVER_RANK, dtype=np.int64)
        numbers = ints(rows, "_id")
        at = np.minimum(np.searchsorted(self._partner_id, numbers), len(self._partner_id) - 1)
        return np.where(self._partner_id[at] == numbers, self._partner_rank[at], _NEVER_RANK)

    def _by_key(self, rows: pa.Table) -> Ints:
        """The rank of each row's key, which orders rows of the same time; 0 if the key's type has no order."""
        try:
            return pc.rank(flat(rows, self._first_key), tiebreaker="min").to_numpy().astype(np.int64)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested types
            return np.zeros(len(rows), dtype=np.int64)
