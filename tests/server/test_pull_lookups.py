"""Pull queries that name one key are planned once: whatever the key, the answer is that of the long way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from running_server import service_in
from waiting import eventually

from millstream.executor.answers import keyed_rows
from millstream.server.http import lookups as http_lookups
from millstream.server.service import Service

DDL = """
CREATE STREAM s (id INT KEY, name STRING, amount DECIMAL(6, 2))
  WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE by_id AS SELECT id, COUNT(*) AS n, LATEST_BY_OFFSET(amount) AS last FROM s GROUP BY id;
CREATE TABLE by_name AS SELECT name, COUNT(*) AS n FROM s GROUP BY name;
"""
NAMES = ("a", "it''s", "-- no comment", "", "${x}", "é", "1")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        inserts = "".join(f"INSERT INTO s VALUES ({i % 5}, '{NAMES[i % len(NAMES)]}', {i}.25);" for i in range(35))
        body = {"ksql": DDL + inserts, "streamsProperties": {"ksql.variable.substitution.enable": "false"}}
        assert client.post("/ksql", json=body).status_code == 200
        eventually(lambda: rows(client, "SELECT n FROM by_id WHERE id = 4;") == [[7]])
        eventually(lambda: len(rows(client, "SELECT * FROM by_name;")) == len(NAMES))
        yield client


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that were answered the short way."""
    seen: list[str] = []
    usual = http_lookups.LookedUp.answer

    async def answer(self: Any, asked: Any, format: Any) -> Any:
        found = await usual(self, asked, format)
        if found is not None:
            seen.append(asked.text)
        return found

    monkeypatch.setattr(http_lookups.LookedUp, "answer", answer)
    return seen


def rows(http: httpx.Client, sql: str, **more: Any) -> Any:
    response = http.post("/query-stream", json={"sql": sql, **more})
    if response.status_code != 200:
        return response.json()["error_code"]
    return [json.loads(line) for line in response.text.splitlines()[1:]]


def test_the_second_key_is_found_without_planning(http: httpx.Client, looked_up: list[str]) -> None:
    for key in range(6):
        wanted = [[key, 7, 30.25 + key]] if key < 5 else []
        assert rows(http, f"SELECT * FROM by_id WHERE id = {key};") == wanted
    assert len(looked_up) == 5
    for key in range(3):
        assert rows(http, f"SELECT n AS how_many FROM by_id WHERE ({key} = id);") == [[7]]
    assert len(looked_up) == 7


def test_formats_are_those_of_the_long_way(http: httpx.Client, looked_up: list[str]) -> None:
    for path, member, accept in (
        ("/query", "ksql", "application/vnd.ksql.v1+json"),
        ("/query-stream", "sql", "application/json"),
        ("/query-stream", "sql", "application/x-ndjson"),
        ("/query-stream", "sql", "application/vnd.millstream.rows.v1"),
    ):
        answers = []
        for more in ({}, {"sessionVariables": {"unused": "1"}}):  # which goes the long way
            body = {member: "SELECT id, last FROM by_id WHERE id = 3;", **more}
            http.post(path, json=body, headers={"accept": accept})
            response = http.post(path, json=body, headers={"accept": accept})
            known = response.text.partition('queryId":"')[2].partition('"')[0]
            answers.append((response.headers["content-type"], response.text.replace(known or "-", "-")))
        assert answers[0] == answers[1]
    assert looked_up


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM by_id WHERE id = 3 LIMIT 1;",
        "SELECT n + 1 FROM by_id WHERE id = 3;",
        "SELECT n FROM by_id WHERE id = 3 AND n > 1;",
        "SELECT n FROM by_id WHERE id = -3;",
        "SELECT n FROM by_id WHERE id = 3.0;",
        "SELECT n FROM by_id WHERE id IN (3);",
        "SELECT n FROM by_id WHERE n = 7;",
        "SELECT n FROM by_name WHERE name = '${x}';",
    ],
)
def test_what_is_less_simple_goes_the_long_way(http: httpx.Client, looked_up: list[str], sql: str) -> None:
    assert rows(http, sql) == rows(http, sql)
    assert looked_up == []


@settings(max_examples=drawn(30))
@given(
    st.sampled_from(["SELECT n FROM by_name WHERE name = {}", "SELECT/* 'a' 1 */n FROM by_name WHERE name={}-- 'x'"]),
    st.sampled_from(NAMES) | st.integers(0, 10**20) | st.text("a'1 -;${}", max_size=4),
)
def test_whatever_stands_in_the_place_of_the_key(http: httpx.Client, template: str, value: str | int) -> None:
    literal = str(value) if isinstance(value, int) else f"'{value}'"
    sql = template.format(literal) + "\n;"
    rows(http, template.format("'a'") + "\n;")
    short = rows(http, sql)
    assert short == rows(http, sql, sessionVariables={"unused": "1"})


