"""FROM: one source or a join becomes a relation, that is, a plan and the names with which expressions read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from millstream.errors import InvalidStatement, Span, UnknownSource, Unsupported, did_you_mean

from ..sql import ast
from ..sql.ast import Query, SourceName, span_of, unwrapped
from ..sql.printing import print_expression
from .catalog import SourceInfo
from .expressions import compile_expression
from .logical import LogicalPlan, Named, Project, Repartition, Scan, StreamTableJoin
from .planning import PlanningContext
from .schema import PSEUDO
from .scope import Scope, ScopeSource
from .timestamps import rowtime_expression
from .typed import Typed, column

_ROW = ("ROWTIME", "ROWPARTITION", "ROWOFFSET")
_BOUNDS = ("WINDOWSTART", "WINDOWEND")


@dataclass(frozen=True, slots=True)
class Relation:
    """`names`: of the sources. `key_equivalents`: columns equal to a key column (of an inner join's other side)."""

    plan: LogicalPlan
    scope: Scope
    sources: tuple[tuple[str, SourceInfo], ...]  # alias, source
    key_equivalents: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(source.name for _, source in self.sources))

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for _, source in self.sources for c in source.schema)

    @property
    def reserved(self) -> frozenset[str]:
        """Names that no column of a result can have."""
        return frozenset(PSEUDO)

    def is_reserved(self, node: exp.Column) -> bool:
        """Whether a selected column needs an alias; in a join `s.ROWTIME` is called S_ROWTIME."""
        return node.name in PSEUDO and len(self.sources) == 1

    def output_name(self, node: exp.Column) -> str:
        """The name of a selected column without alias: with its source in front where several sources have it."""
        if len(self.sources) == 1:
            return node.name
        having = [alias for alias, source in self.sources if node.name in PSEUDO or source.schema.find(node.name)]
        if len(having) < 2:
            return node.name
        return f"{node.table or having[0]}_{node.name}"

    def star(
        self, of: str | None, query: Query, span: Span | None, *, client: bool = False
    ) -> list[tuple[str, exp.Expression]]:
        """The columns that `*` or `of.*` stands for, with their names; a `client` also gets the bounds of windows."""
        chosen = [(alias, source) for alias, source in self.sources if of is None or of == alias]
        if not chosen:
            raise UnknownSource(
                f"'{of}' is not a valid stream/table name or alias.",
                span=span,
                hint=did_you_mean(of or "", [a for a, _ in self.sources]),
            )
        if len(self.sources) > 1:
            return [(f"{alias}_{c.name}", _reference(c.name, alias)) for alias, source in chosen for c in source.schema]
        schema = chosen[0][1].schema
        if query.partition_by:
            return self._star_after_partition_by(query)
        bounds = ("WINDOWSTART", "WINDOWEND") if client and chosen[0][1].key_window is not None else ()
        names = [*(c.name for c in schema.key), *bounds, *(c.name for c in schema.value)]
        return [(name, _reference(name)) for name in names]

    def _star_after_partition_by(self, query: Query) -> list[tuple[str, exp.Expression]]:
        """The new key, the other value columns, then the old key."""
        schema = self.sources[0][1].schema
        keys: list[tuple[str, exp.Expression]] = []
        moved: set[str] = set()
        generated = 0
        for node in query.partition_by:
            inner = unwrapped(node)
            if isinstance(inner, exp.Null):
                continue
            if isinstance(inner, exp.Column):
                keys.append((inner.name, node))
                moved.add(inner.name)
            elif isinstance(inner, exp.Dot):
                keys.append((inner.expression.name, node))
            else:
                keys.append((f"KSQL_COL_{generated}", node))
                generated += 1
        rest = [c for c in (*schema.value, *schema.key) if c.name not in moved]
        return keys + [(c.name, _reference(c.name)) for c in rest]


def relation_of(query: Query, context: PlanningContext) -> Relation:
    """The relation of FROM. Raises `UnknownSource`, `InvalidStatement`, `Unsupported`."""
    if isinstance(query.source, SourceName):
        return _single(query.source, context)
    return _joined(query.source, context)


