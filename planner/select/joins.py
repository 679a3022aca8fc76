"""Joins: what each kind requires of its sides, which rows have to be repartitioned first, and the key of the result."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from sqlglot import exp

from millstream.errors import InvalidStatement

from ...sql import ast
from ...sql.ast import unwrapped
from ...sql.types import BOOLEAN
from ..expressions.scope import Scope, ScopeSource
from ..expressions.typed import Typed, column
from ..formats import FORMAT_KINDS, FORMATS, check_map_keys
from ..logical import LogicalPlan, Named
from ..planning import PlanningContext
from ..schema import Column
from ..specs import FormatSpec, JoinKind
from ..steps.filter import LogicalFilter
from ..steps.foreign_key_join import LogicalForeignKeyJoin
from ..steps.project import LogicalProject
from ..steps.stream_stream_join import LogicalStreamStreamJoin
from ..steps.stream_table_join import LogicalStreamTableJoin
from ..steps.table_table_join import LogicalTableTableJoin
from .general_joins import composite_join, filtered, row_join, times_of
from .join_conditions import JoinCondition, join_condition, split_conditions
from .moving import moved, moved_under, partitions_of, same_columns
from .origin import keeps_place
from .relation import JoinKey, Partitioning, PlannedRelation

_SPOKEN: dict[JoinKind, str] = {
    "INNER": "[INNER] JOIN",
    "LEFT": "LEFT [OUTER] JOIN",
    "RIGHT": "RIGHT [OUTER] JOIN",
    "FULL": "[FULL] OUTER JOIN",
}


def join_relations(
    join: ast.Join, left: PlannedRelation, right: PlannedRelation, context: PlanningContext
) -> PlannedRelation:
    """The relation `left JOIN right`. Raises `InvalidStatement`, `UnknownColumn`, `TypeMismatch`."""
    if isinstance(unwrapped(join.on), exp.And):
        return _on_several(join, left, right, context)
    joined = _on_one(join, left, right, context)
    beyond = left.beyond or right.beyond or (join.within is not None and join.within.unbounded)
    return replace(joined, reads=(*left.reads, *right.reads), beyond=beyond or joined.beyond)


def _on_several(
    join: ast.Join, left: PlannedRelation, right: PlannedRelation, context: PlanningContext
) -> PlannedRelation:
    """A join on several conditions: the equalities form the key, and the other conditions filter the pairs."""
    equalities, others = split_conditions(join, left.scope, right.scope)
    if len(equalities) == 1:
        joined = _on_one(replace(join, on=equalities[0].node), left, right, context, lenient=True)
    else:
        joined = composite_join(join, left, right, equalities, context)
    return replace(filtered(joined, join, others), reads=(*left.reads, *right.reads), beyond=True)


def _on_one(
    join: ast.Join, left: PlannedRelation, right: PlannedRelation, context: PlanningContext, *, lenient: bool = False
) -> PlannedRelation:
    """A join on one equality. In: `lenient`: a join that ksqlDB refuses, because its condition names no key, becomes a
    row join, as for subqueries."""
    kinds = (left.plan.kind, right.plan.kind)
    joining = _Joining(join, left, right, context, lenient or left.beyond or right.beyond)
    if joining.is_of_rows():
        return row_join(join, left, right, [joining.condition()], context)
    if kinds == ("TABLE", "STREAM"):
        raise InvalidStatement(
            "Invalid join order: table-stream joins are not supported; only stream-table joins. "
            f"Got {_described(join, left, right, joining.condition())}.",
            span=join.span,
            hint="Name the stream first.",
        )
    match kinds:
        case ("STREAM", "STREAM"):
            return joining.streams()
        case ("STREAM", "TABLE"):
            return joining.stream_with_table()
        case _:
            return joining.tables()


def _described(join: ast.Join, left: PlannedRelation, right: PlannedRelation, condition: JoinCondition) -> str:
    return f"{dict(left.sources)[condition.left_alias].name} {_SPOKEN[join.kind]} {right.sources[0][1].name}"


class _Joining:
    """One join; each public method builds one kind of it."""

    def __init__(
        self, join: ast.Join, left: PlannedRelation, right: PlannedRelation, context: PlanningContext, lenient: bool
    ) -> None:
        self._join = join
        self._left = left
        self._right = right
        self._context = context
        self._lenient = lenient

    def condition(self) -> JoinCondition:
        return join_condition(self._join, self._left.scope, self._right.scope)

    def is_of_rows(self) -> bool:
        """Whether it has to be a row join: no key fits the join, or the statement itself computes the table; ksqlDB
        allows neither. A stream looks up the current row in a table of the catalog. With a table that the same
        statement computes, the result would depend on how far its computation has come."""
        left, right = self._left, self._right
        tables = [relation for relation in (left, right) if relation.plan.kind == "TABLE"]
        if not self._lenient or not tables or self._join.within is not None:
            return False
        if left.plan.kind == "STREAM" and not keeps_place(right.plan) and self._join.kind in ("INNER", "LEFT"):
            return True
        if self._join.kind != "INNER":
            return False
        if right.plan.kind == "STREAM" or any(table.plan.key_window is not None for table in tables):
            return True
        condition = self.condition()
        foreign = left.plan.kind == "TABLE" and not _is_key(condition.left, left)
        return not _is_key(condition.right, right) or (foreign and len(left.sources) > 1)

    def streams(self) -> PlannedRelation:
        condition = self.condition()
        condition.check_types()
        before_ms, after_ms, grace_ms = times_of(self._join)
        key = self._result_key(condition)
        left, right, partitioning = self._brought_together(condition, key)
        plan = LogicalStreamStreamJoin(left, right, self._join.kind, before_ms, after_ms, grace_ms)
        return self._relation(plan, condition, key, partitioning)

    def stream_with_table(self) -> PlannedRelation:
        join = self._join
        if join.kind in ("FULL", "RIGHT"):
            name = "full-outer" if join.kind == "FULL" else "right-outer"
            raise InvalidStatement(
                f"Invalid join type: {name} join not supported for stream-table join. "
                f"Got {_described(join, self._left, self._right, self.condition())}.",
                span=join.span,
            )
        if join.within is not None:
            raise self._not_windowed("Stream-Table")
        condition = self.condition()
        if not _is_key(condition.right, self._right):
            raise InvalidStatement(
                "Invalid join condition: stream-table joins require to join on the table's primary key. "
                f"Got {condition.written}.",
                span=condition.span,
                hint="Any column will do with one side in a subquery: JOIN (SELECT * FROM …) t ON ….",
            )
        condition.check_types()
        key = self._result_key(condition)
        left, right, partitioning = self._brought_together(condition, key)
        if right.schema.key[0].name == left.schema.key[0].name:
            right = LogicalProject(
                right, same_columns(right.schema.value), _renamed(right, f"#{self._right.sources[0][0]}")
            )
        plan = LogicalStreamTableJoin(left, right, "LEFT" if join.kind == "LEFT" else "INNER")
        return self._relation(plan, condition, key, partitioning)

    def tables(self) -> PlannedRelation:
        if self._join.within is not None:
            raise self._not_windowed("Table-Table")
        condition = self.condition()
        if not _is_key(condition.right, self._right):
            raise InvalidStatement(
                "Invalid join condition: table-table joins require to join on the primary key of the right input "
                f"table. Got {condition.written}.",
                span=condition.span,
                hint="Any column will do with one side in a subquery: JOIN (SELECT * FROM …) t ON ….",
            )
        condition.check_types()
        if not _is_key(condition.left, self._left):
            by_nullable = self._is_nullable_key(condition) and self._join.kind != "FULL"
            return self._by_nullable_key(condition) if by_nullable else self._by_foreign_key(condition)
        key = self._result_key(condition)
        left, right, partitioning = self._brought_together(condition, key)
        plan = LogicalTableTableJoin(left, right, self._join.kind)
        return self._relation(plan, condition, key, partitioning)

    # -------------------------------------------------------------- a key of one side of a FULL join

    def _is_nullable_key(self, condition: JoinCondition) -> bool:
        key = self._left.join_key
        return key is not None and condition.left.column in key.nullable

    def _by_nullable_key(self, condition: JoinCondition) -> PlannedRelation:
        """A join by the keys, in which the left rows whose column is NULL have no partner."""
        before, name = self._left.join_key, condition.left.column
        assert before is not None
        assert name is not None
        known = Typed(exp.Not(this=exp.Is(this=condition.left.tree.copy(), expression=exp.Null())), BOOLEAN, total=True)
        left = replace(self._left, join_key=replace(before, viable=(*before.viable, (name, condition.left_written))))
        if self._join.kind != "LEFT":
            left = replace(left, plan=LogicalFilter(left.plan, known))
        joined = _Joining(self._join, left, self._right, self._context, self._lenient).tables()
        if self._join.kind != "LEFT":
            return joined
        key = replace(before, nullable=(*before.nullable, *filter(None, [condition.right.column])))
        return replace(joined, plan=_null_unless(known, joined.plan, self._right), join_key=key)

    # -------------------------------------------------------------- foreign keys

    def _by_foreign_key(self, condition: JoinCondition) -> PlannedRelation:
        """The left rows move to the task of the right row that they name. The result has the left table's key again."""
        join, left, right = self._join, self._left, self._right
        if join.kind == "FULL":
            raise InvalidStatement(
                "Invalid join type: full-outer join not supported for foreign-key table-table join. "
                f"Got {_described(join, left, right, condition)}.",
                span=join.span,
                hint=self._hint_of_full(condition),
            )
        if join.kind == "RIGHT":
            raise InvalidStatement(
                f"{join.kind} OUTER JOIN on a foreign key is not supported",
                span=join.span,
                hint="Exchange the sides, or use an INNER or LEFT join.",
            )
        if len(left.sources) > 1:
            raise InvalidStatement(
                "Invalid join condition: foreign-key table-table joins are not supported as part of n-way joins. "
                f"Got {condition.written}.",
                span=condition.span,
                hint="Join by the foreign key first, or in a query of its own.",
            )
        self._check_windows(moves=False)
        if right.plan.key_window is not None:
            raise InvalidStatement(
                "Foreign-key table-table joins are not supported on windowed tables.",
                span=join.span,
                hint="Join on the keys of both tables, or make the windows columns in a subquery.",
            )
        target = _reproducible(right.partitioning)
        theirs = (
            right.plan
            if target is not None
            else moved(right, [condition.right], Partitioning(partitions_of(right)), names=["#join"])
        )
        target = target or Partitioning(partitions_of(right))
        mine = moved(left, [condition.left], target, names=["#join"], drop_null_key=join.kind == "INNER")
        name = "#foreign"
        copies = same_columns((*theirs.schema.value, *theirs.schema.key))
        left_key = tuple(c.name for c in left.plan.schema.key)
        plan = LogicalForeignKeyJoin(
            LogicalProject(mine, same_columns(mine.schema.value), _renamed(mine, name)),
            LogicalProject(theirs, copies, _renamed(theirs, name)),
            join.kind,
            left_key,
        )
        values = same_columns(c for c in plan.schema.value if c.name not in left_key)
        keyed = LogicalProject(plan, values, same_columns(left.plan.schema.key))
        assert left.join_key is not None
        alias = next(alias for alias, _ in left.sources)
        key = JoinKey(left.join_key.viable, foreign=alias)
        scope = Scope((*left.scope.sources, *right.scope.sources), self._context.catalog.types)
        identity = tuple(c.name for c in keyed.schema.key)
        return PlannedRelation(keyed, scope, (*left.sources, *right.sources), None, key, identity=identity)

    def _hint_of_full(self, condition: JoinCondition) -> str:
        key = self._left.join_key
        if key is None or not self._is_nullable_key(condition):
            return "Use an INNER or LEFT join."
        return f"Join on {key.viable[0][1]}, the first of the keys that is not NULL, or use an INNER or LEFT join."

    # -------------------------------------------------------------- common to all joins

    def _not_windowed(self, kinds: str) -> InvalidStatement:
        within = self._join.within
        return InvalidStatement(
            f"A window definition was provided for a {kinds} join. These joins are not windowed. "
            "Please drop the window definition (ie. the WITHIN clause) and try to execute your query again.",
            span=None if within is None else within.span,
        )

    def _result_key(self, condition: JoinCondition) -> JoinKey:
        """The columns of the condition that can be the key of the result. After a FULL join there are none, because
        each side may be NULL, and the key is synthetic."""
        before = self._left.join_key
        viable = self._equal_columns(condition)
        nullable = () if before is None else before.nullable
        if self._join.kind == "FULL":
            key = self._synthetic_key()
            return replace(key, nullable=(*nullable, *(name for name, _ in viable if (name, name) not in key.viable)))
        if before is not None and before.synthetic and viable[:1] == list(before.viable[:1]):
            return JoinKey(tuple(viable), synthetic=True, nullable=nullable)
        return JoinKey(tuple(viable), nullable=nullable) if viable else self._synthetic_key()

    def _equal_columns(self, condition: JoinCondition) -> list[tuple[str, str]]:
        """The columns that equal the condition's sides, of the left side first."""
        before = self._left.join_key
        viable: list[tuple[str, str]] = []
        if before is not None and _is_key(condition.left, self._left):
            viable += before.viable
        elif condition.left.column is not None:
            viable.append((condition.left.column, condition.left_written))
        if condition.right.column is not None:
            viable.append((condition.right.column, condition.right_written))
        return viable

    def _synthetic_key(self) -> JoinKey:
        taken = {*self._left.column_names, *self._right.column_names}
        names = ("ROWKEY" if n == 0 else f"ROWKEY_{n}" for n in count())
        name = next(name for name in names if name not in taken)
        return JoinKey(((name, name),), synthetic=True)

    def _relation(
        self, plan: LogicalPlan, condition: JoinCondition, key: JoinKey, partitioning: Partitioning
    ) -> PlannedRelation:
        left, right = self._left, self._right
        sources = [source for source in (*left.scope.sources, *right.scope.sources) if source.alias]
        if key.synthetic:
            name = key.viable[0][0]
            sources.append(ScopeSource("", {name: (name, condition.left.type)}))
        scope = Scope(tuple(sources), self._context.catalog.types)
        identity: tuple[str, ...] = ()
        if plan.kind == "TABLE":
            identity = tuple(c.name for c in plan.schema.key) if plan.key_window is None else ()
        elif right.plan.kind == "TABLE":
            identity = left.identity
        elif left.identity and right.identity:
            identity = (*left.identity, *right.identity)
        return PlannedRelation(plan, scope, (*left.sources, *right.sources), partitioning, key, identity=identity)

    # -------------------------------------------------------------- rows of one key in one task

    def _brought_together(
        self, condition: JoinCondition, key: JoinKey
    ) -> tuple[LogicalPlan, LogicalPlan, Partitioning]:
        """Both sides under the key of the result, with equal keys in the same task.

        A side whose key is not the key of the join has to move to the tasks of the other side's rows. Both sides move
        if those tasks cannot be computed. If only the bytes of the keys differ, a stream moves rather than a table.
        """
        left, right = self._left, self._right
        moves = not _is_key(condition.left, left), not _is_key(condition.right, right)
        self._check_windows(moves=any(moves))
        if not self._lenient:
            check_map_keys([Column(key.viable[0][0], condition.left.type, "KEY")])
        name = key.viable[0][0]
        mine, theirs = left.partitioning, right.partitioning
        if not any(moves) and not self._lenient:
            self._check_partitions()
        if moves == (False, False) and mine == theirs and mine is not None:
            return _keyed(left, name), self._other(name), mine
        if left.plan.key_window is not None and not (_has_schema(mine) and _has_schema(theirs)):
            raise _no_moving_of_windows(self._join)
        if not moves[0] and (moves[1] or left.plan.kind == "TABLE") and (target := _reproducible(mine)):
            return _keyed(left, name), _moved_under(right, condition.right, name, target), target
        if not moves[1] and (target := _reproducible(theirs)):
            return _moved_under(left, condition.left, name, target), self._other(name), target
        target = Partitioning(partitions_of(left))
        my_plan = _moved_under(left, condition.left, name, target)
        return my_plan, _moved_under(right, condition.right, name, target), target

    def _other(self, name: str) -> LogicalPlan:
        """The right side without moving it. A table that a stream looks up keeps its key's name."""
        if (self._left.plan.kind, self._right.plan.kind) == ("STREAM", "TABLE"):
            return self._right.plan
        return _keyed(self._right, name)

    def _check_partitions(self) -> None:
        """Raises `InvalidStatement` for different partition counts, because then rows of one key do not meet."""
        (_, first), (_, second) = self._left.sources[0], self._right.sources[0]
        mine, theirs = self._left.partitioning, self._right.partitioning
        if mine is None or theirs is None or mine.partition_count == theirs.partition_count:
            return
        raise InvalidStatement(
            f"Can't join `{first.name}` with `{second.name}` since the number of partitions don't match. "
            f"`{first.name}` partitions = {mine.partition_count}; `{second.name}` partitions = "
            f"{theirs.partition_count}. Please repartition either one so that the number of partitions match.",
            span=self._join.span,
            hint=f"A subquery moves its rows to where they match: JOIN (SELECT * FROM {second.name}) x.",
        )

    def _check_windows(self, *, moves: bool) -> None:
        """Raises `InvalidStatement` for windows that cannot be joined. Tumbling and hopping windows match by start,
        sessions by start and end. As in ksqlDB, windows of different sizes match only if a schema registry describes
        their keys."""
        mine, theirs = self._left.plan.key_window, self._right.plan.key_window
        (_, first), (_, second) = self._left.sources[0], self._right.sources[0]
        if mine is None and theirs is None:
            return
        if mine is None or theirs is None:
            said = [
                f"`{source.name}` is {f'{window.kind} windowed' if window else 'not windowed'}"
                for source, window in ((first, mine), (second, theirs))
            ]
            hint = f"A subquery makes the windows columns like others: JOIN (SELECT * FROM {second.name}) x."
            raise InvalidStatement(
                "Can not join windowed source to non-windowed source.\n" + "\n".join(said),
                span=self._join.span,
                hint=hint if self._right.plan.kind == "TABLE" else None,
            )
        if mine.holds_end != theirs.holds_end:
            raise InvalidStatement(
                f"Incompatible windowed sources.\nLeft source: {mine.kind}\nRight source: {theirs.kind}\n"
                "Session windowed sources can only be joined to other session windowed sources, and may still not "
                "result in expected behaviour as session bounds must be an exact match for the join to work\n"
                "Hopping and tumbling windowed sources can only be joined to other hopping and tumbling windowed "
                "sources",
                span=self._join.span,
            )
        described = _has_schema(self._left.partitioning) and _has_schema(self._right.partitioning)
        if moves or (mine != theirs and not described):
            raise _no_moving_of_windows(self._join)


