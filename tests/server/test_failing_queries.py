"""A query that runs and gets nothing done is shown as what it is."""

from __future__ import annotations

from batch_answers import sandbox

from millstream.executor.executor import QueryMetrics, QueryStatus
from millstream.server.http.metrics import Metrics
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
        (explained,) = engine.execute(f"EXPLAIN {line['id']};")
        assert "all 2 records" in str(explained["queryDescription"]["queryErrors"])
        metrics = Metrics(engine.engine, lambda _: 0, None, None).text().decode()
        assert f'millstream_query_state{{query="{line["id"]}",state="ERROR"}} 1.0' in metrics

        engine.produce("s", "a", GOOD, 1)
        engine.drain()
        (shown,) = engine.execute("SHOW QUERIES;")
        assert shown["queries"][0]["statusCount"] == {"RUNNING": 1}


def test_only_a_running_query_is_judged_by_its_records() -> None:
    failing = QueryMetrics(rows_in=2, rows_failed=2)
    assert QueryStatus("Q", "RUNNING", failing).shown_state == "ERROR"
    assert QueryStatus("Q", "PAUSED", failing).shown_state == "PAUSED"
    assert QueryStatus("Q", "RUNNING").shown_state == "RUNNING"
    assert QueryStatus("Q", "RUNNING", error="waits").trouble == "waits"
