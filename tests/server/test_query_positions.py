"""GET /queries/{id}/positions: of queries that run, are paused, have stopped, are hidden, or are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import service_in
from two_engines import TwoEngines
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import open_log
from millstream.server.security.access import hash_token
from millstream.server.service import Service

DDL = """
SET 'auto.offset.reset'='earliest';
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE STREAM u (id INT KEY, w INT) WITH (kafka_topic='u', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
CREATE STREAM j AS SELECT s.id, v, w FROM s JOIN u WITHIN 1 HOUR ON s.id = u.id;
INSERT INTO s VALUES (1, 10), (2, 20), (3, 30), (4, 40), (5, 50);
INSERT INTO u VALUES (1, 1), (2, 2);
"""
COUNTS = "CTAS_T_2"
JOINED = "CSAS_J_3"
TOKENS = ("owner", "stranger")
ACCESS = {
    "users": {name: {"tokens": [hash_token(name)], "roles": [name]} for name in TOKENS},
    "roles": {"owner": {"admin": True}, "stranger": {"read": ["u", "j"]}},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_in(tmp_path / "data") as started:
        run(started, DDL)
        yield started


def run(service: Service, statements: str) -> None:
    httpx.post(f"http://{service.http_address}/ksql", json={"ksql": statements}, timeout=60).raise_for_status()


def ask(service: Service, query_id: str = COUNTS, token: str | None = None) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx.get(f"http://{service.http_address}/queries/{query_id}/positions", headers=headers, timeout=60)


def partitions(answer: httpx.Response) -> list[tuple[Any, ...]]:
    """Topic, partition, position, end, lag."""
    assert answer.status_code == 200, answer.text
    return [tuple(each.values()) for each in answer.json()["positions"]]


def caught_up(service: Service, query_id: str = COUNTS) -> bool:
    return [each[-1] for each in partitions(ask(service, query_id))] == [0] * (2 if query_id == COUNTS else 4)


def whole(service: Service, topic: str) -> list[tuple[Any, ...]]:
    """What is said of a topic that was read to its end."""
    ends = [service.engine.log.offsets(topic, n).last_stable_offset for n in (0, 1)]
    return [(topic, n, end, end, 0) for n, end in enumerate(ends)]


def test_a_running_query_has_read_all_partitions_of_all_its_topics(service: Service) -> None:
    eventually(lambda: caught_up(service))
    eventually(lambda: caught_up(service, JOINED))
    of_s, of_u = whole(service, "s"), whole(service, "u")
    assert sum(each[3] for each in of_s) >= 5
    assert partitions(ask(service)) == of_s
    assert partitions(ask(service, JOINED.lower())) == [*of_s, *of_u]
    told = ask(service, JOINED).json()
    assert (told["queryId"], told["state"], told["error"]) == (JOINED, "RUNNING", None)


def test_a_paused_query_falls_behind_and_keeps_its_position_through_a_restart(tmp_path: Path) -> None:
    with service_in(tmp_path / "data") as service:
        run(service, DDL)
        eventually(lambda: caught_up(service))
        run(service, f"PAUSE {COUNTS};")
        before = partitions(ask(service))
        run(service, "INSERT INTO s VALUES (1, 60), (1, 70), (2, 80);")
        after = partitions(ask(service))
        assert [each[2] for each in after] == [each[2] for each in before]
        assert sum(each[4] for each in after) == sum(each[3] for each in after) - sum(each[3] for each in before) > 2
    with service_in(tmp_path / "data") as service:
        assert ask(service).json()["state"] == "PAUSED"
        assert partitions(ask(service)) == after
        run(service, f"RESUME {COUNTS};")
        eventually(lambda: caught_up(service))


def test_a_query_that_has_read_nothing_yet_has_no_position(service: Service) -> None:
    """It is neither started nor dropped, as for a moment while a statement alters or terminates it."""
    query = service.engine.catalog.queries[COUNTS]
    service.engine.executor.stop(COUNTS)
    service.engine.log.forget_group(COUNTS)
    assert [(each[2], each[4]) for each in partitions(ask(service))] == [(None, None)] * 2
    assert ask(service).json()["state"] == "STOPPED"
    service.engine.executor.start(query)
    eventually(lambda: caught_up(service))


def test_a_query_that_stopped_says_where_and_why(service: Service) -> None:
    eventually(lambda: caught_up(service))
    query = service.engine.catalog.queries[COUNTS]
    service.engine.executor.stop(COUNTS)
    service.engine.log.commit_offsets(COUNTS, {TopicPartition("s", 1): 1000})  # the log ends before: PositionLost
    service.engine.executor.start(query)
    eventually(lambda: ask(service).json()["state"] == "ERROR")
    told = ask(service).json()
    assert "records are lost" in told["error"]
    assert partitions(ask(service))[1][2] == 1000
    assert partitions(ask(service))[1][4] == 0


def test_a_source_topic_that_is_gone_has_no_end(service: Service) -> None:
    eventually(lambda: caught_up(service))
    run(service, f"PAUSE {COUNTS};")
    service.engine.log.delete_topic("s")
    assert [(each[:2], each[3:]) for each in partitions(ask(service))] == [
        (("s", 0), (None, None)), (("s", 1), (None, None)),
    ]  # fmt: skip


def test_a_terminated_query_is_not_there(service: Service) -> None:
    run(service, f"TERMINATE {COUNTS};")
    assert ask(service).status_code == 404
    run(service, "TERMINATE ALL;")
    assert ask(service, JOINED).status_code == 404


@pytest.mark.parametrize("query_id", ["NOWHERE", "%00", "..", "a%2Fb", "'; DROP STREAM s; --", "x" * 2000])
def test_an_unknown_id_is_not_found(service: Service, query_id: str) -> None:
    answer = ask(service, query_id)
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40400)


def test_a_near_miss_is_hinted_at_and_nothing_else_than_get_is_allowed(service: Service) -> None:
    assert COUNTS in ask(service, "CTAS_T_7").json()["message"]
    assert httpx.post(f"http://{service.http_address}/queries/{COUNTS}/positions").status_code == 405


def test_a_hidden_query_is_as_one_that_is_not_there(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", access=ACCESS) as service:
        headers = {"authorization": "Bearer owner"}
        url = f"http://{service.http_address}/ksql"
        httpx.post(url, json={"ksql": DDL}, headers=headers, timeout=60).raise_for_status()
        assert ask(service, COUNTS, "owner").status_code == 200
        assert ask(service, COUNTS).status_code == 401
        answers = {query_id: ask(service, query_id, "stranger") for query_id in (COUNTS, JOINED, "CTAS_T_9")}
        assert {answer.status_code for answer in answers.values()} == {404}
        told = {answer.json()["message"].replace(query_id, "ID") for query_id, answer in answers.items()}
        assert told == {"there is no query ID"}


def test_any_node_of_a_cluster_answers(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", sync="never") as log, TwoEngines(log, tmp_path) as cluster:
        cluster.lead(1)
        urls = [server.url for server in cluster.servers]
        made = httpx.post(f"{urls[0]}/ksql", json={"ksql": DDL}, timeout=60).raise_for_status().json()
        (query_id,) = {id for each in made if (id := each["commandStatus"]["queryId"]) and id.startswith("CTAS")}

        def lags(url: str) -> list[int | None]:
            answer = httpx.get(f"{url}/queries/{query_id}/positions", timeout=60)
            assert answer.status_code in (200, 503), answer.text  # the engine begins, or moves
            told = answer.json() if answer.status_code == 200 else {"positions": []}
            return [each["offsetLag"] for each in told["positions"]]

        for url in urls:
            eventually(lambda url=url: lags(url) == [0, 0])
            assert httpx.get(f"{url}/queries/NOWHERE/positions", timeout=60).status_code == 404
        cluster.lead(2)
        eventually(lambda: cluster.runs(2))
        for url in urls:
            eventually(lambda url=url: lags(url) == [0, 0])
