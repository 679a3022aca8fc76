"""What the source and the sink do, in the processes that do it. Loaded when needed: it needs the whole executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...logcore.client import TransactionalProducer
from ...logcore.errors import ProducerFenced
from ...logcore.failpoints import fp
from ..queries.query_log import marker_topic, offset_group
from .batch_ends import BatchEnds
from .lanes import LaneRange, Positions, ranges_between
from .markers import check_run
from .pieces import encode_piece
from .rows import piece_row
from .spec import RunSpec, spec_from_json
from .stage_one import StageOne
from .stages import Stages

WAIT_S = 0.2  # how long planning a batch may wait for records: this often a query notices that it should stop

_KEPT_MAX = 16
_stages_one: dict[str, StageOne] = {}  # of this process, by spec
_producers: dict[str, TransactionalProducer] = {}  # of this process, by run


class BatchPlanner:
    """Plans the batches of a run."""

    def __init__(self, spec_json: str) -> None:
        self._spec = spec_from_json(spec_json)
        self._ends = BatchEnds(self._spec.stages.plan, self._spec.log(), self._spec.batch_records_max)
        self._until: Positions | None = None

    def stop_at_what_is_there(self) -> None:
        """Later records are for another run."""
        self._until = self._ends.available(self._spec.start)

    def end_of(self, start: Positions) -> Positions:
        """Where the batch ends that begins at `start`; waits a little for records."""
        if self._until is None:
            self._spec.log().wait(start, WAIT_S)
        return self._ends.next(start, self._until or self._ends.available(start))

    def tasks(self, start: Positions, end: Positions) -> list[list[LaneRange]]:
        """What each task reads."""
        return group_ranges(self._spec.stages, ranges_between(start, end), self._spec.parallelism)


def read(spec_json: str, ranges: Sequence[LaneRange], starts: Positions, ends: Positions) -> Iterator[pa.RecordBatch]:
    """The first stage over these ranges, as rows of Spark's."""
    for sequence, (bucket, piece) in enumerate(_stage_one(spec_json).read(ranges, starts, ends)):
        yield piece_row(bucket, sequence, encode_piece(piece))


def commit_offsets(spec_json: str, positions: Positions) -> None:
    """In a transaction of the query's own id, so that a run that is over cannot move them any more."""
    spec = spec_from_json(spec_json)
    fp("spark.before_offsets")
    try:
        producer = _producers.get(spec.run) or _new_producer(spec)
        producer.begin()
    except ProducerFenced:  # by this run in another process, or by a later run
        producer = _new_producer(spec)
        producer.begin()
    producer.send_offsets(offset_group(spec.query_id), positions)
    producer.commit()
    fp("spark.after_offsets")


def group_ranges(stages: Stages, ranges: Sequence[LaneRange], parallelism: int) -> list[list[LaneRange]]:
    """The ranges that a task reads each; lanes of one bucket stay together, so that they need no shuffle."""
    together: dict[int, list[LaneRange]] = {}
    for number, lane_range in enumerate(ranges):
        key = number if stages.shuffled else stages.bucket_of(lane_range.lane.partition)
        together.setdefault(key, []).append(lane_range)
    groups: list[list[LaneRange]] = [[] for _ in range(max(1, parallelism))]
    for lanes in sorted(together.values(), key=_size, reverse=True):
        min(groups, key=_size).extend(lanes)
    return [group for group in groups if group]


def _size(ranges: Sequence[LaneRange]) -> int:
    return sum(lane_range.end - lane_range.start for lane_range in ranges)


def _stage_one(spec_json: str) -> StageOne:
    found = _stages_one.get(spec_json)
    if found is None:
        while len(_stages_one) >= _KEPT_MAX:
            _stages_one.pop(next(iter(_stages_one))).close()
        spec = spec_from_json(spec_json)
        found = _stages_one[spec_json] = StageOne(spec.stages, spec.log())
    return found


def _new_producer(spec: RunSpec) -> TransactionalProducer:
    """Raises `StaleRun`. Looks twice: a run that is over must fence nobody, and one that ends meanwhile must stop."""
    log, markers = spec.log(), marker_topic(spec.query_id)
    check_run(log, markers, 0, spec.run)
    producer = log.transactional_producer(spec.query_id)
    check_run(log, markers, 0, spec.run)
    while len(_producers) >= _KEPT_MAX:
        _producers.pop(next(iter(_producers)))
    _producers[spec.run] = producer
    return producer
