"""Records that a client's query cannot read: they leave a trace, and the client is told."""

from __future__ import annotations

from typing import Any

import pytest
from batch_answers import sandbox

from millstream.executor.answers.left_out import ENTRIES_MAX, LeftOut
from millstream.executor.processing_log import TOPIC
from millstream.executor.record_error import RecordError
from millstream.testing import Sandbox

DECLARED = """
    SET 'millstream.pull.full.sql'='true';
    CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);
    CREATE TABLE t (k STRING PRIMARY KEY, v INT) WITH (kafka_topic='t', format='JSON', partitions=1);
"""
QUERIES = (
    "SELECT * FROM s;",
    "SELECT * FROM t;",
    "SELECT k, SUM(v) AS n FROM s GROUP BY k;",
    "SELECT v, COUNT(*) AS n FROM t GROUP BY v;",
    "SELECT * FROM s EMIT CHANGES LIMIT 1;",
)


def traces(engine: Sandbox) -> list[Any]:
    return list(engine.consume(TOPIC)) if TOPIC in engine.log.topics() else []


@pytest.mark.parametrize(("query", "bad"), [*((query, 2) for query in QUERIES), (QUERIES[0], 0), (QUERIES[1], 1)])
def test_a_query_says_how_many_records_it_left_out(query: str, bad: int) -> None:
    with sandbox() as engine:
        engine.execute(DECLARED)
        for topic in "st":
            for number in range(bad):
                engine.produce(topic, f"bad{number}", {"V": "no number"}, 1)
            engine.produce(topic, "a", {"V": 1}, 2)
        messages = list(engine.query(query))
        (header,) = [message["header"] for message in messages if "header" in message]
        assert len([message for message in messages if "row" in message]) == 1
        final = " ".join(message["finalMessage"] for message in messages if "finalMessage" in message)
        assert ("left out" in final) == (bad > 0)
        assert f"{bad} record" in final or not bad
        entries = traces(engine)
        assert len(entries) == bad
        assert all(header["queryId"] in str(entry) for entry in entries)


def test_a_second_look_tells_as_much_and_leaves_no_second_trace() -> None:
    with sandbox() as engine:
        engine.execute(DECLARED)
        engine.produce("t", "bad", {"V": "no number"}, 1)
        finals = [str(list(engine.query("SELECT * FROM t;"))[-1]) for _ in range(2)]
        assert all("1 record that could not be read was left out" in final for final in finals)
        assert len(traces(engine)) == 1


def test_a_batch_of_bad_records_is_counted_as_a_whole_and_traced_in_part() -> None:
    with sandbox() as engine:
        errors = [RecordError("decode", "bad", "s", 0, offset) for offset in range(ENTRIES_MAX + 5)]
        left_out = LeftOut(engine.log, "Q")  # pyrefly: ignore[bad-argument-type]
        left_out.note(errors)
        assert left_out.count == len(errors)
        assert len(traces(engine)) == ENTRIES_MAX


def test_reading_the_processing_log_does_not_write_to_it() -> None:
    with sandbox() as engine:
        left_out = LeftOut(engine.log, "Q")  # pyrefly: ignore[bad-argument-type]
        left_out.note([RecordError("decode", "bad", TOPIC, 0, 0)])
        assert left_out.count == 1
        assert not traces(engine)
