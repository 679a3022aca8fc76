"""GET /v1/topics/…, POST /v1/complete, /metrics?name[]=, /graph?format=layout: for the console and any other client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from running_server import service_in

from millstream.logcore.client import RowRecords
from millstream.server.console import record_search
from millstream.server.insight.log_metrics import LogMetrics
from millstream.server.service import Service

DDL = """
CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        with httpx.Client(base_url=f"http://{started.http_address}", timeout=60) as client:
            client.post("/ksql", json={"ksql": DDL}).raise_for_status()
        log = started.engine.log
        for partition in (0, 1):
            keys = [f"{'even' if n % 2 == 0 else 'odd'}-{partition}".encode() for n in range(10)]
            append(
                log,
                "s",
                partition,
                [1000 * n + partition for n in range(10)],
                keys,
                [b'{"V": %d}' % n for n in range(10)],
            )
        log.create_topic("plain", 1)
        append(log, "plain", 0, [1, 2, 3, 4], [b"a", b"b", None, b"a"], [b"x" * 10_000, b"\xff", b"no key", None])
        yield started


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        yield client


def append(log: Any, topic: str, partition: int, times: list[int], keys: list[Any], values: list[Any]) -> None:
    columns = {
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    log.append(topic, partition, RowRecords(pa.table(columns)))


def records(http: httpx.Client, topic: str = "s", **asked: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/topics/{topic}/records", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def places(found: dict[str, Any]) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in found["records"]]


def test_a_topic_tells_its_partitions_and_settings(http: httpx.Client) -> None:
    topic = http.get("/v1/topics/s").json()
    ends = [(each["partition"], each["logStartOffset"], each["logEndOffset"]) for each in topic["partitions"]]
    assert (topic["name"], ends) == ("s", [(0, 0, 10), (1, 0, 10)])


def test_the_newest_records_come_without_a_place_to_begin(http: httpx.Client) -> None:
    assert places(records(http, limit=4)) == [(0, 8), (1, 8), (0, 9), (1, 9)]
    assert places(records(http, limit=2, partition=1)) == [(1, 8), (1, 9)]


def test_values_are_texts_of_their_formats(http: httpx.Client) -> None:
    (record,) = records(http, limit=1)["records"]
    assert (record["key"], record["value"], record["timestamp"]) == ("odd-1", '{"V":9}', 9001)


def test_who_goes_on_sees_each_record_once(http: httpx.Client) -> None:
    seen: list[tuple[int, int]] = []
    for partition in (0, 1):
        offset = 0
        while found := places(answer := records(http, partition=partition, offset=offset, limit=3)):
            seen += found
            (following,) = answer["next"]
            offset = following["offset"]
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(10)]


def test_the_first_records_of_all_partitions_are_those_of_the_smallest_times(http: httpx.Client) -> None:
    found = records(http, offset=0, limit=5)
    assert places(found) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]
    assert found["next"] == [{"partition": 0, "offset": 3}, {"partition": 1, "offset": 2}]


def test_a_time_is_a_place_to_begin(http: httpx.Client) -> None:
    assert places(records(http, time=8000, limit=10)) == [(0, 8), (1, 8), (0, 9), (1, 9)]
    assert places(records(http, time=99_999)) == []


def test_texts_are_found_in_keys_and_values_in_any_case(http: httpx.Client) -> None:
    assert {record["key"] for record in records(http, contains="ODD-1")["records"]} == {"odd-1"}
    assert places(records(http, contains='"v":7')) == [(0, 7), (1, 7)]


def test_the_latest_of_each_key_leaves_out_what_was_deleted(http: httpx.Client) -> None:
    assert places(records(http, latest="true")) == [(0, 8), (1, 8), (0, 9), (1, 9)]
    assert [record["key"] for record in records(http, "plain", latest="true")["records"]] == ["b", None]


