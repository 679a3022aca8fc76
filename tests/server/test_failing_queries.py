"""A query that runs and gets nothing done is shown as what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from batch_answers import sandbox

from millstream.executor.executor import Executor, QueryMetrics, QueryStatus
from millstream.server.http.metrics import Metrics
from millstream.server.insight.descriptions import query_line
from millstream.testing import Sandbox

BAD, GOOD = {"V": "no number"}, {"V": 1}


def _failing(engine: Sandbox) -> None:
    engine.execute(
        "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);"
        "CREATE STREAM o AS SELECT * FROM s;"
    )
    for value in (BAD, BAD):
        engine.produce("s", "a", value, 1)
    engine.drain()


def test_a_query_whose_every_record_fails_is_not_shown_as_healthy() -> None:
    with sandbox() as engine:
        _failing(engine)
        (shown,) = engine.execute("SHOW QUERIES;")
        (line,) = shown["queries"]
        assert (line["state"], line["statusCount"]) == ("ERROR", {"ERROR": 1})
        assert line["detail"].startswith("all 2 records that the query has read failed")
        (explained,) = engine.execute(f"EXPLAIN {line['id']};")
        assert "all 2 records" in str(explained["queryDescription"]["queryErrors"])
        metrics = Metrics(engine.engine, lambda _: 0, None, None).text().decode()
        assert f'millstream_query_state{{query="{line["id"]}",state="ERROR"}} 1.0' in metrics

        engine.produce("s", "a", GOOD, 1)
        engine.drain()
        (shown,) = engine.execute("SHOW QUERIES;")
        assert shown["queries"][0]["statusCount"] == {"RUNNING": 1}
        assert shown["queries"][0]["detail"] is None


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (QueryStatus("Q", "RUNNING"), None),
        (QueryStatus("Q", "RUNNING", error="no executors for 40 s", backfill_left=2), "no executors for 40 s"),
        (QueryStatus("Q", "RUNNING", recovery_left=1, backfill_left=2), "restores its state: 1 record left"),
        (QueryStatus("Q", "RUNNING", spark_starts=True, backfill_left=2), "waits until Spark has started"),
        (QueryStatus("Q", "RUNNING", recovery_left=0), "restores its state: 0 records left"),
        (QueryStatus("Q", "RUNNING", backfill_left=2), "reads its history on Spark: 2 records left"),
    ],
)
def test_show_queries_says_what_the_state_does_not(status: QueryStatus, detail: str | None) -> None:
    with sandbox() as engine:
        engine.execute(
            "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);"
            "CREATE STREAM o AS SELECT * FROM s;"
        )
        catalog = engine.engine.catalog
        (query,) = catalog.queries.values()
        line = query_line(query, catalog, cast(Executor, StatusOnly(status)))
        assert line.detail == detail


@dataclass(frozen=True)
class StatusOnly:
    found: QueryStatus

    def status(self, query_id: str) -> QueryStatus:
        del query_id
        return self.found


def test_only_a_running_query_is_judged_by_its_records() -> None:
    failing = QueryMetrics(rows_in=2, rows_failed=2)
    assert QueryStatus("Q", "RUNNING", failing).shown_state == "ERROR"
    assert QueryStatus("Q", "PAUSED", failing).shown_state == "PAUSED"
    assert QueryStatus("Q", "RUNNING").shown_state == "RUNNING"
    assert QueryStatus("Q", "RUNNING", error="waits").trouble == "waits"
