"""What depends on a stream or table: what has to go before it can."""

from __future__ import annotations

from collections.abc import Sequence

from ..catalog import Catalog, PersistentQuery
from ..source_info import SourceInfo

Dependent = SourceInfo | PersistentQuery
"""A stream or table that a query makes of it, or a query of INSERT INTO that reads or writes it."""


def dependents(name: str, catalog: Catalog) -> tuple[Dependent, ...]:
    """In an order in which nothing goes that is still read: queries of INSERT INTO first, then depth first."""
    found: dict[str, Dependent] = {}
    _find(name, catalog, found)
    queries = [each for each in found.values() if isinstance(each, PersistentQuery)]
    return (*queries, *(each for each in found.values() if isinstance(each, SourceInfo)))


def without(dropped: Sequence[Dependent], catalog: Catalog) -> Catalog:
    """The catalog once they are gone."""
    for each in dropped:
        if isinstance(each, PersistentQuery):
            catalog = catalog.without_query(each.id)
        else:
            kept = catalog if each.created_by is None else catalog.without_query(each.created_by)
            catalog = kept.without_source(each.name)
    return catalog


def _find(name: str, catalog: Catalog, found: dict[str, Dependent]) -> None:
    """What depends on a source goes before it. No cycle: a source is made by one query, of what was there before."""
    for query in (*catalog.readers_of(name), *catalog.writers_of(name)):
        if query.kind == "INSERT":
            found[query.id] = query
        elif query.sink != name and query.sink not in found:
            _find(query.sink, catalog, found)
            found[query.sink] = catalog.sources[query.sink]
