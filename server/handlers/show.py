"""LIST|SHOW …: lists streams, tables, topics, queries and so on."""

from __future__ import annotations

from ...logcore.client import Topic
from ...planner.source_info import SourceInfo
from ...sql.ast import Show
from ...sql.functions.catalog import FUNCTIONS
from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.settings.property_table import PROPERTIES
from ...sql.settings.secret_values import shown_setting
from ..engine.entities import (
    Entity,
    ExtendedTopicLine,
    ExtendedTopics,
    FunctionLine,
    Functions,
    PropertyLine,
    PropertyList,
    Queries,
    QueriesDescribed,
    SourcesDescribed,
    Streams,
    Tables,
    TopicLine,
    Topics,
    Types,
    VariableLine,
    Variables,
)
from ..engine.request import Request
from ..insight.descriptions import (
    describe_push,
    describe_query,
    describe_sources,
    push_line,
    query_line,
    source_line,
    type_info,
)
from .forwarded_connectors import show_connectors, show_plugins
from .mirrors import show_mirrors
from .secrets import show_secrets


def show(statement: Show, request: Request) -> list[Entity]:
    """LIST|SHOW what [EXTENDED]."""
    match statement.what:
        case "STREAMS" | "TABLES":
            return [_sources(statement, request)]
        case "TOPICS":
            return [_topics(statement, request)]
        case "QUERIES":
            return [_queries(statement, request)]
        case "FUNCTIONS":
            return [_functions(statement, request)]
        case "TYPES":
            types = {name: type_info(type_) for name, type_ in sorted(request.catalog.types.items())}
            return [Types(statement_text=statement.text, types=types)]
        case "PROPERTIES":
            return [_properties(statement, request)]
        case "VARIABLES":
            variables = request.session.variables
            lines = [VariableLine(name, variables[name]) for name in sorted(variables, key=str.upper)]
            return [Variables(statement_text=statement.text, variables=lines)]
        case "CONNECTORS":
            return [show_connectors(statement, request)]
        case "SECRETS":
            return [show_secrets(statement, request)]
        case "MIRRORS":
            return [show_mirrors(statement, request)]
        case "CONNECTOR PLUGINS":
            return [show_plugins(statement, request)]


def sources_of_kind(kind: str, request: Request) -> list[SourceInfo]:
    """The streams or the tables, ordered by name."""
    return sorted((s for s in request.visible.sources.values() if s.kind == kind), key=lambda source: source.name)


def _sources(statement: Show, request: Request) -> Entity:
    kind = "STREAM" if statement.what == "STREAMS" else "TABLE"
    sources = sources_of_kind(kind, request)
    if statement.extended:
        found = describe_sources(sources, request, extended=True)
        return SourcesDescribed(statement_text=statement.text, source_descriptions=found)
    lines = [source_line(source) for source in sources]
    if kind == "STREAM":
        return Streams(statement_text=statement.text, streams=lines)
    return Tables(statement_text=statement.text, tables=lines)


def _topics(statement: Show, request: Request) -> Entity:
    topics = sorted(request.log.topics().values(), key=lambda topic: topic.name)
    seen = [topic for topic in topics if request.session.rights.sees_topic(topic.name)]
    shown = [topic for topic in seen if statement.all_topics or not topic.name.startswith("_")]
    if not statement.extended:
        lines = [TopicLine(topic.name, _replicas(topic)) for topic in shown]
        return Topics(statement_text=statement.text, topics=lines)
    readers = {topic.name: 0 for topic in shown}
    for query in request.visible.queries.values():
        for name in {source.topic for source in query.plan.sources()} & set(readers):
            readers[name] += 1
    extended = [
        ExtendedTopicLine(topic.name, _replicas(topic), readers[topic.name], readers[topic.name]) for topic in shown
    ]
    return ExtendedTopics(statement_text=statement.text, topics=extended)


def _replicas(topic: Topic) -> list[int]:
    return [topic.replication_factor] * topic.partition_count


def _queries(statement: Show, request: Request) -> Entity:
    """The persistent queries, then the push queries that the user may end."""
    queries = sorted(request.visible.queries.values(), key=lambda query: query.id)
    pushes = sorted(request.pushes.pushes(request.session.rights), key=lambda push: push.id)
    if statement.extended:
        found = [describe_query(query, request.visible, request.executor) for query in queries]
        found += map(describe_push, pushes)
        return QueriesDescribed(statement_text=statement.text, query_descriptions=found)
    lines = [query_line(query, request.visible, request.executor) for query in queries]
    lines += map(push_line, pushes)
    return Queries(statement_text=statement.text, queries=lines)


def _functions(statement: Show, request: Request) -> Entity:
    entries = {**OVER_FUNCTIONS, **FUNCTIONS, **request.catalog.functions}
    lines = [FunctionLine(name, entry.kind.upper(), _category(entry)) for name, entry in sorted(entries.items())]
    return Functions(statement_text=statement.text, functions=lines)


def _category(entry: object) -> str:
    return str(getattr(entry, "category", "") or "OTHER").upper()


def _properties(statement: Show, request: Request) -> Entity:
    session, server = request.session.properties, request.server_properties
    names = sorted({*(name for name, entry in PROPERTIES.items() if entry.effective), *server, *session})
    lines = [_property(name, request) for name in names]
    overwritten = sorted(session)
    defaults = [name for name in names if name not in session and name not in server]
    return PropertyList(
        statement_text=statement.text,
        properties=lines,
        overwritten_properties=overwritten,
        default_properties=defaults,
    )


def _property(name: str, request: Request) -> PropertyLine:
    entry = PROPERTIES.get(name)
    in_session = name in request.session.properties
    default = entry.default if entry else ""
    return PropertyLine(
        name=name,
        scope="KSQL",
        value=shown_setting(name, request.settings.get(name, default)),
        editable=entry is None or entry.scope == "SESSION",
        level="SESSION" if in_session else "SERVER",
        description=entry.doc if entry else "",
    )
