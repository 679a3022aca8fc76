"""The measurements of a running query: counts per operator and per source partition, and rates over the last seconds.
The query's thread writes them per batch, never per row; any thread may read them."""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from ..logcore.client import TopicPartition

_WINDOW_S = 10.0  # the period that rates cover
_SAMPLE_S = 1.0
_EXACT_EVERY = 16  # batches


class OperatorCounts(NamedTuple):
    """An operator's counts over some batches; fields as in `OperatorMeter`."""

    covers: tuple[str, ...]
    batches: int
    rows_in: int
    rows_out: int
    bytes_out: int
    late_rows: int
    busy_ns: int


@dataclass(slots=True)
class OperatorMeter:
    """Counts of one operator since the query was started in this process. Rows that are computed twice count twice.

    `covers`: the ids of the plan's steps that the operator computes together; its output is that of the last one.
    """

    covers: tuple[str, ...]
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    late_rows: int = 0
    busy_ns: int = 0
    bytes_per_row: float = 0.0  # measured in one batch of sixteen, since it costs more than all other counts here

    def add(self, rows_in: int, out: pa.Table, since_ns: int) -> None:
        """In: `since_ns`: when the operator began (`time.perf_counter_ns`)."""
        rows = out.num_rows
        if rows and (self.batches % _EXACT_EVERY == 0 or not self.bytes_per_row):
            self.bytes_per_row = out.nbytes / rows
        self.count(rows_in, rows, round(rows * self.bytes_per_row), since_ns)

    def count(self, rows_in: int, rows_out: int, bytes_out: int, since_ns: int) -> None:
        self.batches += 1
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.bytes_out += bytes_out
        self.busy_ns += time.perf_counter_ns() - since_ns

    def counts(self) -> tuple[int, int, int]:
        """Rows in, rows out, bytes out."""
        return self.rows_in, self.rows_out, self.bytes_out

    def all_counts(self) -> tuple[int, ...]:
        """In the order of `OperatorCounts`, without `covers`."""
        return self.batches, self.rows_in, self.rows_out, self.bytes_out, self.late_rows, self.busy_ns


class Meters:
    """The meters of a query, by the id of the step whose rows they count. They outlive its pipelines. In: `steadily`:
    samples are taken without input, too, so a batch that takes longer than the period of rates still has a rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, steadily: bool = False) -> None:
        self._by_step: dict[str, OperatorMeter] = {}
        self._clock = clock
        self._steadily = steadily
        self._taken: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._samples: deque[tuple[float, dict[str, tuple[int, int, int]]]] = deque([(clock(), {})])

    def of(self, covers: tuple[str, ...]) -> OperatorMeter:
        """The meter of the operator that computes these steps; the same one for the same steps."""
        meter = self._by_step.get(covers[-1])
        if meter is None or meter.covers != covers:
            meter = self._by_step[covers[-1]] = OperatorMeter(covers)
        return meter

    def take(self) -> list[OperatorCounts]:
        """The counts since the last call, to be passed to `add` of other meters."""
        found: list[OperatorCounts] = []
        for meter in self:
            counts, before = meter.all_counts(), self._taken.get(meter.covers)
            if counts != before:
                self._taken[meter.covers] = counts
                found.append(OperatorCounts(meter.covers, *map(operator.sub, counts, before or (0,) * len(counts))))
        return found

    def add(self, counts: OperatorCounts) -> None:
        """Adds counts of an operator of this query that were taken elsewhere."""
        meter = self.of(counts.covers)
        meter.batches += counts.batches
        meter.rows_in += counts.rows_in
        meter.rows_out += counts.rows_out
        meter.bytes_out += counts.bytes_out
        meter.late_rows += counts.late_rows
        meter.busy_ns += counts.busy_ns

    def sample(self) -> None:
        """Takes a sample if the last one is a second old. To be called before each batch."""
        now = self._clock()
        if now - self._samples[-1][0] < _SAMPLE_S:
            return
        self._samples.append((now, {step: meter.counts() for step, meter in self._by_step.items()}))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()

    def rates(self) -> dict[str, tuple[float, float, float]]:
        """Rows in, rows out and bytes out per second, over the last ten seconds or since the start."""
        now, samples = self._clock(), tuple(self._samples)
        none = samples[-1] if self._steadily else (now - _WINDOW_S, None)
        then, before = next((sample for sample in samples if now - sample[0] <= _WINDOW_S), none)
        elapsed = max(now - then, 1e-3)
        found: dict[str, tuple[float, float, float]] = {}
        for step, meter in tuple(self._by_step.items()):
            counts = meter.counts()
            old = counts if before is None else before.get(step, (0, 0, 0))
            rows_in, rows_out, bytes_out = (max(0, a - b) / elapsed for a, b in zip(counts, old, strict=True))
            found[step] = rows_in, rows_out, bytes_out
        return found

    def __iter__(self) -> Iterator[OperatorMeter]:
        return iter(tuple(self._by_step.values()))


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One operator at one moment. Counts as in `OperatorMeter`, rates per second.

    `steps`: the steps of the plan that it computes; its output is that of the last one. `state_rows` and `state_bytes`:
    the size of its state; None if the query was too busy to measure it.
    """

    steps: tuple[str, ...]
    rows_in: int
    rows_out: int
    bytes_out: int
    late_rows: int
    busy_ms: int
    rows_in_per_second: float
    rows_out_per_second: float
    bytes_out_per_second: float
    state_rows: int | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """`largest_ms`: the largest rowtime read from the partition since the start. `read_at_ms`: when the last record was
    read from it (wall clock)."""

    largest_ms: int
    read_at_ms: int


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """The open windows of one task: how many rows they have, and when the first of them closes (stream time, ms).

    `stream_time_ms`: of the task; None before its first record.
    """

    step: str
    part: int
    rows: int
    first_close_ms: int
    stream_time_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """A query's operators, its sources' times, and open windows. `store_rows`: rows by store. `state_known`: False if
    the query was too busy to inspect its state. `writing`: a batch is being encoded or written."""

    operators: tuple[OperatorFigures, ...] = ()
    partitions: Mapping[TopicPartition, PartitionTimes] = field(default_factory=dict)
    windows: tuple[OpenWindows, ...] = ()
    store_rows: Mapping[str, int] = field(default_factory=dict)
    state_known: bool = False
    writing: bool = False
