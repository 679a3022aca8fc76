"""EXPLAIN of a running query, and EXPLAIN STALL: each cause, told by a query that has it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from emptied import drop_everything
from waiting import eventually

from millstream.executor.figures import Meters
from millstream.logcore.client import LogClient, RowRecords
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

SOURCES = """
CREATE STREAM clicks (user STRING KEY, url STRING, size INT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);
CREATE TABLE users (id STRING PRIMARY KEY, city STRING)
  WITH (kafka_topic='users', value_format='JSON', partitions=2);
"""


class Server:
    """An engine of its own; queries run on DuckDB and read from the beginning unless a statement says otherwise."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.session = Session({"auto.offset.reset": "earliest"})

    def run(self, text: str) -> list[dict[str, Any]]:
        return [entity.as_json() for entity in self.engine.execute(text, self.session)]

    def create(self, text: str) -> str:
        """The id of the query that the statement starts."""
        return str(self.run(text)[0]["commandStatus"]["queryId"])

    def insert(self, user: str, time_ms: int, size: int = 1) -> None:
        self.run(f"INSERT INTO clicks (rowtime, user, url, size) VALUES ({time_ms}, '{user}', '/', {size});")

    def read(self, query_id: str, count: int) -> None:
        """Waits until the query has read so many records."""
        executor = self.engine.executor
        eventually(lambda: executor.status(query_id).metrics.rows_in >= count)

    def causes(self, query_id: str) -> dict[str, dict[str, Any]]:
        (stall,) = self.run(f"EXPLAIN STALL {query_id};")
        return {cause["code"]: cause for cause in stall["causes"]}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path_factory.mktemp("data"), {"millstream.executor": "duckdb"}, sync="never") as opened:
        yield opened


@pytest.fixture
def server(engine: EmbeddedEngine) -> Iterator[Server]:
    started = Server(engine)
    started.run(SOURCES)
    yield started
    drop_everything(engine)


def test_explain_of_a_running_query_says_what_each_operator_does(server: Server) -> None:
    query_id = server.create("CREATE TABLE n AS SELECT url, COUNT(*) AS n FROM clicks WHERE size > 0 GROUP BY url;")
    for i in range(4):
        server.insert(f"user{i}", i, size=i)
    server.read(query_id, 4)
    (explained,) = server.run(f"EXPLAIN {query_id};")
    described = explained["queryDescription"]
    operators = {each["covers"][-1].partition("-")[0]: each for each in described["live"]["operators"]}
    assert (operators["source"]["rowsIn"], operators["source"]["rowsOut"]) == (4, 4)
    assert (operators["rekey"]["rowsIn"], operators["rekey"]["rowsOut"]) == (4, 3)
    assert operators["aggregate"]["rowsIn"] == 3
    assert operators["aggregate"]["stateRows"] == 1
    assert operators["aggregate"]["stateBytes"] > 0
    assert operators["sink"]["bytesOut"] > 0
    assert operators["source"]["rowsInPerSecond"] > 0
    assert sum(line["lag"] for line in described["live"]["partitions"]) == 0
    assert max(line["largestRowtime"] or 0 for line in described["live"]["partitions"]) == 3
    assert "in 4 rows" in described["executionPlan"]
    assert "lag by partition 0: 0, 1: 0" in described["executionPlan"]
    assert "in 4 rows" not in described["topology"]
    assert described["queryType"] == "PERSISTENT"


def test_explain_of_a_statement_has_no_figures(server: Server) -> None:
    (explained,) = server.run("EXPLAIN SELECT * FROM clicks EMIT CHANGES;")
    assert explained["queryDescription"]["live"] is None


