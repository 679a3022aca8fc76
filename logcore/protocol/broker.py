"""What the handlers of requests share: the log, threads for whatever may wait for a disk, and news of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from ..log import Log
from ..topic_rules import belongs_to_millstream
from .frames import CLIENT_ID
from .peer import Peer
from .producers import Producers
from .quotas import Meter, Quotas
from .row_view import RowView, Transcoder, row_view

NODE_ID: Final = 0
LEADER_EPOCH: Final = 0
_THREADS: Final = 16  # most wait: for a sync, or for a transaction's turn

_Result = TypeVar("_Result")


class Broker:
    """State: the transactional producers of clients, and who waits for the log to grow. Lives on one event loop."""

    def __init__(
        self,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        advertised: tuple[str, int] | None,
        transcoder: Callable[[], Transcoder | None],
        quotas: Quotas,
        is_reserved: Callable[[str], bool],
    ) -> None:
        self.log = log
        self._transcoder = transcoder
        self._is_reserved = is_reserved
        self._produced, self._fetched = Meter(quotas.produce_bytes), Meter(quotas.fetch_bytes)
        self.producers = Producers(log)
        self._advertised = advertised
        self._loop = loop
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="millstream-kafka")
        self._advance = asyncio.Event()
        self._waking = False
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself keeps no reference
        self._stop_listening = log.listen(self._advanced)

    def refuses(self, peer: Peer, name: str) -> bool:
        """Whether this group or transactional id is Millstream's own, and the client is not."""
        return not peer.trusted and self._is_reserved(name)

    def throttle(self, peer: Peer, *, produced: int = 0, fetched: int = 0) -> int:
        """The client has moved so many bytes; for how many milliseconds nothing more is read from it. On the loop."""
        if peer.trusted:
            return 0
        now_s = self._loop.time()
        meter, size = (self._produced, produced) if produced else (self._fetched, fetched)
        wait_s = meter.note(peer.client_id, size, now_s)
        peer.muted_until_s = max(peer.muted_until_s, now_s + wait_s)
        return round(wait_s * 1000)

    def row_view(self, peer: Peer, topic: str) -> RowView | None:
        """How this client sees the topic's columnar batches; None where it gets them as they are."""
        if peer.client_id == CLIENT_ID or belongs_to_millstream(topic):
            return None
        return row_view(self.log.topic(topic), self._transcoder())

    def address_for(self, local: tuple[str, int]) -> tuple[str, int]:
        """Where a client that found us at `local` should come again."""
        return self._advertised or local

    async def blocking(self, work: Callable[[], _Result]) -> _Result:
        """Runs what may wait for locks and disks on a thread of its own."""
        return await self._loop.run_in_executor(self._pool, work)

    def keep(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Runs it to its end, whether or not somebody still waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def in_background(self, work: Callable[[], object]) -> None:
        """The same, for what nobody waits for."""
        self._pool.submit(work)

    def next_advance(self) -> asyncio.Event:
        """Is set when a partition grows after this call."""
        return self._advance

    def _advanced(self) -> None:
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False
        event, self._advance = self._advance, asyncio.Event()
        event.set()

    async def close(self) -> None:
        """Waits for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._stop_listening()
        self._pool.shutdown()
