"""A request that is under way when the listener ends: it is answered, or told to come again; never 500."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from millstream.logcore.protocol.admission import ConnectionLimits
from millstream.server.config.configuration import ListenAddress
from millstream.server.http.context import HttpContext
from millstream.server.http.listener import HttpListener
from millstream.server.pg import pg_listener


class Slow:
    """An ASGI application that waits for long, before its answer or in the middle of it. State: whether one waits."""

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins
        self.waits = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"some", "more_body": True})
        self.waits.set()
        await asyncio.sleep(600)


def under_way(app: Slow, *, http2: bool = False) -> httpx.Response:
    """What a client gets whose request is under way when the listener ends."""
    listener = HttpListener(ListenAddress("127.0.0.1", 0))
    listener.start(app)
    with ThreadPoolExecutor(1) as pool, httpx.Client(http1=not http2, http2=http2, timeout=60) as client:
        asked = pool.submit(client.post, f"http://{listener.address}/ksql", json={})
        assert app.waits.wait(30)
        listener.stop()
        return asked.result()


@pytest.mark.parametrize("http2", [False, True])
def test_who_waits_for_an_answer_is_told_to_come_again(http2: bool) -> None:
    response = under_way(Slow(begins=False), http2=http2)
    assert response.status_code == 503
    assert response.json()["error_code"] == 50303
    assert response.headers["retry-after"]


def test_an_answer_that_has_begun_is_cut_off() -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        under_way(Slow(begins=True))


@pytest.mark.timeout(30)
def test_an_error_before_the_port_is_served_is_raised_where_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(http: object) -> None:
        raise RuntimeError("no threads are left")

    monkeypatch.setattr(pg_listener, "PgShared", fails)
    listener = pg_listener.PgListener(ListenAddress("127.0.0.1", 0), None, ConnectionLimits())
    with pytest.raises(RuntimeError, match="no threads are left"):
        listener.start(cast(HttpContext, object()), None, 1)
    listener.stop()