def _no_moving_of_windows(join: ast.Join) -> InvalidStatement:
    return InvalidStatement(
        "Implicit repartitioning of windowed sources is not supported. "
        "See https://github.com/confluentinc/ksql/issues/4385.",
        span=join.span,
        hint="Join on the keys of sources with the same window, key format and partition count.",
    )


def _is_key(expression: Typed, relation: PlannedRelation) -> bool:
    """Whether the expression is the whole key, or a column that equals it."""
    key = relation.join_key
    if key is None or len(relation.plan.schema.key) != 1 or expression.column is None:
        return False
    return expression.column in (name for name, _ in key.viable)


def _reproducible(partitioning: Partitioning | None) -> Partitioning | None:
    """The partitioning, if moved rows can reproduce it: the key's bytes must not depend on its column's name."""
    if partitioning is None or not _same_bytes(partitioning.key_format):
        return None
    return partitioning


def _null_unless(known: Typed, plan: LogicalPlan, right: PlannedRelation) -> LogicalPlan:
    """The joined rows; where the condition is not true, the columns of the right side are NULL."""
    theirs = {c.name for c in right.plan.schema}
    values = tuple(
        _null_where_not(known, each) if each.name in theirs else each for each in same_columns(plan.schema.value)
    )
    return LogicalProject(plan, values, same_columns(plan.schema.key))


