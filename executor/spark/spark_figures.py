"""What a query on Spark measures about itself: its buckets count in Spark's tasks and report with each batch; the
driver adds up.

A bucket reports what was counted since its last report, by the stage that read its records as well, and what lies in
its state. The latter stands in the bucket's marker, too: a run that begins knows it before its first batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ...logcore.client import TopicPartition
from ...planner.physical import PhysicalPlan
from ..figures import Meters, OpenWindows, OperatorCounts, PartitionTimes, QueryFigures
from ..inspection import StateSeen, inspected
from .lanes import lane_of, lane_text

_SPARE = 50  # a look at the state that takes long is not taken again before so many times as long are over
_LONG_S = 0.005


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """What a bucket reports. `times`: the largest rowtime of what was read of each lane."""

    operators: Sequence[OperatorCounts] = ()
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    state: StateSeen | None = None

    def to_json(self) -> str:
        value = {
            "operators": self.operators,
            "times": {lane_text(lane): time_ms for lane, time_ms in self.times.items()},
            "state": None if self.state is None else state_to_json(self.state),
        }
        return orjson.dumps(value, default=tuple).decode()

    @staticmethod
    def from_json(text: str) -> BucketFigures:
        found = orjson.loads(text)
        return BucketFigures(
            tuple(OperatorCounts(tuple(covers), *counts) for covers, *counts in found["operators"]),
            {lane_of(lane): time_ms for lane, time_ms in found["times"].items()},
            None if found["state"] is None else state_from_json(found["state"]),
        )


def state_to_json(state: StateSeen) -> dict[str, Any]:
    windows = [(each.step, each.part, each.rows, each.first_close_ms, each.stream_time_ms) for each in state.windows]
    return {"stores": dict(state.stores), "windows": windows}


def state_from_json(found: Mapping[str, Any]) -> StateSeen:
    stores = {name: (rows, size) for name, (rows, size) in found["stores"].items()}
    return StateSeen(stores, tuple(OpenWindows(*each) for each in found["windows"]))


class StateLooks:
    """Looks into the state of a bucket after its batches, unless that takes too much of their time."""

    def __init__(self) -> None:
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_s

    def took(self, seconds: float) -> None:
        """The last look did."""
        self._due_s = time.monotonic() + _SPARE * seconds if seconds > _LONG_S else 0.0


class SparkFigures:
    """The figures of one query, on the driver. The query's thread writes, anybody reads."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._steps = frozenset(step.id for step in plan.steps())
        self._meters = Meters(steadily=True)
        self._times: dict[TopicPartition, PartitionTimes] = {}
        self._states: dict[int, StateSeen | None] | None = None  # of the buckets that have one
        self._guard = threading.Lock()

    def begin(self, states: Mapping[int, StateSeen | None]) -> None:
        """What lies in the state of each bucket that has one, when a run begins; None where nobody knows it."""
        with self._guard:
            self._states = dict(states)

    def sample(self) -> None:
        """Now and then, while a run goes on: rates are between two samples."""
        self._meters.sample()

    def add(self, reports: Iterable[tuple[int, str]]) -> None:
        """In: buckets, each with the `BucketFigures` of a batch that it has done, as JSON."""
        now_ms = int(time.time() * 1000)
        with self._guard:
            for bucket, text in reports:
                figures = BucketFigures.from_json(text)
                for counts in figures.operators:
                    self._count(counts)
                for lane, time_ms in figures.times.items():
                    before = self._times.get(lane)
                    self._times[lane] = PartitionTimes(max(time_ms, before.largest_ms) if before else time_ms, now_ms)
                if figures.state is not None and self._states is not None:
                    self._states[bucket] = figures.state

    def _count(self, counts: OperatorCounts) -> None:
        """Subplans have steps of their own, which the plan does not know."""
        covers = tuple(step for step in counts.covers if step in self._steps)
        if covers:
            self._meters.add(counts._replace(covers=covers))

    def figures(self) -> QueryFigures:
        """What is known at this moment; of the state only if all buckets with one have told."""
        with self._guard:
            states = (self._states or {}).values()
            known = [state for state in states if state is not None]
            is_known = self._states is not None and len(known) == len(states)
            return inspected(self._meters, self._times, StateSeen.together(known) if is_known else None, writing=False)
