"""Rows of an HTTP server that is asked at intervals: each is in the topic once, page by page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.http_connections import opened_connection
from millstream.executor.connect.sources.http_source import HttpSource, HttpSourceSettings
from millstream.testing import ConnectorSandbox

Reply = tuple[int, dict[str, str], bytes]


class Site(ThreadingHTTPServer):
    """`reply`: from path, query and headers. `rows`: what there is."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rows: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.reply: Callable[[str, dict[str, list[str]], Any], Reply] = lambda path, query, headers: (200, {}, b"[]")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/items"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site = self.server
        assert isinstance(site, Site)
        site.asked.append(self.path)
        parts = urlsplit(self.path)
        status, headers, body = site.reply(parts.path, parse_qs(parts.query), self.headers)
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as started:
        thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def sandbox(site: Site, **more: str) -> ConnectorSandbox:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"http.api.url": site.url, "topic": "t", "allow.local.addresses": "true", **given}
    return ConnectorSandbox(HttpSource, config)


def numbers(box: ConnectorSandbox) -> list[int]:
    return [record.value["n"] for record in box.records("t")]


def rows(*found: int) -> list[dict[str, Any]]:
    return [{"n": number} for number in found]


def by_offset(site: Site) -> Callable[..., Reply]:
    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        first = int(query["offset"][0])
        return 200, {}, json.dumps({"data": {"items": site.rows[first : first + 2]}}).encode()

    return reply


def by_cursor(site: Site) -> Callable[..., Reply]:
    """The cursor is part of the answer; the last one stays."""

    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        first = int(query.get("after", ["0"])[0])
        found = site.rows[first : first + 2]
        following = {"next": first + 2} if len(site.rows) > first + 2 else {}
        return 200, {}, json.dumps({"data": {"items": found}, **following}).encode()

    return reply


def by_last_row(site: Site) -> Callable[..., Reply]:
    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        last = int(query.get("after", ["0"])[0])
        found = [row for row in site.rows if row["n"] > last][:2]
        return 200, {}, json.dumps({"data": {"items": found}}).encode()

    return reply


def by_link(site: Site) -> Callable[..., Reply]:
    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        page = int(query.get("page", ["0"])[0])
        more = len(site.rows) > 2 * page + 2
        link = {"link": f'</x>; rel="last", </items?page={page + 1}>; rel="next"'} if more else {}
        return 200, link, json.dumps({"data": {"items": site.rows[2 * page : 2 * page + 2]}}).encode()

    return reply


PAGING = [
    (by_offset, {"paging": "offset"}),
    (by_cursor, {"paging": "cursor", "cursor_parameter": "after", "cursor_pointer": "/next"}),
    (by_last_row, {"paging": "cursor", "cursor_parameter": "after", "cursor_row_pointer": "/n"}),
    (by_link, {"paging": "link"}),
]


@pytest.mark.parametrize(("replies", "settings"), PAGING)
def test_pages_are_read_to_the_end_and_on_from_there(site: Site, replies: Any, settings: dict[str, str]) -> None:
    site.reply, site.rows = replies(site), rows(1, 2, 3, 4, 5)
    with sandbox(site, records_pointer="/data/items", key_pointer="/n", **settings) as box:
        box.run()
        assert numbers(box) == [1, 2, 3, 4, 5]
        assert [record.key for record in box.records("t")] == [1, 2, 3, 4, 5]
        site.rows += rows(6, 7)
        box.restart()
        box.run()
        box.clock.advance(60_000)
        box.run()
        assert numbers(box) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("replies", "settings"), PAGING)
@pytest.mark.parametrize("point", ["after_read", "after_position", "after_commit"])
def test_a_task_that_dies_loses_and_repeats_nothing(
    site: Site, replies: Any, settings: dict[str, str], point: str
) -> None:
    site.reply, site.rows = replies(site), rows(1, 2, 3, 4, 5)
    with sandbox(site, records_pointer="/data/items", **settings) as box:
        box.kill_at(point, 2)
        box.run()
        assert box.deaths == 1
        assert numbers(box) == [1, 2, 3, 4, 5]


def test_an_answer_that_has_not_changed_is_not_written_again(site: Site) -> None:
    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        body = json.dumps(site.rows).encode()
        return (
            (304, {}, b"") if headers["if-none-match"] == f'"{len(body)}"' else (200, {"etag": f'"{len(body)}"'}, body)
        )

    site.reply, site.rows = reply, rows(1, 2)
    with sandbox(site) as box:
        for _ in range(3):
            box.run()
            box.clock.advance(60_000)
        assert (numbers(box), len(site.asked)) == ([1, 2], 3)
        site.rows = rows(1, 2, 3)
        box.run()
        assert numbers(box) == [1, 2, 1, 2, 3]
        site.reply = lambda path, query, headers: (200, {}, json.dumps(site.rows).encode())  # without a tag
        box.clock.advance(60_000)
        box.run()
        assert len(numbers(box)) == 5


