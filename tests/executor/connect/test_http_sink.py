"""Requests for records: the same key at every attempt, pauses for trouble that passes, errors for the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sink_runner import SinkRunner
from millstream.executor.connect.sinks.http_sink import HttpSink, HttpSinkSettings
from millstream.logcore.client import FetchedRows
from millstream.logcore.clients.producer import Producer
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log, open_log


class Receiver(ThreadingHTTPServer):
    """Keeps requests; `answers`: the next statuses, 200 after them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str, str, bytes]] = []
        self.headers: dict[str, str] = {}
        self.answers: list[int] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet

    def _answer(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        receiver.requests.append((self.command, self.path, self.headers["idempotency-key"], body))
        receiver.headers = dict(self.headers)
        status = receiver.answers.pop(0) if receiver.answers else 200
        self.send_response(status)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"said")

    do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        opened.create_topic("hooks", 1)
        with Producer(opened) as producer:
            for number in range(250):
                producer.send("hooks", b'{"n":%d}' % number, b'"k/%d"' % number)
            producer.send("hooks", None, b'"k/0"')
        yield opened
    arm("")


def runner(log: Log, address: str, name: str = "h", **more: str) -> SinkRunner:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"http.api.url": address, "topics": "hooks", **given}
    sink = HttpSink(read_settings(HttpSinkSettings, config), TaskInfo(name))
    return SinkRunner(log, sink, TaskInfo(name), config, lambda topic, batch, time_ms: batch)


def rows_of(log: Log, topic: str) -> list[dict[str, Any]]:
    (run,) = log.fetch(topic, 0, 0).runs
    assert isinstance(run, FetchedRows)
    return run.table.to_pylist()


def url(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.server_port}/hook/${{topic}}?key=${{key}}"


def test_each_record_is_a_request_and_a_death_repeats_at_most_a_batch(log: Log, receiver: Receiver) -> None:
    arm("connect.http_after_send:170:raise")
    settings = {"headers": "Authorization: Bearer x, X-One: 1", "behavior_on_null_values": "delete"}
    with pytest.raises(FailpointHit):
        runner(log, url(receiver), **settings).step(0)
    running = runner(log, url(receiver), **settings)
    assert running.step(0) and not running.step(0)
    running.close()
    keys = [key for _, _, key, _ in receiver.requests]
    assert keys == [f"h-hooks-0-{number}" for number in [*range(170), *range(100, 251)]]
    assert receiver.requests[1] == ("POST", "/hook/hooks?key=k%2F1", "h-hooks-0-1", b'{"n":1}')
    assert receiver.requests[-1][:2] == ("DELETE", "/hook/hooks?key=k%2F0")
    assert (receiver.headers["Authorization"], receiver.headers["X-One"]) == ("Bearer x", "1")


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, SystemUnavailable), (429, SystemUnavailable), (404, ConnectorFailed), (302, ConnectorFailed)],
)
def test_an_answer_is_waited_out_or_an_error(log: Log, receiver: Receiver, status: int, error: type[Exception]) -> None:
    receiver.answers = [200, status]
    with pytest.raises(error, match=f"127.0.0.1 answered {status}: said"):
        runner(log, url(receiver)).step(0)
    assert len(receiver.requests) == 2


def test_a_record_that_is_refused_is_a_dead_letter_and_no_other_is_sent_twice(log: Log, receiver: Receiver) -> None:
    receiver.answers = [200, 422, 200, 404, 413, 400]
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    running = runner(log, url(receiver), **tolerant)
    while running.step(0):
        pass
    running.close()
    assert [key for _, _, key, _ in receiver.requests] == [f"h-hooks-0-{number}" for number in range(250)]
    letters = rows_of(log, "letters")
    assert [letter["key"] for letter in letters] == [b'"k/1"', b'"k/3"', b'"k/4"', b'"k/5"']
    reasons = [{each["key"]: each["value"] for each in letter["headers"]} for letter in letters]
    assert reasons[0]["__connect.errors.exception.message"] == (
        b"the record at hooks, partition 0, offset 1 cannot be written: 127.0.0.1 answered 422: said"
    )


@pytest.mark.parametrize("status", [404, 410])
def test_what_is_to_be_deleted_may_be_gone(log: Log, receiver: Receiver, status: int) -> None:
    """As where the answer to the first attempt was lost."""
    receiver.answers = [*[200] * 250, status]
    running = runner(log, url(receiver), behavior_on_null_values="delete")
    assert running.step(0) and not running.step(0)
    running.close()
    assert receiver.requests[-1][0] == "DELETE"


@pytest.mark.parametrize("status", [401, 403, 404, 405, 302])
def test_an_answer_about_the_sender_ends_the_task_whatever_is_tolerated(
    log: Log, receiver: Receiver, status: int
) -> None:
    receiver.answers = [status]
    with pytest.raises(ConnectorFailed, match=f"answered {status}"):
        runner(log, f"http://127.0.0.1:{receiver.server_port}/hook", **{"errors.tolerance": "all"}).step(0)


def test_nobody_there_is_waited_for_and_a_clouds_metadata_is_refused(log: Log) -> None:
    with pytest.raises(SystemUnavailable, match=r"127\.0\.0\.1 does not answer"):
        runner(log, "http://127.0.0.1:1/").step(0)
    for address in ("http://169.254.169.254/latest", "http://[fe80::1]/"):
        with pytest.raises(ConnectorFailed, match="link-local"):
            runner(log, address).step(0)
    with pytest.raises(InvalidConnector, match="must begin with http"):
        runner(log, "file:///etc/passwd")


@pytest.mark.parametrize(
    ("name", "key"),
    [("ларёк", "%D0%BB%D0%B0%D1%80%D1%91%D0%BA"), ("a\nb", "a%0Ab"), ("my 'c'/1", "my 'c'/1"), ("10%", "10%25")],
)
def test_a_connector_may_have_any_name(log: Log, receiver: Receiver, name: str, key: str) -> None:
    runner(log, url(receiver), name).step(0)
    assert receiver.requests[0][2] == f"{key}-hooks-0-0"


def test_an_address_may_have_spaces_and_other_letters(log: Log, receiver: Receiver) -> None:
    runner(log, f"http://127.0.0.1:{receiver.server_port}/größe %20/${{topic}}?a=b c").step(0)
    assert receiver.requests[0][1] == "/gr%C3%B6%C3%9Fe%20%20/hooks?a=b%20c"


@pytest.mark.parametrize("header", ["X-One: ларёк", "X-Ö: 1"])
def test_headers_that_cannot_be_sent_are_refused_at_once(log: Log, header: str) -> None:
    with pytest.raises(InvalidConnector, match="must be ASCII") as refused:
        runner(log, "http://127.0.0.1:1/", headers=header)
    assert refused.value.setting == "headers"
    assert "ларёк" not in str(refused.value)
