"""PRINT."""

from __future__ import annotations

import itertools

import pytest

from millstream.errors import ServerError
from millstream.server.engine.print_topic import PrintFeed
from millstream.server.engine.topic_records import decode_run
from millstream.sql.ast import PrintTopic
from millstream.testing import Sandbox

from ..logcore.log_records import rows

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


def _lines(sandbox: Sandbox, topic: str, count: int) -> list[str]:
    lines = list(_print(sandbox, f"PRINT {topic} FROM BEGINNING LIMIT {count};"))
    values = [line.partition("value: ")[2].removesuffix(", partition: 0") for line in lines[2:]]
    return [line.partition("ormat: ")[2] for line in lines[:2]] + values


@pytest.mark.parametrize("format_", ["JSON", "AVRO", "ARROW"])
def test_numbers_are_shown_as_numbers_and_bytes_in_base64(format_: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM n (d DECIMAL(10, 2), b BYTES, x DOUBLE, m MAP<STRING, INT>)"
            f" WITH (kafka_topic='n', value_format='{format_}', partitions=1);"
            "INSERT INTO n VALUES (12.50, TO_BYTES('ff', 'hex'), 0.1, MAP('k' := 1));"
        )
        assert _lines(sandbox, "n", 1)[2:] == ['{"D":12.50,"B":"/w==","X":0.1,"M":{"k":1}}']


def test_members_that_no_column_is_for_are_shown_as_well() -> None:
    with Sandbox() as sandbox:
        sandbox.execute("CREATE STREAM n (d INT) WITH (kafka_topic='n', value_format='JSON', partitions=1);")
        sandbox.log.append("n", 0, rows(b'{"other": [1.5, "1.5"], "big": 12345678901234567890123}'))
        assert _lines(sandbox, "n", 1)[2:] == ['{"other":[1.5,"1.5"],"big":12345678901234567890123}']


def test_a_double_that_is_no_number_is_shown_by_its_name() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM n (x DOUBLE, y DOUBLE) WITH (kafka_topic='n', value_format='AVRO', partitions=1);"
        )
        sandbox.execute("INSERT INTO n VALUES (LN(0), SQRT(-1));")
        assert _lines(sandbox, "n", 1)[2:] == ['{"X":"-Infinity","Y":"NaN"}']


@pytest.mark.parametrize("declared", [True, False])
def test_dates_beyond_those_of_python_are_shown_as_numbers(declared: bool) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM n (d DATE, t ARRAY<TIMESTAMP>) WITH (kafka_topic='n', value_format='ARROW', partitions=1);"
            "INSERT INTO n VALUES (FROM_DAYS(4000000), ARRAY[FROM_UNIXTIME(400000000000000), NULL]);"
        )
        if not declared:
            sandbox.execute("DROP STREAM n;")
        assert _lines(sandbox, "n", 1)[2:] == ['{"D":4000000,"T":[400000000000000,null]}']


def test_a_time_beyond_those_of_python_is_shown() -> None:
    """Microseconds where milliseconds belong give such times."""
    with Sandbox() as sandbox:
        sandbox.execute(STREAM)
        sandbox.produce("s", 1, None, timestamp=1_700_000_000_123_456)
        sandbox.produce("s", 1, None, timestamp=-70_000_000_000_000)
        lines = list(_print(sandbox, "PRINT s FROM BEGINNING LIMIT 2;"))[2:]
        assert [line.split(", ")[0] for line in lines] == [
            "rowtime: +55840/11/08 22:15:23.456 Z", "rowtime: -0249/10/15 19:33:20.000 Z",
        ]  # fmt: skip