def _reference(name: str, table: str | None = None) -> exp.Column:
    qualifier = exp.Identifier(this=table, quoted=True) if table else None
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=qualifier)


def _lookup(named: SourceName, context: PlanningContext) -> SourceInfo:
    return context.catalog.source(named.name, named.span)


def _scan(source: SourceInfo, context: PlanningContext) -> Scan:
    scope = Scope((_source_scope(source.name, source),), context.catalog.types)
    return Scan(source, rowtime_expression(source.schema, source.timestamp_column, source.timestamp_format, scope))


def _source_scope(alias: str, source: SourceInfo, prefix: str = "") -> ScopeSource:
    columns = {c.name: (prefix + c.name, c.type) for c in source.schema}
    pseudo = (*_ROW, *(_BOUNDS if source.key_window else ()))
    columns |= {name: (prefix + name, PSEUDO[name][1]) for name in pseudo if name not in columns}
    return ScopeSource(alias, columns)


def _single(named: SourceName, context: PlanningContext) -> Relation:
    source = _lookup(named, context)
    scope = Scope((_source_scope(named.alias, source),), context.catalog.types)
    return Relation(_scan(source, context), scope, ((named.alias, source),))


# ------------------------------------------------------------------ joins


def _joined(join: ast.Join, context: PlanningContext) -> Relation:
    names = _source_names(join)
    repeated = [alias for alias, count in Counter(n.alias for n in names).items() if count > 1]
    if repeated:
        raise InvalidStatement(
            f"the name {repeated[0]} stands for two sources of this join", span=join.span, hint="Give each an alias."
        )
    return _join(join, context)


def _source_names(relation: ast.Relation) -> list[SourceName]:
    if isinstance(relation, SourceName):
        return [relation]
    return [*_source_names(relation.left), relation.right]


def _side(named: SourceName, context: PlanningContext) -> Relation:
    """A source of a join: each column gets the alias in front, pseudo columns become columns."""
    source = _lookup(named, context)
    if source.key_window is not None:
        raise Unsupported("joins of windowed sources are not built yet", span=named.span)
    prefix = f"{named.alias}_"
    scan = _scan(source, context)
    pseudo = {name: PSEUDO[name][1] for name in _ROW}
    values = [Named(prefix + c.name, column(c.name, c.type)) for c in source.schema.value]
    values += [Named(prefix + name, column(name, type_)) for name, type_ in pseudo.items()]
    key = tuple(Named(prefix + c.name, column(c.name, c.type)) for c in source.schema.key)
    plan = Project(scan, tuple(values), key)
    scope = Scope((_source_scope(named.alias, source, prefix),), context.catalog.types)
    return Relation(plan, scope, ((named.alias, source),))


def _join(join: ast.Join, context: PlanningContext) -> Relation:
    left = _join(join.left, context) if isinstance(join.left, ast.Join) else _side(join.left, context)
    right = _side(join.right, context)
    described = f"{left.sources[-1][1].name} {_spoken(join.kind)} {right.sources[0][1].name}"
    if left.plan.kind == right.plan.kind:
        kind = left.plan.kind.lower()
        raise Unsupported(f"{kind}-{kind} joins are not built yet", span=join.span)
    if left.plan.kind == "TABLE":
        raise InvalidStatement(
            f"Invalid join order: table-stream joins are not supported; only stream-table joins. Got {described}.",
            span=join.span,
            hint="Name the stream first.",
        )
    if join.kind in ("FULL", "RIGHT"):
        name = "full-outer" if join.kind == "FULL" else "right-outer"
        raise InvalidStatement(
            f"Invalid join type: {name} join not supported for stream-table join. Got {described}.", span=join.span
        )
    if join.within is not None:
        raise InvalidStatement(
            "A window definition was provided for a Stream-Table join. These joins are not windowed. "
            "Please drop the window definition (ie. the WITHIN clause) and try to execute your query again.",
            span=join.within.span,
        )
    both = Scope((*left.scope.sources, *right.scope.sources), context.catalog.types, "JOIN ON")
    mine, theirs = _condition(join, left, right, both)
    keyed, key_name = _keyed(left.plan, mine, right.sources[0][1].partition_count)
    if keyed is left.plan:
        _check_partitions(left, right, join)
    plan = StreamTableJoin(keyed, right.plan, "LEFT" if join.kind == "LEFT" else "INNER")
    scope = both.within("SELECT")
    if key_name == "ROWKEY":
        synthetic = ScopeSource("", {"ROWKEY": ("ROWKEY", mine.type)})
        scope = Scope((*scope.sources, synthetic), scope.types)
    equivalents = {theirs.column or "": key_name} if join.kind == "INNER" else {}
    return Relation(plan, scope, (*left.sources, *right.sources), {**left.key_equivalents, **equivalents})


