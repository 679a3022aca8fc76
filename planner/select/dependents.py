"""What depends on a stream or table, and so has to be dropped before it."""

from __future__ import annotations

from collections.abc import Sequence

from ..catalog import Catalog, PersistentQuery
from ..source_info import SourceInfo

Dependent = SourceInfo | PersistentQuery
"""A stream or table that a query creates from it, or an INSERT INTO query that reads or writes it."""


def dependents(name: str, catalog: Catalog) -> tuple[Dependent, ...]:
    """The dependents in an order in which nothing is dropped while it is still read: first the queries of INSERT INTO,
    then depth first."""
    found: dict[str, Dependent] = {}
    _find(name, catalog, found)
    queries = [each for each in found.values() if isinstance(each, PersistentQuery)]
    return (*queries, *(each for each in found.values() if isinstance(each, SourceInfo)))


def without(dropped: Sequence[Dependent], catalog: Catalog) -> Catalog:
    """The catalog without these dependents."""
    for each in dropped:
        if isinstance(each, PersistentQuery):
            catalog = catalog.without_query(each.id)
        else:
            kept = catalog if each.created_by is None else catalog.without_query(each.created_by)
            catalog = kept.without_source(each.name)
    return catalog


def _find(name: str, catalog: Catalog, found: dict[str, Dependent]) -> None:
    """Adds the dependents of a source before the source itself. There is no cycle: one query creates a source, from
    sources that already exist."""
    for query in (*catalog.readers_of(name), *catalog.writers_of(name)):
        if query.kind == "INSERT":
            found[query.id] = query
        elif query.sink != name and query.sink not in found:
            _find(query.sink, catalog, found)
            found[query.sink] = catalog.sources[query.sink]
