"""The catalog of aggregate functions, by name. Their entries stand in `aggregate_numeric.py`,
`aggregate_collections.py` and `aggregate_offsets.py`; what an entry is, in `aggregate_fold.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .aggregate_collections import COLLECTIONS
from .aggregate_fold import AggregateExample, AggregateFunction, AggregateSignature, Fold
from .aggregate_numeric import NUMERIC
from .aggregate_offsets import BY_OFFSET

__all__ = ["AGGREGATES", "AggregateExample", "AggregateFunction", "AggregateSignature", "Fold"]

AGGREGATES: Mapping[str, AggregateFunction] = MappingProxyType(
    {entry.name: entry for entry in (*NUMERIC, *COLLECTIONS, *BY_OFFSET)}
)