@pytest.mark.parametrize("format_", ["AVRO", "PROTOBUF", "JSON_SR"])
def test_records_of_a_topic_without_a_stream_are_read_by_the_schemas_that_they_name(format_: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            f"CREATE STREAM s (v STRING) WITH (kafka_topic='s', value_format='{format_}', partitions=1);"
            "INSERT INTO s VALUES ('a');"
            "DROP STREAM s;"
        )
        assert _lines(sandbox, "s", 1) == ["¯\\_(ツ)_/¯ - no data processed", format_, '{"V":"a"}']


@pytest.mark.parametrize(
    ("data", "format_", "shown"),
    [
        (b'{"a": 1.50}', "JSON or KAFKA_STRING", '{"a": 1.50}'),
        (b"12", "JSON or KAFKA_STRING", "12"),
        (b"b\tc", "KAFKA_STRING", "b\tc"),
        (b"", "KAFKA_STRING", ""),
        (b"four", "KAFKA_STRING", "four"),
        (b"\0\0\0\7", "KAFKA_INT", "7"),
        (b"\xff\xff\xff\xff", "KAFKA_INT", "-1"),
        (b"\0\0\0\0\0\0\0\7", "KAFKA_BIGINT or KAFKA_DOUBLE", "7"),
        (b"\0\0\0\0\7", "¯\\_(ツ)_/¯ - bytes", "\0\0\0\0\7"),  # it names a schema that nobody has
        (b"\0\0\0\0\1\x02", "¯\\_(ツ)_/¯ - bytes", "\0\0\0\0\1\x02"),  # it is not what its schema says
        (b"\xffab", "¯\\_(ツ)_/¯ - bytes", "\ufffdab"),
    ],
)
def test_records_of_a_topic_without_a_stream_are_what_their_bytes_seem_to_be(
    data: bytes, format_: str, shown: str
) -> None:
    with Sandbox() as sandbox:
        sandbox.execute("CREATE STREAM a (v STRING) WITH (kafka_topic='a', value_format='AVRO', partitions=1);")
        sandbox.create_topic("raw")
        sandbox.log.append("raw", 0, rows(data))
        assert _lines(sandbox, "raw", 1)[1:] == [format_, shown]


def test_a_topic_of_several_formats_is_mixed_and_each_record_is_shown_as_what_it_is() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("raw")
        sandbox.log.append("raw", 0, rows(b"text", b"\0\0\0\7"))
        assert _lines(sandbox, "raw", 2)[1:] == ["MIXED", "text", "7"]


def test_columns_without_a_columnar_stream_are_shown_as_values() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM s (id INT KEY, v INT, m MAP<STRING, INT>)"
            " WITH (kafka_topic='s', value_format='ARROW', partitions=1);"
            "INSERT INTO s VALUES (1, 10, MAP('k' := 1));"
            "DROP STREAM s;"
        )
        assert _lines(sandbox, "s", 1)[1:] == ["ARROW", '{"ID":1,"V":10,"M":{"k":1}}']
        sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON');")
        assert _lines(sandbox, "s", 1)[2:] == ['{"ID":1,"V":10,"M":{"k":1}}']


def test_the_formats_are_those_of_older_records_where_the_newest_offsets_have_none() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("raw")
        producer = sandbox.log.transactional_producer("p")
        producer.begin()
        producer.append("raw", 0, rows(b"\0\0\0\7"))
        producer.commit()
        for _ in range(25):
            producer.begin()
            producer.append("raw", 0, rows(b"text"))
            producer.abort()
        assert list(itertools.islice(_print(sandbox, "PRINT raw;"), 2)) == [
            "Key format: KAFKA_STRING",
            "Value format: KAFKA_INT",
        ]


def test_a_schema_that_nobody_has_is_looked_for_once_a_run() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("raw")
        sandbox.log.append("raw", 0, rows(*(number.to_bytes(8, "big") for number in range(100))))
        asked: list[int] = []
        fetched = sandbox.log.fetch("raw", 0, 0).runs
        for run in fetched:
            list(decode_run(run, None, asked.append, unreadable_as_text=True))
        assert asked == [0] * len(fetched)