def test_long_texts_are_cut_unless_they_are_asked_for(http: httpx.Client) -> None:
    cut = records(http, "plain", offset=0, limit=1)["records"][0]
    assert (len(cut["value"]), cut["valueLength"]) == (record_search.TEXT_MAX, 10_000)
    whole = records(http, "plain", offset=0, limit=1, whole="true")["records"][0]
    assert whole["value"] == "x" * 10_000
    assert "valueLength" not in whole


def test_bytes_that_are_no_text_and_nulls_are_shown(http: httpx.Client) -> None:
    values = [record["value"] for record in records(http, "plain", offset=1)["records"]]
    assert values == ["\ufffd", "no key", None]


def test_a_search_stops_at_its_limit_and_says_so(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "SCANNED_MAX", 5)
    found = records(http, contains="nowhere", offset=0)
    assert (found["records"], found["stopped"]) == ([], True)
    assert found["next"][-1] == {"partition": 1, "offset": 0}


@pytest.mark.parametrize(
    "asked",
    [{"partition": 2}, {"partition": -1}, {"limit": 0}, {"limit": 1001}, {"offset": "x"}, {"offset": -1},
     {"time": "1e9"}, {"offset": "9" * 400}, {"contains": "x" * 1001}],
    ids=lambda asked: next(iter(asked)),
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(http: httpx.Client, asked: dict[str, Any]) -> None:
    answer = http.get("/v1/topics/s/records", params=asked)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40000)


def test_a_topic_that_is_not_there_is_told(http: httpx.Client) -> None:
    answer = http.get("/v1/topics/plian/records")
    assert answer.status_code == 400
    assert 'topic "plian" does not exist' in answer.json()["message"]
    assert 'Did you mean "plain"?' in answer.json()["message"]


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("SELECT a FROM s EMIT ", {"CHANGES", "FINAL"}),
        ("", {"CREATE", "SELECT"}),
        ("SELECT FROM FROM ", None),
        ("SELECT 'open", None),
    ],
)
def test_keywords_that_may_follow(http: httpx.Client, text: str, some: set[str] | None) -> None:
    keywords = http.post("/v1/complete", json={"sql": text}).json()["keywords"]
    assert keywords is None if some is None else some <= set(keywords)


@pytest.mark.parametrize("body", [{}, {"sql": 5}, {"sql": "x" * 100_001}], ids=["none", "no text", "too long"])
def test_what_is_no_text_is_not_completed(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.post("/v1/complete", json=body).json()["error_code"] == 40000


def test_metrics_of_some_families_only(http: httpx.Client) -> None:
    text = http.get("/metrics", params={"name[]": ["millstream_sources", "millstream_query_rows_in_total"]}).text
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert families == {"millstream_sources", "millstream_query_rows_in_total"}


def test_the_log_is_not_asked_for_what_is_not_its_own(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20,000 topics that takes a while, and the console looks at its queries every two seconds."""
    asked: list[object] = []
    monkeypatch.setattr(LogMetrics, "collect", lambda self: asked.append(self) or iter(()))
    text = http.get("/metrics", params={"name[]": ["millstream_query_state", "millstream_query_lag"]}).text
    assert 'query="CTAS_T_1"' in text and asked == []
    http.get("/metrics", params={"name[]": ["millstream_query_state", "millstream_group_lag"]})
    assert len(asked) == 1


def test_the_layout_places_nodes_and_edges(http: httpx.Client) -> None:
    layout = http.get("/graph", params={"format": "layout"}).json()
    left = {node["id"]: node["x"] for node in layout["nodes"]}
    assert left["source S"] < left["query CTAS_T_1"] < left["source T"]
    assert all(node["x"] + node["width"] <= layout["width"] + 0.01 for node in layout["nodes"])
    assert {"bends"} <= set(layout["edges"][0])


def test_a_graph_that_is_too_large_to_look_at_is_not_laid_out(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.server.http.graph._LAID_OUT_MAX", 2)
    answer = http.get("/graph", params={"format": "layout"})
    assert answer.status_code == 400
    assert "Name one" in answer.json()["message"]
