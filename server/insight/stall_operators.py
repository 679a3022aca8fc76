"""Which operator of a query blocks: filters, joins without matches, open windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...executor.figures import OpenWindows, OperatorFigures
from ...logcore.client import TopicPartition
from ...planner.insight.answer_times import duration_text, time_text
from ...planner.insight.stall import Cause, OperatorSeen, counted
from ...planner.steps.source import Source
from ...planner.steps.step import Step, walk
from .stall import Situation

_WINDOWS_SHOWN = 4


def operator_causes(seen: Situation) -> Iterator[Cause]:
    """The causes of all operators, from the sources to the sink. The first operator without output is the one to
    examine."""
    steps = {step.id: step for step in walk(seen.query.plan.root)}
    given = {operator.steps[-1]: operator.rows_out for operator in seen.figures.operators}
    for operator in _in_order(seen.figures.operators, list(steps)):
        covered = [steps[each] for each in operator.steps if each in steps]
        if covered:
            yield from covered[-1].stall(_seen(operator, given, seen), covered)
    yield from _open_windows(seen, steps)


def _seen(operator: OperatorFigures, given: Mapping[str, int], seen: Situation) -> OperatorSeen:
    return OperatorSeen(
        operator.rows_in,
        operator.rows_out,
        operator.late_rows,
        given,
        seen.figures.store_rows,
        seen.figures.state_known,
    )


def _in_order(operators: tuple[OperatorFigures, ...], ids: list[str]) -> list[OperatorFigures]:
    return sorted(operators, key=lambda each: ids.index(each.steps[-1]) if each.steps[-1] in ids else len(ids))


def _open_windows(seen: Situation, steps: Mapping[str, Step]) -> Iterator[Cause]:
    """EMIT FINAL: the groups that wait in open windows, and the stream time they wait for."""
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
        window = step.grouping_window
        assert window is not None, "only windows are open"
        source = _unmoved_source(step)
        furthest = max((each.stream_time_ms for each in windows if each.stream_time_ms is not None), default=None)
        lines = [_window_line(each, source) for each in windows[:_WINDOWS_SHOWN]]
        more = len(windows) - len(lines)
        rows = sum(each.rows for each in windows)
        yield Cause(
            "WINDOWS_OPEN",
            f"{counted(rows, 'group waits', 'groups wait')} in open windows (EMIT FINAL, "
            f"{window.grace_text}): {'; '.join(lines)}{f'; and {more} more' if more else ''}.",
            "Only records advance stream time: send a late enough one to each partition, shorten the GRACE PERIOD, "
            "or set millstream.emit.final.idle.ms, which closes windows of idle sources.",
            blocks=not seen.flows,
            figures={
                "step": step_id,
                "graceMs": window.grace_ms,
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
    return f"{place} has reached {now}; its first window closes at {time_text(each.first_close_ms)}"


def _idle_partitions(windows: list[OpenWindows], source: Source, seen: Situation) -> Iterator[Cause]:
    """Partitions whose stream time is behind that of others, because they get no records."""
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
            "Its own stream time delays its windows.",
            "Each partition has its own stream time: write to all of them, or set millstream.emit.final.idle.ms.",
            blocks=not seen.flows,
            figures={"topic": source.topic, "partition": each.part, "behindMs": behind_ms},
        )


def _unmoved_source(step: Step) -> Source | None:
    """The source whose partitions are the tasks of this step; None if a repartition moves rows between tasks."""
    moved = False
    while not isinstance(step, Source):
        below = step.inputs
        if len(below) != 1:
            return None
        moved = moved or step.rekeys
        step = below[0]
    return None if moved and step.partition_count > 1 else step
