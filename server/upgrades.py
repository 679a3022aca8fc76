"""What CREATE OR REPLACE may change: a source keeps its columns and its place, a query keeps its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.errors import InvalidStatement, Span

from ..planner.catalog import PersistentQuery, SourceInfo
from ..planner.physical import (
    Aggregate,
    Expire,
    ForeignKeyJoin,
    FormatSpec,
    PhysicalPlan,
    RowJoin,
    Source,
    Step,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    walk,
)
from ..planner.schema import Column, Schema

_KEPT = (
    ("topic", "topic"),
    ("key_format", "key format"),
    ("value_format", "value format"),
    ("key_window", "window"),
    ("timestamp_column", "timestamp column"),
)

_NOTHING = Step("")


def refuse_other_schema(old: SourceInfo, new: SourceInfo, span: Span | None) -> None:
    """Raises unless everything that reads `old` can go on reading `new`: columns may only be appended."""
    for attribute, name in _KEPT:
        if _comparable(getattr(old, attribute)) != _comparable(getattr(new, attribute)):
            raise _not_upgradeable(old, f"its {name} would change", span)
    if old.schema.key != new.schema.key:
        raise _not_upgradeable(old, f"its key would change: {_text(old.schema.key)} to {_text(new.schema.key)}", span)
    before, after = old.schema.value, new.schema.value
    if after[: len(before)] != before:
        lost = [column for column in before if column not in after]
        reason = f"columns would be missing or changed: {_text(lost)}" if lost else "its columns would change places"
        raise _not_upgradeable(old, reason, span)


def refuse_other_state(old: PersistentQuery, new: PhysicalPlan, span: Span | None) -> None:
    """Raises unless the state that the old query has kept fits the new plan."""
    topics = {source.topic for source in old.plan.sources()} ^ {source.topic for source in new.sources()}
    if topics:
        raise _not_replaceable(old, f"it would read other topics ({', '.join(sorted(topics))})", span)
    if _stateful_steps(old.plan) != _stateful_steps(new):
        raise _not_replaceable(old, "its grouping, aggregates, windows or joins would change", span)


def _stateful_steps(plan: PhysicalPlan) -> list[Step]:
    """The steps that keep state, without what feeds them."""
    bare: list[Step] = []
    for step in walk(plan.root):
        match step:
            case Aggregate():
                bare.append(replace(step, input=_NOTHING))
            case StreamTableJoin() | StreamStreamJoin() | TableTableJoin() | ForeignKeyJoin() | RowJoin():
                bare.append(replace(step, left=_NOTHING, right=_NOTHING))
            case Expire():
                bare.append(replace(step, input=_NOTHING, schema=Schema(())))
            case Source(materialized=True):
                formats = {name: _comparable(getattr(step, name)) for name in ("key_format", "value_format")}
                bare.append(replace(step, columns=None, **formats))
            case _:
                pass
    return bare


def _comparable(value: Any) -> Any:
    """A format without its schema: each record names its own, and the registry has said that they fit."""
    return replace(value, schema=None) if isinstance(value, FormatSpec) else value


def _text(columns: tuple[Column, ...] | list[Column]) -> str:
    return ", ".join(map(str, columns)) or "none"


def _not_upgradeable(old: SourceInfo, reason: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(
        f"Cannot replace {old.kind.lower()} '{old.name}': {reason}.",
        span=span,
        hint="A replacement may append value columns; for anything else drop it and create it anew.",
    )


def _not_replaceable(old: PersistentQuery, reason: str, span: Span | None) -> InvalidStatement:
    return InvalidStatement(
        f"Cannot replace query {old.id}: {reason}.",
        span=span,
        hint="A replacement may change filters and append columns; for anything else drop it and create it anew.",
    )
