"""What CREATE OR REPLACE may change: a source keeps its columns and positions, a query keeps its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.errors import InvalidStatement, Span

from ...planner.catalog import PersistentQuery
from ...planner.expressions.readable import column_names, used_columns
from ...planner.insight.lineage import kept_keys, kept_values
from ...planner.physical import PhysicalPlan
from ...planner.schema import Column, Schema
from ...planner.source_info import SourceInfo
from ...planner.specs import FormatSpec, KeyWindow
from ...planner.steps.source import Source, sources_below
from ...planner.steps.step import Step, schema_of, store_id

_KEPT = (
    ("topic", "topic"),
    ("key_format", "key format"),
    ("value_format", "value format"),
    ("key_window", "window"),
    ("timestamp_column", "timestamp column"),
)


def refuse_other_schema(old: SourceInfo, new: SourceInfo, span: Span | None) -> None:
    """Raises unless all readers of `old` can continue to read `new`: columns may only be appended."""
    for attribute, name in _KEPT:
        before, after = _comparable(getattr(old, attribute)), _comparable(getattr(new, attribute))
        if before != after:
            raise _not_upgradeable(old, _change(old, name, _shown(before), _shown(after)), span)
    problem = _column_problem(old.schema, new.schema)
    if problem is not None:
        change = _change(old, "schema", str(old.schema), str(new.schema))
        raise _not_upgradeable(old, f"{change} ({problem})", span)


def _column_problem(old: Schema, new: Schema) -> str | None:
    """Describes the difference in ksqlDB's words, which people search for."""
    if old.key != new.key:
        gone = _not_in_place(old.key, new.key) or list(old.key)
        changed = f"The following key columns are changed, missing or reordered: [{_text(gone)}]"
        return f"Key columns must be identical. {changed}"
    gone = _not_in_place(old.value, new.value)
    return f"The following columns are changed, missing or reordered: [{_text(gone)}]" if gone else None


def _not_in_place(before: tuple[Column, ...], after: tuple[Column, ...]) -> list[Column]:
    return [column for index, column in enumerate(before) if after[index : index + 1] != (column,)]


def with_kept_state(
    old: PersistentQuery, new: PhysicalPlan, span: Span | None, *, columnar: bool, whole: Callable[[str], bool]
) -> PhysicalPlan:
    """The new plan with the stores of the old query. Where a store lacks columns of a table's rows, the plan has a new
    one, which the query fills from the table's topic (`executor/queries/store_filling.py`).

    In: `columnar`: whether the log stores the columns of the state by name; otherwise all rows of a store have the same
    columns. `whole`: whether a topic still has its first records. Raises if the state does not fit the new plan.
    """
    topics = {source.topic for source in old.plan.sources()} ^ {source.topic for source in new.sources()}
    if topics:
        raise _not_replaceable(old, f"it would read different topics ({', '.join(sorted(topics))})", span)
    rebuild = f"Drop the query's {new.root.gives.lower()} and create it again: then it reads all rows."
    plan, renewed = _with_stores(old.plan, new)
    before, after = _stateful(old.plan), _stateful(plan)
    if not _state_fits(before, after):
        joined = _unknown_joined_columns(before, after)
        if joined:
            reason = (
                f"its join would need {', '.join(joined)}, which it does not know of the rows that it has read so far"
            )
            raise _not_replaceable(old, reason, span, rebuild)
        raise _not_replaceable(old, "its grouping, aggregates, windows or joins would change", span)
    had_state = {step.id for step in before}
    for step in renewed:
        sources = [source for below in step.filled_by for source in sources_below(below)]
        cut = sorted({source.topic for source in sources if not whole(source.topic)})
        if cut and step.id in had_state:
            reason = (
                f"it would need columns of a table's rows that it does not have, and topic {', '.join(cut)} no "
                "longer has all records to read them from"
            )
            raise _not_replaceable(old, reason, span, rebuild)
    unknown = _unknown_columns(old.plan, plan)
    if unknown:
        reason = f"it would filter by {', '.join(unknown)}, which it does not know of the rows that it has read so far"
        raise _not_replaceable(old, reason, span, rebuild)
    kept, wanted = _kept_columns(old.plan), _kept_columns(plan)
    if not columnar and any(kept[name] != wanted[name] for name in kept.keys() & wanted.keys()):
        reason = "it would keep other columns of a table's rows, and in this log all rows of a state have the same ones"
        raise _not_replaceable(old, reason, span, rebuild)
    return plan


