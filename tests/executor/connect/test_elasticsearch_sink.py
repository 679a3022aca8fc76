"""Documents of Elasticsearch and OpenSearch: each record has its effect once, what the server refuses is a dead letter.

The answers here are those of Elasticsearch's and OpenSearch's documentation; a real OpenSearch takes the same records
in the test at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from connectors import read_topic
from opensearch_server import opensearch_server
from scripted_worker import Answer, Asked, scripted_worker

from bench.maven import Unavailable
from millstream.executor.connect.connector import ConnectRecord, RecordsRefused, TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_sandbox import ConnectorSandbox
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sinks.elasticsearch_sink import ElasticsearchSink

SECRET = "hunter2-hunter2"
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
Action = dict[str, Any]


def sandbox(url: str, **config: str) -> ConnectorSandbox:
    named = {name.replace("_", "."): value for name, value in config.items()}
    settings = {"connection.url": url, "topics": "Orders", "key.converter": "string"}
    return ConnectorSandbox(ElasticsearchSink, {**settings, **named})


class Index:
    """Bulk requests as the server carries them out. In: `outcome`: of an action, None: it succeeds. State: the versions
    and documents by id, and all actions that came."""

    def __init__(self, outcome: Callable[[Action, Any], Action | None] = lambda head, document: None) -> None:
        self.outcome = outcome
        self.documents: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.actions: list[Action] = []
        self.requests: list[Asked] = []

    def answer(self, asked: Asked) -> Answer:
        self.requests.append(asked)
        lines = [json.loads(line) for line in asked.body.splitlines()]
        items: list[Action] = []
        while lines:
            ((kind, head),) = lines.pop(0).items()
            items.append({kind: self._done(kind, head, lines.pop(0) if kind == "index" else None)})
        return 200, {"errors": False, "items": items}

    def _done(self, kind: str, head: Action, document: Any) -> Action:
        self.actions.append({kind: head})
        id_, version = head["_id"], head["version"]
        assert head["version_type"] == "external"
        if (refused := self.outcome(head, document)) is not None:
            return refused
        if self.versions.get(id_, -1) >= version:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "higher or equal"}}
        self.versions[id_] = version
        if kind == "index":
            self.documents[id_] = document
            return {"status": 201}
        return {"status": 200 if self.documents.pop(id_, None) is not None else 404}


def test_a_document_for_each_key_with_the_offset_as_version() -> None:
    index = Index()
    with scripted_worker(index.answer) as server, sandbox(f"{server.url}/") as box:
        box.produce("Orders", "a/b", {"n": 1})
        box.produce("Orders", "gone", {"n": 2})
        box.produce("Orders", "a/b", {"n": 3})
        box.produce("Orders", "gone", None)
        box.produce("Orders", "never", None)
        box.run()
    assert index.documents == {"a/b": {"n": 3}}
    assert index.actions[0] == {"index": {"_index": "orders", "_id": "a/b", "version": 0, "version_type": "external"}}
    assert index.actions[3] == {"delete": {"_index": "orders", "_id": "gone", "version": 3, "version_type": "external"}}
    assert len(index.requests) == 1
    assert index.requests[0].headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize("point", [*ElasticsearchSink.kill_points, "sink_after_read", "sink_after_write"])
def test_what_a_dead_task_has_written_is_written_again_without_an_effect(point: str) -> None:
    index = Index()
    with scripted_worker(index.answer) as server, sandbox(server.url, bulk_size_bytes="400") as box:
        for number in range(40):
            box.produce("Orders", f"k{number % 7}", None if number % 5 == 4 else {"n": number})
        for nth in (1, 2, 1):
            box.kill_at(point, nth)
            box.run()
            box.produce("Orders", "more", {"n": nth})
        box.run()
        assert box.deaths >= 2
    wanted: dict[str, Any] = {}
    for number in range(40):
        wanted[f"k{number % 7}"] = None if number % 5 == 4 else {"n": number}
    assert index.documents == {**{key: row for key, row in wanted.items() if row is not None}, "more": {"n": 1}}


def test_a_document_for_each_record_where_keys_are_ignored() -> None:
    index = Index()
    with scripted_worker(index.answer) as server, sandbox(server.url, key_ignore="true", index="all") as box:
        for value in ({"n": 1}, None, {"n": 2}):
            box.produce("Orders", None, value)
        box.run()
    assert index.documents == {"Orders+0+0": {"n": 1}, "Orders+0+2": {"n": 2}}


@pytest.mark.parametrize(("index", "topics"), [("all", "Orders,More"), ("${topic}", "Orders,orders")])
def test_two_topics_never_share_an_index_of_keys(index: str, topics: str) -> None:
    """Their offsets do not compare: updates would be lost."""
    there = Index()
    with scripted_worker(there.answer) as server, sandbox(server.url, topics=topics, index=index) as box:
        for topic in topics.split(","):
            box.produce(topic, "a", {"n": 1})
        with pytest.raises(ConnectorFailed, match="would be written to the index"):
            box.run()
    assert there.documents == {}
    with scripted_worker(there.answer) as server:
        with sandbox(server.url, topics=topics, index=index, key_ignore="true") as box:
            for topic in topics.split(","):
                box.produce(topic, "a", {"n": 1})
            box.run()
    assert len(there.documents) == 2


def test_refused_documents_are_dead_letters_with_the_reason_and_the_others_are_written() -> None:
    def outcome(head: Action, document: Any) -> Action | None:
        if head["_id"] != "odd":
            return None
        cause = {"reason": 'For input string: "x"'}
        return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "field [n]", "caused_by": cause}}

    index = Index(outcome)
    records = [("good", {"n": 1}), ("odd", {"n": "x"}), ("list", [1]), (None, {"n": 2}), ("x" * 600, {}), ("end", {})]
    with scripted_worker(index.answer) as server, sandbox(server.url, **LETTERS) as box:
        for key, value in records:
            box.produce("Orders", key, value)
        box.run()
        assert index.documents.keys() == {"good", "end"}
        letters = {
            letter.key: dict(letter.headers)["__connect.errors.exception.message"] for letter in box.records("letters")
        }
    begin = b"the record at Orders, partition 0, offset %d cannot be written: "
    assert letters == {
        "list": begin % 2 + b"its value is of type list, and a document is an object",
        None: begin % 3 + b"it has no key, which would be the id of its document",
        "x" * 600: begin % 4 + b"its key has more than 512 bytes, and would be the id of its document",
        "odd": begin % 1
        + b'127.0.0.1 refuses its document: mapper_parsing_exception: field [n] (For input string: "x")',
    }
    with scripted_worker(index.answer) as server, sandbox(server.url) as box:
        box.produce("Orders", "odd", {"n": "x"})
        with pytest.raises(ConnectorFailed, match="mapper_parsing_exception"):
            box.run()


@pytest.mark.parametrize(
    ("config", "key", "value", "says"),
    [
        ({"key_converter": "json"}, b'{"a": "\\ud800", "b": 0.5}', {"n": 1}, "surrogates|UTF-8|utf-8"),
        ({"key_converter": "double"}, float("nan"), {"n": 1}, "nan is not JSON"),
    ],
)
def test_a_key_that_is_no_json_is_a_dead_letter(config: dict[str, str], key: Any, value: Any, says: str) -> None:
    index = Index()
    with scripted_worker(index.answer) as server, sandbox(server.url, **LETTERS, **config) as box:
        box.produce("Orders", key, value)
        box.run()
        (letter,) = box.records("letters")
    assert index.documents == {}
    assert re.search(says, (dict(letter.headers)["__connect.errors.exception.message"] or b"").decode())


def test_a_document_with_nan_is_refused() -> None:
    """A transform, or another converter, may have made it."""
    index = Index()
    with scripted_worker(index.answer) as server:
        settings = read_settings(ElasticsearchSink.settings, {"connection.url": server.url})
        record = ConnectRecord("Orders", "a", {"deep": [{"n": float("inf")}]}, 0, (), 0, 0, "Orders")
        with pytest.raises(RecordsRefused, match="inf is not JSON"):
            ElasticsearchSink(settings, TaskInfo("out")).write([record], {})
    assert index.documents == {}


def test_a_busy_server_gets_only_what_it_has_not_taken() -> None:
    busy = iter([True, False, True, True])

    def outcome(head: Action, document: Any) -> Action | None:
        rejected = {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "queue is full"}}
        return rejected if head["_id"] == "b" and next(busy, False) else None

    index = Index(outcome)
    with scripted_worker(index.answer) as server, sandbox(server.url) as box:
        for key in "abc":
            box.produce("Orders", key, {})
        box.run()
        assert box.clock.now_ms() >= 100
    assert [len(asked.body.splitlines()) for asked in index.requests] == [6, 2]
    assert index.documents.keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("answers", "raises", "says"),
    [
        ([(429, b"slow down"), (503, b""), None], None, ""),
        ([(500, b"oops")] * 30, SystemUnavailable, "answered 500: oops"),
        ([(401, b"who?")], ConnectorFailed, "refuses the user: 401 who"),
        ([(200, b"<html>")], ConnectorFailed, "not as Elasticsearch does"),
        ([(200, {"items": [{"index": {}}]})], ConnectorFailed, "an item has no status"),
        ([(200, {"items": []})], ConnectorFailed, "not as Elasticsearch does"),
        ([(404, {"items": [{"index": {"status": 404}}]})], ConnectorFailed, "not as Elasticsearch does"),
        (
            [(200, {"items": [{"index": {"status": 404, "error": {"type": "index_not_found_exception"}}}]})],
            ConnectorFailed,
            "index_not_found_exception",
        ),
    ],
)
def test_what_passes_is_waited_out_and_the_rest_says_what_to_do(
    answers: list[Answer], raises: type[Exception] | None, says: str
) -> None:
    index, left = Index(), list(answers)
    with scripted_worker(lambda asked: left.pop(0) if left else index.answer(asked)) as server:
        with sandbox(server.url, connection_username="ana", connection_password=SECRET) as box:
            box.produce("Orders", "a", {"n": 1})
            if raises is None:
                box.run()
                assert index.documents == {"a": {"n": 1}}
                assert index.requests[0].headers["authorization"].startswith("Basic ")
                return
            with pytest.raises(raises, match=says) as failed:
                box.run()
            assert SECRET not in str(failed.value)


def test_a_request_that_is_too_large_is_halved_and_one_document_refused() -> None:
    index = Index()

    def answer(asked: Asked) -> Answer:
        return (413, b"") if len(asked.body) > 2000 else index.answer(asked)

    with scripted_worker(answer) as server, sandbox(server.url, **LETTERS) as box:
        for number in range(20):
            box.produce("Orders", f"k{number}", {"text": "x" * (5000 if number == 11 else 200)})
        box.run()
        assert index.documents.keys() == {f"k{number}" for number in range(20) if number != 11}
        (letter,) = box.records("letters")
        assert b"is too large" in (dict(letter.headers)["__connect.errors.exception.message"] or b"")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"url": "localhost:9200"}, "must begin with http"),
        ({"url": ""}, "connection.url"),
        ({"url": "http://h:1", "bulk_size_bytes": "0"}, "bulk.size.bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused(config: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConnector, match=says):
        sandbox(**config)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_real_opensearch_has_the_last_value_of_each_key_under_kills() -> None:
    """Of the task, at each step, and of the server."""
    try:
        with opensearch_server() as server:
            hostile: dict[str, Any] = {
                "unicode": {"n": 1, "text": "ünï\u0000cødé 𝄞"}, "huge": {"n": 2, "text": "x" * 2_000_000},
                "number": {"n": "no number"}, "nested": {"n": 3, "deep": {"a": [{"b": None}, {"b": [1.5, -0.0]}]}},
                "wide": {"n": 10**30}, "surrogate": {"n": 4, "text": "\ud800"}, "nan": {"n": float("nan")},
            }  # fmt: skip
            with sandbox(server.url, bulk_size_bytes="3000", index="all", **LETTERS) as box:
                box.produce("Orders", "first", {"n": 0})
                for key, value in hostile.items():
                    box.produce("Orders", key, json.dumps(value).encode())
                box.run()
                found = server.documents("all")
                letters = {(letter.key or b"").decode() for letter in read_topic(box.log, "letters")}
                assert found.keys() | letters == {"first", *hostile} and not found.keys() & letters
                assert {"number", "wide"} <= letters
                for key in found.keys() - {"first", "nan", "surrogate"}:
                    assert found[key] == hostile[key]
            wanted: dict[str, Any] = {}
            points = (*ElasticsearchSink.kill_points, "sink_after_read", "sink_after_write", "sink_after_commit")
            with sandbox(server.url, bulk_size_bytes="3000", index="kills") as box:
                for kill in range(30):
                    for number in range(50):
                        key = f"k{(number * 7 + kill) % 40}"
                        wanted[key] = None if (number + kill) % 6 == 0 else {"n": number, "kill": kill}
                        box.produce("Orders", key, wanted[key])
                    if kill == 15:
                        server.kill()
                        with pytest.raises(SystemUnavailable):
                            box.run()
                        server.start()
                    box.kill_at(points[kill % len(points)])
                    box.run()
                assert box.deaths >= 25
            assert server.documents("kills") == {key: row for key, row in wanted.items() if row is not None}
    except Unavailable as reason:
        pytest.skip(f"OpenSearch: {reason}")
