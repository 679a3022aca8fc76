"""The rights of a user on the existing streams, tables, queries and topics; the only place that decides them.

A right is a verb on a name: `access.py` has the grants, and asks the ACLs. A stream or a table needs the right on two
names, its own and its topic's, because operations on it affect the topic: with the right on one name alone, a user who
may create streams could write to any topic that he may read. `statement_rights.py` has the needs of statements.

Users do not see objects that they may not read: `visible` is the catalog that is shown, and `discreet` keeps its names
out of errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlglot import exp

from millstream.errors import MillstreamError, ServerError, StatementError

from ...logcore.protocol.security.accesses import Access
from ...planner.catalog import Catalog, PersistentQuery
from ...planner.schemas.registry import topic_of
from ...planner.source_info import SourceInfo
from ...sql import ast
from ...sql.parser import parse
from .access import Right, User

ANYTHING: Final = "*"  # as a name: no particular object


class NotPermitted(ServerError):
    """A user lacks a right."""

    code = "NOT_PERMITTED"


class Need(NamedTuple):
    """A required right. `topic`: that of the stream or table of this name; the right is needed on both. `of`: what a
    refusal calls the object if the user did not name it."""

    verb: Right
    name: str
    of: str | None = None
    topic: str | None = None

    def is_met_by(self, user: User) -> bool:
        return user.may(self.verb, self.name) if self.topic is None else user.may_use(self.verb, self.name, self.topic)


def on_source(verb: Right, name: str, catalog: Catalog) -> Iterator[Need]:
    """The rights for an operation on a stream or table: on its name, and on its topic."""
    source = catalog.sources.get(name)
    yield Need(verb, name, topic=None if source is None else source.topic)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one user. Without a user (a server without users, or a program on its own log), everything is
    allowed."""

    user: User | None = None

    def may(self, verb: Right, name: str) -> bool:
        return self.user is None or self.user.may(verb, name)

    @property
    def everything(self) -> bool:
        return self.may("admin", ANYTHING)

    def require(self, needs: Iterable[Need]) -> None:
        """Raises `NotPermitted` at the first right that the user lacks."""
        for need in needs:
            if self.user is not None and not need.is_met_by(self.user):
                raise _forbidden(self.user, need)

    def has_access(self, access: Access, name: str) -> bool:
        """What Kafka clients need at the Kafka port."""
        return self.user is None or self.user.has(access, name, None)

    def require_access(self, access: Access, name: str) -> None:
        """Raises `NotPermitted`."""
        if self.user is not None and not self.has_access(access, name):
            raise NotPermitted(f"{self.user.name} may not {access.operation.name} {access.resource.name} {name}")

    def require_administrator(self) -> None:
        self.require([Need("admin", ANYTHING)])

    def query_refused(self, query_id: str) -> NotPermitted:
        """The error for a query that does not exist or is hidden from this user: it does not say which."""
        assert self.user is not None
        return NotPermitted(f"there is no query {query_id} that {self.user.name} may see")

    @property
    def name(self) -> str | None:
        """The user's name."""
        return None if self.user is None else self.user.name

    def is_own(self, owner: str | None) -> bool:
        """Whether the user may end something that belongs to `owner`."""
        return self.everything or self.name == owner

    # What is seen

    def sees_topic(self, topic: str) -> bool:
        return self.may("read", topic)

    def sees_source(self, source: SourceInfo) -> bool:
        return self._may_all([Need("read", source.name, topic=source.topic)])

    def sees_query(self, query: PersistentQuery, catalog: Catalog) -> bool:
        """Whether the user may read all sources and the sink: the query's text names them, and contains its
        conditions."""
        return all(self._may_all(on_source("read", name, catalog)) for name in (query.sink, *query.sources))

    def sees_subject(self, subject: str) -> bool:
        """Whether the user sees a subject of the schema registry: reading or writing records needs their schema."""
        return self.may("read", topic_of(subject)) or self.may("insert", topic_of(subject))

    def visible(self, catalog: Catalog) -> Catalog:
        """The part of the catalog that this user may see."""
        if self.everything:
            return catalog
        queries = {id: query for id, query in catalog.queries.items() if self.sees_query(query, catalog)}
        sources = {
            name: self._without_secrets(source, queries, catalog)
            for name, source in catalog.sources.items()
            if self.sees_source(source)
        }
        return replace(catalog, sources=MappingProxyType(sources), queries=MappingProxyType(queries))

    def _without_secrets(
        self, source: SourceInfo, queries: Mapping[str, PersistentQuery], catalog: Catalog
    ) -> SourceInfo:
        """Hides the statement of CREATE … AS if its query reads what this user may not read."""
        if source.created_by is None or source.created_by in queries:
            return source
        if source.created_by not in catalog.queries and self._may_read_all_of(source.statement, catalog):
            return source
        return replace(source, statement="", created_by=None)

    def _may_read_all_of(self, statement: str, catalog: Catalog) -> bool:
        names = _names_read(statement)
        return names is not None and all(self._may_all(on_source("read", name, catalog)) for name in names)

    def _may_all(self, needs: Iterable[Need]) -> bool:
        return self.user is None or all(need.is_met_by(self.user) for need in needs)

    # What is said

    def discreet(
        self, error: MillstreamError, said: str, catalog: Catalog, topics: Callable[[], Iterable[str]]
    ) -> None:
        """Removes names that the user may not see from an error, except names that the user wrote in the statement."""
        if self.everything:
            return
        hidden = self._hidden(catalog, topics()) - _words(said.upper())
        if error.hint is not None and hidden & _words(error.hint):
            error.hint = None
        for name in sorted(hidden & _words(error.message)):
            error.message = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "…", error.message)
        error.args = (error.message,)

    def _hidden(self, catalog: Catalog, topics: Iterable[str]) -> set[str]:
        shown = self.visible(catalog)
        hidden = {*(catalog.sources.keys() - shown.sources.keys()), *(catalog.queries.keys() - shown.queries.keys())}
        return hidden | {topic for topic in topics if not self.sees_topic(topic)}


EVERYTHING: Final = Rights()

_WORD: Final = re.compile(r"[\w.-]*\w")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


@lru_cache(1000)
def _names_read(statement: str) -> tuple[str, ...] | None:
    """The names that a stored CREATE … AS reads; None if it can no longer be parsed."""
    try:
        (parsed,) = parse(f"{statement};")
    except (StatementError, ValueError):
        return None
    return tuple(names_in(parsed, ()))


def names_in(statement: ast.Node, sources: Iterable[str]) -> Iterator[str]:
    """All names in FROM, except names defined in WITH. A name of WITH counts if one of `sources` has the same name,
    because its meaning then depends on the place."""
    own = {node.name for node in _nodes(statement) if isinstance(node, ast.Cte)} - set(sources)
    return (node.name for node in _nodes(statement) if isinstance(node, ast.SourceName) and node.name not in own)


def _nodes(value: Any) -> Iterator[ast.Node]:
    if isinstance(value, ast.Node):
        yield value
        for name in type(value).__dataclass_fields__:
            yield from _nodes(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, exp.Expression):
        for inside in value.find_all(exp.Subquery):
            yield from _nodes(inside.meta["query"])


def _forbidden(user: User, need: Need) -> NotPermitted:
    if need.verb == "admin":
        return NotPermitted(f"{user.name} may not do this: it is for administrators")
    what = need.of or need.name
    if need.topic is not None and user.may(need.verb, need.name):
        what = f"the topic of {need.name}"
    return NotPermitted(f'{user.name} has no right "{need.verb}" on {what}')