def _with_stores(old: PhysicalPlan, new: PhysicalPlan) -> tuple[PhysicalPlan, list[Step]]:
    """The new plan with the stores of the old one where they have all its columns, else with new ones; and the steps
    with new ones."""
    before = {step.id: step for step in old.steps()}
    number = 1 + max(step.store_number for step in before.values())

    def in_place(step: Step) -> Step:
        step = step.with_inputs(*map(in_place, step.inputs))
        return step.in_place_of(before[step.id], number) if step.id in before else step

    plan = replace(new, root=in_place(new.root))
    return plan, [step for step in plan.steps() if step.store_number == number]


def _unknown_columns(old: PhysicalPlan, new: PhysicalPlan) -> list[str]:
    """The columns of a table's stored rows that filters of the new plan read, but that the store does not have. Read as
    NULL, they would fail the condition, and a later change would not retract what the row had added. Columns that were
    added to the table later do not count: they are NULL in the stored rows."""
    kept = {store_id(source): source for source in old.sources() if source.stateful}
    unknown: list[str] = []
    for step in new.steps():
        for source in (each for each in step.inputs if isinstance(each, Source) and each.stateful):
            before = kept.get(store_id(source))
            if step.condition is not None and before is not None:
                used, names = used_columns(step.condition.sql), column_names(before.schema)
                left_out = {*map(before.schema.physical_name, before.schema.value)} - before.kept_columns
                unknown += [names[each] for each in (*used.values, *used.conditions) if each in left_out]
    return list(dict.fromkeys(unknown))


def _unknown_joined_columns(before: list[Step], after: list[Step]) -> list[str]:
    """The columns that joins would have to know of the rows that they keep, but do not: a join keeps the columns that
    its query reads, not whole rows. Read as NULL, the others would be wrong until each row changes."""
    kept = {step.id: {column.name for column in _columns(step)} for step in before}
    return [
        column.name
        for step in after
        if step.keeps_rows_read and not step.filled_by
        for column in _columns(step)
        if column.name not in kept.get(step.id, {column.name})
    ]


def _columns(step: Step) -> Schema:
    return schema_of(step.state_identity or step)


def _kept_columns(plan: PhysicalPlan) -> dict[str, frozenset[str]]:
    """For each store of a source: the value columns that it has, named as in batches."""
    return {store_id(source): source.kept_columns for source in plan.sources() if source.stateful}


def _state_fits(before: list[Step], after: list[Step]) -> bool:
    """A table that is only copied needs state only for a filter, so the state appears and disappears with the filter.
    When it appears, it is filled from the table's topic: with the rows that the topic still has."""
    if len(before) == len(after) and all(map(_goes_on, after, before)):
        return True
    if not all(isinstance(step, Source) for step in (*before, *after)):
        return False
    kept = {step.id: step for step in before}
    return all(step.continues(kept.get(step.id, step)) for step in after)


def _goes_on(step: Step, before: Step) -> bool:
    """What a new store contains is computed anew."""
    renewed = step.store_number > before.store_number
    same = kept_keys(step) == kept_keys(before) and (renewed or kept_values(step) == kept_values(before))
    return same and step.continues(before)


def _stateful(plan: PhysicalPlan) -> list[Step]:
    return [step for step in plan.steps() if step.stateful]


def _comparable(value: Any) -> Any:
    """A format without its schema: each record names its schema, and the registry has checked compatibility."""
    return replace(value, schema=None) if isinstance(value, FormatSpec) else value


def _text(columns: tuple[Column, ...] | list[Column]) -> str:
    return ", ".join(map(str, columns)) or "none"


def _change(old: SourceInfo, what: str, before: str, after: str) -> str:
    return f"DataSource '`{old.name}`' has {what} = {before} which is not upgradeable to {after}."


def _shown(value: object) -> str:
    if isinstance(value, FormatSpec):
        return f"{value.name} (delimiter '{value.delimiter}', {'wrapped' if value.wrap_single else 'unwrapped'})"
    if isinstance(value, KeyWindow):
        return value.kind if value.size_ms is None else f"{value.kind} of {value.size_ms} ms"
    return "none" if value is None else str(value)


def _not_upgradeable(old: SourceInfo, reason: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(
        f"Cannot replace {old.kind.lower()} '{old.name}': {reason}",
        span=span,
        hint="A replacement may append value columns; otherwise drop it and create it again.",
    )


def _not_replaceable(
    old: PersistentQuery,
    reason: str,
    span: Span | None,
    hint: str = "A replacement may change filters and append columns; otherwise drop it and create it again.",
) -> InvalidStatement:
    return InvalidStatement(f"Cannot replace query {old.id}: {reason}.", span=span, hint=hint)
