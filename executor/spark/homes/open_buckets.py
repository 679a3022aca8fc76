"""The buckets that are open in this process."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ..bucket import BucketRuntime, Report
from ..cache_folder import cache_folder
from ..markers import BatchId
from ..pieces import decode_piece
from ..spec import RunSpec, spec_from_json

BUCKETS_MAX = 64


@dataclass(frozen=True, slots=True)
class BucketShare:
    """What one bucket does of a batch. `spec_json`: a `RunSpec`. `pieces`: encoded, the pieces of a lane in offset
    order."""

    spec_json: str
    batch: BatchId
    bucket: int
    pieces: Sequence[pa.Buffer]

    @property
    def spec(self) -> RunSpec:
        return spec_from_json(self.spec_json)


@dataclass(slots=True)
class _Opened:
    """`users`: how many threads hold `lock` or wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    runtime: BucketRuntime | None = None

    def of_run(self, spec: RunSpec, bucket: int) -> BucketRuntime:
        """The bucket in this run; closes that of an earlier run. The caller holds `lock`."""
        if self.runtime is not None and self.runtime.run != spec.run:
            self.close()
        if self.runtime is None:
            cache = _cache(spec, bucket)
            self.runtime = BucketRuntime(spec.stages, bucket, spec.run, spec.log(), spec.properties, cache)
        return self.runtime

    def close(self) -> None:
        found, self.runtime = self.runtime, None
        if found is not None:
            found.close()


class OpenBuckets:
    """Opens a bucket for its first share and keeps it open. Thread-safe: shares of different buckets are applied at the
    same time. In: `limit`: how many buckets stay open; the one that was not used for longest is closed first."""

    def __init__(self, limit: int = BUCKETS_MAX) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._opened: OrderedDict[tuple[str, int], _Opened] = OrderedDict()  # the most recently used one is last

    def apply(self, share: BucketShare) -> Report:
        """Raises the errors of `BucketRuntime.apply`."""
        with self._used(share.spec.query_id, share.bucket) as opened:
            runtime = opened.of_run(share.spec, share.bucket)
            return runtime.apply([decode_piece(piece) for piece in share.pieces], share.batch)

    def leave(self, query_id: str, bucket: int) -> None:
        """Closes a bucket, after the threads that use it. Its file serves the next process."""
        with self._used(query_id, bucket) as opened:
            opened.close()

    def close(self) -> None:
        """Closes all buckets. No thread may use one."""
        while self._opened:
            self._opened.popitem()[1].close()

    @contextlib.contextmanager
    def _used(self, query_id: str, bucket: int) -> Generator[_Opened]:
        key = query_id, bucket
        with self._guard:
            opened = self._opened.setdefault(key, _Opened())
            self._opened.move_to_end(key)
            opened.users += 1
        try:
            with opened.lock:
                yield opened
        finally:
            with self._guard:
                opened.users -= 1
                superfluous = self._superfluous()
            for each in superfluous:
                each.close()

    def _superfluous(self) -> list[_Opened]:
        """Removes the buckets beyond the limit that no thread uses. The caller holds `_guard`, and closes them."""
        unused = [key for key, opened in self._opened.items() if not opened.users]
        return [self._opened.pop(key) for key in unused[: max(0, len(self._opened) - self._limit)]]


def _cache(spec: RunSpec, bucket: int) -> Path | None:
    if spec.cache is None or not spec.stages.subplan_of(bucket).stateful:
        return None
    return cache_folder(spec.cache)
