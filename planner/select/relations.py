"""FROM: turns one source or a join into a relation: a plan, and the names with which expressions read it."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

from millstream.errors import InvalidStatement

from ...sql import ast
from ...sql.ast import FromItem, Query, SourceName
from .. import steps
from ..declarations.timestamps import rowtime_expression
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import column
from ..logical import Named
from ..planning import PlanningContext
from ..schema import PSEUDO, WINDOW_BOUNDS
from ..source_info import SourceInfo
from ..steps.project import LogicalProject
from ..steps.source import Scan
from .join_conditions import check_sides
from .joins import join_relations
from .origin import Origin, Plan, place_of
from .relation import ROW, JoinKey, Partitioning, PlannedRelation, aliases_of
from .subqueries import query_origin, union_origin
from .table_functions import find_table_function

for _module in pkgutil.iter_modules(steps.__path__):  # some are table functions
    importlib.import_module(f"{steps.__name__}.{_module.name}")


def relation_of(query: Query, context: PlanningContext, plan: Plan) -> PlannedRelation:
    """The relation of FROM. In: `plan`: plans the queries in FROM. Raises `UnknownSource`, `InvalidStatement`,
    `Unsupported`."""
    if isinstance(query.source, ast.Join):
        _check_names(query.source)
        _check_sides(query.source)
        return _joined(query.source, context, plan)
    return _single(query.source, context, plan)


def origin_of(item: FromItem, context: PlanningContext, plan: Plan) -> Origin:
    """The origin of one member of FROM: a source of the catalog, a query of WITH, a subquery, or a table function over
    one of these."""
    match item:
        case SourceName() if item.name in context.ctes:
            query, within = context.ctes[item.name]
            return query_origin(query, item.alias, within, plan)
        case SourceName():
            return _catalog_origin(context.catalog.source(item.name, item.span), context)
        case ast.Subquery(queries=(query,)):
            return query_origin(query, item.alias, context, plan)
        case ast.Subquery():
            return union_origin(item, context, plan)
        case ast.TableFunctionCall():
            return find_table_function(item).over(item, origin_of(item.source, context, plan), context)


def _catalog_origin(source: SourceInfo, context: PlanningContext) -> Origin:
    scope = Scope((_source_scope(source.name, source, ROW),), context.catalog.types)
    rowtime = rowtime_expression(source.schema, source.timestamp_column, source.timestamp_format, scope)
    scan = Scan(source, rowtime)
    partitioning = Partitioning(source.partition_count, source.key_format)
    return Origin(source, scan, ROW, partitioning, (source.name,), place_of(scan), beyond=False)


def _source_scope(alias: str, source: SourceInfo, pseudo: tuple[str, ...], prefix: str = "") -> ScopeSource:
    columns = {c.name: (prefix + c.name, c.type) for c in source.schema}
    pseudo = (*pseudo, *(WINDOW_BOUNDS if source.key_window else ()))
    columns |= {name: (prefix + name, PSEUDO[name][1]) for name in pseudo if name not in columns}
    return ScopeSource(alias, columns)


def _single(item: FromItem, context: PlanningContext, plan: Plan) -> PlannedRelation:
    origin = origin_of(item, context, plan)
    scope = Scope((_source_scope(item.alias, origin.source, origin.pseudo),), context.catalog.types)
    return PlannedRelation(
        origin.plan,
        scope,
        ((item.alias, origin.source),),
        reads=origin.reads,
        beyond=origin.beyond,
        identity=origin.identity,
    )


def _joined(join: ast.Join, context: PlanningContext, plan: Plan) -> PlannedRelation:
    if isinstance(join.left, ast.Join):
        left = _joined(join.left, context, plan)
    else:
        left = _side(join.left, context, plan)
    return join_relations(join, left, _side(join.right, context, plan), context)


def _check_sides(join: ast.Join) -> None:
    if isinstance(join.left, ast.Join):
        _check_sides(join.left)
    check_sides(join.on)


def _check_names(join: ast.Join) -> None:
    names = aliases_of(join)
    repeated = [alias for alias, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidStatement(
            f"N-way joins do not support multiple occurrences of the same source. Source: '{repeated[0]}'."
            if len(names) > 2
            else f"Can not join '{repeated[0]}' to '{repeated[0]}': self joins are not yet supported.",
            span=join.span,
            hint="Give each an alias: they are supported here, as in FROM orders a JOIN orders b.",
        )


def _side(item: FromItem, context: PlanningContext, plan: Plan) -> PlannedRelation:
    """A source of a join: each column is prefixed with the alias, and pseudo columns become columns."""
    origin = origin_of(item, context, plan)
    source, rows = origin.source, origin.plan
    prefix = f"{item.alias}_"
    pseudo = (*origin.pseudo, *(WINDOW_BOUNDS if rows.key_window else ()))
    values = [Named(prefix + c.name, column(c.name, c.type)) for c in rows.schema.value]
    values += [Named(prefix + name, column(name, PSEUDO[name][1])) for name in pseudo]
    key = tuple(Named(prefix + c.name, column(c.name, c.type)) for c in rows.schema.key)
    scope = Scope((_source_scope(item.alias, source, origin.pseudo, prefix),), context.catalog.types)
    written = tuple((prefix + c.name, f"{item.alias}.{c.name}") for c in rows.schema.key)
    return PlannedRelation(
        LogicalProject(rows, tuple(values), key),
        scope,
        ((item.alias, source),),
        origin.partitioning,
        JoinKey(written),
        reads=origin.reads,
        beyond=origin.beyond,
        identity=tuple(prefix + name for name in origin.identity),
    )