def _spoken(kind: str) -> str:
    return {
        "INNER": "[INNER] JOIN",
        "LEFT": "LEFT [OUTER] JOIN",
        "RIGHT": "RIGHT [OUTER] JOIN",
        "FULL": "[FULL] OUTER JOIN",
    }[kind]


def _condition(join: ast.Join, left: Relation, right: Relation, both: Scope) -> tuple[Typed, Typed]:
    """The left and the right side of ON, which must be `expression = primary key of the table`."""
    node = unwrapped(join.on)
    if not isinstance(node, exp.EQ):
        raise InvalidStatement(
            f"Unsupported join expression: {print_expression(join.on)}.",
            span=span_of(join.on),
            hint="Join with one equality.",
        )
    sides = [compile_expression(part, both) for part in (node.this, node.expression)]
    own = {c.name for c in left.plan.schema}
    belongs = [("left" if side.columns() <= own else "right") for side in sides]
    if belongs[0] == belongs[1]:
        raise InvalidStatement(
            f"Invalid comparison expression '{print_expression(node)}' in join '{print_expression(join.on)}'. "
            "Each side of the join comparision must contain references from exactly one source.",
            span=span_of(node),
        )
    mine, theirs = sides if belongs[0] == "left" else sides[::-1]
    key = right.plan.schema.key
    if len(key) != 1 or theirs.column != key[0].name:
        raise InvalidStatement(
            "Invalid join condition: stream-table joins require to join on the table's primary key. "
            f"Got {print_expression(node)}.",
            span=span_of(node),
        )
    if mine.type != theirs.type:
        raise InvalidStatement(
            f"Invalid join condition: types don't match. Got {print_expression(node)} ({mine.type} and {theirs.type}).",
            span=span_of(node),
            hint="CAST one side.",
        )
    return mine, theirs


def _check_partitions(left: Relation, right: Relation, join: ast.Join) -> None:
    """Rows of one key meet only where both sides have as many partitions."""
    (_, stream), (_, table) = left.sources[0], right.sources[0]
    if stream.partition_count != table.partition_count:
        raise InvalidStatement(
            f"Can't join `{stream.name}` with `{table.name}` since the number of partitions don't match. "
            f"`{stream.name}` partitions = {stream.partition_count}; "
            f"`{table.name}` partitions = {table.partition_count}. "
            "Please repartition either one so that the number of partitions match.",
            span=join.span,
        )


def _keyed(plan: LogicalPlan, by: Typed, partition_count: int) -> tuple[LogicalPlan, str]:
    """The left side under the join key, and the name of its key column afterwards."""
    key = plan.schema.key
    if len(key) == 1 and by.column == key[0].name:
        return plan, key[0].name
    name = by.column or "ROWKEY"
    values = tuple(Named(c.name, column(c.name, c.type)) for c in (*plan.schema.value, *key))
    old = tuple(Named(f"#old{i}", column(c.name, c.type)) for i, c in enumerate(key))
    moved = Repartition(Project(plan, values, old), (Named("#join", by),), partition_count=partition_count)
    kept = tuple(n for n in values if n.name != name)
    return Project(moved, kept, (Named(name, column("#join", by.type)),)), name
