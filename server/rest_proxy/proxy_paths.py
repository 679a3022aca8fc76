"""The paths of the REST proxy, as `server/http/routes.py` has those of everything else."""

from __future__ import annotations

from typing import Any, Final

from ..http.path_doc import PathDoc

_V2: Final = "application/vnd.kafka.v2+json"
_FORMATS: Final = ("binary", "json", "avro", "jsonschema", "protobuf")
_EMBEDDED: Final = tuple(f"application/vnd.kafka.{format}.v2+json" for format in _FORMATS)
_ERRORS: Final = (_V2, "application/json")


def _v2(path: str, method: Any, summary: str, answer: str = "Object", **more: Any) -> PathDoc:
    settings: dict[str, Any] = {"answer_types": (_V2,), "needs": "statement", **more}
    return PathDoc(
        path, method, summary, answer, tag="REST proxy v2", error="ProxyError", error_types=_ERRORS, **settings
    )


_PARTITION: Final = "/topics/{topic}/partitions/{partition}"

V2_PATHS: Final = (
    _v2("/brokers", "get", "Numbers of the brokers.", "ProxyBrokers", needs="user"),
    _v2("/topics", "get", "Names of the topics that the user may see.", "ProxyTexts", needs="user"),
    _v2("/topics/{topic}", "get", "Settings and partitions of a topic."),
    _v2("/topics/{topic}", "post", "Writes records: keys and values in the format of the content type.",
        "ProxyProduced", body="ProxyRecords", body_types=_EMBEDDED),
    _v2("/topics/{topic}/partitions", "get", "The partitions of a topic.", "Objects"),
    _v2(_PARTITION, "get", "A partition: its leader and replicas."),
    _v2(_PARTITION, "post", "Writes records to one partition.", "ProxyProduced", body="ProxyRecords",
        body_types=_EMBEDDED),
    _v2(f"{_PARTITION}/offsets", "get", "The first and the next offset.", "ProxyOffsets"),
)  # fmt: skip

PROXY_PATHS: Final = (*V2_PATHS,)

_INTEGER: Final = {"type": "integer"}
_MAYBE: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


PROXY_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "ProxyError": _object(["error_code", "message"], error_code=_INTEGER, message=_TEXT),
    "ProxyTexts": {"type": "array", "items": _TEXT},
    "ProxyBrokers": _object(["brokers"], brokers={"type": "array", "items": _INTEGER}),
    "ProxyOffsets": _object(["beginning_offset", "end_offset"], beginning_offset=_INTEGER, end_offset=_INTEGER),
    "ProxyRecords": _object(
        ["records"],
        key_schema={"type": ["string", "null"]}, key_schema_id=_MAYBE,
        value_schema={"type": ["string", "null"]}, value_schema_id=_MAYBE,
        records={"type": "array", "items": _object([], key={}, value={}, partition=_MAYBE)},
    ),
    "ProxyProduced": _object(
        ["offsets", "key_schema_id", "value_schema_id"],
        key_schema_id=_MAYBE, value_schema_id=_MAYBE,
        offsets={"type": "array", "items": _object(
            ["partition", "offset", "error_code", "error"],
            partition=_MAYBE, offset=_MAYBE, error_code=_MAYBE, error={"type": ["string", "null"]},
        )},
    ),
}  # fmt: skip
