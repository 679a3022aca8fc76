"""The plan of a running query with the current figures of its operators: for EXPLAIN of a query's id."""

from __future__ import annotations

from collections.abc import Mapping

from ...executor.executor import Executor, QueryStatus
from ...executor.figures import OperatorFigures, QueryFigures
from ...planner.catalog import PersistentQuery
from ...planner.insight.explain import explain
from ...planner.physical import PhysicalPlan
from ..engine.entities import LiveFigures, OperatorLine, PartitionLine


def live_figures(query: PersistentQuery, status: QueryStatus, executor: Executor) -> LiveFigures:
    """Raises `UnknownQuery`."""
    figures = executor.figures(query.id) or QueryFigures()
    described = {step.id: step.describe_readably() for step in query.plan.steps()}
    order = {step_id: place for place, step_id in enumerate(described)}
    operators = sorted(figures.operators, key=lambda each: order.get(each.steps[-1], len(order)))
    return LiveFigures([_operator(each, described) for each in operators], _partitions(status, figures))


def _operator(figures: OperatorFigures, described: Mapping[str, str]) -> OperatorLine:
    step = figures.steps[-1]
    return OperatorLine(
        step=step,
        description=described.get(step, step),
        covers=list(figures.steps),
        rows_in=figures.rows_in,
        rows_out=figures.rows_out,
        bytes_out=figures.bytes_out,
        late_rows=figures.late_rows,
        busy_ms=figures.busy_ms,
        rows_in_per_second=round(figures.rows_in_per_second, 1),
        rows_out_per_second=round(figures.rows_out_per_second, 1),
        bytes_out_per_second=round(figures.bytes_out_per_second, 1),
        state_rows=figures.state_rows,
        state_bytes=figures.state_bytes,
    )


def _partitions(status: QueryStatus, figures: QueryFigures) -> list[PartitionLine]:
    lines: list[PartitionLine] = []
    for at in sorted({*status.positions, *figures.partitions}):
        times = figures.partitions.get(at)
        lines.append(
            PartitionLine(
                at.topic,
                at.partition,
                status.positions.get(at),
                status.lag.get(at),
                None if times is None else times.largest_ms,
                None if times is None else times.read_at_ms,
            )
        )
    return lines


def live_text(plan: PhysicalPlan, live: LiveFigures) -> str:
    """The plan in the form of `explain`, with the figures below each step."""
    notes: dict[str, str] = {}
    for operator in live.operators:
        notes[operator.step] = operator_note(operator)
        notes |= dict.fromkeys(operator.covers[:-1], "computed together with the step above")
    lags: dict[str, list[str]] = {}
    for line in live.partitions:
        lags.setdefault(line.topic, []).append(f"{line.partition}: {'?' if line.lag is None else line.lag}")
    for source in plan.sources():
        if source.topic in lags:
            note = f"lag by partition {', '.join(lags[source.topic])}"
            notes[source.id] = f"{notes[source.id]}; {note}" if source.id in notes else note
    return explain(plan, notes)


def operator_note(operator: OperatorLine) -> str:
    """The figures of an operator in one line."""
    parts = [
        f"in {operator.rows_in} rows ({operator.rows_in_per_second}/s)",
        f"out {operator.rows_out} rows ({operator.rows_out_per_second}/s), {size_text(operator.bytes_out)}",
    ]
    if operator.late_rows:
        parts.append(f"{operator.late_rows} late")
    if operator.state_rows:
        parts.append(f"state {operator.state_rows} rows, about {size_text(operator.state_bytes or 0)}")
    return ", ".join([*parts, f"busy {operator.busy_ms} ms"])


def size_text(count: int) -> str:
    """
    >>> size_text(999), size_text(2_048), size_text(5_000_000)
    ('999 B', '2.0 KiB', '4.8 MiB')
    """
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
