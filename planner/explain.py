"""A physical plan as text, for EXPLAIN: the sink on top, each step below what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from .physical import (
    UNBOUNDED_MS,
    Aggregate,
    AggregateCall,
    Expire,
    Explode,
    Filter,
    ForeignKeyJoin,
    FormatSpec,
    Over,
    OverCall,
    PhysicalPlan,
    Project,
    Rekey,
    RowJoin,
    Sink,
    Source,
    Step,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    Union,
    WindowSpec,
    inputs_of,
    schema_of,
)
from .readable import column_names, readable
from .user_functions import with_names


def explain(plan: PhysicalPlan, notes: Mapping[str, str] | None = None) -> str:
    """One line per step, indented under its reader, and below it what `notes` says about the step of this id."""
    return "\n".join(_lines(plan.root, 0, notes or {}))


def _lines(step: Step, depth: int, notes: Mapping[str, str]) -> list[str]:
    own = [f"{'  ' * depth}{' > ' if depth else ''}{describe(step)}"]
    if step.id in notes:
        own.append(f"{'  ' * depth}{' · ' if depth else '· '}{notes[step.id]}")
    return [*own, *(line for child in inputs_of(step) for line in _lines(child, depth + 1, notes))]


def describe_readably(step: Step) -> str:
    """The step in one line as people would write it: columns by their names, and without its schema."""
    names = {name: text for child in inputs_of(step)[:1] for name, text in column_names(schema_of(child)).items()}
    text = describe(step, lambda sql: readable(sql, lambda name: names.get(name, name)))
    return with_names(text.partition(" | ")[0])


def describe(step: Step, text: Callable[[str], str] = str) -> str:
    """The step in one line. In: `text`: how an expression is written."""
    match step:
        case Sink():
            return (
                f"SINK {step.kind} {step.name} → topic {step.topic} ({step.partition_count} partitions, "
                f"{_formats(step.key_format, step.value_format)}) | {step.schema}"
            )
        case Source():
            old = ", with old rows" if step.materialized else ""
            formats = _formats(step.key_format, step.value_format)
            return f"SOURCE {step.kind} {step.name} ← topic {step.topic} ({formats}{old}{_ttl(step)}) | {step.schema}"
        case Expire():
            return f"EXPIRE rows that are not updated for {step.ttl_ms} ms"
        case Filter():
            return f"FILTER {text(step.predicate.sql)}"
        case Project():
            key = "" if step.key is None else f"key {', '.join(text(e.sql) for e in step.key) or 'none'}; "
            return f"PROJECT {key}{', '.join(text(e.sql) for e in step.values)} | {step.schema}"
        case Rekey():
            key = ", ".join(text(e.sql) for e in step.key) or "none"
            return f"REKEY {key} ({step.partition_count} partitions by {step.key_format.name}) | {step.schema}"
        case Aggregate():
            window = "" if step.window is None else f" {_window(step.window)}"
            emit = " EMIT FINAL" if step.emit == "FINAL" else ""
            calls = ", ".join(call_text(call, text) for call in step.calls)
            return f"AGGREGATE{window} {calls}{emit}{_ttl(step)} | {step.schema}"
        case StreamTableJoin():
            return f"JOIN {step.kind} stream with table | {step.schema}"
        case StreamStreamJoin():
            grace = "" if step.grace_ms is None else f", grace {step.grace_ms} ms"
            window = f"within {step.before_ms} ms before and {step.after_ms} ms after{grace}"
            if step.before_ms == UNBOUNDED_MS:
                window = "without limit in time"
            return f"JOIN {step.kind} stream with stream {window} | {step.schema}"
        case TableTableJoin():
            old = ", with old rows" if step.emit_old else ""
            return f"JOIN {step.kind} table with table{old} | {step.schema}"
        case ForeignKeyJoin():
            old = ", with old rows" if step.emit_old else ""
            return f"JOIN {step.kind} table with table by foreign key{old} | {step.schema}"
        case Over():
            keys = ", ".join(f"k{i}" for i in range(len(step.schema.key))) or "nothing"
            bound = (
                "" if step.bound is None else f", rows with v{_first_result(step) + step.bound[0]} <= {step.bound[1]}"
            )
            over = ", ".join(over_text(call, text) for call in step.calls)
            return f"OVER partitions by {keys}: {over}{bound} | {step.schema}"
        case RowJoin():
            keys = ", ".join(f"left v{i}" for i in step.left_key), ", ".join(f"right v{i}" for i in step.right_key)
            kind = "LEFT JOIN" if step.outer else "JOIN"
            return f"{kind} rows told apart by {keys[0]}, {keys[1]} | {step.schema}"
        case Union():
            return f"UNION ALL | {step.schema}"
        case Explode():
            return f"EXPLODE {', '.join(text(e.sql) for e in step.arrays)} | {step.schema}"
        case _:
            raise AssertionError(f"unknown step {type(step).__name__}")


def _ttl(step: Source | Aggregate) -> str:
    return "" if step.ttl_ms is None else f", TTL {step.ttl_ms} ms"


def _formats(key: FormatSpec, value: FormatSpec) -> str:
    return f"key {key.name}, value {value.name}"


def call_text(call: AggregateCall, text: Callable[[str], str] = str) -> str:
    """In: `text`: how an expression is written."""
    arguments = ", ".join([text(e.sql) for e in call.arguments] + [repr(c) for c in call.constants])
    condition = "" if call.filter is None else f" FILTER (WHERE {text(call.filter.sql)})"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments}){condition}"


def over_text(call: OverCall, text: Callable[[str], str] = str) -> str:
    """In: `text`: how an expression is written."""
    arguments = ", ".join(text(e.sql) for e in call.arguments)
    condition = "" if call.filter is None else f" FILTER (WHERE {text(call.filter.sql)})"
    order = ", ".join(
        f"{text(key.expression.sql)}{' DESC' if key.descending else ''}{' NULLS FIRST' if key.nulls_first else ''}"
        for key in call.order
    )
    parts = [f"ORDER BY {order}" if order else "", call.frame]
    head = f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments}){condition}"
    return f"{head} OVER ({' '.join(part for part in parts if part)})"


def _first_result(step: Over) -> int:
    """The position of the first call's result among the values."""
    return len(step.schema.value) - len(step.calls) - (not step.identity)


def _window(window: WindowSpec) -> str:
    match window.kind:
        case "TUMBLING":
            return f"TUMBLING {window.size_ms} ms{_zone(window)}, grace {window.grace_ms} ms"
        case "HOPPING":
            return f"HOPPING {window.size_ms} ms by {window.advance_ms} ms{_zone(window)}, grace {window.grace_ms} ms"
        case "SESSION":
            return f"SESSION gap {window.size_ms} ms, grace {window.grace_ms} ms"
        case _:
            assert_never(window.kind)


def _zone(window: WindowSpec) -> str:
    return "" if window.timezone is None else f" as days of {window.timezone}"
