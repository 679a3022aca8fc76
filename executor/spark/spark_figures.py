"""The figures of a query on Spark. Its buckets count in Spark's tasks and report with each batch; the driver adds up.

A bucket reports the counts since its last report, including those of the stage that read its records, and what its
state contains. The latter is also in the bucket's marker, so a new run knows it before its first batch.
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

_SPARE = 50  # after a look at the state that took longer than `_LONG_S`, the next one waits this many times as long
_LONG_S = 0.005


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """What a bucket reports. `times`: the largest rowtime read from each lane."""

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
    """Decides after which batches to look into the state of a bucket, so that looking takes little of their time."""

    def __init__(self) -> None:
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_s

    def took(self, seconds: float) -> None:
        """Reports how long the last look took."""
        self._due_s = time.monotonic() + _SPARE * seconds if seconds > _LONG_S else 0.0


class SparkFigures:
    """The figures of one query, on the driver. Only the query's thread writes; any thread may read."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._steps = frozenset(step.id for step in plan.steps())
        self._meters = Meters(steadily=True)
        self._times: dict[TopicPartition, PartitionTimes] = {}
        self._states: dict[int, StateSeen | None] | None = None  # by stateful bucket
        self._guard = threading.Lock()

    def begin(self, states: Mapping[int, StateSeen | None]) -> None:
        """Begins a run. In: what the state of each stateful bucket contains; None if unknown."""
        with self._guard:
            self._states = dict(states)

    def sample(self) -> None:
        """Takes a sample; call it regularly during a run. Rates are computed between two samples."""
        self._meters.sample()

    def add(self, reports: Iterable[tuple[int, str]]) -> None:
        """Adds the figures of a batch. In: for each bucket that has done it, its `BucketFigures` as JSON."""
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
        """Adds the counts without steps that exist only in subplans, not in the plan."""
        covers = tuple(step for step in counts.covers if step in self._steps)
        if covers:
            self._meters.add(counts._replace(covers=covers))

    def figures(self) -> QueryFigures:
        """The figures at this moment. They include the state only if that of every stateful bucket is known."""
        with self._guard:
            states = (self._states or {}).values()
            known = [state for state in states if state is not None]
            is_known = self._states is not None and len(known) == len(states)
            return inspected(self._meters, self._times, StateSeen.together(known) if is_known else None, writing=False)
