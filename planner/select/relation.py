"""A relation: the plan of FROM, and the names with which the expressions of a query read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from millstream.errors import Span, UnknownAlias, did_you_mean

from ...sql.ast import Join, Query, Relation, unwrapped
from ..expressions.scope import Scope
from ..logical import LogicalPlan
from ..schema import PSEUDO, RECORD_PLACE, WINDOW_BOUNDS
from ..source_info import SourceInfo
from ..specs import FormatSpec
from .naming import is_answer, joined

Target = Literal["STREAM", "TABLE", "INSERT", "CLIENT", "SUBQUERY"]
"""Where a query's rows go, see `analysis.analyze`."""

ROW = ("ROWTIME", *RECORD_PLACE)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How the rows of a plan are distributed to tasks: by murmur2 of the key's bytes in `key_format`; None: in our
    internal format."""

    partition_count: int
    key_format: FormatSpec | None = None


@dataclass(frozen=True, slots=True)
class JoinKey:
    """The key of a join's result.

    `viable`: the columns with its value, as (name in the plan, text in messages); the first of them that is selected
    becomes the key column. `synthetic`: no source has it. `foreign`: the left table of a foreign-key join, whose whole
    key it is. `nullable`: columns with its value or NULL: the keys of the sides of a FULL join.
    """

    viable: tuple[tuple[str, str], ...]
    synthetic: bool = False
    foreign: str = ""
    nullable: tuple[str, ...] = ()

    def missing_message(self, target: str, absent: Sequence[str]) -> str:
        """The message for a projection without the key columns `absent` (names in the plan)."""
        if self.foreign:
            plural = "s" if len(absent) > 1 else ""
            names = [f"`{w.removeprefix(f'{self.foreign}.')}`" for name, w in self.viable if name in absent]
            return (
                f"Primary key column{plural} missing in projection. For foreign-key table-table joins, the projection "
                f"must include all primary key columns from the left input table (`{self.foreign}`). "
                f"Missing column{plural}: {', '.join(names)}."
            )
        listed = [written for _, written in self.viable]
        see = " See https://cnfl.io/2LV7ouS." if self.synthetic else ""
        message = (
            f"Key missing from projection (ie, SELECT).{see}\n"
            f"The query used to build `{target}` must include the join expression{'s' if len(listed) > 1 else ''} "
            f"{joined(listed, 'or')} in its projection (eg, SELECT {listed[0]}...)."
        )
        if self.synthetic:
            message += (
                f"\n{listed[0]} was added as a synthetic key column because the join criteria did not match any source "
                "column. This expression must be included in the projection and may be aliased."
            )
        return message


@dataclass(frozen=True, slots=True)
class PlannedRelation:
    """`sources`: with their aliases; a subquery counts as a source, with its result columns. `partitioning`: None if
    rows are not distributed by their key. `join_key`: of a join. `reads`: the names of the catalog's sources.

    `beyond`: ksqlDB does not support this FROM; then SELECT may leave out key columns. `same_as_key`: for each key
    column of the plan, other columns with the same value. `identity`: the columns that identify a row; empty if none
    do.
    """

    plan: LogicalPlan
    scope: Scope
    sources: tuple[tuple[str, SourceInfo], ...]  # alias, source
    partitioning: Partitioning | None = None
    join_key: JoinKey | None = None
    reads: tuple[str, ...] = ()
    beyond: bool = False
    same_as_key: tuple[tuple[str, ...], ...] = ()
    identity: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.reads))

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for _, source in self.sources for c in source.schema)

    @property
    def reserved(self) -> frozenset[str]:
        """Names that no result column may have."""
        return frozenset(PSEUDO)

    def is_reserved(self, node: exp.Column) -> bool:
        """Whether a selected column needs an alias. In a join it does not: `s.ROWTIME` is named S_ROWTIME."""
        return node.name in PSEUDO and len(self.sources) == 1

    def output_name(self, node: exp.Column) -> str:
        """The name of a selected column without an alias: prefixed with its source if several sources have it."""
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
            raise UnknownAlias(
                f"'{of}' is not a valid stream/table name or alias.",
                span=span,
                hint=did_you_mean(of or "", [a for a, _ in self.sources]),
            )
        if len(self.sources) > 1:
            return self._star_of_join(chosen, query, whole=of is None)
        schema = chosen[0][1].schema
        if query.partition_by:
            keys, moved = _partition_columns(query)
            rest = [c for c in (*schema.value, *schema.key) if c.name not in moved and not is_answer(c.name)]
            return keys + [(c.name, reference(c.name)) for c in rest]
        bounds = WINDOW_BOUNDS if client and chosen[0][1].key_window is not None else ()
        names = [*(c.name for c in schema.key), *bounds, *(c.name for c in schema.value)]
        return [(name, reference(name)) for name in names if not is_answer(name)]

    def _star_of_join(
        self, chosen: list[tuple[str, SourceInfo]], query: Query, *, whole: bool
    ) -> list[tuple[str, exp.Expression]]:
        """The star of a join. With PARTITION BY the new key comes first, followed by each source's values, pseudo
        columns and keys."""
        if query.partition_by:
            keys, _ = _partition_columns(query)
            moved = {self._plan_name(node) for _, node in keys}
            named = [
                (f"{alias}_{name}", reference(name, alias))
                for alias, source in chosen
                for name in (
                    *(c.name for c in source.schema.value),
                    *(ROW if source.topic else ROW[:1]),
                    *(WINDOW_BOUNDS if source.key_window else ()),
                    *(c.name for c in source.schema.key),
                )
            ]
            first: list[tuple[str, exp.Expression]] = [(self._plan_name(node) or name, node) for name, node in keys]
            return [*(first if whole else ()), *((name, node) for name, node in named if name not in moved)]
        synthetic: list[tuple[str, exp.Expression]] = []
        if whole and self.join_key is not None and self.join_key.synthetic:
            name = self.join_key.viable[0][0]
            synthetic.append((name, reference(name)))
        return synthetic + [
            (f"{alias}_{name}", reference(name, alias))
            for alias, source in chosen
            for name in _names(source)
            if not is_answer(name)
        ]

    def _plan_name(self, node: exp.Expression) -> str | None:
        inner = unwrapped(node)
        return self.scope.resolve(inner).column if isinstance(inner, exp.Column) else None


@dataclass(frozen=True, slots=True)
class Analyzed:
    """The plan of a query. `order`: the column names in the order of the SELECT list (for clients)."""

    plan: LogicalPlan
    order: tuple[str, ...]
    sources: tuple[str, ...]
    relation: PlannedRelation


def _names(source: SourceInfo) -> list[str]:
    """The columns of a source in order, with the bounds of its window after the key."""
    if source.key_window is None:
        return [c.name for c in source.schema]
    return [*(c.name for c in source.schema.key), *WINDOW_BOUNDS, *(c.name for c in source.schema.value)]


def aliases_of(relation: Relation) -> list[str]:
    """Of all members of FROM."""
    if isinstance(relation, Join):
        return [*aliases_of(relation.left), relation.right.alias]
    return [relation.alias]


def reference(name: str, table: str | None = None) -> exp.Column:
    """The expression `table.name`."""
    qualifier = exp.Identifier(this=table, quoted=True) if table else None
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=qualifier)


def _partition_columns(query: Query) -> tuple[list[tuple[str, exp.Expression]], set[str]]:
    """The columns of the new key with their names, and the columns of the source that they replace."""
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
    return keys, moved
