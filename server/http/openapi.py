"""The OpenAPI document of the HTTP API, generated from the table of paths. The SQL manual describes statements and
their answers; this document describes only their envelopes."""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from ..rest_proxy.proxy_paths import PROXY_SCHEMAS
from .path_doc import PathDoc
from .routes import PATHS

_SCALARS: Final = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_TEXT: Final = {"type": "string"}
_STATEMENTS: Final = {"type": "string", "format": "ksql", "examples": ["SHOW STREAMS;"]}
_NAME: Final = {"type": "string", "format": "ksql-name"}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "name": _NAME,
    "topic": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,20}$"},
    "partition": {"type": "integer", "minimum": 0, "maximum": 100},
    "group": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,20}$"},
    "instance": {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,20}$"},
}
_MEANING: Final = {
    101: "It is a web socket now.",
    200: "Success.",
    201: "Created.",
    202: "Accepted.",
    204: "Done.",
    207: "Some may have failed.",
    303: "Look there.",
    308: "Look there.",
    503: "Not now.",
}
_SESSION: Final[dict[str, Any]] = {
    "streamsProperties": _SCALARS,
    "properties": _SCALARS,
    "sessionVariables": _SCALARS,
    "commandSequenceNumber": {
        "type": ["integer", "null"],
        "description": "Wait until the command with this number, which an earlier answer named, is applied.",
    },
}
_OFFSET: Final = {"type": ["integer", "null"], "minimum": 0}
_HOST: Final = {
    "type": "object",
    "required": ["host", "port"],
    "properties": {
        "host": {"type": "string", "maxLength": 255},
        "port": {"type": "integer", "minimum": 0, "maximum": 65535},
    },
}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Object": {"type": "object"},
    "Objects": {"type": "array", "items": {"type": "object"}},
    "Strings": {"type": "array", "items": {"type": "string"}},
    "Text": _TEXT,
    "Binary": {"type": "string", "format": "binary"},
    "Boolean": {"type": "boolean"},
    "Ok": _object(["isOk"], isOk={"type": "boolean"}),
    "Error": _object(
        ["@type", "error_code", "message"],
        **{"@type": _TEXT, "error_code": {"type": "integer"}, "message": _TEXT, "statementText": _TEXT,
           "entities": {"type": "array", "items": {"type": "object"}}},
    ),
    "Statements": _object(["ksql"], ksql=_STATEMENTS, **_SESSION),
    "Statement": _object(["sql"], sql=_STATEMENTS, **_SESSION),
    "Entity": _object(["@type", "statementText"], **{"@type": _TEXT, "statementText": _TEXT}),
    "Entities": {"type": "array", "items": {"$ref": "#/components/schemas/Entity"}},
    "Graph": {"description": "Text in the format that was asked for; of json an object with `nodes` and `edges`."},
    "Rows": {"description": "A header and rows, in the shape of the media type."},
    "QueryId": _object(["queryId"], queryId=_TEXT),
    "ReadingRequest": _object(["sql"], sql=_STATEMENTS, changes={"type": "boolean"}, **_SESSION),
    "Reading": _object(
        ["reading", "topicId", "kafka", "user"],
        reading={"type": "object"}, topicId={"type": ["string", "null"]}, kafka={"type": ["string", "null"]},
        user={"type": ["string", "null"]},
    ),
    "QueryPositions": _object(
        ["queryId", "state", "error", "positions"],
        queryId=_TEXT, state={"enum": ["RUNNING", "PAUSED", "ERROR", "STOPPED"]}, error={"type": ["string", "null"]},
        positions={"type": "array", "items": _object(
            ["topic", "partition", "currentOffsetPosition", "endOffsetPosition", "offsetLag"],
            topic=_TEXT, partition={"type": "integer"}, currentOffsetPosition=_OFFSET, endOffsetPosition=_OFFSET,
            offsetLag=_OFFSET,
        )},
    ),
    "InsertLines": {"type": "string", "description": 'Lines of JSON: {"target": "NAME"}, then an object per row.'},
    "Acknowledgements": {
        "description": 'Per row {"status": "ok", "seq": n}, or {"status": "error", "seq": n, "error_code", "message"}.'
    },
    "RowCount": _object(["rows"], rows={"type": "integer"}),
    "ServerInfo": _object(
        ["KsqlServerInfo"],
        KsqlServerInfo=_object(
            ["version", "millstreamVersion", "kafkaClusterId", "ksqlServiceId", "serverStatus"],
            version=_TEXT, millstreamVersion=_TEXT, kafkaClusterId=_TEXT, ksqlServiceId=_TEXT, serverStatus=_TEXT,
        ),
    ),
    "Health": _object(
        ["isHealthy", "details", "serverState"],
        isHealthy={"type": "boolean"}, details={"type": "object"}, serverState=_TEXT,
    ),
    "CommandStatuses": _object(["commandStatuses"], commandStatuses={"type": "object"}),
    "CommandStatus": _object(["status", "message"], status=_TEXT, message=_TEXT),
    "Heartbeat": _object(["hostInfo", "timestamp"], hostInfo=_HOST, timestamp={"type": "integer"}),
    "Lag": _object(["ksqlHost", "hostStoreLags"], ksqlHost=_HOST, hostStoreLags={"type": "object"}),
    "Settings": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    "Connectors": {"description": "Names, or, with `expand`, an object by name."},
    "Connector": _object(
        ["name", "config", "tasks", "type"],
        name=_TEXT, config={"type": "object"}, tasks={"type": "array", "items": {"type": "object"}}, type=_TEXT,
    ),
    "NewConnector": _object(
        ["name", "config"],
        name={"type": "string", "minLength": 1, "maxLength": 255},
        config={"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    ),
    "Terminate": _object([], deleteTopicList={"type": ["array", "null"], "items": _TEXT}),
    **PROXY_SCHEMAS,
}  # fmt: skip


@functools.cache
def openapi_document(version: str) -> dict[str, Any]:
    """OpenAPI 3.1. Callers must not change it."""
    paths: dict[str, dict[str, Any]] = {}
    for doc in PATHS:
        paths.setdefault(doc.path, {})[doc.method] = _operation(doc)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream",
            "version": version,
            "description": "SQL over streams. Paths that ksqlDB has are as ksqlDB's; the others are Millstream's own.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(doc: PathDoc) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{doc.method}{doc.path}").strip("_"),
        "summary": doc.summary,
        "tags": [doc.tag],
        "parameters": _parameters(doc),
        "responses": {
            **{
                str(status): {"description": _MEANING[status], "content": _content(doc.answer_types, doc.answer)}
                for status in doc.statuses
            },
            "default": {"description": "Refused.", "content": _content(doc.error_types, doc.error)},
        },
        "security": [] if doc.needs == "nothing" else [{"basic": []}, {"bearer": []}],
    }
    if doc.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(doc.body_types, doc.body)}
    return operation


def _parameters(doc: PathDoc) -> list[dict[str, Any]]:
    named = re.findall(r"{(\w+)}", doc.path)
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS.get(name, _TEXT)} for name in named
    ]
    if doc.path == "/ws/query":
        found.append({"name": "request", "in": "query", "required": True, "schema": _TEXT})
    if doc.path == "/graph":
        formats = {"type": "string", "enum": ["text", "dot", "svg", "json", "layout"]}
        found += [{"name": "format", "in": "query", "schema": formats}, {"name": "of", "in": "query", "schema": _TEXT}]
    return found


def _content(types: tuple[str, ...], schema: str) -> dict[str, Any]:
    return {type_: {"schema": {"$ref": f"#/components/schemas/{schema}"}} for type_ in types}
