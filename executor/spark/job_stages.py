"""The two stages of a subplan as functions from Arrow batches to Arrow batches, which Spark calls in its tasks.

Each job contains them as class names and fields. Objects that are expensive to make stay in the process that runs the
tasks: the first stage of a run, and the buckets whose home it is (`homes/`).
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import pyarrow as pa

from ..formats.compiled.warm_up import warm_up
from .bucket import Report
from .homes.bucket_home import Homes
from .homes.known_homes import KnownHomes
from .homes.open_buckets import BucketShare
from .lanes import LaneRange
from .markers import BatchId
from .pieces import encode_piece
from .spec import spec_from_json
from .stage_one import StageOne
from .unpacking import compiled_once

PIECE_SCHEMA = "bucket INT, seq BIGINT, batch BINARY"
_TYPES = {"int": ("BIGINT", pa.int64()), "str": ("STRING", pa.string())}
REPORT_SCHEMA = ", ".join(f"{field.name} {_TYPES[str(field.type)][0]}" for field in fields(Report))

_PIECES = pa.schema([("bucket", pa.int32()), ("seq", pa.int64()), ("batch", pa.binary())])
_REPORTS = pa.schema([(field.name, _TYPES[str(field.type)][1]) for field in fields(Report)])

_STAGES_MAX = 16
_stages_one: dict[tuple[str, int], StageOne] = {}  # the first stages of this process, by spec and subplan
_homes = Homes()


@dataclass(frozen=True, slots=True)
class ReadStage:
    """Rows (task number) in, rows (bucket, seq, piece) out. `spec_json`: a `RunSpec`. `tasks`, `topics`: those of the
    `Round`."""

    spec_json: str
    subplan: int
    tasks: Sequence[Sequence[LaneRange]]
    topics: Mapping[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            pieces = _stage_one(self.spec_json, self.subplan).read(self.tasks[number], self.topics)
            for sequence, (bucket, piece) in enumerate(pieces):
                yield _piece_row(bucket, sequence, encode_piece(piece))


@dataclass(frozen=True, slots=True)
class ApplyStage:
    """Rows (bucket, seq, piece) in, one report per bucket out. `homes`: those of the `Round`."""

    spec_json: str
    batch: BatchId
    homes: KnownHomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: dict[int, list[tuple[int, pa.Buffer]]] = {}
        for batch in batches:
            for row in range(batch.num_rows):
                piece = batch["batch"][row].as_buffer()
                waiting.setdefault(batch["bucket"][row].as_py(), []).append((batch["seq"][row].as_py(), piece))
        in_order = {
            bucket: [piece for _, piece in sorted(numbered, key=lambda found: found[0])]
            for bucket, numbered in waiting.items()
        }
        waiting.clear()
        yield from _apply(self.spec_json, self.batch, in_order, self.homes)


@dataclass(frozen=True, slots=True)
class ReadAndApplyStage:
    """Both stages in one task, for subplans whose rows never leave the task that reads them. Rows (task number) in, one
    report per bucket out."""

    spec_json: str
    subplan: int
    tasks: Sequence[Sequence[LaneRange]]
    topics: Mapping[str, int]
    batch: BatchId
    homes: KnownHomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            pieces: dict[int, list[pa.Buffer]] = {}
            for bucket, piece in _stage_one(self.spec_json, self.subplan).read(self.tasks[number], self.topics):
                pieces.setdefault(bucket, []).append(pa.py_buffer(encode_piece(piece)))
            yield from _apply(self.spec_json, self.batch, pieces, self.homes)


@functools.cache
def _settle() -> None:
    """Once per process: compiles what this host has not compiled yet, and hides all loaded objects from the garbage
    collector.

    Spark's workers run a full garbage collection after each task. Scanning the 300,000 objects of the modules took 86 %
    of a small batch's CPU time.
    """
    with compiled_once(__file__) as first:
        if first:
            warm_up()
    gc.collect()
    gc.freeze()


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _stage_one(spec_json: str, subplan: int) -> StageOne:
    _settle()
    key = spec_json, subplan
    found = _stages_one.get(key)
    if found is None:
        while len(_stages_one) >= _STAGES_MAX:
            _stages_one.pop(next(iter(_stages_one))).close()
        spec = spec_from_json(spec_json)
        found = _stages_one[key] = StageOne(spec.stages, spec.stages.subplans[subplan], spec.log())
    return found


def _apply(
    spec_json: str, batch: BatchId, pieces: dict[int, list[pa.Buffer]], homes: KnownHomes
) -> Iterator[pa.RecordBatch]:
    _settle()
    for bucket in sorted(pieces):
        yield _report_row(_homes.apply(BucketShare(spec_json, batch, bucket, pieces.pop(bucket)), homes))


def _piece_row(bucket: int, sequence: int, data: bytes) -> pa.RecordBatch:
    """Encodes a piece as a row."""
    columns = [pa.array([bucket], pa.int32()), pa.array([sequence], pa.int64()), pa.array([data], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_PIECES)


def _report_row(report: Report) -> pa.RecordBatch:
    """Encodes a report as a row."""
    return pa.RecordBatch.from_pylist([asdict(report)], schema=_REPORTS)
