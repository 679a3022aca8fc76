"""The catalog of aggregate functions, by name. Their entries stand in `aggregate_numeric.py`,
`aggregate_collections.py` and `aggregate_offsets.py`; what an entry is, in `aggregate_fold.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .aggregate_collections import COLLECTIONS
from .aggregate_fold import AggregateExample, AggregateFunction, AggregateSignature, Fold
from .aggregate_numeric import NUMERIC
from .aggregate_offsets import BY_OFFSET

__all__ = ["AGGREGATES", "USER_ENTRIES", "AggregateExample", "AggregateFunction", "AggregateSignature", "Fold"]

USER_ENTRIES: dict[str, Any] = {}
"""Entries of functions that users wrote, aggregates and others, by their ids (see `user_functions.py`)."""


class _Aggregates(Mapping[str, AggregateFunction]):
    """By name, and those of users by id; only the catalog's own are listed."""

    def __init__(self, entries: Mapping[str, AggregateFunction]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> AggregateFunction:
        found = self._entries.get(name) or USER_ENTRIES[name]
        if found.kind != "aggregate":
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


AGGREGATES: Mapping[str, AggregateFunction] = _Aggregates(
    {entry.name: entry for entry in (*NUMERIC, *COLLECTIONS, *BY_OFFSET)}
)
