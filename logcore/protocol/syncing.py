"""Makes appends durable for those who wait on the event loop: one sync of a partition at a time, shared by all who came
before it began."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from millstream.errors import LogError

from ..storage.partition import Mark, Partition

Outcome = LogError | None
_Waiting = list[tuple[Mark, "asyncio.Future[Outcome]"]]


class Syncs:
    """State: per partition whose sync is under way, those who came since; all that wait. Lives on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self._loop = loop
        self._threads = threads
        self._waiting: dict[Partition, _Waiting] = {}
        self._unsettled: set[asyncio.Future[Outcome]] = set()

    def durable(self, partition: Partition, mark: Mark) -> asyncio.Future[Outcome]:
        """Done once everything up to the mark is durable, or with the error that took it out of the log."""
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        if not partition.waits_for_disk:
            outcome.set_result(None)
            return outcome
        self._unsettled.add(outcome)
        if partition in self._waiting:
            self._waiting[partition].append((mark, outcome))
        else:
            self._start(partition, [(mark, outcome)])
        return outcome

    def _start(self, partition: Partition, waiting: _Waiting) -> None:
        self._waiting[partition] = []
        self._threads.submit(self._sync, partition, waiting)

    def _sync(self, partition: Partition, waiting: _Waiting) -> None:
        """On a thread. The sync for the last one is enough for the others."""
        outcomes = [_outcome(partition, mark) for mark, _ in reversed(waiting)]
        self._loop.call_soon_threadsafe(self._settle, partition, waiting, outcomes[::-1])

    def _settle(self, partition: Partition, waiting: _Waiting, outcomes: list[Outcome | BaseException]) -> None:
        came_since = self._waiting.pop(partition)
        if came_since:
            self._start(partition, came_since)
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            self._unsettled.discard(future)
            if future.done():
                continue
            if isinstance(outcome, LogError) or outcome is None:
                future.set_result(outcome)
            else:
                future.set_exception(outcome)

    async def settled(self) -> None:
        """Returns once nobody waits."""
        while self._unsettled:
            await asyncio.wait(self._unsettled)


def _outcome(partition: Partition, mark: Mark) -> Outcome | BaseException:
    try:
        partition.sync(mark)
    except BaseException as error:  # whatever it is, who waits has to hear of it
        return error
    return None
