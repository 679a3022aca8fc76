"""DESCRIBE and EXPLAIN."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import InvalidStatement, UnknownFunction, did_you_mean

from ...planner.catalog import PersistentQuery
from ...planner.insight.explain import explain as explain_plan
from ...planner.physical import PhysicalPlan
from ...planner.planning import PlannedBatch
from ...planner.pull.pull_queries import plan_pull
from ...planner.schema import Schema
from ...planner.select.queries import plan_push, plan_query
from ...sql.ast import CreateAsSelect, Describe, Explain, InsertInto, Query, Statement
from ...sql.functions.catalog import FUNCTIONS, find_function
from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.settings.secret_values import shown_setting
from ..engine.entities import (
    Entity,
    QueryDescribed,
    QueryDescription,
    SourceDescribed,
    SourcesDescribed,
)
from ..engine.request import Request
from ..insight.descriptions import describe_push, describe_query, describe_sources, fields_of, window_type
from ..insight.function_pages import function_page, over_function_page
from ..insight.live_plan import live_figures, live_text
from .forwarded_connectors import describe_connector, stalled_connector
from .insight import explain_stall
from .mirrors import describe_mirror, stalled_mirror
from .show import sources_of_kind


def describe(statement: Describe, request: Request) -> list[Entity]:
    """DESCRIBE name|STREAMS|TABLES [EXTENDED], DESCRIBE FUNCTION name."""
    text = statement.text
    match statement.what:
        case "STREAMS" | "TABLES":
            sources = sources_of_kind(statement.what.removesuffix("S"), request)
            found = describe_sources(sources, request, extended=statement.extended)
            return [SourcesDescribed(statement_text=text, source_descriptions=found)]
        case "SOURCE":
            source = request.visible.source(statement.name or "", statement.span)
            (found_one,) = describe_sources([source], request, extended=statement.extended)
            return [SourceDescribed(statement_text=text, source_description=found_one)]
        case "FUNCTION":
            return [_function(statement, request)]
        case "CONNECTOR":
            return [describe_connector(statement, request)]
        case "MIRROR":
            return [describe_mirror(statement, request)]


def _function(statement: Describe, request: Request) -> Entity:
    name, own = statement.name or "", request.catalog.functions
    if name in own:
        return function_page(own[name].entry(), statement.text)
    if name in OVER_FUNCTIONS and name not in FUNCTIONS:
        return over_function_page(OVER_FUNCTIONS[name], statement.text)
    try:
        return function_page(find_function(name, statement.span), statement.text)
    except UnknownFunction as error:
        error.hint = did_you_mean(name, [*FUNCTIONS, *OVER_FUNCTIONS, *own])
        raise


def explain(statement: Explain, request: Request) -> list[Entity]:
    """EXPLAIN of a statement, without running it, or of a running query."""
    if statement.connector is not None:
        return [stalled_connector(statement, request)]
    if statement.mirror is not None:
        return [stalled_mirror(statement, request)]
    if statement.query_id is not None and not statement.stall and (push := request.push(statement.query_id)):
        description = describe_push(push)
    elif statement.query_id is not None:
        query = request.query(statement.query_id, statement.span)
        if statement.stall:
            return [explain_stall(statement, query, request)]
        description = _live(query, request)
    else:
        assert statement.statement is not None
        description = _description(statement.statement, request)
    return [QueryDescribed(statement_text=statement.text, query_description=description)]


def _live(query: PersistentQuery, request: Request) -> QueryDescription:
    status = request.executor.status(query.id)
    live = live_figures(query, status, request.executor)
    description = describe_query(query, request.catalog, request.executor)
    return replace(description, execution_plan=live_text(query.plan, live), live=live)


def _description(inner: Statement, request: Request) -> QueryDescription:
    context = request.planning_context("explained")
    match inner:
        case Query(emit=None):
            pulled = plan_pull(inner, context)
            if isinstance(pulled, PlannedBatch):
                names = [source.name for source in pulled.sources]
                text = f"{explain_plan(pulled.plan)}\n{pulled.sql}"
                return _planned(inner, pulled.schema, names, [], text, pulled.plan, request)
            return _planned(inner, pulled.schema, [pulled.source_info.name], [], pulled.sql, None, request)
        case Query():
            push = plan_push(inner, context)
            names = [source.name for source in push.plan.sources()]
            return _planned(inner, push.schema, names, [], explain_plan(push.plan), push.plan, request)
        case CreateAsSelect() | InsertInto():
            planned = plan_query(inner, context)
            schema = planned.sink.schema if planned.sink else request.catalog.source(planned.target).schema
            text = explain_plan(planned.plan)
            return _planned(inner, schema, list(planned.sources), [planned.target], text, planned.plan, request)
        case _:
            raise InvalidStatement(
                "EXPLAIN takes a query: SELECT, CREATE … AS SELECT, INSERT INTO … SELECT, or the id of one.",
                span=inner.span,
            )


def _planned(
    inner: Statement,
    schema: Schema,
    sources: list[str],
    sinks: list[str],
    plan_text: str,
    plan: PhysicalPlan | None,
    request: Request,
) -> QueryDescription:
    return QueryDescription(
        id="",
        statement_text=f"{inner.text};",
        window_type=None if plan is None else window_type(plan),
        fields=fields_of(schema),
        sources=sources,
        sinks=sinks,
        topology=plan_text,
        execution_plan=plan_text,
        overridden_properties={name: shown_setting(name, value) for name, value in request.session.properties.items()},
        query_type="PERSISTENT" if sinks else "PUSH" if plan is not None else "PULL",
        state=None,
        query_errors=[],
    )
