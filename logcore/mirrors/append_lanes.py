"""Work on many partitions at a time: in order within a partition, but in parallel for different ones. So they share
syncs, and none waits for the disk while another one could write."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from ..client import TopicPartition

_THREADS: Final = 4
_BYTES_MAX: Final = 64 * 1024 * 1024
Work = Callable[[], None]


class _Piece(NamedTuple):
    size: int
    work: Work


class AppendLanes:
    """State: for each partition the waiting pieces of work, and the size of all unfinished pieces. One thread uses it.

    If a piece raises an exception, no other pieces begin, and `has_room` raises the same exception.
    """

    def __init__(self, name: str, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._changed = threading.Condition()
        self._waiting: dict[TopicPartition, deque[_Piece]] = {}
        self._busy: set[TopicPartition] = set()
        self._size = 0
        self._failure: BaseException | None = None

    def has_room(self, timeout_s: float) -> bool:
        """Waits up to `timeout_s` for room; returns whether more may be given. Raises an exception that a piece
        raised."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._failure is None and self._size >= self._bytes_max:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            if self._failure is not None:
                raise self._failure
            return True

    def give(self, where: TopicPartition, size: int, work: Work) -> None:
        """Adds a piece of work. It may be larger than `bytes_max`, if no other pieces are unfinished."""
        with self._changed:
            self._size += size
            self._waiting.setdefault(where, deque()).append(_Piece(size, work))
            if where not in self._busy:
                self._busy.add(where)
                self._pool.submit(self._run, where)

    def close(self) -> None:
        """Drops waiting pieces, and waits for those that have begun."""
        with self._changed:
            self._waiting.clear()
        self._pool.shutdown()

    def _run(self, where: TopicPartition) -> None:
        """Runs only one piece, so that partitions take turns if there are more of them than threads."""
        with self._changed:
            piece = self._waiting[where].popleft() if self._has_next(where) else None
        if piece is not None:
            try:
                piece.work()
            except BaseException as error:
                with self._changed:
                    self._failure = self._failure or error
        with self._changed:
            self._size -= 0 if piece is None else piece.size
            if self._has_next(where):
                self._pool.submit(self._run, where)
            else:
                self._busy.discard(where)
            self._changed.notify_all()

    def _has_next(self, where: TopicPartition) -> bool:
        return bool(self._waiting.get(where)) and self._failure is None