def test_a_row_that_changed_is_seen_at_once_and_one_that_is_gone_is_not(http: httpx.Client, service: Service) -> None:
    source = "(id INT PRIMARY KEY, v STRING) WITH (kafka_topic='kept', value_format='JSON', partitions=1);"
    http.post("/ksql", json={"ksql": f"CREATE TABLE written {source} CREATE SOURCE TABLE kept {source}"})
    sql = "SELECT v FROM kept WHERE id = {};"
    assert rows(http, sql.format(1)) == rows(http, sql.format(2)) == []
    for number in range(20):
        http.post("/ksql", json={"ksql": f"INSERT INTO written VALUES ({number % 3}, 'v{number}');"})
        assert rows(http, sql.format(number % 3)) == [[f"v{number}"]]
    http.post("/ksql", json={"ksql": "DELETE FROM written WHERE id = 1;"})
    assert rows(http, sql.format(1)) == []
    http.post("/ksql", json={"ksql": "DROP TABLE kept; DROP TABLE written DELETE TOPIC;"})
    assert rows(http, sql.format(2)) == 40001


def test_a_table_with_too_many_keys_goes_the_long_way(
    http: httpx.Client, looked_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_rows, "KEYS_MAX", 2)
    sql = "SELECT n, name FROM by_name WHERE name = '{}';"
    assert [rows(http, sql.format(name)) for name in ("a", "é", "1")] == [[[5, name]] for name in ("a", "é", "1")]


def test_old_rows_are_left_out_once_they_are_many(
    http: httpx.Client, looked_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_rows, "_DEAD_ROWS_MAX", 3)
    monkeypatch.setattr(keyed_rows, "_BATCHES_MAX", 3)
    source = "(id INT PRIMARY KEY, v INT) WITH (kafka_topic='many', value_format='JSON', partitions=1);"
    http.post("/ksql", json={"ksql": f"CREATE TABLE many_in {source} CREATE SOURCE TABLE many {source}"})
    for number in range(30):
        http.post("/ksql", json={"ksql": f"INSERT INTO many_in VALUES ({number % 4}, {number});"})
        assert rows(http, f"SELECT id, v FROM many WHERE id = {number % 4};") == [[number % 4, number]]
    assert [rows(http, f"SELECT id, v FROM many WHERE id = {key};") for key in range(4)] == [
        [[0, 28]], [[1, 29]], [[2, 26]], [[3, 27]],
    ]  # fmt: skip
    assert len(looked_up) > 30


def test_a_looked_up_date_may_be_later_than_pythons(http: httpx.Client, looked_up: list[str]) -> None:
    statements = (
        "CREATE STREAM far (id INT KEY, days INT) WITH (kafka_topic='far', value_format='JSON', partitions=1);"
        "CREATE TABLE last_day AS SELECT id, LATEST_BY_OFFSET(FROM_DAYS(days)) AS day FROM far GROUP BY id;"
        "INSERT INTO far VALUES (1, 3000000); INSERT INTO far VALUES (2, 0);"
    )
    assert http.post("/ksql", json={"ksql": statements}).status_code == 200
    eventually(lambda: len(rows(http, "SELECT * FROM last_day;")) == 2)
    answers = [rows(http, f"SELECT day FROM last_day WHERE id = {key};") for key in (1, 2, 1)]
    assert answers == [[["+10183-09-21"]], [["1970-01-01"]], [["+10183-09-21"]]]
    assert looked_up


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_topic_that_was_created_again_is_another_one(
    http: httpx.Client, service: Service, looked_up: list[str], count: int
) -> None:
    ddl = """
    CREATE STREAM into_again (id INT KEY, n INT) WITH (kafka_topic='again', value_format='JSON', partitions=1);
    CREATE SOURCE TABLE again (id INT PRIMARY KEY, n INT) WITH (kafka_topic='again', value_format='JSON');
    """
    body = {"ksql": ddl + "".join(f"INSERT INTO into_again VALUES ({i}, 1);" for i in range(3))}
    assert http.post("/ksql", json=body).status_code == 200
    for _ in range(2):
        assert rows(http, "SELECT n FROM again WHERE id = 0;") == [[1]]
    service.engine.log.delete_topic("again")
    service.engine.log.create_topic("again", 1)
    inserts = "".join(f"INSERT INTO into_again VALUES ({i}, 2);" for i in range(1, count + 1))
    assert http.post("/ksql", json={"ksql": inserts}).status_code == 200
    assert [rows(http, f"SELECT n FROM again WHERE id = {i};") for i in range(2)] == [[], [[2]]]
    assert sorted(rows(http, "SELECT id, n FROM again;")) == [[i, 2] for i in range(1, count + 1)]
    assert len(looked_up) == 3
    http.post("/ksql", json={"ksql": "DROP TABLE again; DROP STREAM into_again DELETE TOPIC;"})
