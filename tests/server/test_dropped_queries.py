"""What a dropped query leaves behind in the log: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from running_server import service_in
from waiting import eventually

from millstream.logcore.log import Log
from millstream.server.client import connect

CYCLES = 5
SOURCE = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
INSERT INTO s VALUES (1, 1), (2, 2);
"""
QUERIES = (
    "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;",
    "CREATE STREAM t AS SELECT k, v + 1 AS n FROM s;",
)


def kept(log: Log) -> dict[str, list[str]]:
    """What the log knows of producers, groups and topics."""
    return {
        "producers": sorted(found.identity.transactional_id for found in log.served.transactions()),
        "groups": sorted(each.group for each in log.served.groups.described()),
        "topics": sorted(log.topics()),
        "replicas": sorted(map(str, log.node.logs.stored())),
    }


@pytest.mark.parametrize("statement", QUERIES)
def test_creating_and_dropping_a_query_leaves_nothing_in_the_log(tmp_path: Path, statement: str) -> None:
    with service_in(tmp_path / "data") as service:
        client = connect(f"http://{service.http_address}")
        client.execute("SET 'auto.offset.reset'='earliest';")
        client.execute(SOURCE)

        def cycle() -> None:
            client.execute(statement)
            eventually(lambda: len(list(client.query("SELECT * FROM t;"))) == 2, 60)
            client.execute("DROP " + statement.split()[1] + " t DELETE TOPIC;")

        cycle()
        before = kept(service.engine.log)  # pyrefly: ignore[bad-argument-type]
        for _ in range(CYCLES):
            cycle()
        assert kept(service.engine.log) == before  # pyrefly: ignore[bad-argument-type]
