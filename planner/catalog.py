"""The catalog: the streams, tables, types and persistent queries that statements can name.

A catalog is immutable: a change returns a new one. So a statement is planned against a fixed state, and "validate, then
write to the command topic, then apply" needs no undo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from millstream.errors import InvalidStatement, Span, UnknownSource, did_you_mean

from ..sql.functions.users.user_functions import UserFunction
from ..sql.types import SqlType
from .connector_info import ConnectorInfo, SecretInfo
from .mirror_info import MirrorInfo
from .physical import PhysicalPlan
from .source_info import SourceInfo

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PersistentQuery:
    """A query that runs until it is terminated. `sink` is the name of the stream or table that it writes. `backfill`:
    it runs on Spark until it has read up to these offsets of its topics, by partition; None: it has no backfill.
    """

    id: str
    statement: str
    plan: PhysicalPlan
    sink: str
    sources: tuple[str, ...]
    kind: Literal["CREATE_AS", "INSERT"]
    paused: bool = False
    backfill: Mapping[str, tuple[int, ...]] | None = None


def _frozen() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Catalog:
    sources: Mapping[str, SourceInfo] = field(default_factory=_frozen)
    queries: Mapping[str, PersistentQuery] = field(default_factory=_frozen)
    types: Mapping[str, SqlType] = field(default_factory=_frozen)
    functions: Mapping[str, UserFunction] = field(default_factory=_frozen)
    connectors: Mapping[str, ConnectorInfo] = field(default_factory=_frozen)
    secrets: Mapping[str, SecretInfo] = field(default_factory=_frozen)
    mirrors: Mapping[str, MirrorInfo] = field(default_factory=_frozen)

    def source(self, name: str, span: Span | None = None) -> SourceInfo:
        """Raises `UnknownSource`."""
        found = self.sources.get(name)
        if found is None:
            raise UnknownSource(f"{name} does not exist.", span=span, hint=did_you_mean(name, self.sources))
        return found

    def with_source(self, source: SourceInfo) -> Catalog:
        return replace(self, sources=_with(self.sources, source.name, source))

    def without_source(self, name: str) -> Catalog:
        return replace(self, sources=_without(self.sources, name))

    def with_query(self, query: PersistentQuery) -> Catalog:
        return replace(self, queries=_with(self.queries, query.id, query))

    def without_query(self, query_id: str) -> Catalog:
        return replace(self, queries=_without(self.queries, query_id))

    def with_type(self, name: str, type_: SqlType) -> Catalog:
        return replace(self, types=_with(self.types, name, type_))

    def without_type(self, name: str) -> Catalog:
        return replace(self, types=_without(self.types, name))

    def with_function(self, function: UserFunction) -> Catalog:
        return replace(self, functions=_with(self.functions, function.name, function))

    def without_function(self, name: str) -> Catalog:
        return replace(self, functions=_without(self.functions, name))

    def with_connector(self, connector: ConnectorInfo) -> Catalog:
        return replace(self, connectors=_with(self.connectors, connector.name, connector))

    def without_connector(self, name: str) -> Catalog:
        return replace(self, connectors=_without(self.connectors, name))

    def with_mirror(self, mirror: MirrorInfo) -> Catalog:
        return replace(self, mirrors=_with(self.mirrors, mirror.name, mirror))

    def without_mirror(self, name: str) -> Catalog:
        return replace(self, mirrors=_without(self.mirrors, name))

    def with_secret(self, secret: SecretInfo) -> Catalog:
        return replace(self, secrets=_with(self.secrets, secret.name, secret))

    def without_secret(self, name: str) -> Catalog:
        return replace(self, secrets=_without(self.secrets, name))

    def readers_of(self, name: str) -> tuple[PersistentQuery, ...]:
        """The queries that read this source."""
        return tuple(query for query in self.queries.values() if name in query.sources)

    def writers_of(self, name: str) -> tuple[PersistentQuery, ...]:
        """The queries that write into this source."""
        return tuple(query for query in self.queries.values() if query.sink == name)

    def find_query(self, written: str) -> PersistentQuery | None:
        """The query of this id, which is not case-sensitive."""
        return self.queries.get(written.upper(), self.queries.get(written))

    def query(self, query_id: str, span: Span | None = None) -> PersistentQuery:
        """Like `find_query`, but raises `InvalidStatement` for an unknown id."""
        found = self.find_query(query_id)
        if found is None:
            raise InvalidStatement(
                f"Query with id {query_id} does not exist, use SHOW QUERIES to view the full set of queries.",
                span=span,
                hint=did_you_mean(query_id, self.queries) or self._named(query_id),
            )
        return found

    def _named(self, name: str) -> str | None:
        """A hint for a user who named a stream or table instead of a query."""
        source = self.sources.get(name.upper())
        if source is None:
            return None
        return f"{source.name} is a {source.kind.lower()}: DESCRIBE {source.name}; shows it."


def _with(mapping: Mapping[str, _T], key: str, value: _T) -> Mapping[str, _T]:
    more = _copy(mapping)
    more[key] = value
    return MappingProxyType(more)


def _without(mapping: Mapping[str, _T], key: str) -> Mapping[str, _T]:
    kept = _copy(mapping)
    kept.pop(key, None)
    return MappingProxyType(kept)


def _copy(mapping: Mapping[str, _T]) -> dict[str, _T]:
    # A start folds every command. The proxy's own `copy` clones the dict below it; `dict(proxy)` and `{**proxy}` look
    # up each key, which takes fifteen times as long.
    return mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)
