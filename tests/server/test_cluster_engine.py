"""An engine that moves between the nodes of a cluster: who asks any node is answered, who is late is harmless."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from connectors import read_topic
from two_engines import TwoEngines, image_led_by
from waiting import eventually
from web_socket import WebSocketClient

from millstream.logcore.log import Log, open_log
from millstream.logcore.replication.controller.metadata_image import BrokerImage
from millstream.logcore.replication.machine import NodeId
from millstream.server.client import connect
from millstream.server.config.configuration import ListenAddress

STREAM = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
TABLE = "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened


@pytest.fixture
def cluster(log: Log, tmp_path: Path) -> Iterator[TwoEngines]:
    with TwoEngines(log, tmp_path) as running:
        yield running


def counts(url: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values) for row in connect(url).query("SELECT * FROM t;"))


def test_any_node_answers_for_the_one_that_runs_the_engine(cluster: TwoEngines) -> None:
    cluster.lead(1)
    for server in cluster.servers:
        assert httpx.get(f"{server.url}/info", timeout=60).json()["KsqlServerInfo"]["kafkaClusterId"] == "c"
        assert httpx.get(f"{server.url}/healthcheck").json()["isHealthy"] is True
    client = connect(cluster.servers[1].url)
    client.execute("SET 'auto.offset.reset'='earliest';")
    client.execute(STREAM)
    client.execute(TABLE)
    client.execute("INSERT INTO s VALUES (1, 5);")
    eventually(lambda: counts(cluster.servers[1].url) == [(1, 1)], 60)
    status = httpx.get(f"{cluster.servers[1].url}/clusterStatus").json()["clusterStatus"]
    assert str(cluster.servers[1].address) in status


def test_queries_go_on_where_the_engine_moves_and_count_nothing_twice(cluster: TwoEngines) -> None:
    cluster.lead(1)
    client = connect(cluster.servers[0].url)
    client.execute("SET 'auto.offset.reset'='earliest';")
    client.execute(STREAM)
    client.execute(TABLE)
    for turn in range(1, 5):
        client.execute("INSERT INTO s VALUES (1, 5);")
        eventually(lambda turn=turn: counts(cluster.servers[0].url) == [(1, turn)], 60)
        cluster.lead(1 + turn % 2)
        eventually(lambda turn=turn: cluster.runs(1 + turn % 2), 60)


def test_connectors_move_with_the_engine_and_write_each_record_once(cluster: TwoEngines, log: Log) -> None:
    config = {
        "connector.class": "datagen", "quickstart": "pageviews", "kafka.topic": "views", "max.interval": "10",
        "iterations": "300", "key.converter": "integer",
    }  # fmt: skip
    cluster.lead(1)
    eventually(lambda: cluster.runs(1), 60)
    other = cluster.servers[1].url  # it forwards
    assert httpx.put(f"{other}/connectors/gen/config", json=config, timeout=60).status_code == 201
    for turn in range(1, 4):
        eventually(lambda turn=turn: len(read_topic(log, "views")) > 50 * turn, 60)
        cluster.lead(1 + turn % 2)
        eventually(lambda turn=turn: cluster.runs(1 + turn % 2), 60)
    eventually(lambda: len(read_topic(log, "views")) >= 300, 60)
    keys = [int.from_bytes(record.key or b"") for record in read_topic(log, "views")]
    assert keys == list(range(300))


def test_a_node_is_healthy_when_there_is_an_engine(cluster: TwoEngines) -> None:
    def answers(path: str) -> list[int]:
        return [httpx.get(f"{server.url}{path}").status_code for server in cluster.servers]

    assert answers("/healthcheck") == answers("/readyz") == [503, 503]
    assert answers("/livez") == [200, 200]
    parts = httpx.get(f"{cluster.servers[0].url}/healthcheck").json()["details"]
    assert {name: part["isHealthy"] for name, part in parts.items()} == {
        "metastore": False,
        "kafka": True,
        "commandRunner": False,
    }
    cluster.lead(1)
    eventually(lambda: answers("/healthcheck") == answers("/readyz") == [200, 200], 60)


def test_a_request_that_comes_while_the_engine_ends_is_to_come_again(cluster: TwoEngines) -> None:
    cluster.lead(1)
    server = cluster.servers[0]
    httpx.get(f"{server.url}/info", timeout=60)
    assert server.host is not None and server.host.running is not None
    server.host.running.leave()  # and the host does not know yet
    answer = httpx.post(f"{server.url}/ksql", json={"ksql": "SHOW STREAMS;"}, timeout=60)
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1")


def test_while_nobody_runs_the_engine_a_request_waits(cluster: TwoEngines) -> None:
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.get(f"{cluster.servers[1].url}/info", timeout=60).status_code)
    )
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()
    cluster.lead(1)
    asking.join()
    assert answers == [200]


def test_a_web_socket_is_there_also_where_it_was_asked_for_at_a_node_without_an_engine(cluster: TwoEngines) -> None:
    cluster.lead(2)
    connect(cluster.servers[0].url).execute(STREAM)
    cluster.lead(2, known_to=(1,))
    cluster.lead(None, known_to=(2,))
    eventually(lambda: cluster.servers[1].host is not None and cluster.servers[1].host.running is None, 60)
    closed: list[str | int] = []
    asking = threading.Thread(target=lambda: closed.extend(rows_of_socket(cluster.servers[0].address)))
    asking.start()  # node 1 asks node 2, which has it no more
    asking.join(0.5)
    assert asking.is_alive()
    cluster.lead(1)
    asking.join()
    assert closed[-1] == 1000


def test_web_pages_get_no_socket_through_another_node_either(cluster: TwoEngines) -> None:
    cluster.lead(1)
    connect(cluster.servers[1].url).execute(STREAM)
    assert rows_of_socket(cluster.servers[1].address)[-1] == 1000
    with pytest.raises(ConnectionError, match="403"):
        rows_of_socket(cluster.servers[1].address, origin="http://elsewhere.example")


def test_any_node_shows_and_ends_a_push_query_of_a_client_of_another(cluster: TwoEngines) -> None:
    def pushes(url: str) -> list[str]:
        (shown,) = connect(url).execute("SHOW QUERIES;")
        return [line["id"] for line in shown["queries"] if line["queryType"] == "PUSH"]

    cluster.lead(1)
    asked, other = cluster.servers[1].url, cluster.servers[0].url
    connect(asked).execute(STREAM)
    with httpx.stream("POST", f"{asked}/query-stream", json={"sql": "SELECT * FROM s EMIT CHANGES;"}) as response:
        (query_id,) = pushes(other)
        assert pushes(asked) == [query_id]
        connect(other).execute(f"TERMINATE {query_id};")
        assert response.read().count(b"\n") == 1
    assert pushes(asked) == pushes(other) == []


def rows_of_socket(address: ListenAddress, **headers: str) -> list[str | int]:
    request = quote(json.dumps({"ksql": "SELECT * FROM s EMIT CHANGES LIMIT 0;"}))
    with WebSocketClient(address.host, address.port, f"/ws/query?request={request}", headers) as opened:
        return list(opened.messages())


def test_two_nodes_that_send_to_each_other_refuse_in_the_end(
    cluster: TwoEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.server.cluster.node_http.WAIT_S", 0.5)
    cluster.lead(2, known_to=(1,))
    cluster.lead(1, known_to=(2,))
    for server in cluster.servers:
        server.node.serving = False  # neither takes it
    answer = httpx.post(f"{cluster.servers[0].url}/ksql", json={"ksql": "SHOW STREAMS;"}, timeout=60)
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50304)
    assert answer.headers["retry-after"] == "1"
    assert "no node of the cluster runs the engine" in answer.json()["message"]


def test_a_push_query_through_another_node_ends_with_an_error_when_the_engine_moves(cluster: TwoEngines) -> None:
    cluster.lead(1)
    url = cluster.servers[1].url
    connect(url).execute(STREAM)
    body = {"sql": "SELECT * FROM s EMIT CHANGES;", "properties": {"auto.offset.reset": "earliest"}}
    connect(url).execute("INSERT INTO s VALUES (1, 5);")
    with httpx.stream("POST", f"{url}/query-stream", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        assert "queryId" in next(lines)
        assert next(lines) == "[1,5]"
        cluster.lead(2)
        assert '"error_code":503' in "".join(lines)


@pytest.fixture
def silent(cluster: TwoEngines, monkeypatch: pytest.MonkeyPatch) -> Iterator[ListenAddress]:
    """The address of a node of `cluster` that runs the engine, accepts connections and says nothing, as a suspended
    process does."""
    monkeypatch.setattr("millstream.server.cluster.forwarding.LAST_WORDS_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = ListenAddress(*listening.getsockname())
        cluster.lead(1)
        cluster.servers[1].node.image = image_led_by(
            1, {NodeId(1): BrokerImage(NodeId(1), 1, 1, (("http", str(address)),), None, False)}
        )
        yield address


def test_a_statement_at_a_node_that_falls_silent_ends_when_the_engine_moves(
    cluster: TwoEngines, silent: ListenAddress
) -> None:
    answers: list[httpx.Response] = []
    url = f"{cluster.servers[1].url}/ksql"
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(url, json={"ksql": "SHOW STREAMS;"}, timeout=60))
    )
    asking.start()
    asking.join(1.5)
    assert asking.is_alive(), "it runs there"
    cluster.lead(2)
    asking.join()
    assert (answers[0].status_code, answers[0].json()["error_code"]) == (503, 50305)


def test_a_statement_at_a_node_that_falls_silent_ends_when_no_controller_answers_any_more(
    cluster: TwoEngines, silent: ListenAddress
) -> None:
    answers: list[httpx.Response] = []
    url = cluster.servers[1].url
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{url}/ksql", json={"ksql": "SHOW STREAMS;"}, timeout=60))
    )
    asking.start()
    asking.join(1.0)
    assert asking.is_alive(), "it runs there"
    assert httpx.get(f"{url}/healthcheck").status_code == 200
    cluster.servers[1].node.cut_off = True
    asking.join()
    assert (answers[0].status_code, answers[0].json()["error_code"]) == (503, 50305)
    health = httpx.get(f"{url}/healthcheck")
    assert (health.status_code, {name: part["isHealthy"] for name, part in health.json()["details"].items()}) == (
        503,
        {"metastore": False, "kafka": False, "commandRunner": False},
    )
    assert httpx.get(f"{url}/readyz").status_code == 503


def test_a_web_socket_at_a_node_that_falls_silent_ends_when_the_engine_moves(
    cluster: TwoEngines, silent: ListenAddress
) -> None:
    connect(cluster.servers[0].url).execute(STREAM)
    closed: list[str | int] = []
    asking = threading.Thread(target=lambda: closed.extend(rows_of_socket(cluster.servers[1].address)))
    asking.start()
    asking.join(0.5)
    assert asking.is_alive()
    cluster.lead(2)
    asking.join(60)
    assert closed[-1] == 1000, "the node that runs the engine now was asked"


def test_rows_are_acknowledged_while_the_client_still_sends(cluster: TwoEngines) -> None:
    cluster.lead(1)
    server = cluster.servers[1]
    connect(server.url).execute(STREAM)
    with socket.create_connection((server.address.host, server.address.port), timeout=60) as line:
        head = "POST /inserts-stream HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
        line.sendall(f"{head}content-type: application/vnd.ksqlapi.delimited.v1\r\n\r\n".encode())
        for number, sent in enumerate(('{"target":"s"}\n', '{"k":1,"v":2}\n', '{"k":1,"v":3}\n')):
            line.sendall(f"{len(sent):x}\r\n{sent}\r\n".encode())
            if number:
                received = b""
                while b'"status":"ok"' not in received:
                    received += line.recv(4096)


def test_every_node_has_the_console_and_takes_what_its_pages_ask(cluster: TwoEngines) -> None:
    other = cluster.servers[1]
    assert httpx.get(f"{other.url}/console/").status_code == 200  # while nobody runs the engine
    cluster.lead(1)
    for origin, status in ((other.url, 200), (cluster.servers[0].url, 403), ("http://elsewhere.example", 403)):
        asked = httpx.post(f"{other.url}/ksql", json={"ksql": "SHOW STREAMS;"}, headers={"origin": origin}, timeout=60)
        assert asked.status_code == status, origin