def test_numbers_keep_their_digits_and_an_object_is_one_row(site: Site) -> None:
    site.reply = lambda path, query, headers: (200, {}, b'{"n": 0.1000000000000000000001, "a/b": null}')
    with sandbox(site, key_pointer="/a~1b") as box:
        box.run()
        (record,) = box.records("t")
        assert (record.key, record.value["n"]) == (None, Decimal("0.1000000000000000000001"))


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ((200, {}, b"<html>"), "is no JSON"),
        ((200, {}, b'{"a": NaN}'), "is no JSON"),
        ((200, {}, b"[" * 100_000), "is no JSON"),
        ((200, {}, b'{"a": 1.5, "b": ' + b"[" * 5000), "is no JSON"),
        ((200, {}, b"{}"), "has nothing at /data"),
        ((302, {"location": "http://169.254.169.254/"}, b""), "answered 302"),
        ((401, {}, b"who"), "answered 401: who"),
        ((200, {"content-encoding": "gzip"}, b"bomb"), "compressed an answer"),
        ((200, {}, b" " * 3000), "longer than 2000 bytes"),
    ],
)
def test_what_somebody_has_to_change_fails_the_task(site: Site, reply: Reply, says: str) -> None:
    site.reply = lambda path, query, headers: reply
    settings = {"records_pointer": "/data", "max_body_bytes": "2000", "headers": "Authorization: Bearer geheim"}
    limit = {"max_body_bytes": "200000"} if len(reply[2]) > 3000 else {}
    with sandbox(site, **{**settings, **limit}) as box, pytest.raises(ConnectorFailed, match=says) as caught:
        box.run()
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("reply", [(500, {}, b""), (429, {}, b""), (200, {"content-length": "100"}, b"[1,")])
def test_trouble_that_passes_is_waited_for(site: Site, reply: Reply) -> None:
    left = [reply, reply]
    site.reply = lambda path, query, headers: left.pop() if left else (200, {}, b'[{"n": 1}]')
    with sandbox(site) as box:
        box.run()
        assert numbers(box) == [1]


def test_a_link_to_the_page_itself_is_one_to_wait_there(site: Site) -> None:
    """As servers give it whose last page grows."""
    asked: list[str] = []

    def reply(path: str, query: dict[str, list[str]], headers: Any) -> Reply:
        asked.append(path)
        page = int(query.get("page", ["0"])[0])
        following = min(page + 1, len(site.rows) // 2)
        link = {"link": f'</items?page={following}>; rel="next"'}
        return 200, link, json.dumps({"data": {"items": site.rows[2 * page : 2 * page + 2]}}).encode()

    site.reply, site.rows = reply, rows(1, 2, 3)
    with sandbox(site, records_pointer="/data/items", paging="link") as box:
        box.run()
        assert numbers(box) == [1, 2, 3]
        assert len(asked) == 2
        site.rows += rows(4, 5)
        box.restart()
        box.run()
        assert numbers(box) == [1, 2, 3, 4, 5]


def test_a_next_link_does_not_lead_to_another_server(site: Site) -> None:
    site.reply = lambda path, query, headers: (200, {}, b'{"next": "http://127.0.0.1:1/x", "rows": [{"n": 1}]}')
    with sandbox(site, paging="link", link_pointer="/next", records_pointer="/rows") as box:
        with pytest.raises(ConnectorFailed, match="to another server"):
            box.run()


def test_this_machine_is_asked_only_where_that_is_allowed(site: Site) -> None:
    for url in (
        site.url,
        site.url.replace("127.0.0.1", "localhost"),
        site.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
    ):
        with sandbox(site, allow_local_addresses="false", http_api_url=url) as box:
            with pytest.raises(ConnectorFailed, match="of this machine"):
                box.run()
    assert site.asked == []


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]"])
def test_link_local_addresses_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(ConnectorFailed, match="link-local"):
        opened_connection(urlsplit(f"http://{host}/latest"), 1, "http.api.url")


def test_a_server_that_is_not_there_is_waited_for(site: Site) -> None:
    with sandbox(site, http_api_url="http://127.0.0.1:1/") as box, pytest.raises(SystemUnavailable, match="not answer"):
        box.run()


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"http.api.url": "file:///etc/passwd"}, "http.api.url"),
        ({"http.api.url": "http://h:port/"}, "http.api.url"),
        ({"http.api.url": "http://[::1/"}, "http.api.url"),
        ({"headers": "no colon"}, "headers"),
        ({"records.pointer": "data"}, "records.pointer"),
        ({"paging": "cursor"}, "cursor.pointer"),
        ({"paging": "pages"}, "paging"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms"),
    ],
)
def test_an_error_points_at_its_property(changed: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        read_settings(HttpSourceSettings, {"http.api.url": "http://h/", "topic": "t", **changed})
    assert caught.value.setting == name
