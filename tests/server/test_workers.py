"""The threads behind HTTP: what they do not take any more is refused, so that clients come again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millstream.server.http.context import WORKERS, Workers
from millstream.server.http.errors import SHUTTING_DOWN, RequestRefused


def test_calls_that_have_not_begun_when_the_threads_end_are_refused() -> None:
    asyncio.run(_refused_when_closed())


def test_who_is_cancelled_is_not_refused() -> None:
    asyncio.run(_cancelled())


async def _refused_when_closed() -> None:
    workers, goes_on = Workers(), threading.Event()
    begun = [asyncio.ensure_future(workers.run(goes_on.wait)) for _ in range(WORKERS)]
    waiting = asyncio.ensure_future(workers.run(lambda: None))
    await asyncio.sleep(0)
    closing = threading.Thread(target=workers.close)
    closing.start()
    with pytest.raises(RequestRefused) as refused:
        await waiting
    with pytest.raises(RequestRefused) as late:
        await workers.run(lambda: None)
    assert refused.value.error_code == late.value.error_code == SHUTTING_DOWN
    goes_on.set()
    assert all(await asyncio.gather(*begun))
    closing.join()


def test_calls_that_wait_for_ever_are_left_to_themselves() -> None:
    asyncio.run(_left_waiting())


async def _left_waiting() -> None:
    workers, goes_on = Workers(), threading.Event()
    begun = asyncio.ensure_future(workers.run(goes_on.wait))
    await asyncio.sleep(0)
    await asyncio.to_thread(workers.close, 0.01)
    assert not begun.done()
    goes_on.set()
    assert await begun


async def _cancelled() -> None:
    workers, goes_on = Workers(), threading.Event()
    begun = [asyncio.ensure_future(workers.run(goes_on.wait)) for _ in range(WORKERS)]
    waiting = asyncio.ensure_future(workers.run(lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.set()
    await asyncio.gather(*begun)
    workers.close()
