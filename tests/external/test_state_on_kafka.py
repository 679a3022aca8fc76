"""Queries with state whose log is Apache Kafka: their results, and that they come back from the changelog."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from external_topics import consumed, create_topic, produce
from waiting import eventually

from bench.apache_kafka import ApacheKafka
from millstream.server.client import connect
from millstream.server.engine.session import Session
from millstream.server.service import Service

from .conftest import Serving

pytestmark = pytest.mark.timeout(240)

_SHAPES: Mapping[str, str] = {
    "sums": "CREATE TABLE sums_{id} WITH (partitions=2, cleanup_policy='delete') AS"
    " SELECT u, SUM(n) AS n FROM clicks_{id} GROUP BY u;",
    "windows": "CREATE TABLE windows_{id} WITH (cleanup_policy='delete') AS SELECT u, COUNT(*) AS n FROM clicks_{id}"
    " WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY u;",
    "tops": "CREATE TABLE tops_{id} WITH (cleanup_policy='delete') AS"
    " SELECT u, TOPK(n, 2) AS n, COLLECT_SET(n) AS every FROM clicks_{id} GROUP BY u;",
    "joined": "CREATE STREAM joined_{id} AS SELECT c.u, c.n AS n, p.city AS city FROM clicks_{id} c"
    " JOIN people_{id} p ON c.u = p.u;",
    "pairs": "CREATE STREAM pairs_{id} AS SELECT a.u, a.n AS a_n, b.n AS b_n FROM clicks_{id} a"
    " JOIN more_{id} b WITHIN 1 HOUR GRACE PERIOD 1 HOUR ON a.u = b.u;",
}


def declare(service: Service, id_: str) -> None:
    declared = (
        f"CREATE STREAM clicks_{id_} (u STRING KEY, n INT) WITH (kafka_topic='clicks-{id_}', value_format='JSON');"
        f"CREATE STREAM more_{id_} (u STRING KEY, n INT) WITH (kafka_topic='more-{id_}', value_format='JSON');"
        f"CREATE TABLE people_{id_} (u STRING PRIMARY KEY, city STRING) WITH (kafka_topic='people-{id_}',"
        " value_format='JSON');"
    )
    session = Session()
    service.engine.execute(declared, session)
    for statement in _SHAPES.values():
        service.engine.execute(statement.format(id=id_), session)


def seen(kafka: ApacheKafka, id_: str, counts: Mapping[str, int]) -> dict[str, list[Any]]:
    """The values of each sink, in an order that does not depend on partitions."""
    return {
        name: sorted((value for _, value in consumed(kafka.address, f"{name}_{id_}".upper(), count)), key=repr)
        for name, count in counts.items()
    }


def caught_up(service: Service) -> bool:
    states = [service.engine.executor.status(query) for query in service.engine.catalog.queries]
    return all(state.state == "RUNNING" and not any(state.lag.values()) for state in states)


def test_stateful_queries_go_on_after_a_restart_without_their_files(
    kafka: ApacheKafka, serve: Serving, service_id: str, tmp_path: Path
) -> None:
    for topic in ("clicks", "more", "people"):
        create_topic(kafka.address, f"{topic}-{service_id}", 2)
    produce(kafka.address, f"people-{service_id}", [("ada", {"CITY": "Turin"}), ("bo", {"CITY": "Oslo"})])
    produce(kafka.address, f"clicks-{service_id}", [("ada", {"N": 1}), ("bo", {"N": 5}), ("ada", {"N": 3})])
    produce(kafka.address, f"more-{service_id}", [("ada", {"N": 9})])
    service = serve()
    declare(service, service_id)
    first = seen(kafka, service_id, {"sums": 3, "windows": 3, "tops": 3, "joined": 3, "pairs": 2})
    assert first["sums"] == [{"N": 1}, {"N": 4}, {"N": 5}]
    eventually(lambda: caught_up(service))
    service.stop()
    shutil.rmtree(tmp_path / "data")

    produce(kafka.address, f"clicks-{service_id}", [("ada", {"N": 2}), ("bo", {"N": 7})])
    service = serve()
    found = seen(kafka, service_id, {"sums": 5, "windows": 5, "tops": 5, "joined": 5, "pairs": 3})
    assert sorted(each["N"] for each in found["sums"]) == [1, 4, 5, 6, 12]
    assert sorted(each["N"] for each in found["windows"]) == [1, 1, 2, 2, 3]
    assert sorted(each["N"] for each in found["tops"]) == [[1], [3, 1], [3, 2], [5], [7, 5]]
    assert sorted(each["EVERY"] for each in found["tops"]) == [[1], [1, 3], [1, 3, 2], [5], [5, 7]]
    assert sorted((each["N"], each["CITY"]) for each in found["joined"]) == [
        (1, "Turin"), (2, "Turin"), (3, "Turin"), (5, "Oslo"), (7, "Oslo")
    ]  # fmt: skip
    assert sorted((each["A_N"], each["B_N"]) for each in found["pairs"]) == [(1, 9), (2, 9), (3, 9)]
    with connect(f"http://{service.http_address}").query(f"SELECT * FROM sums_{service_id} WHERE u = 'ada';") as rows:
        assert [list(row.values) for row in rows] == [["ada", 6]]


def test_a_replaced_join_keeps_further_columns_of_its_table(
    kafka: ApacheKafka, serve: Serving, service_id: str, tmp_path: Path
) -> None:
    """There, all rows of a store have the same columns, and rows of another store stay in the changelog."""
    for topic in ("clicks", "people"):
        create_topic(kafka.address, f"{topic}-{service_id}", 2)
    people = [("ada", {"CITY": "Turin", "ZIP": 10}), ("bo", {"CITY": "Oslo", "ZIP": 20}), ("cy", None)]
    produce(kafka.address, f"people-{service_id}", people)
    produce(kafka.address, f"clicks-{service_id}", [("ada", {"N": 1})])
    service = serve()
    clicks = f"clicks_{service_id} (u STRING KEY, n INT) WITH (kafka_topic='clicks-{service_id}', value_format='JSON');"
    table = f"people_{service_id} (u STRING PRIMARY KEY, city STRING, zip INT)"
    select = f"SELECT c.u, n, city {{}} FROM clicks_{service_id} c JOIN people_{service_id} p ON c.u = p.u;"
    service.engine.execute(
        f"CREATE STREAM {clicks} CREATE TABLE {table} WITH (kafka_topic='people-{service_id}', value_format='JSON');"
        f"CREATE STREAM joined_{service_id} AS {select.format('')}",
        Session(),
    )
    seen(kafka, service_id, {"joined": 1})
    service.engine.execute(f"CREATE OR REPLACE STREAM joined_{service_id} AS {select.format(', zip')}", Session())
    produce(kafka.address, f"clicks-{service_id}", [("bo", {"N": 2}), ("cy", {"N": 3})])
    seen(kafka, service_id, {"joined": 2})
    service.stop()
    shutil.rmtree(tmp_path / "data")

    serve()
    produce(kafka.address, f"clicks-{service_id}", [("ada", {"N": 4}), ("bo", {"N": 5})])
    assert seen(kafka, service_id, {"joined": 4})["joined"] == [
        {"N": 1, "CITY": "Turin"},
        {"N": 2, "CITY": "Oslo", "ZIP": 20},
        {"N": 4, "CITY": "Turin", "ZIP": 10},
        {"N": 5, "CITY": "Oslo", "ZIP": 20},
    ]
