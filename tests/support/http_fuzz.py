"""Requests that nobody would send, made from an OpenAPI document and a seed: some are right, most are nearly right."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

_NAMES: Final = (
    "s",
    "S",
    "S",
    "s",
    "t",
    "nope",
    "`s`",
    '"',
    "../../etc",
    "\x00",
    "é",
    "a" * 300,
    "",
    "_millstream-command",
)
_STATEMENTS: Final = (
    "SHOW STREAMS;", "SHOW QUERIES EXTENDED;", "DESCRIBE s EXTENDED;", "EXPLAIN SELECT * FROM s EMIT CHANGES;",
    "SELECT * FROM s;", "SELECT id, COUNT(*) AS n FROM s GROUP BY id EMIT CHANGES LIMIT 1;",
    "SELECT * FROM t WHERE id = 1;", "PRINT s FROM BEGINNING LIMIT 1;", "ASSERT TOPIC s;", "DESCRIBE FUNCTION lpad;",
    "SELECT v + 1, CAST(v AS STRING), ARRAY[v], STRUCT(a := v) FROM s EMIT CHANGES LIMIT 1;", "TERMINATE ALL;",
    "INSERT INTO s VALUES (1, 2);", "INSERT INTO s (v, id) VALUES (CAST(NULL AS INT), 3);",
    "CREATE STREAM IF NOT EXISTS z (id INT KEY) WITH (kafka_topic='z', value_format='JSON', partitions=1);",
    "CREATE OR REPLACE STREAM y AS SELECT * FROM s;", "DROP STREAM IF EXISTS y DELETE TOPIC;",
    "SET 'auto.offset.reset'='earliest'; DEFINE x = 'y'; SHOW VARIABLES;", "DROP STREAM IF EXISTS nope;",
    "CREATE TYPE IF NOT EXISTS p AS STRUCT<a INT, b ARRAY<STRING>>;", "SELECT '${x}' FROM s EMIT CHANGES LIMIT 0;",
)  # fmt: skip
_JUNK: Final = (
    None, True, 0, -1, 2**31, 2**70, 1e308, "", "x", "\u0000", "\u202e", "💥", "a" * 5000, [], [[]], {},
    {"a": {"b": [None]}}, "1e999999", "${x}", "'; DROP STREAM s; --", {"": ""}, ["a"] * 200,
)  # fmt: skip
_PIECES: Final = (
    "(", ")", ",", ";", "'", "`", "*", "SELECT", "FROM", "EMIT", "NULL", "--", "/*", "->", "${", "\x00", "é", "9" * 40,
    "1e400", "CASE", "((((((((((", " ", "\n",
)  # fmt: skip
_HEADERS: Final = (
    ("accept", ("*/*", "application/json", "application/vnd.ksql.v1+json", "application/vnd.ksqlapi.delimited.v1", "x",
                "application/vnd.apache.arrow.stream", "application/x-ndjson", ";;,,", "text/html;q=0.1")),
    ("content-encoding", ("gzip", "identity")),
    ("origin", ("http://evil", "null")),
    ("x-request-id", ("a", "\x01", "x" * 500)),
    ("authorization", ("Basic x", "Bearer y", "")),
    ("content-type", ("text/plain", "application/json; charset=utf-16", "application/vnd.apache.arrow.stream", "")),
)  # fmt: skip
_STATEMENTS_MAX: Final = 3  # in one request
_WEIGHTS: Final = {
    "/ksql": 8.0, "/query": 5.0, "/query-stream": 5.0, "/inserts-stream": 5.0, "/v1/sources/{name}/rows": 4.0,
    "/ksql/terminate": 0.1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FuzzedRequest:
    method: str
    target: str
    headers: dict[str, bytes]
    body: bytes


class HttpFuzz:
    """The same seed makes the same requests."""

    def __init__(self, document: Mapping[str, Any], seed: int) -> None:
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method, path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        ]
        self._weights = [_WEIGHTS.get(path, 1.0) for _, path, _ in self._operations]
        self._random = random.Random(seed)

    def request(self) -> FuzzedRequest:
        chance = self._random
        ((method, path, operation),) = chance.choices(self._operations, self._weights)
        for parameter in operation.get("parameters", ()):
            path = path.replace(f"{{{parameter['name']}}}", quote(chance.choice(_NAMES), safe=""))
        if path == "/ws/query":
            path += "?request=" + quote(json.dumps(self._value(self._schemas["Statements"])))
        headers: dict[str, bytes] = {}
        body = b""
        content: Mapping[str, Any] = operation.get("requestBody", {}).get("content", {})
        if content:
            media_type = chance.choice(list(content))
            headers["content-type"] = media_type.encode()
            body = self._damaged(self._body(content[media_type]["schema"]))
        for name, values in _HEADERS:
            if chance.random() < 0.03:
                headers[name] = chance.choice(values).encode("latin-1", "replace")
        if chance.random() < 0.03:
            method = chance.choice(("put", "delete", "head", "options", "patch", "get", "post"))
        return FuzzedRequest(method.upper(), path, {name: _header(value) for name, value in headers.items()}, body)

    def _body(self, schema: Mapping[str, Any]) -> bytes:
        name = schema["$ref"].rpartition("/")[2]
        if name == "InsertLines":
            lines = [
                {"target": self._random.choice(_NAMES)},
                *({"id": self._junk(), "v": self._junk()} for _ in range(3)),
            ]
            return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if name == "Binary":
            return self._arrow()
        return json.dumps(self._value(self._schemas[name])).encode()

    def _arrow(self) -> bytes:
        sink = io.BytesIO()
        compression = self._random.choice((None, None, "zstd"))
        table = pa.table({"id": [1, 2], "v": self._random.choice(([1, 2], ["a", None], [[1], []], [2.5, 1e300]))})
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return sink.getvalue()

    def _value(self, schema: Mapping[str, Any]) -> Any:
        chance = self._random
        if chance.random() < 0.02:
            return self._junk()
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rpartition("/")[2]])
        kinds = schema.get("type", "string")
        match kinds if isinstance(kinds, str) else chance.choice(kinds):
            case "object":
                members = {
                    name: self._statements() if name in ("ksql", "sql") else self._value(inner)
                    for name, inner in schema.get("properties", {}).items()
                    if name in schema.get("required", ()) or chance.random() < 0.2
                }
                if chance.random() < 0.1:
                    members["auto.offset.reset"] = chance.choice(("earliest", "latest", "x"))
                return members
            case "array":
                return [self._value(schema.get("items", {})) for _ in range(chance.randrange(3))]
            case "integer":
                return chance.choice((0, -1, 1, 1, 1, 8088))
            case "number":
                return chance.random()
            case "boolean":
                return chance.random() < 0.5
            case "null":
                return None
            case _:
                return chance.choice(_NAMES)

    def _statements(self) -> str:
        chance = self._random
        text = " ".join(chance.choice(_STATEMENTS) for _ in range(chance.randrange(1, _STATEMENTS_MAX + 1)))
        if chance.random() < 0.6:
            text = chance.choice(_STATEMENTS)
        while chance.random() < 0.4:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(_PIECES) + text[at + chance.randrange(4) :]
        return text

    def _junk(self) -> Any:
        return self._random.choice(_JUNK)

    def _damaged(self, body: bytes) -> bytes:
        chance = self._random
        if chance.random() < 0.04:
            return body[: chance.randrange(len(body) + 1)]
        if chance.random() < 0.04:
            return b"[" * chance.randrange(3000) + body
        while body and chance.random() < 0.08:
            at = chance.randrange(len(body))
            body = body[:at] + bytes([chance.randrange(256)]) + body[at + chance.randrange(3) :]
        return body


def _header(value: bytes) -> bytes:
    return bytes(byte for byte in value if byte >= 32)
