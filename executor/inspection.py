"""Inspects a running query: its meters and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..logcore.client import TopicPartition
from ..planner.physical import PhysicalPlan
from ..planner.specs import WindowSpec
from ..planner.steps.step import Step
from .figures import Meters, OpenWindows, OperatorFigures, OperatorMeter, PartitionTimes, QueryFigures
from .pipeline import Pipeline
from .windows.placing import placing_of


@dataclass(frozen=True, slots=True)
class StateSeen:
    """The contents of the state. `stores`: rows and approximate bytes, by store."""

    stores: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    windows: tuple[OpenWindows, ...] = ()

    @staticmethod
    def of(pipeline: Pipeline) -> StateSeen:
        stores = {name: store.measure() for name, store in pipeline.stores.items()}
        return StateSeen(stores, _open_windows(pipeline.plan, pipeline))

    @staticmethod
    def together(parts: Iterable[StateSeen]) -> StateSeen:
        """Combines the parts of one state."""
        stores: dict[str, tuple[int, int]] = {}
        windows: list[OpenWindows] = []
        for part in parts:
            windows += part.windows
            for name, (rows, size) in part.stores.items():
                known_rows, known_size = stores.get(name, (0, 0))
                stores[name] = known_rows + rows, known_size + size
        return StateSeen(stores, tuple(windows))


def inspected(
    meters: Meters, times: Mapping[TopicPartition, PartitionTimes], state: StateSeen | None, *, writing: bool
) -> QueryFigures:
    """In: `state`: None if the state cannot be read now."""
    seen, rates = state or StateSeen(), meters.rates()
    return QueryFigures(
        operators=tuple(_operator(meter, rates, None if state is None else seen.stores) for meter in meters),
        partitions=dict(times),
        windows=seen.windows,
        store_rows={name: rows for name, (rows, _) in seen.stores.items()},
        state_known=state is not None,
        writing=writing,
    )


def _operator(
    meter: OperatorMeter,
    rates: Mapping[str, tuple[float, float, float]],
    stores: Mapping[str, tuple[int, int]] | None,
) -> OperatorFigures:
    rows_in, rows_out, bytes_out = rates.get(meter.covers[-1], (0.0, 0.0, 0.0))
    own = [size for name, size in (stores or {}).items() if _holds_rows_of(name, meter.covers)]
    return OperatorFigures(
        steps=meter.covers,
        rows_in=meter.rows_in,
        rows_out=meter.rows_out,
        bytes_out=meter.bytes_out,
        late_rows=meter.late_rows,
        busy_ms=meter.busy_ns // 1_000_000,
        rows_in_per_second=rows_in,
        rows_out_per_second=rows_out,
        bytes_out_per_second=bytes_out,
        state_rows=None if stores is None else sum(rows for rows, _ in own),
        state_bytes=None if stores is None else sum(size for _, size in own),
    )


def _holds_rows_of(store: str, steps: tuple[str, ...]) -> bool:
    step, _, what = store.partition(".")
    return step in steps and what not in ("stream_time", "time")


def _open_windows(plan: PhysicalPlan, pipeline: Pipeline) -> tuple[OpenWindows, ...]:
    """The open windows of aggregates that emit a window when it closes."""
    return tuple(
        OpenWindows(step.id, part, rows, _close_ms(window, first), _stream_times(step, pipeline).get(part))
        for step in plan.steps()
        if step.final and (window := step.grouping_window) is not None
        for part, rows, first in pipeline.stores[step.id].by_task(window.type.mark)
    )


def _close_ms(window: WindowSpec, mark: int) -> int:
    """The stream time at which the window with this mark closes."""
    if window.type.grows:
        return mark + window.size_ms + window.grace_ms + 1
    return int(placing_of(window).ends(np.array([mark]))[0]) + window.grace_ms


def _stream_times(step: Step, pipeline: Pipeline) -> dict[int, int]:
    store = pipeline.stores.get(f"{step.id}.stream_time")
    if store is None:
        return {}
    rows = store.rows()
    return dict(zip(rows["_part"].to_pylist(), rows["stream_time_ms"].to_pylist(), strict=True))
