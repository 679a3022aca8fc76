"""A silent S3 store: it holds up the making of other clients for a bounded time, and nobody who has one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pyarrow import fs
from s3_server import S3Server
from silent_server import SilentServer
from waiting import eventually

from millstream.executor.connect.connector_errors import SystemUnavailable
from millstream.executor.connect.stores import s3_clients
from millstream.executor.connect.stores.file_store import StoreSettings
from millstream.executor.connect.stores.s3_clients import S3_CLIENTS, S3Client, S3Clients
from millstream.executor.connect.stores.s3_objects import S3Objects


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    """Somebody waits for the answer of such a store."""
    with SilentServer() as server:
        store = S3Objects("lake", store_settings(server.url))
        asking = threading.Thread(target=lambda: refused(store.files))
        asking.start()
        eventually(lambda: server.taken > 0)
        yield server
        server.let_go()
        asking.join()


def store_settings(url: str, key: str = "AKIATESTS") -> StoreSettings:
    return StoreSettings(
        s3_endpoint=url, s3_region="us-east-1", aws_access_key_id=key, aws_secret_access_key="s3cret-of-the-tests"
    )


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SystemUnavailable) as caught:
        call()
    return caught.value.message


def test_a_store_that_was_used_before_is_used_again_while_another_one_is_silent(
    store: S3Server, request: pytest.FixtureRequest
) -> None:
    settings = store_settings(f"http://{store.address}")
    S3Objects("lake/a", settings).write("x", b"1")
    request.getfixturevalue("silent")
    begin = time.monotonic()
    assert S3Objects("lake/a", settings).read("x") == b"1"
    assert time.monotonic() - begin < 2.0


def test_who_needs_a_new_client_is_told_why_it_waits_and_gets_it_once_the_store_answers(
    store: S3Server, silent: SilentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_clients, "_WAITS_S", 0.2)
    settings = store_settings(f"http://{store.address}", "AKIAOTHER")
    assert "another object store does not answer" in refused(lambda: S3Objects("lake", settings))
    silent.let_go()
    monkeypatch.undo()
    assert eventually(lambda: S3_CLIENTS.client(settings), 30)


def test_a_store_that_has_not_answered_is_not_asked_while_a_client_is_made() -> None:
    order, may = list[str](), threading.Event()

    def make(settings: StoreSettings) -> fs.S3FileSystem:
        if settings.s3_endpoint == "http://slow":
            assert may.wait(60)
            order.append("made")
        return fs.S3FileSystem(anonymous=True, region="us-east-1")

    clients = S3Clients(make)
    silent = clients.client(store_settings("http://silent"))
    with pytest.raises(OSError, match="timed out"), silent.request():
        raise OSError("timed out")
    making = threading.Thread(target=lambda: clients.client(store_settings("http://slow")))
    making.start()
    asking = threading.Thread(target=lambda: _asks(silent, order))
    eventually(lambda: clients.is_making)
    asking.start()
    asking.join(0.3)
    may.set()
    asking.join()
    making.join()
    assert order == ["made", "asked"]


def test_a_client_that_cannot_be_made_is_tried_again() -> None:
    results: list[object] = [OSError("no route"), fs.S3FileSystem(anonymous=True, region="us-east-1")]

    def make(settings: StoreSettings) -> fs.S3FileSystem:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, fs.S3FileSystem)
        return result

    clients, settings = S3Clients(make), store_settings("http://there")
    with pytest.raises(OSError, match="no route"):
        clients.client(settings)
    assert clients.client(settings) is clients.client(settings)


def _asks(client: S3Client, order: list[str]) -> None:
    with client.request():
        order.append("asked")
