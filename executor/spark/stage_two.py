"""The second stage as Spark calls it: rows (bucket, seq, batch) in, a report per bucket out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from .bucket import BucketRuntime
from .pieces import Piece, decode_piece
from .rows import NO_BUCKET, report_row
from .spec import RunSpec, spec_from_json

_OPEN_MAX = 64
_open: OrderedDict[tuple[str, int], BucketRuntime] = OrderedDict()
"""The buckets that this process has open, the one that was used last at the end."""


class StageTwo:
    """Runs the rest of the plan over the pieces of each bucket. In: `spec_json`: a `RunSpec`."""

    def __init__(self, spec_json: str) -> None:
        self._spec_json = spec_json

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = spec_from_json(self._spec_json)
        waiting: dict[int, list[tuple[int, Piece]]] = {}
        for batch in batches:
            for row in range(batch.num_rows):
                bucket = batch["bucket"][row].as_py()
                data = batch["batch"][row].as_buffer()
                if bucket == NO_BUCKET:
                    yield report_row(NO_BUCKET, {}, data.to_pybytes().decode())
                else:
                    waiting.setdefault(bucket, []).append((batch["seq"][row].as_py(), decode_piece(data)))
        context = TaskContext.get()
        batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        for bucket in sorted(waiting):
            pieces = [piece for _, piece in sorted(waiting.pop(bucket), key=lambda numbered: numbered[0])]
            yield report_row(bucket, asdict(_runtime(spec, bucket).apply(pieces, batch_id)))


def _runtime(spec: RunSpec, bucket: int) -> BucketRuntime:
    """The bucket as this process has it open, of this run."""
    key = spec.query_id, bucket
    found = _open.pop(key, None)
    if found is not None and found.run != spec.run:
        found.close()
        found = None
    if found is None:
        directory = None if spec.cache_directory is None else Path(spec.cache_directory)
        found = BucketRuntime(spec.stages, bucket, spec.run, spec.log(), spec.properties, directory)
    _open[key] = found
    while len(_open) > _OPEN_MAX:
        _open.popitem(last=False)[1].close()
    return found
