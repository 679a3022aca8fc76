"""The common part of joins: the columns of pairs, and their lineage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..insight.lineage_rows import LineageRows, Value, indirect
from ..insight.stall import Cause, OperatorSeen, counted
from ..logical import LogicalPlan, names_of
from ..schema import Column, Schema
from ..specs import ADDED, JoinKind, KeyWindow, Kind
from .source import sources_below
from .step import Step, store_id, walk


@dataclass(frozen=True, slots=True)
class LogicalJoin(LogicalPlan):
    """Pairs of rows of both sides with the same key; the key columns have the same names."""

    left: LogicalPlan
    right: LogicalPlan
    join: JoinKind

    @property
    def schema(self) -> Schema:
        return Schema((*self.left.schema.key, *self.left.schema.value, *self.right.schema.value))

    @property
    def kind(self) -> Kind:
        return self.left.kind

    @property
    def key_window(self) -> KeyWindow | None:
        return self.left.key_window

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        """A join stores the rows of both sides itself."""
        return False, False

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        read = needed | names_of((*self.left.schema.key, *self.right.schema.key)) | self.own_columns
        return read, read

    @property
    def own_columns(self) -> frozenset[str]:
        """The columns that it reads in addition to the keys of both sides."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class JoinStep(Step):
    """Base of the steps of joins."""

    renewal: int = field(default=0, kw_only=True, metadata=ADDED)  # `store_number`

    @property
    def stateful(self) -> bool:
        return True

    @property
    def keeps_rows_read(self) -> bool:
        return True

    @property
    def state_identity(self) -> Step | None:
        return replace(self.without_inputs(), renewal=0)

    def kept_values(self, *below: LineageRows) -> tuple[str, ...]:
        return tuple(value.text for rows in below for value in rows.values.values())

    @property
    def kept_columns(self) -> tuple[Column, ...]:
        """The value columns of its stores, if these can be filled from topics."""
        return ()

    def without_kept_columns(self) -> Step | None:
        """What must be equal if it has new stores."""
        return self.state_identity

    @property
    def store_number(self) -> int:
        return self.renewal

    def in_place_of(self, before: Step, number: int) -> Step:
        if not isinstance(before, JoinStep):
            return self
        renewed = self.filled_by and self.kept_columns != before.kept_columns
        return replace(self, renewal=number if renewed else before.renewal)

    def continues(self, before: Step) -> bool:
        """Also with other columns of its inputs' rows, if it has new stores for them."""
        if isinstance(before, JoinStep) and self.renewal > before.renewal:
            return self.without_kept_columns() == before.without_kept_columns()
        return self.state_identity == before.state_identity

    @property
    def word(self) -> str:
        return "join"

    @property
    def partner_hint(self) -> str:
        """A hint: the condition for two rows to match."""
        return "The keys must be equal to the letter: spaces, case and type count."

    def kept(self, seen: OperatorSeen) -> list[int]:
        """The number of rows of each side in its stores."""
        return [seen.kept.get(f"{store_id(self)}.{side}", 0) for side in _SIDES]

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        if seen.rows_out:
            return
        given, kept = [seen.given.get(child.id, 0) for child in self.inputs], self.kept(seen)
        names = [" and ".join(read_by(child)) for child in self.inputs]
        figures = {
            "step": self.id,
            "leftRows": given[0],
            "rightRows": given[1],
            "leftKept": kept[0],
            "rightKept": kept[1],
        }
        empty = [i for i in (0, 1) if not given[i] and not kept[i]]
        if not seen.state_known and len(empty) < 2:
            empty = [i for i in empty if given[1 - i]]
        for i in empty:
            yield Cause(
                "JOIN_SIDE_EMPTY",
                f"The {_SIDES[i]} side of the join, {names[i]}, has no rows.",
                "A join needs rows of both sides: EXPLAIN STALL the query that writes it, or PRINT its topic.",
                figures=figures,
            )
        if not empty and any(given):
            yield Cause(
                "NO_JOIN_PARTNER",
                f"{counted(given[0], 'row')} of {names[0]} and {given[1]} of {names[1]} arrived since the start"
                f"{f' (kept: {kept[0]} and {kept[1]})' if any(kept) else ''}, and none match.",
                self.partner_hint,
                figures=figures,
            )


@dataclass(frozen=True, slots=True)
class JoinOfTables(JoinStep):
    """Base of the joins of two tables: their result depends on the present rows of both only. With `emit_old`, changes
    include the result that they replace."""

    left: Step
    right: Step
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    emit_old: bool = field(default=False, kw_only=True)

    @property
    def state_identity(self) -> Step | None:
        """What it emits of its state may change: a WHERE needs old rows."""
        return replace(self.without_inputs(), emit_old=False, renewal=0)

    @property
    def kept_columns(self) -> tuple[Column, ...]:
        return (*self.left_schema.value, *self.right_schema.value)

    def without_kept_columns(self) -> Step | None:
        left, right = Schema(self.left_schema.key), Schema(self.right_schema.key)
        bare = replace(self, schema=left, left_schema=left, right_schema=right, emit_old=False, renewal=0)
        return bare.without_inputs()

    @property
    def filled_by(self) -> tuple[Step, ...]:
        return fillable(self.left, self.right)

    @property
    def repeatable(self) -> bool:
        return True


_SIDES = ("left", "right")


def read_by(step: Step) -> list[str]:
    """The names of the streams and tables below a step."""
    return [each.name or each.topic for each in sources_below(step)]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join: the lineage of its columns, and its schema."""

    rows: LineageRows
    schema: Schema

    @property
    def values(self) -> list[Value]:
        return self.rows.first_values(len(self.schema.value))

    @property
    def key_text(self) -> str:
        return ", ".join(value.text for value in self.rows.keys.values())


def pairs(left: Side, right: Side, kind: JoinKind, *, right_key: bool = False, timed: bool = False) -> LineageRows:
    """The lineage of a join's rows. `right_key`: the right side's key comes before its values; `timed`: the times of
    both sides are part of the condition."""
    right_values = [*right.rows.keys.values(), *right.values] if right_key else right.values
    values = {f"v{i}": value for i, value in enumerate([*left.values, *right_values])}
    keys = {name: _either(value, right.rows.values.get(name), kind) for name, value in left.rows.keys.items()}
    condition = f"{left.key_text} = {right.key_text}"
    influences = left.rows.influences + right.rows.influences
    for side in (left.rows, right.rows):
        for value in side.keys.values():
            influences += indirect(value.influences, "JOIN", condition)
        if timed:
            influences += indirect(side.influences_of("_ts"), "JOIN", "WITHIN")
    return LineageRows({**left.rows.pseudo, **keys, **values}, influences)


def _either(left: Value, right: Value | None, kind: JoinKind) -> Value:
    """The key of a joined row: that of the left side or, where that may be missing, that of the right side."""
    if right is None or kind not in ("RIGHT", "FULL"):
        return left
    return Value(f"COALESCE({left.text}, {right.text})", left.influences + right.influences)


def fillable(*inputs: Step) -> tuple[Step, ...]:
    """The inputs, if reading their topics once more fills the stores of a join."""
    return inputs if all(step.repeatable for each in inputs for step in walk(each)) else ()
