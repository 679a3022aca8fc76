"""The rights that a statement needs. `access.py` defines who has which rights, `rights.py` what a right on an object
is."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ...planner.catalog import Catalog, PersistentQuery
from ...planner.declarations.topics import topic_of_statement
from ...planner.planning_settings import PlanningSettings
from ...planner.schemas.registry import Registry, topic_of
from ...planner.select.dependents import dependents
from ...sql import ast
from .rights import ANYTHING, Need, NotPermitted, Rights, names_in, on_source

_SCHEMA_IDS: Final = ("KEY_SCHEMA_ID", "VALUE_SCHEMA_ID")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context in which a statement's names are resolved. `settings`: the properties in effect; `topics` and
    `registry` are called only if the statement needs them. `has_push`: whether the user has an open push query of this
    id."""

    catalog: Catalog
    settings: Mapping[str, str]
    topics: Callable[[], Container[str]]
    registry: Callable[[], Registry]
    has_push: Callable[[str], bool]


def check_statement(rights: Rights, statement: ast.Statement, around: Surroundings) -> None:
    """Raises `NotPermitted` if the user may not run the statement."""
    _check_queries(rights, statement, around)
    rights.require(needs(statement, around))
    _check_schema_ids(rights, statement, around)


def needs(statement: ast.Statement, around: Surroundings) -> Iterator[Need]:
    """The rights that the statement needs. SHOW and DESCRIBE without a name, SET and DEFINE need none: they show only
    what the user may see."""
    catalog = around.catalog
    match statement:
        case ast.Query():
            yield from _reads(statement, catalog)
        case ast.CreateSource():
            topic = topic_of_statement(statement, PlanningSettings.of(around.settings))
            yield Need("ddl", statement.name)
            yield Need("read", topic)
            yield from _makes(topic, around)
        case ast.CreateAsSelect():
            topic = topic_of_statement(statement, PlanningSettings.of(around.settings))
            yield Need("ddl", statement.name)
            yield Need("insert", topic)
            yield from _makes(topic, around)
            yield from _reads(statement.query, catalog)
        case ast.InsertInto():
            yield Need("ddl", statement.target)  # it starts a query that keeps running
            if "QUERY_ID" in statement.properties:
                yield Need("ddl", str(statement.properties["QUERY_ID"]))  # its group and topics have this name
            yield from on_source("insert", statement.target, catalog)
            yield from _reads(statement.query, catalog)
        case ast.InsertValues() | ast.DeleteRows():
            yield from on_source("insert", statement.target, catalog)
        case ast.DropSource():
            yield from _drops(statement, catalog)
        case ast.AlterSource():
            yield from _alters(statement, catalog)
        case ast.CreateType() | ast.DropType():
            yield Need("ddl", statement.name)
        case ast.ControlQuery(query_id=None):
            yield Need("admin", ANYTHING)
        case ast.Explain(connector=str()) | ast.Explain(mirror=str()):
            yield Need("admin", ANYTHING)  # as DESCRIBE CONNECTOR
        case ast.ControlQuery() | ast.AlterQuery() | ast.Explain(statement=None):
            return  # `_check_queries` checks the query's owner
        case ast.Explain():
            assert statement.statement is not None
            yield from needs(statement.statement, around)
        case ast.Show(what="CONNECTORS" | "SECRETS" | "MIRRORS") | ast.Describe(what="CONNECTOR" | "MIRROR"):
            yield Need("admin", ANYTHING)  # a connector or a mirror can reach everything that the server can
        case ast.Describe(what="SOURCE"):
            yield from on_source("read", str(statement.name), catalog)
        case ast.ShowLineage() | ast.AssertValues():
            yield from on_source("read", statement.source, catalog)
        case ast.AssertSource():
            yield from on_source("read", statement.name, catalog)
        case ast.PrintTopic() | ast.AssertTopic():
            yield Need("read", statement.topic)
        case ast.AssertSchema():
            if statement.subject is not None:
                yield Need("read", topic_of(statement.subject))
        case (
            ast.Show() | ast.ShowGraph() | ast.Describe() | ast.SetProperty() | ast.UnsetProperty()
            | ast.DefineVariable() | ast.UndefineVariable()
        ):  # fmt: skip
            return
        case _:  # functions, connectors and mirrors can do anything; unknown statements are for administrators, too
            yield Need("admin", ANYTHING)


def _reads(query: ast.Query, catalog: Catalog) -> Iterator[Need]:
    for name in names_in(query, catalog.sources):
        yield from on_source("read", name, catalog)


def _drops(statement: ast.DropSource, catalog: Catalog) -> Iterator[Need]:
    """CASCADE drops each dependent stream and table, and terminates each dependent query."""
    if statement.delete_topic:
        yield from on_source("ddl", statement.name, catalog)
    else:
        yield Need("ddl", statement.name)
    for dependent in dependents(statement.name, catalog) if statement.cascade else ():
        name = dependent.sink if isinstance(dependent, PersistentQuery) else dependent.name
        yield Need("ddl", name, f"all that depends on {statement.name}")


def _alters(statement: ast.AlterSource, catalog: Catalog) -> Iterator[Need]:
    """RENAME TO creates another name for the topic, as CREATE does."""
    yield Need("ddl", statement.name)
    source = catalog.sources.get(statement.name)
    for change in statement.changes:
        if isinstance(change, ast.RenameSource):
            yield Need("ddl", change.to)
            if source is not None:
                yield Need("read", source.topic, f"the topic of {source.name}")


def _makes(topic: str, around: Surroundings) -> Iterator[Need]:
    """The right to create the topic, unless it exists."""
    if topic not in around.topics():
        yield Need("ddl", topic)


def _check_queries(rights: Rights, statement: ast.Statement, around: Surroundings) -> None:
    """Checks statements about one query. ALTER, TERMINATE, PAUSE and RESUME need the right to change the query's sink,
    EXPLAIN the right to read everything in the query. A push query is its user's alone. Nobody has rights on a query's
    id, so a query that does not exist is refused with the same message."""
    catalog = around.catalog
    match statement:
        case ast.ControlQuery(query_id=str(asked)) | ast.AlterQuery(query_id=asked):
            query = catalog.find_query(asked)
            allowed = query is not None and rights.may("ddl", query.sink)
        case ast.Explain(query_id=str(asked)):
            query = catalog.find_query(asked)
            allowed = query is not None and rights.sees_query(query, catalog)
        case _:
            return
    if not allowed and (query is not None or not around.has_push(asked)):
        raise rights.query_refused(asked)


def _number(given: ast.Value) -> int | None:
    """The id as the planner parses it; None if it is invalid, which the planner refuses."""
    try:
        return int(str(given))
    except ValueError:
        return None


def _check_schema_ids(rights: Rights, statement: ast.Statement, around: Surroundings) -> None:
    """A schema id does not show who may read the schema: it has to belong to a subject that the user sees."""
    if isinstance(statement, ast.Explain) and statement.statement is not None:
        statement = statement.statement
    if not isinstance(statement, ast.CreateSource | ast.CreateAsSelect):
        return
    for name in _SCHEMA_IDS:
        asked = statement.properties.get(name)
        if asked is None:
            continue
        versions = around.registry().versions.values()
        subjects = {version.subject for version in versions if version.id == _number(asked)}
        if not any(map(rights.sees_subject, subjects)):
            raise NotPermitted(f"there is no schema with the id {asked} that this user may read")
