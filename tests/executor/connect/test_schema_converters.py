"""Records that name their schema, in sinks: the same values as those of a stream in JSON, and errors that help."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.dataset
import pytest
import sqlalchemy as sa
from connectors import Read, read_topic
from waiting import eventually

from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector
from millstream.executor.connect.converters import Converter, converter_of, sink_converter_of
from millstream.executor.connect.sinks.sql_sink import SqlSink
from millstream.executor.formats.protobuf import protobuf_codec
from millstream.executor.formats.wire import header
from millstream.planner.specs import RecordSchema
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.testing import ConnectorSandbox

from .test_http_sink import Receiver

FORMATS = ("AVRO", "PROTOBUF", "JSON_SR")
DUCKDB = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
COLUMNS = """id INT KEY, flag BOOLEAN, small INT, big BIGINT, amount DOUBLE, text STRING, raw BYTES,
    price DECIMAL(10, 2), wide DECIMAL(38, 10), units DECIMAL(38, 0), day DATE, clock TIME, moment TIMESTAMP,
    reals ARRAY<DOUBLE>, named MAP<STRING, DECIMAL(5, 1)>, who STRUCT<name STRING, born DATE, photo BYTES,
    marks ARRAY<INT>, weight DOUBLE>, people ARRAY<STRUCT<a TIMESTAMP, b BYTES>>"""
FULL = """true, 3, 9007199254740993, {amount}, '"7" \u00fc', TO_BYTES('AAH/', 'base64'), 3.10,
    1234567890123456789012345678.1, CAST('12345678901234567890123456' AS DECIMAL(38, 0)), '2026-11-26',
    '01:02:03', '2026-11-26T01:02:03.004', ARRAY[3.0, 0.5],
    MAP('a':=1.5, 'b':=-20.0), STRUCT(name:='ada', born:='1815-12-10', photo:=TO_BYTES('AQI=', 'base64'),
    marks:=ARRAY[1, -2], weight:=5.0), ARRAY[STRUCT(a:='1970-01-01T00:00:00.001', b:=TO_BYTES('', 'base64'))]"""
DOUBLES = ("0.0", "-0.0", "0.1", "3.0", "100.0", "0.001", "0.00099999", "9999999.0", "1.0E7", "-12345678.5", "1.0E16",
           "1.2345678901234567E20", "5.0E-324", "1.7976931348623157E308", "-0.0625")  # fmt: skip
# PROTOBUF has an empty array or map where there is none, so every row has one
NULLS = "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ARRAY[0.25], MAP('c':=0.0), NULL"
NO_PEOPLE = "ARRAY[STRUCT(a:='2000-01-01', b:=TO_BYTES('AA==', 'base64'))]"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEngine]:
    """With one stream of all SQL types in JSON, and the same in the formats with schemas."""
    with open_engine(tmp_path_factory.mktemp("data"), DUCKDB, sync="never") as opened:
        rows = [f"{number}, {FULL.format(amount=amount)}" for number, amount in enumerate(DOUBLES)]
        texts = [f"INSERT INTO as_json VALUES ({row});" for row in (*rows, f"100, {NULLS}, {NO_PEOPLE}")]
        for name in ("JSON", *FORMATS):
            more = ", value_protobuf_nullable_representation='OPTIONAL'" if name == "PROTOBUF" else ""
            formats = f"key_format='{name}', value_format='{name}', partitions=1{more}"
            topic = f"WITH (kafka_topic='as_{name.lower()}', {formats})"
            if name == "JSON":
                texts.insert(0, f"CREATE STREAM as_json ({COLUMNS}) {topic};")
            else:
                texts.append(f"CREATE STREAM as_{name} {topic} AS SELECT * FROM as_json;")
        run(opened, " ".join(texts))
        for name in FORMATS:
            until(lambda name=name: len(read_topic(opened.log, f"as_{name.lower()}")) == len(DOUBLES) + 1)
        yield opened


def until(done: Callable[[], bool]) -> None:
    eventually(done, 120)


def run(engine: EmbeddedEngine, text: str) -> None:
    engine.execute(text, Session())


def in_sink(engine: EmbeddedEngine, name: str, part: str = "value") -> Converter:
    return sink_converter_of({f"{part}.converter": name}, part, engine.schemas.schema)


def written(engine: EmbeddedEngine, sink: str, count: int) -> None:
    def done() -> bool:
        (task,) = engine.connectors.status(sink.upper()).tasks
        assert task.state == "RUNNING", task.error
        return task.records == count

    until(done)


def types_in(value: Any) -> Any:
    """The value with the types of everything inside."""
    match value:
        case dict():
            return {name: types_in(member) for name, member in value.items()}
        case list():
            return [types_in(member) for member in value]
        case _:
            return type(value).__name__, str(value)


# ------------------------------------------------------------------ as in JSON


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_exactly_those_of_the_same_stream_in_json(engine: EmbeddedEngine, name: str) -> None:
    """The same Python values, so that no sink can see a difference."""
    wanted = [json_values(record) for record in read_topic(engine.log, "as_json")]
    key, value = in_sink(engine, name.lower(), "key"), in_sink(engine, name.lower())
    found = [
        (key.from_bytes(record.key), value.from_bytes(record.value))
        for record in read_topic(engine.log, f"as_{name.lower()}")
    ]
    assert len(wanted) == len(DOUBLES) + 1
    for (wanted_key, wanted_value), (found_key, found_value) in zip(wanted, found, strict=True):
        assert types_in(found_value) == types_in(wanted_value)
        assert types_in(found_key) == types_in({"ID": wanted_key} if isinstance(found_key, dict) else wanted_key)


def json_values(record: Read) -> tuple[Any, Any]:
    as_json = converter_of({}, "value")
    return as_json.from_bytes(record.key), as_json.from_bytes(record.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("name", ["AVRO", "PROTOBUF"])
def test_numbers_that_json_has_not_are_texts(name: str, number: str) -> None:
    if name == "AVRO":
        schema = RecordSchema(1, "AVRO", '"double"')
        assert avro_values(schema, [float(number)]) == [number]
    else:
        schema = RecordSchema(1, "PROTOBUF", 'syntax = "proto3"; message M { double x = 1; }')
        data = protobuf_codec(schema, framed=True).write({"x": float(number)})
        assert sink_converter_of({"value.converter": "protobuf"}, "value", {1: schema}.get).from_bytes(data) == {
            "x": number
        }


SINKS = {
    "sql": "'connection.url'='sqlite:///{folder}/out.db', 'auto.create'=true, 'table.name.format'='$${{topic}}'",
    "parquet": "'location'='{folder}/$${{topic}}', 'rotate.interval.ms'=0",
    "delta": "'location'='{folder}/$${{topic}}', 'commit.interval.ms'=0",
}
KEYED = {"sql": "'pk.mode'='record_key', 'pk.fields'='ID',", "delta": "'pk.mode'='record_key', 'pk.fields'='ID',"}


@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_has_the_same_rows_from_every_format(engine: EmbeddedEngine, tmp_path: Path, sink: str) -> None:
    if sink == "delta":
        pytest.importorskip("deltalake")
    found: dict[str, list[str]] = {}
    # SQLite has no types for objects and arrays
    flat = "'transforms'='drop', 'transforms.drop.type'='MaskField', 'transforms.drop.fields'='REALS,NAMED,WHO,PEOPLE',"
    for name in ("JSON", *FORMATS):
        topic, connector = f"as_{name.lower()}", f"{sink}_{name.lower()}"
        run(
            engine,
            f"CREATE SINK CONNECTOR {connector} WITH ('connector.class'='{sink}', 'topics'='{topic}', "
            f"{KEYED.get(sink, '')} {flat if sink == 'sql' else ''} 'key.converter'='{name.lower()}', "
            f"'value.converter'='{name.lower()}', {SINKS[sink].format(folder=tmp_path)});",
        )
        written(engine, connector, len(DOUBLES) + 1)
        run(engine, f"DROP CONNECTOR {connector};")
        found[name] = rows_in(sink, tmp_path, topic)
        assert len(found[name]) > len(DOUBLES)
        assert found[name] == found["JSON"]


def test_a_request_has_the_same_body_and_address_from_every_format(engine: EmbeddedEngine) -> None:
    found: dict[str, list[tuple[str, Any]]] = {}
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{receiver.server_port}/$${{key}}"
        for name in ("JSON", *FORMATS):
            receiver.requests.clear()
            run(
                engine,
                f"CREATE SINK CONNECTOR http_{name} WITH ('connector.class'='http', 'topics'='as_{name.lower()}', "
                f"'key.converter'='{name.lower()}', 'value.converter'='{name.lower()}', 'http.api.url'='{url}', "
                "'transforms'='k', 'transforms.k.type'='ExtractField$Key', 'transforms.k.field'='ID');",
            )
            written(engine, f"http_{name}", len(DOUBLES) + 1)
            run(engine, f"DROP CONNECTOR http_{name};")
            found[name] = [(path, json.loads(body, parse_float=str)) for _, path, _, body in receiver.requests]
        receiver.shutdown()
        thread.join()
    assert [path for path, _ in found["JSON"]] == [f"/{number}" for number in (*range(len(DOUBLES)), 100)]
    for name in FORMATS:
        assert found[name] == found["JSON"]


def rows_in(sink: str, folder: Path, topic: str) -> list[str]:
    if sink == "sql":
        database = sa.create_engine(f"sqlite:///{folder}/out.db")
        with database.begin() as connection:
            rows = [repr(row) for row in connection.execute(sa.text(f"SELECT * FROM {topic}"))]
        database.dispose()
        return sorted(rows)
    if sink == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(f"{folder}/{topic}").to_pyarrow_table()
    else:
        table = pyarrow.dataset.dataset(f"{folder}/{topic}", format="parquet").to_table()
    rows = table.to_pylist(maps_as_pydicts="strict")
    return [str(table.schema), *sorted(json.dumps(row, default=repr, sort_keys=True) for row in rows)]


# ------------------------------------------------------------------ foreign AVRO


FOREIGN = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "who", "type": {"type": "record", "name": "Person", "fields": [
            {"name": "name", "type": "string"}, {"name": "friend", "type": ["null", "Person"]}]}},
        {"name": "amount", "type": {"type": "fixed", "name": "Amount", "size": 8, "logicalType": "decimal",
                                    "precision": 10, "scale": 2}},
        {"name": "ratio", "type": "float"},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "any", "type": ["null", "int", "string", "Hash"]},
        {"name": "tags", "type": {"type": "map", "values": ["State", "null"]}},
        {"name": "list", "type": {"type": "array", "items": "bytes"}},
    ],
}  # fmt: skip
ORDER = {
    "state": "PAID", "hash": b"\0\1\2", "who": {"name": "ada", "friend": {"name": "bob", "friend": None}},
    "amount": Decimal("-10.50"), "ratio": 0.5, "id": "6a9f1b6e-8d7a-4cf4-9f0a-1f1f1f1f1f1f",
    "at": 1_700_000_000_123_456, "any": ("shop.Hash", b"abc"), "tags": {"x": "OPEN", "y": None}, "list": [b"", b"\xff"],
}  # fmt: skip


def avro_bytes(schema: Any, value: Any, schema_id: int = 1) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return header(schema_id) + stream.getvalue()


def avro_values(schema: RecordSchema, values: Sequence[Any]) -> list[Any]:
    converter = sink_converter_of({"value.converter": "avro"}, "value", {schema.id: schema}.get)
    return [converter.from_bytes(avro_bytes(json.loads(schema.text), value, schema.id)) for value in values]


def test_foreign_avro_is_read_as_the_format_avro_reads_it() -> None:
    schema = RecordSchema(7, "AVRO", json.dumps(FOREIGN))
    assert avro_values(schema, [ORDER, {**ORDER, "any": 5}, {**ORDER, "any": None}]) == [
        {
            "state": "PAID", "hash": "AAEC", "who": {"name": "ada", "friend": {"name": "bob", "friend": None}},
            "amount": Decimal("-10.50"), "ratio": Decimal("0.5"), "id": ORDER["id"], "at": ORDER["at"],
            "any": any_, "tags": {"x": "OPEN", "y": None}, "list": ["", "/w=="],
        }
        for any_ in (
            {"int": None, "string": None, "Hash": "YWJj"}, {"int": 5, "string": None, "Hash": None}, None,
        )
    ]  # fmt: skip


# ------------------------------------------------------------------ names and settings


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("io.confluent.connect.avro.AvroConverter", "avro"), ("AvroConverter", "avro"), ("avro", "avro"),
        ("io.confluent.connect.protobuf.ProtobufConverter", "protobuf"), ("protobuf", "protobuf"),
        ("io.confluent.connect.json.JsonSchemaConverter", "json_sr"), ("json_sr", "json_sr"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_converter_has_its_short_name_and_that_of_kafka_connect(given: str, name: str, part: str) -> None:
    config = {f"{part}.converter": given, f"{part}.converter.schema.registry.url": "http://registry:8081"}
    assert sink_converter_of(config, part, {}.get).name == name


@pytest.mark.parametrize(("name", "format_"), [("avro", "AVRO"), ("protobuf", "PROTOBUF"), ("json_sr", "JSON_SR")])
def test_a_source_says_how_its_records_become_avro(engine: EmbeddedEngine, name: str, format_: str) -> None:
    with pytest.raises(InvalidConnector) as caught:
        run(engine, "CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users', "
                    f"'kafka.topic'='users', 'value.converter'='{name}');")  # fmt: skip
    assert f'value.converter is "{name}", but a source writes no {format_}' in caught.value.message
    assert f"CREATE STREAM … WITH (value_format='{format_}') AS SELECT" in (caught.value.hint or "")
    assert caught.value.span is not None


def test_another_registry_is_not_asked_and_its_password_is_not_shown(engine: EmbeddedEngine, tmp_path: Path) -> None:
    given = """'value.converter.schema.registry.url'='https://ana:hunter2@registry.example:8081',
        'value.converter.basic.auth.user.info'='KEY:hunter3'"""
    (created,) = engine.execute(
        "CREATE SINK CONNECTOR hidden WITH ('connector.class'='parquet', 'topics'='as_avro', "
        f"'location'='{tmp_path}/t', 'key.converter'='avro', 'value.converter'='avro', {given});",
        Session(),
    )
    written(engine, "hidden", len(DOUBLES) + 1)
    (described,) = engine.execute("DESCRIBE CONNECTOR hidden; DROP CONNECTOR hidden;", Session())[:1]
    shown = json.dumps([created.as_json(), described.as_json()])
    assert "hunter2" not in shown and "hunter3" not in shown
    assert "registry.example" in shown
    assert "has no effect" not in shown


# ------------------------------------------------------------------ what cannot be read


KNOWN = {
    1: RecordSchema(1, "AVRO", '"string"'),
    2: RecordSchema(2, "JSON", "{}"),
    3: RecordSchema(3, "PROTOBUF", 'syntax = "proto3"; message M { string x = 1; }'),
    4: RecordSchema(4, "AVRO", '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}'),
    5: RecordSchema(
        5, "PROTOBUF", 'syntax = "proto3"; import "confluent/type/decimal.proto"; '
        "message M { confluent.type.Decimal x = 1; }",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("avro", header(9) + b"\2a", "names the schema 9, which the schema registry does not have"),
        ("protobuf", header(9) + b"\0", "names the schema 9, which the schema registry does not have"),
        ("json_sr", header(9) + b"{}", "names the schema 9, which the schema registry does not have"),
        ("avro", header(2) + b"{}", "schema 2, which is JSON, not AVRO"),
        ("protobuf", header(1) + b"\2a", "schema 1, which is AVRO, not PROTOBUF"),
        ("json_sr", header(1) + b"{}", "schema 1, which is AVRO, not JSON"),
        ("avro", b'{"a": 1}', "does not begin with the id of a schema"),
        ("json_sr", b'{"a": 1}', "does not begin with the id of a schema"),
        ("protobuf", b"", "it is empty"),
        ("avro", header(1) + b"\4a", "do not fit their AVRO schema"),
        ("avro", header(1) + b"\2ab", "1 bytes are left"),
        ("avro", header(4) + b"\2" * 5000, "nested too deeply"),
        ("protobuf", header(3) + b"\0\x0a\x05a", "do not fit their PROTOBUF schema"),
        ("protobuf", header(5) + b"\0\x0a\x09\x0a\x01\x01\x18\x80\x80\x80\x80\x08", "a scale that no number has"),
        ("json_sr", header(2) + b"{", "."),
        ("json_sr", header(2) + b"[0.5," + b"[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_record_are_value_errors(name: str, data: bytes, reason: str) -> None:
    """So the runner refuses the record, as it does all others that no converter takes."""
    with pytest.raises(ValueError, match=reason):
        sink_converter_of({"value.converter": name}, "value", KNOWN.get).from_bytes(data)


def test_a_tombstone_is_one_in_every_format() -> None:
    for name in ("avro", "protobuf", "json_sr"):
        assert sink_converter_of({"value.converter": name}, "value", {}.get).from_bytes(None) is None


def test_a_schema_is_looked_up_once() -> None:
    asked: list[int] = []

    def lookup(schema_id: int) -> RecordSchema | None:
        asked.append(schema_id)
        return KNOWN.get(schema_id)

    for name, schema_id, data in (("avro", 1, b"\2a"), ("json_sr", 2, b"{}"), ("protobuf", 3, b"\0\x0a\x01a")):
        asked.clear()
        converter = sink_converter_of({"value.converter": name}, "value", lookup)
        for _ in range(5):
            converter.from_bytes(header(schema_id) + data)
        assert asked == [schema_id]


# ------------------------------------------------------------------ through a sink


ORDERS = {
    10: RecordSchema(10, "AVRO", '"int"'),
    11: RecordSchema(11, "AVRO", '{"type":"record","name":"K","fields":[{"name":"id","type":"int"}]}'),
    12: RecordSchema(12, "AVRO", '{"type":"record","name":"V","fields":[{"name":"item","type":["null","string"]},'
                                 '{"name":"secret","type":"string"}]}'),
    13: RecordSchema(13, "PROTOBUF", 'syntax = "proto3"; message M { string item = 1; }'),
}  # fmt: skip


def avro(schema_id: int, value: Any) -> bytes:
    return avro_bytes(json.loads(ORDERS[schema_id].text), value, schema_id)


@pytest.fixture
def sinks(tmp_path: Path) -> Callable[..., ConnectorSandbox]:
    def sink(**more: str) -> ConnectorSandbox:
        config = {
            "topics": "orders", "connection.url": f"sqlite:///{tmp_path}/out.db", "auto.create": "true",
            "pk.mode": "record_key", "pk.fields": "id", "key.converter": "avro", "value.converter": "avro",
        }  # fmt: skip
        given = {name.replace("_", "."): value for name, value in more.items()}
        return ConnectorSandbox(SqlSink, {**config, **given}, schemas=ORDERS.get)

    return sink


@pytest.mark.parametrize("key", [10, 11])
def test_rows_are_upserted_and_deleted_by_a_key_in_avro(
    sinks: Callable[..., ConnectorSandbox], tmp_path: Path, key: int
) -> None:
    """A primitive, and a record."""

    def id_of(number: int) -> bytes:
        return avro(key, number if key == 10 else {"id": number})

    mask = {"transforms": "m", "transforms_m_type": "MaskField", "transforms_m_fields": "secret"}
    with sinks(**mask) as box:
        for number, item in ((1, "a"), (2, "b"), (1, None), (3, "c")):
            box.produce("orders", id_of(number), avro(12, {"item": item, "secret": "x"}))
        box.produce("orders", id_of(2), None)
        box.run()
    assert rows_in("sql", tmp_path, "orders") == ["(1, None, '')", "(3, 'c', '')"]


@pytest.mark.parametrize(
    ("value", "reason", "hint"),
    [
        (header(99) + b"\2a", "its converter: the value: the record names the schema 99, which the schema registry",
         "Register the schema under the id 99"),
        (header(13) + b"\0\x0a\x01a", "schema 13, which is PROTOBUF, not AVRO", "Set value.converter='protobuf'"),
        (b'{"item": "b"}', "does not begin with the id of a schema", "Set value.converter to the format of the topic"),
        (header(12) + b"\2\x20a", "do not fit their AVRO schema", "Set value.converter to the format of the topic"),
    ],
)  # fmt: skip
def test_a_record_that_is_no_avro_ends_the_task_or_becomes_a_dead_letter(
    sinks: Callable[..., ConnectorSandbox], tmp_path: Path, value: bytes, reason: str, hint: str
) -> None:
    def fill(box: ConnectorSandbox) -> None:
        for number, data in enumerate((avro(12, {"item": "a", "secret": "x"}), value, None)):
            box.produce("orders", avro(10, number), data)
        box.produce("orders", avro(10, 3), avro(12, {"item": "c", "secret": "x"}))

    with sinks() as box:
        fill(box)
        with pytest.raises(ConnectorFailed, match=reason) as caught:
            box.run()
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(hint) and "errors.tolerance=all" in caught.value.hint
    tolerant = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    with sinks(table_name_format="taken", **tolerant) as box:
        fill(box)
        box.run()
        (letter,) = read_topic(box.log, "dead")
    assert (letter.key, letter.value) == (avro(10, 1), value)
    headers = {item["key"]: item["value"].decode() for item in letter.headers or ()}
    assert reason in headers["__connect.errors.exception.message"]
    assert rows_in("sql", tmp_path, "taken") == ["(0, 'a', 'x')", "(3, 'c', 'x')"]


def test_a_sink_that_reads_avro_as_json_is_told_the_converter(sinks: Callable[..., ConnectorSandbox]) -> None:
    with sinks(key_converter="integer", value_converter="json") as box:
        box.produce("orders", 1, avro(12, {"item": "a", "secret": "x"}))
        with pytest.raises(ConnectorFailed) as caught:
            box.run()
    assert (caught.value.hint or "").startswith("Set value.converter='avro': the value names a schema of that format.")


def test_a_sink_writes_no_avro() -> None:
    with pytest.raises(ConnectorFailed, match="the avro converter cannot write"):
        sink_converter_of({"value.converter": "avro"}, "value", {}.get).to_bytes({"a": 1})