def test_a_topic_without_records_is_why_nothing_comes(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    causes = server.causes(query_id)
    assert causes["NO_RECORDS"]["message"] == 'The topic "clicks" is empty.'
    assert causes["NO_RECORDS"]["blocks"]


def test_a_query_that_began_at_the_end_says_how_much_lies_before(server: Server) -> None:
    server.insert("ada", 1)
    server.insert("bob", 2)
    server.run("SET 'auto.offset.reset'='latest';")
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    eventually(lambda: bool(server.engine.executor.status(query_id).positions))
    cause = server.causes(query_id)["STARTED_AT_END"]
    assert cause["figures"]["recordsBefore"] == 2
    assert "auto.offset.reset is latest" in cause["message"]
    assert "earliest" in cause["hint"]


def test_a_filter_that_lets_nothing_pass_is_named_with_its_condition(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks WHERE size > 1000 AND url LIKE '/%';")
    server.insert("ada", 1)
    server.read(query_id, 1)
    cause = server.causes(query_id)["FILTER_DROPS_ALL"]
    assert cause["message"] == "None of 1 row passed the filter SIZE > 1000 AND URL LIKE '/%'."


def test_a_join_names_the_side_that_is_empty(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT c.user, u.city FROM clicks c JOIN users u ON c.user = u.id;")
    server.insert("ada", 1)
    server.read(query_id, 1)
    causes = server.causes(query_id)
    assert causes["JOIN_SIDE_EMPTY"]["message"] == "The right side of the join, USERS, has no rows."
    assert causes["NO_RECORDS"]["figures"]["topic"] == "users"


def test_a_join_without_partners_says_how_many_rows_each_side_had(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT c.user, u.city FROM clicks c JOIN users u ON c.user = u.id;")
    server.run("INSERT INTO users (rowtime, id, city) VALUES (0, 'eve', 'Bonn');")
    server.insert("ada", 1)
    server.read(query_id, 2)
    cause = server.causes(query_id)["NO_JOIN_PARTNER"]
    assert (cause["figures"]["leftRows"], cause["figures"]["rightRows"], cause["figures"]["rightKept"]) == (1, 1, 1)
    assert "as it was at that moment" in cause["hint"]


def test_a_row_that_waits_for_its_partner_says_how_long(server: Server) -> None:
    server.run(
        "CREATE STREAM shop (user STRING KEY, item STRING) "
        "WITH (kafka_topic='shop', value_format='JSON', partitions=2);"
    )
    query_id = server.create(
        "CREATE STREAM o AS SELECT c.user, c.url, s.item FROM clicks c "
        "LEFT JOIN shop s WITHIN 1 MINUTE GRACE PERIOD 30 SECONDS ON c.user = s.user;"
    )
    server.insert("ada", 1_000)
    server.read(query_id, 1)
    cause = server.causes(query_id)["ROWS_WAIT_FOR_PARTNER"]
    assert cause["message"].startswith("1 row without a partner waits")
    assert "1 min 30 s beyond their time" in cause["message"]
    assert cause["blocks"]


def test_open_windows_say_until_which_stream_time(server: Server) -> None:
    query_id = server.create(
        "CREATE TABLE o AS SELECT user, COUNT(*) AS n FROM clicks "
        "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 5 SECONDS) GROUP BY user EMIT FINAL;"
    )
    server.insert("ada", 1_000)
    server.read(query_id, 1)
    cause = server.causes(query_id)["WINDOWS_OPEN"]
    (task,) = cause["figures"]["tasks"]
    assert (task["groups"], task["streamTime"], task["closesAt"]) == (1, 1_000, 65_000)
    assert "1970-01-01T00:01:05Z" in cause["message"]
    assert "grace period 5 s" in cause["message"]
    assert "millstream.emit.final.idle.ms" in cause["hint"]


def test_an_idle_partition_is_named_with_how_far_it_is_behind(server: Server) -> None:
    query_id = server.create(
        "CREATE TABLE o AS SELECT user, COUNT(*) AS n FROM clicks "
        "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 5 SECONDS) GROUP BY user EMIT FINAL;"
    )
    server.insert("ada", 1_000)
    server.insert("bob", 601_000)  # in the other partition
    server.read(query_id, 2)
    cause = server.causes(query_id)["PARTITION_IDLE"]
    assert cause["figures"]["behindMs"] == 600_000
    assert "is 10 min behind the others" in cause["message"]


def test_a_session_that_is_open_says_when_it_closes(server: Server) -> None:
    query_id = server.create(
        "CREATE TABLE o AS SELECT user, COUNT(*) AS n FROM clicks WINDOW SESSION (10 SECONDS, GRACE PERIOD 5 SECONDS) "
        "GROUP BY user EMIT FINAL;"
    )
    server.insert("ada", 1_000)
    server.read(query_id, 1)
    (task,) = server.causes(query_id)["WINDOWS_OPEN"]["figures"]["tasks"]
    assert task["closesAt"] == 16_001


@pytest.mark.parametrize(
    "window",
    [
        "TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS)",
        "HOPPING (SIZE 1 MINUTE, ADVANCE BY 30 SECONDS, GRACE PERIOD 0 SECONDS)",
        "SESSION (1 SECOND, GRACE PERIOD 0 SECONDS)",
        "CUMULATE (SIZE 1 MINUTE, STEP 30 SECONDS, GRACE PERIOD 0 SECONDS)",
    ],
    ids=["tumbling", "hopping", "session", "cumulate"],
)
def test_late_rows_are_counted_with_the_grace_period(server: Server, window: str) -> None:
    query_id = server.create(f"CREATE TABLE o AS SELECT user, COUNT(*) AS n FROM clicks WINDOW {window} GROUP BY user;")
    server.insert("ada", 600_000)
    server.insert("ada", 1)
    server.insert("ada", 2)
    server.read(query_id, 3)
    cause = server.causes(query_id)["LATE_ROWS"]
    assert cause["message"].startswith("2 of 3 rows came too late for their window")
    assert cause["figures"]["graceMs"] == 0
    assert not cause["blocks"]


def test_records_in_error_name_the_last_one_and_the_processing_log(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    append(server.engine.log, b"{no json")
    server.read(query_id, 1)
    cause = server.causes(query_id)["RECORD_ERRORS"]
    assert cause["message"].startswith("1 of 1 record could not be decoded or computed and were skipped. The last: ")
    assert "topic clicks, partition 0, offset 0" in cause["message"]
    assert "PRINT 'default_ksql_processing_log'" in cause["hint"]
    assert cause["blocks"]


def append(log: LogClient, value: bytes) -> None:
    table = pa.table({"timestamp": pa.array([1]), "key": pa.array([b"k"]), "value": pa.array([value])})
    log.append("clicks", 0, RowRecords(table))


def test_a_transaction_that_nobody_ended_holds_records_back(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    producer = server.engine.log.transactional_producer("somebody")
    producer.begin()
    table = pa.table({"timestamp": pa.array([1]), "key": pa.array([b"k"]), "value": pa.array([b'{"SIZE":1}'])})
    producer.append("clicks", 0, RowRecords(table))
    eventually(lambda: "OPEN_TRANSACTION" in server.causes(query_id))  # what is open becomes durable within a tick
    cause = server.causes(query_id)["OPEN_TRANSACTION"]
    assert cause["figures"] == {"topic": "clicks", "records": {"0": 1}}
    producer.abort()
    assert "OPEN_TRANSACTION" not in server.causes(query_id)


def test_a_paused_query_and_one_whose_source_is_gone_say_so(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    server.run(f"PAUSE {query_id};")
    assert server.causes(query_id)["PAUSED"]["hint"] == f"RESUME {query_id}; continues where it stopped."
    server.engine.log.delete_topic("clicks")
    assert server.causes(query_id)["SOURCE_TOPIC_GONE"]["blocks"]


def test_a_query_that_gives_rows_is_not_held_back(server: Server) -> None:
    query_id = server.create("CREATE STREAM o AS SELECT * FROM clicks;")
    server.insert("ada", 1)
    server.read(query_id, 1)
    (stall,) = server.run(f"EXPLAIN STALL {query_id};")
    assert not stall["stalled"]
    assert [cause["code"] for cause in stall["causes"]] == ["OUTPUT_IS_THERE", "NOTHING_FOUND"]


def test_a_query_may_be_called_stall(server: Server) -> None:
    with pytest.raises(Exception, match="Query with id stall does not exist"):
        server.run("EXPLAIN stall;")
    with pytest.raises(Exception, match="Query with id stall does not exist"):
        server.run("EXPLAIN STALL stall;")


def test_looking_into_a_query_while_it_works_changes_no_result(server: Server) -> None:
    query_id = server.create("CREATE TABLE o AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;")
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            server.engine.executor.figures(query_id)
            stop.wait(0.01)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        values = ", ".join(f"('u{i % 7}', '/', {i})" for i in range(700))
        for _ in range(5):
            server.run(f"INSERT INTO clicks (user, url, size) VALUES {values};")
        server.read(query_id, 3_500)
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    rows = [row.values for row in server.engine.query("SELECT * FROM o;", server.session)]
    assert sorted(rows) == [(f"u{i}", 500) for i in range(7)]


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    now = [100.0]
    meters = Meters(clock=lambda: now[0])
    meter = meters.of(("a", "b"))
    for _ in range(30):
        meters.sample()
        meter.count(100, 50, 1_000, 0)
        now[0] += 1.0
    rows_in, rows_out, bytes_out = meters.rates()["b"]
    assert (round(rows_in), round(rows_out), round(bytes_out)) == (100, 50, 1_000)
    now[0] += 60.0
    assert meters.rates()["b"] == (0.0, 0.0, 0.0)
    meters.sample()
    meter.count(10, 10, 10, 0)
    now[0] += 1.0
    assert round(meters.rates()["b"][0]) == 10
    assert meters.of(("a", "b")) is meter
