"""`ms.wait`: what was inserted is in all results, or an error names the query that is behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running_server import service_in

import millstream
from millstream.waiting import ResultsBehind, RunningQuery, groups_in_order, wait_for_contents

EARLIEST = {"auto.offset.reset": "earliest"}
CLICKS = (
    "CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=2);"
)
TOTALS = "CREATE TABLE totals AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;"


@pytest.fixture(params=["in process", "over HTTP"])
def ms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[millstream.Connection]:
    if request.param == "in process":
        with millstream.connect(properties=EARLIEST) as connection:
            yield connection
        return
    with service_in(tmp_path_factory.mktemp("data")) as service:
        with millstream.connect(f"http://{service.http_address}", EARLIEST) as connection:
            yield connection


def test_after_a_wait_results_of_results_are_complete(ms: millstream.Connection) -> None:
    ms.wait()  # nothing runs
    ms.sql(CLICKS)
    ms.sql("CREATE STREAM large AS SELECT * FROM clicks WHERE size > 2;")
    ms.sql("CREATE TABLE counted AS SELECT user, COUNT(*) AS n FROM large GROUP BY user;")
    ms.sql("CREATE TABLE twice AS SELECT user, n * 2 AS m FROM counted;")
    for round_ in range(1, 4):
        ms.insert("clicks", {"user": ["ada", "bo", "ada"], "size": [3, 2, 5]})
        ms.wait()
        assert ms.table("twice").fetchall() == [("ada", 4 * round_)]


def test_after_a_wait_for_contents_they_are_complete(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    ms.sql("CREATE STREAM large AS SELECT * FROM clicks WHERE size > 2;")
    ms.sql("CREATE TABLE counted AS SELECT user, COUNT(*) AS n FROM large GROUP BY user;")
    for round_ in range(1, 4):
        ms.insert("clicks", {"user": ["ada", "bo", "ada"], "size": [3, 2, 5]})
        wait_for_contents(ms.client, ["COUNTED", "NOPE"], timeout=30)
        assert ms.table("counted").fetchall() == [("ada", 2 * round_)]


def test_a_topic_that_two_streams_share_orders_queries_too(ms: millstream.Connection) -> None:
    ms.sql(CLICKS)
    ms.sql("CREATE STREAM copied WITH (kafka_topic='shared') AS SELECT * FROM clicks;")
    ms.sql("CREATE STREAM again (user STRING KEY, size INT) WITH (kafka_topic='shared', value_format='JSON');")
    ms.sql("CREATE TABLE sums AS SELECT user, SUM(size) AS size FROM again GROUP BY user;")
    ms.insert("clicks", {"user": ["ada", "ada"], "size": [3, 5]})
    ms.wait()
    assert ms.table("sums").fetchall() == [("ada", 8)]


def test_a_paused_query_is_not_waited_for(ms: millstream.Connection) -> None:
    ms.sql(CLICKS + TOTALS)
    ms.wait()
    ms.sql("PAUSE ALL;")
    ms.insert("clicks", {"user": ["ada"], "size": [3]})
    ms.wait()
    assert ms.table("totals").fetchall() == []
    ms.sql("RESUME ALL;")
    ms.wait()
    assert ms.table("totals").fetchall() == [("ada", 1)]


def test_the_error_names_the_query_that_is_behind(ms: millstream.Connection) -> None:
    ms.sql(CLICKS + TOTALS)
    ms.insert("clicks", {"user": ["ada", "bo", "ada"], "size": [3, 2, 5]})
    with pytest.raises(ResultsBehind, match=r"query CTAS_TOTALS_\d+ is behind") as raised:
        ms.wait(timeout=-1)
    assert raised.value.hint is not None and "EXPLAIN CTAS_TOTALS_" in raised.value.hint
    ms.wait()
    assert sorted(ms.table("totals").fetchall()) == [("ada", 2), ("bo", 1)]


class _Answers:
    """A client whose queries are as a test says, look after look; the last one stays."""

    def __init__(self, *looks: dict[str, object]) -> None:
        self._looks = list(looks)

    def execute(self, text: str) -> list[dict[str, object]]:
        del text
        return [self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]]


def _look(position: int, lag: int, state: str = "RUNNING", failed: int = 0) -> dict[str, object]:
    offsets = {"queryId": "Q", "topic": "s", "partition": 0, "position": position, "lag": lag}
    return {
        "sourceDescriptions": [
            {
                "topic": "s",
                "partitions": 1,
                "readQueries": [{"id": "Q"}],
                "writeQueries": [],
                "queryOffsetSummaries": [offsets],
            }
        ],
        "queryDescriptions": [
            {
                "id": "Q",
                "state": state,
                "queryErrors": ["no space"] if state == "ERROR" else [],
                "metrics": {"rows_in": 5, "rows_failed": failed},
            }
        ],
    }


def test_a_stopped_query_is_told_at_once() -> None:
    from millstream.waiting import wait_for_results

    with pytest.raises(ResultsBehind, match='query Q has stopped with 3 records of topic "s" not processed: no space'):
        wait_for_results(_Answers(_look(5, 3, "ERROR")), timeout=1e9)  # pyrefly: ignore[bad-argument-type]


def test_a_query_that_fails_for_every_record_goes_on_and_is_waited_for() -> None:
    from millstream.waiting import wait_for_results

    looks = [_look(5, 1, "ERROR", failed=5), _look(5, 1, "ERROR", failed=5), _look(5, 1, "ERROR", failed=5)]
    wait_for_results(_Answers(*looks, _look(6, 0, "ERROR", failed=5)), timeout=1e9)  # pyrefly: ignore[bad-argument-type]


def test_what_is_written_during_the_wait_is_not_waited_for() -> None:
    from millstream.waiting import wait_for_results

    growing = [_look(5 + at, 3) for at in range(20)]
    client = _Answers(*growing)
    wait_for_results(client, timeout=1e9)  # pyrefly: ignore[bad-argument-type]
    assert len(client._looks) > 10, "it read on behind the end of the first look"


def test_every_query_comes_after_those_that_write_what_it_reads() -> None:
    def query(name: str, reads: str, writes: str) -> RunningQuery:
        return RunningQuery(name, frozenset({(reads, 0)}), frozenset({writes}), {}, {})

    chain = [query("D", "c", "d"), query("B", "a", "b"), query("C", "b", "c"), query("A", "s", "a")]
    assert groups_in_order(chain) == [["A"], ["B"], ["C"], ["D"]]
    circle = [
        query("X", "d", "x"),
        query("C", "b", "c"),
        query("B", "c", "b"),
        query("W", "s", "b"),
        query("D", "c", "d"),
    ]
    assert groups_in_order(circle) == [["W"], ["B", "C"], ["D"], ["X"]]
