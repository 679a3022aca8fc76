"""EXPLAIN STALL, SHOW LINEAGE and SHOW GRAPH: how data flows between streams, tables and queries; what blocks it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import InvalidStatement, UnknownColumn, did_you_mean

from ...executor.errors import UnknownQuery
from ...planner.catalog import PersistentQuery
from ...planner.insight.catalog_lineage import CatalogLineage
from ...planner.insight.graph import Graph, catalog_graph, graph_of, plan_graph
from ...planner.insight.graph_svg import graph_svg
from ...planner.insight.graph_text import graph_dot, graph_text
from ...planner.insight.stall import Cause
from ...planner.schema import PSEUDO
from ...sql.ast import Explain, ShowGraph, ShowLineage
from ..engine.entities import Entity
from ..engine.insight_entities import CauseLine, GraphShown, InfluenceLine, LineageShown, QueryStall
from ..engine.request import Request
from ..insight.live_plan import live_figures, operator_note
from ..insight.stall import Situation, record_causes, situation, source_causes, state_causes
from ..insight.stall_operators import operator_causes


def explain_stall(statement: Explain, query: PersistentQuery, request: Request) -> Entity:
    """EXPLAIN STALL of a query."""
    executor = request.executor
    status = executor.status(query.id)
    figures = executor.figures(query.id) if status.state != "STOPPED" else None
    seen = situation(query, status, figures, request.log, request.server_properties)
    causes = stall_causes(seen)
    return QueryStall(
        statement_text=statement.text,
        query_id=query.id,
        state=status.shown_state,
        stalled=any(cause.blocks for cause in causes),
        causes=cause_lines(causes),
    )


def cause_lines(causes: Sequence[Cause]) -> list[CauseLine]:
    return [CauseLine(each.code, each.message, each.hint, each.blocks, dict(each.figures)) for each in causes]


def stall_causes(seen: Situation) -> list[Cause]:
    """All causes; those that block the query come first."""
    found = [*state_causes(seen), *source_causes(seen), *operator_causes(seen), *record_causes(seen)]
    if not any(cause.blocks for cause in found):
        count = seen.status.metrics.rows_in
        message = f"Nothing blocks the query: {count} records were read since it started here, and none is unread."
        found.append(Cause("NOTHING_FOUND", message, blocks=False, figures={"read": count}))
    return sorted(found, key=lambda cause: not cause.blocks)


def show_lineage(statement: ShowLineage, request: Request) -> list[Entity]:
    """SHOW LINEAGE OF source[.column]."""
    source = request.catalog.source(statement.source, statement.span)
    names = [column.name for column in source.schema]
    if statement.column is not None and statement.column not in {*names, *PSEUDO}:
        raise UnknownColumn(
            f'column "{statement.column}" does not exist in {source.kind.lower()} "{source.name}"',
            span=statement.span,
            hint=did_you_mean(statement.column, names),
        )
    lineage = CatalogLineage(request.visible)
    lines = [
        InfluenceLine(
            output=str(edge.output),
            input=str(edge.input),
            type=edge.kind,
            subtype=edge.subtype,
            description=edge.description,
            query_id=edge.query_id,
            topic=edge.topic,
            depth=edge.depth,
        )
        for edge in lineage.edges(source, statement.column)
    ]
    facet = lineage.facet(source, statement.column)
    return [LineageShown(statement_text=statement.text, source=source.name, column=statement.column, lineage=lines,
                         column_lineage=facet)]  # fmt: skip


def show_graph(statement: ShowGraph, request: Request) -> list[Entity]:
    """SHOW GRAPH [OF name] [AS format]."""
    graph = _graph(statement, request)
    write = {"TEXT": graph_text, "DOT": graph_dot, "SVG": graph_svg}[statement.format]
    return [
        GraphShown(
            statement_text=statement.text,
            of=statement.of,
            format=statement.format,
            text=write(graph),
            nodes=list(graph.nodes),
            edges=list(graph.edges),
        )
    ]


def _graph(statement: ShowGraph, request: Request) -> Graph:
    catalog, of = request.visible, statement.of
    for written in () if of is None else (of, of.upper()):
        if written in catalog.queries:
            return plan_graph(catalog.queries[written].plan, _notes(catalog.queries[written], request))
    states = {query_id: _state(query_id, request) for query_id in catalog.queries}
    if of is None:
        return catalog_graph(catalog, states)
    found = graph_of(catalog, of, states)
    if found is None:
        known = [*catalog.queries, *catalog.sources, *(source.topic for source in catalog.sources.values())]
        raise InvalidStatement(
            f'there is no stream, table, topic or query "{of}"', span=statement.span, hint=did_you_mean(of, known)
        )
    return found


def _notes(query: PersistentQuery, request: Request) -> dict[str, str]:
    try:
        live = live_figures(query, request.executor.status(query.id), request.executor)
    except UnknownQuery:
        return {}
    return {operator.step: operator_note(operator).replace(", ", "\n") for operator in live.operators}


def _state(query_id: str, request: Request) -> str:
    try:
        return request.executor.status(query_id).shown_state
    except UnknownQuery:
        return ""
