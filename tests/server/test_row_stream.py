"""The buffer between a query's thread and a client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

from waiting import eventually, inside

from millstream.server.engine.row_stream import BUFFER_BYTES_MAX, RowStream

CHUNK = b"x" * 1000


def test_the_query_waits_for_a_client_that_takes_nothing() -> None:
    made = 0

    def chunks() -> Iterator[bytes]:
        nonlocal made
        for _ in range(2000):
            made += 1
            yield CHUNK

    async def read_slowly() -> int:
        stream = RowStream("test", chunks(), lambda: None)
        stream.start()
        (thread,) = [each for each in threading.enumerate() if each.name == "millstream-test"]
        await asyncio.to_thread(eventually, inside(threading.Condition.wait, thread))
        assert made <= BUFFER_BYTES_MAX // len(CHUNK) + 2
        size = 0
        while taken := await stream.take():
            assert len(taken) <= BUFFER_BYTES_MAX + len(CHUNK)
            size += len(taken)
        return size

    assert asyncio.run(read_slowly()) == 2000 * len(CHUNK)


def test_closing_ends_a_query_that_waits_for_room_and_one_that_waits_for_rows() -> None:
    for endless in (True, False):
        closed = threading.Event()

        def chunks(endless: bool = endless, closed: threading.Event = closed) -> Iterator[bytes]:
            yield CHUNK
            while endless:
                yield CHUNK
            closed.wait()

        async def close_early(source: Iterator[bytes], closed: threading.Event = closed) -> None:
            stream = RowStream("test", source, closed.set)
            stream.start()
            assert await stream.take()
            stream.close()
            while await stream.take():
                pass
            stream.join(60)

        began = time.monotonic()
        asyncio.run(close_early(chunks()))
        assert closed.is_set()
        assert time.monotonic() - began < 5
    assert not [thread for thread in threading.enumerate() if thread.name == "millstream-test"]
