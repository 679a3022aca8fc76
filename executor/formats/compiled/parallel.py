"""Large batches are decoded by several threads: the compiled loops work without the interpreter's lock."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from ..codec import Decoded, Decoder, RowError, one_array

_ROWS_PER_THREAD = 20_000  # fewer are decoded sooner than another thread is woken


def decode_in_parallel(decoder: Decoder, data: pa.Array | pa.ChunkedArray) -> Decoded:
    """What `decoder.decode(data)` gives. `decoder` must be safe for several threads, as all of ours are."""
    rows = one_array(data)
    threads = min(os.cpu_count() or 1, len(rows) // _ROWS_PER_THREAD)
    if threads < 2:
        return decoder.decode(rows)
    bounds = [len(rows) * i // threads for i in range(threads + 1)]
    slices = [rows.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
    first, *others = slices
    tasks = [_pool().submit(decoder.decode, part) for part in others]
    parts = [decoder.decode(first), *(task.result() for task in tasks)]
    return _joined(parts, bounds)


def _joined(parts: Sequence[Decoded], starts: Sequence[int]) -> Decoded:
    def together(column: Callable[[Decoded], pa.Array | None]) -> pa.Array | None:
        arrays = [column(part) for part in parts]
        return None if arrays[0] is None else pa.concat_arrays(arrays)

    columns = [pa.concat_arrays([part.columns[i] for part in parts]) for i in range(len(parts[0].columns))]
    errors = [
        RowError(start + error.row, error.message)
        for part, start in zip(parts, starts, strict=False)
        for error in part.errors
    ]
    return Decoded(
        columns,
        pa.concat_arrays([part.null_rows for part in parts]),
        errors,
        together(lambda part: part.window_start),
        together(lambda part: part.window_end),
    )


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Shared by all queries of the process. Made at first use: a process that was forked has its own."""
    pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
    os.register_at_fork(after_in_child=_pool.cache_clear)
    return pool
