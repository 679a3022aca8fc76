"""A server that was stopped leaves no thread behind: one that is inside DuckDB when Python ends takes the process down
with SIGABRT, whatever the exit code was to be."""

from __future__ import annotations

import threading
from pathlib import Path

from running_server import service_in
from waiting import eventually

from millstream.executor.work_pool import work_pool
from millstream.server.client import connect

STATEMENTS = """
SET 'auto.offset.reset'='earliest';
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
INSERT INTO s VALUES (1, 5);
"""
OF_THE_PROCESS = {"pull-watchdog", "millstream-work"}  # for all servers; the first only sleeps
PUSH = (
    "SELECT * FROM s EMIT CHANGES;",
    "SELECT * FROM s EMIT CHANGES;",
    "SELECT k, SUM(v) FROM s GROUP BY k EMIT CHANGES;",
)


def test_when_a_server_has_stopped_all_of_its_threads_have_ended(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with service_in(tmp_path) as service:
        client = connect(f"http://{service.http_address}")
        client.execute(STATEMENTS)
        eventually(lambda: [row.values for row in client.query("SELECT * FROM t;")] == [(1, 1)], 60)
        open_ones = [client.query(text) for text in PUSH]
        assert [next(iter(rows)).values for rows in open_ones] == [(1, 5), (1, 5), (1, 5)]
        client.query("SELECT * FROM s;").close()
    assert {thread.name for thread in set(threading.enumerate()) - before} <= OF_THE_PROCESS
    pool = work_pool()
    eventually(lambda: pool._idle == pool._threads)  # they have nothing to do, so none is inside DuckDB
    assert not pool.others_wait
