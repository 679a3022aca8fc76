"""PRINT."""

from __future__ import annotations

import itertools

import pytest

from millstream.errors import ServerError
from millstream.server.engine.print_topic import PrintFeed
from millstream.sql.ast import PrintTopic
from millstream.testing import Sandbox

STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


def _print(sandbox: Sandbox, statement: str) -> PrintFeed:
    parsed = sandbox.engine.parse(statement, sandbox.session)[0]
    assert isinstance(parsed, PrintTopic)
    return sandbox.engine.print_topic(parsed)


def test_print_shows_the_formats_and_then_a_line_per_record() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(STREAM)
        sandbox.produce("s", 1, {"v": 10}, timestamp=1_000)
        sandbox.produce("s", 2, None, timestamp=2_000)
        assert list(_print(sandbox, "PRINT s FROM BEGINNING LIMIT 2;")) == [
            "Key format: KAFKA",
            "Value format: JSON",
            'rowtime: 1970/01/01 00:00:01.000 Z, key: 1, value: {"v":10}, partition: 0',
            "rowtime: 1970/01/01 00:00:02.000 Z, key: 2, value: <null>, partition: 0",
        ]


def test_print_begins_with_what_is_new_and_shows_every_nth_record() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("raw")
        sandbox.produce("raw", None, "old")
        feed = _print(sandbox, "PRINT raw INTERVAL 2 LIMIT 2;")
        for number in range(4):
            sandbox.produce("raw", None, f"new {number}")
        lines = list(itertools.islice(feed, 2, None))
        assert [line.split("value: ")[1] for line in lines] == ["new 0, partition: 0", "new 2, partition: 0"]


def test_print_shows_records_that_are_not_what_the_source_says_as_text() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(STREAM)
        sandbox.create_topic("other")
        sandbox.execute("CREATE STREAM o (v INT) WITH (kafka_topic='other', value_format='KAFKA');")
        sandbox.produce("other", None, 1)
        sandbox.execute("DROP STREAM o;")
        sandbox.execute("CREATE STREAM o (v BIGINT) WITH (kafka_topic='other', value_format='KAFKA');")
        assert "value: \x00\x00\x00\x01" in list(_print(sandbox, "PRINT other FROM BEGINNING LIMIT 1;"))[2]


def test_one_record_that_cannot_be_read_leaves_the_others_as_they_are() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("mixed")
        sandbox.produce("mixed", None, '{"V": 1}')
        sandbox.produce("mixed", None, "{")
        sandbox.produce("mixed", None, '{"V":   2}')
        sandbox.execute("CREATE STREAM m (v INT) WITH (kafka_topic='mixed', value_format='JSON');")
        lines = list(_print(sandbox, "PRINT mixed FROM BEGINNING LIMIT 3;"))[2:]
        assert [line.partition("value: ")[2] for line in lines] == [
            '{"V":1}, partition: 0',
            "{, partition: 0",
            '{"V":2}, partition: 0',
        ]


def test_records_that_formats_allow_are_shown_whatever_is_in_them() -> None:
    deep = "[" * 400 + "]" * 400
    with Sandbox() as sandbox:
        sandbox.create_topic("odd")
        for value in (deep, '{"V": "\\ud83d"}', '{"V": 1}'):
            sandbox.produce("odd", None, value)
        sandbox.execute("CREATE STREAM o (v STRING) WITH (kafka_topic='odd', value_format='JSON');")
        lines = list(_print(sandbox, "PRINT odd FROM BEGINNING LIMIT 3;"))[2:]
        assert [line.partition("value: ")[2] for line in lines] == [
            f"{deep}, partition: 0",
            '{"V":"\\ud83d"}, partition: 0',
            '{"V":1}, partition: 0',
        ]


def test_print_of_an_unknown_topic_names_the_nearest() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("pageviews")
        with pytest.raises(ServerError) as caught:
            _print(sandbox, "PRINT pageview;")
        assert caught.value.hint == 'Did you mean "pageviews"?'