def _null_where_not(known: Typed, named: Named) -> Named:
    case = exp.Case(ifs=[exp.If(this=known.tree.copy(), true=named.expression.tree.copy())])
    return Named(named.name, Typed(case, named.expression.type, total=True))


def _has_schema(partitioning: Partitioning | None) -> bool:
    """Whether the keys' bytes contain a schema id, so that they differ from topic to topic."""
    key_format = None if partitioning is None else partitioning.key_format
    return key_format is not None and key_format.name in FORMAT_KINDS


def _same_bytes(key_format: FormatSpec | None) -> bool:
    return key_format is None or FORMATS[key_format.name].same_bytes(key_format.wrap_single)


def _renamed(plan: LogicalPlan, name: str) -> tuple[Named, ...]:
    """The plan's single key column under another name."""
    (key,) = plan.schema.key
    return (Named(name, column(key.name, key.type)),)


def _keyed(relation: PlannedRelation, name: str) -> LogicalPlan:
    """The rows without moving them, with their key named `name`; the original key column stays as a value."""
    plan = relation.plan
    (key,) = plan.schema.key
    if key.name == name:
        return plan
    return LogicalProject(
        plan, same_columns(c for c in (*plan.schema.value, key) if c.name != name), _renamed(plan, name)
    )


def _moved_under(relation: PlannedRelation, by: Typed, name: str, target: Partitioning) -> LogicalPlan:
    """The rows moved by an expression, which becomes key `name`. For a column that equals the key, the key is used."""
    if _is_key(by, relation):
        (key,) = relation.plan.schema.key
        by = column(key.name, key.type)
    return moved_under(relation, [by], [name], target)
