"""FROM: one source or a join becomes a relation, that is, a plan and the names with which expressions read it."""

from __future__ import annotations

from collections import Counter

from millstream.errors import InvalidStatement

from ..sql import ast
from ..sql.ast import Query, SourceName
from .catalog import SourceInfo
from .joins import join_relations
from .logical import Named, Project, Scan
from .planning import PlanningContext
from .relation import BOUNDS, ROW, JoinKey, Partitioning, Relation
from .schema import PSEUDO
from .scope import Scope, ScopeSource
from .timestamps import rowtime_expression
from .typed import column


def relation_of(query: Query, context: PlanningContext) -> Relation:
    """The relation of FROM. Raises `UnknownSource`, `InvalidStatement`, `Unsupported`."""
    if isinstance(query.source, SourceName):
        return _single(query.source, context)
    _check_names(query.source)
    return _joined(query.source, context)


def _lookup(named: SourceName, context: PlanningContext) -> SourceInfo:
    return context.catalog.source(named.name, named.span)


def _scan(source: SourceInfo, context: PlanningContext) -> Scan:
    scope = Scope((_source_scope(source.name, source),), context.catalog.types)
    return Scan(source, rowtime_expression(source.schema, source.timestamp_column, source.timestamp_format, scope))


def _source_scope(alias: str, source: SourceInfo, prefix: str = "") -> ScopeSource:
    columns = {c.name: (prefix + c.name, c.type) for c in source.schema}
    pseudo = (*ROW, *(BOUNDS if source.key_window else ()))
    columns |= {name: (prefix + name, PSEUDO[name][1]) for name in pseudo if name not in columns}
    return ScopeSource(alias, columns)


def _single(named: SourceName, context: PlanningContext) -> Relation:
    source = _lookup(named, context)
    scope = Scope((_source_scope(named.alias, source),), context.catalog.types)
    return Relation(_scan(source, context), scope, ((named.alias, source),))


def _joined(join: ast.Join, context: PlanningContext) -> Relation:
    left = _joined(join.left, context) if isinstance(join.left, ast.Join) else _side(join.left, context)
    return join_relations(join, left, _side(join.right, context), context)


def _check_names(join: ast.Join) -> None:
    names = _source_names(join)
    repeated = [alias for alias, count in Counter(named.alias for named in names).items() if count > 1]
    if repeated:
        raise InvalidStatement(
            f"N-way joins do not support multiple occurrences of the same source. Source: '{repeated[0]}'."
            if len(names) > 2
            else f"The name '{repeated[0]}' stands for both sources of this join.",
            span=join.span,
            hint="Give each an alias.",
        )


def _source_names(relation: ast.Relation) -> list[SourceName]:
    if isinstance(relation, SourceName):
        return [relation]
    return [*_source_names(relation.left), relation.right]


def _side(named: SourceName, context: PlanningContext) -> Relation:
    """A source of a join: each column gets the alias in front, pseudo columns become columns."""
    source = _lookup(named, context)
    prefix = f"{named.alias}_"
    pseudo = (*ROW, *(BOUNDS if source.key_window else ()))
    values = [Named(prefix + c.name, column(c.name, c.type)) for c in source.schema.value]
    values += [Named(prefix + name, column(name, PSEUDO[name][1])) for name in pseudo]
    key = tuple(Named(prefix + c.name, column(c.name, c.type)) for c in source.schema.key)
    scope = Scope((_source_scope(named.alias, source, prefix),), context.catalog.types)
    written = tuple((prefix + c.name, f"{named.alias}.{c.name}") for c in source.schema.key)
    return Relation(
        Project(_scan(source, context), tuple(values), key),
        scope,
        ((named.alias, source),),
        Partitioning(source.partition_count, source.key_format),
        JoinKey(written),
    )
