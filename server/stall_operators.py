"""Which operator of a query lets nothing through: filters, joins without partners, windows that are still open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..executor.figures import OpenWindows, OperatorFigures
from ..logcore.client import TopicPartition
from ..planner.explain import describe_readably
from ..planner.physical import (
    Aggregate,
    Explode,
    Filter,
    ForeignKeyJoin,
    Join,
    Rekey,
    RowJoin,
    Source,
    Step,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    WindowSpec,
    inputs_of,
    walk,
)
from .answer_times import duration_text, time_text
from .stall import Cause, Situation, counted

_DEFAULT_GRACE_MS = 86_400_000
_JOINS = (StreamTableJoin, StreamStreamJoin, TableTableJoin, ForeignKeyJoin, RowJoin)
_WINDOWS_SHOWN = 4


def operator_causes(seen: Situation) -> Iterator[Cause]:
    """From the sources to the sink; the first operator that gives nothing is what to look at."""
    steps = {step.id: step for step in walk(seen.query.plan.root)}
    for operator in _in_order(seen.figures.operators, list(steps)):
        covered = [steps[each] for each in operator.steps if each in steps]
        if not covered:
            continue
        if isinstance(covered[-1], _JOINS):
            yield from _join(covered[-1], seen, operator)
        elif isinstance(covered[-1], Aggregate):
            yield from _aggregate(covered[-1], operator)
        elif operator.rows_in and not operator.rows_out:
            yield from _nothing_passes(covered, operator)
    yield from _open_windows(seen, steps)


def _in_order(operators: tuple[OperatorFigures, ...], ids: list[str]) -> list[OperatorFigures]:
    return sorted(operators, key=lambda each: ids.index(each.steps[-1]) if each.steps[-1] in ids else len(ids))


def _nothing_passes(covered: list[Step], operator: OperatorFigures) -> Iterator[Cause]:
    """Of steps without state that read rows and gave none."""
    filters = [step for step in covered if isinstance(step, Filter)]
    rows = operator.rows_in
    figures = {"step": operator.steps[-1], "rowsIn": rows}
    if filters:
        predicates = " and ".join(describe_readably(step).removeprefix("FILTER ") for step in filters)
        yield Cause("FILTER_DROPS_ALL", f"None of {counted(rows, 'row')} passed the filter {predicates}.",
                    "A comparison with NULL is not true either: look at the rows with PRINT or a push query.",
                    figures=figures)  # fmt: skip
    elif any(isinstance(step, Rekey) and step.drop_null_key for step in covered):
        yield Cause("NULL_KEYS", f"All {rows} rows have NULL in what they are grouped by, and were dropped.",
                    "Is the column spelled as in the records? Names in JSON are matched without regard to case.",
                    figures=figures)  # fmt: skip
    elif not isinstance(covered[-1], Source):
        step = next((each for each in covered if isinstance(each, Explode)), covered[-1])
        yield Cause("NOTHING_PASSES", f"{counted(rows, 'row')} went into {describe_readably(step)}, and none came out.",
                    "Rows without a value, and empty arrays in EXPLODE, give nothing.", figures=figures)  # fmt: skip


def _join(step: Join, seen: Situation, operator: OperatorFigures) -> Iterator[Cause]:
    if isinstance(step, StreamStreamJoin):
        yield from _waiting(step, seen, operator)
    if operator.rows_out:
        return
    counts = [_given(child, seen) for child in inputs_of(step)]
    kept = [_kept(step, side, seen) for side in ("left", "right")]
    sides = [_side(child) for child in inputs_of(step)]
    figures = {
        "step": step.id,
        "leftRows": counts[0],
        "rightRows": counts[1],
        "leftKept": kept[0],
        "rightKept": kept[1],
    }
    empty = [i for i in (0, 1) if not counts[i] and not kept[i]]
    if not seen.figures.state_known and len(empty) < 2:
        empty = [i for i in empty if counts[1 - i]]
    for i in empty:
        yield Cause("JOIN_SIDE_EMPTY", f"The {('left', 'right')[i]} side of the join, {sides[i]}, has given no rows.",
                    "A join needs rows of both sides: EXPLAIN STALL the query that writes it, or look at its topic.",
                    figures=figures)  # fmt: skip
    if not empty and (counts[0] or counts[1]):
        yield Cause(
            "NO_JOIN_PARTNER",
            f"{counted(counts[0], 'row')} of {sides[0]} and {counts[1]} of {sides[1]} came since the start"
            f"{f' (kept: {kept[0]} and {kept[1]})' if any(kept) else ''}, and no two belong together.",
            _partner_hint(step),
            figures=figures,
        )


def _waiting(step: StreamStreamJoin, seen: Situation, operator: OperatorFigures) -> Iterator[Cause]:
    """Rows of an outer side that are given without a partner once none can come any more, and late ones."""
    waiting = sum(rows for store, rows in seen.figures.store_rows.items() if store.startswith(f"{step.id}.unmatched."))
    if waiting and step.grace_ms is not None:
        reach = duration_text(max(step.before_ms, step.after_ms) + step.grace_ms)
        yield Cause(
            "ROWS_WAIT_FOR_PARTNER",
            f"{counted(waiting, 'row without a partner waits', 'rows without a partner wait')} until none can come any "
            f"more: until stream time is {reach} beyond their time.",
            "Only records move stream time: send later ones to the same partitions, or shorten WITHIN or GRACE PERIOD.",
            blocks=not operator.rows_out,
            figures={"step": step.id, "rows": waiting, "graceMs": step.grace_ms},
        )
    if operator.late_rows:
        yield Cause(
            "LATE_ROWS",
            f"{operator.late_rows} of {counted(operator.rows_in, 'row')} came too late for the join: no row of the "
            "other side that they could meet is kept any more.",
            "A longer GRACE PERIOD keeps rows longer.",
            blocks=operator.late_rows == operator.rows_in,
            figures={"step": step.id, "late": operator.late_rows, "rowsIn": operator.rows_in},
        )


def _partner_hint(step: Join) -> str:
    match step:
        case StreamTableJoin():
            return (
                "A stream's row meets the table as it was at that moment: the table's row must come before it, and the "
                "keys must be equal to the letter."
            )
        case StreamStreamJoin(before_ms=before, after_ms=after):
            return (
                f"Rows meet within {duration_text(before)} before and {duration_text(after)} after, by their rowtimes, "
                "and the keys must be equal to the letter."
            )
        case _:
            return "The keys must be equal to the letter: spaces, case and type count."


def _given(step: Step, seen: Situation) -> int:
    """Rows that this step gave since the start; where it has no figures of its own, what it stands on gave."""
    for operator in seen.figures.operators:
        if operator.steps[-1] == step.id:
            return operator.rows_out
    return 0


def _kept(step: Join, side: str, seen: Situation) -> int:
    rows = seen.figures.store_rows
    if isinstance(step, StreamTableJoin):
        return rows.get(step.id, 0) if side == "right" else 0
    return rows.get(f"{step.id}.{side}", 0)


def _side(step: Step) -> str:
    names = [each.name or each.topic for each in walk(step) if isinstance(each, Source)]
    return " and ".join(names)


def _aggregate(step: Aggregate, operator: OperatorFigures) -> Iterator[Cause]:
    if operator.late_rows:
        assert step.window is not None
        yield Cause(
            "LATE_ROWS",
            f"{operator.late_rows} of {counted(operator.rows_in, 'row')} came too late for their window: it had closed "
            f"({_grace(step.window)}).",
            "A longer GRACE PERIOD lets them in; results that are final come later then.",
            blocks=operator.late_rows == operator.rows_in,
            figures={"step": step.id, "late": operator.late_rows, "rowsIn": operator.rows_in,
                     "graceMs": step.window.grace_ms},
        )  # fmt: skip
    elif operator.rows_in and not operator.rows_out and step.emit != "FINAL":
        reached = counted(operator.rows_in, "row")
        yield Cause("NOTHING_TO_GROUP", f"{reached} reached the aggregate, and none was counted.",
                    "Rows whose value or key is NULL are left out.", figures={"step": step.id})  # fmt: skip


def _grace(window: WindowSpec) -> str:
    default = ", which is what it has when the statement says nothing" if window.grace_ms == _DEFAULT_GRACE_MS else ""
    return f"grace period {duration_text(window.grace_ms)}{default}"


def _open_windows(seen: Situation, steps: Mapping[str, Step]) -> Iterator[Cause]:
    """EMIT FINAL: what waits, and for which time."""
    waiting = [
        each
        for each in seen.figures.windows
        if each.stream_time_ms is None or each.stream_time_ms < each.first_close_ms
    ]
    by_step: dict[str, list[OpenWindows]] = {}
    for each in waiting:
        by_step.setdefault(each.step, []).append(each)
    for step_id, windows in by_step.items():
        step = steps[step_id]
        assert isinstance(step, Aggregate) and step.window is not None
        source = _unmoved_source(step)
        furthest = max((each.stream_time_ms for each in windows if each.stream_time_ms is not None), default=None)
        lines = [_window_line(each, source) for each in windows[:_WINDOWS_SHOWN]]
        more = len(windows) - len(lines)
        rows = sum(each.rows for each in windows)
        yield Cause(
            "WINDOWS_OPEN",
            f"{counted(rows, 'group waits', 'groups wait')} in windows that are still open (EMIT FINAL, "
            f"{_grace(step.window)}): {'; '.join(lines)}{f'; and {more} more' if more else ''}.",
            "Only records move stream time: send one that is late enough to each partition, shorten the GRACE PERIOD, "
            "or set millstream.emit.final.idle.ms, which closes windows when nothing comes.",
            blocks=not seen.flows,
            figures={
                "step": step_id,
                "graceMs": step.window.grace_ms,
                "furthestStreamTime": furthest,
                "tasks": [
                    {"task": each.part, "groups": each.rows, "closesAt": each.first_close_ms,
                     "streamTime": each.stream_time_ms}
                    for each in windows
                ],
            },
        )  # fmt: skip
        if source is not None:
            yield from _idle_partitions(windows, source, seen)


def _window_line(each: OpenWindows, source: Source | None) -> str:
    place = f"task {each.part}" if source is None else f"partition {each.part} of {source.topic}"
    now = "no time yet" if each.stream_time_ms is None else time_text(each.stream_time_ms)
    return f"{place} has reached {now}, and its first window closes at {time_text(each.first_close_ms)}"


def _idle_partitions(windows: list[OpenWindows], source: Source, seen: Situation) -> Iterator[Cause]:
    """Partitions whose time is behind that of others: nothing comes there."""
    ahead_ms = max(
        (times.largest_ms for at, times in seen.figures.partitions.items() if at.topic == source.topic), default=None
    )
    for each in windows:
        if ahead_ms is None or each.stream_time_ms is None or each.stream_time_ms >= ahead_ms:
            continue
        behind_ms = ahead_ms - each.stream_time_ms
        times = seen.figures.partitions.get(TopicPartition(source.topic, each.part))
        when = "" if times is None else f"; its last record was read at {time_text(times.read_at_ms)}"
        yield Cause(
            "PARTITION_IDLE",
            f"Partition {each.part} of {source.topic} is {duration_text(behind_ms)} behind the others{when}. "
            "Its own stream time holds its windows back.",
            "Each partition has its own stream time: write to all of them, or set millstream.emit.final.idle.ms.",
            blocks=not seen.flows,
            figures={"topic": source.topic, "partition": each.part, "behindMs": behind_ms},
        )


def _unmoved_source(step: Step) -> Source | None:
    """The source whose partitions are the tasks of this step; None where rows moved between tasks."""
    moved = False
    while not isinstance(step, Source):
        below = inputs_of(step)
        if len(below) != 1:
            return None
        moved = moved or isinstance(step, Rekey)
        step = below[0]
    return None if moved and step.partition_count > 1 else step
