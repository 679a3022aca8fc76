"""The table of paths of the REST proxy, like that of all other paths in `server/http/routes.py`."""

from __future__ import annotations

from typing import Any, Final

from ...sql.settings.property_table import OFFSET_RESET
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

_GROUP: Final = "/consumers/{group}"
_INSTANCE: Final = f"{_GROUP}/instances/{{instance}}"


def _done(path: str, method: Any, summary: str, body: str | None = None) -> PathDoc:
    types: dict[str, Any] = {} if body is None else {"body_types": (_V2, *_EMBEDDED)}
    return _v2(path, method, summary, body=body, answer_types=(), statuses=(204,), **types)


CONSUMER_PATHS: Final = (
    _v2(_GROUP, "post", "Creates a consumer instance in the group.", "ProxyInstance", body="ProxyNewInstance",
        body_types=(_V2, *_EMBEDDED)),
    _done(_INSTANCE, "delete", "Ends an instance: it leaves its group."),
    _done(f"{_INSTANCE}/subscription", "post", "Subscribes to topics, or to those that fit a pattern.",
          "ProxySubscription"),
    _v2(f"{_INSTANCE}/subscription", "get", "The topics it is subscribed to.", "ProxyTopics"),
    _done(f"{_INSTANCE}/subscription", "delete", "Ends its subscription, and forgets what was assigned."),
    _done(f"{_INSTANCE}/assignments", "post", "Assigns partitions to it by hand.", "ProxyPartitions"),
    _v2(f"{_INSTANCE}/assignments", "get", "The partitions that it reads.", "ProxyPartitions"),
    _v2(f"{_INSTANCE}/records", "get", "Reads records: `timeout` (ms), `max_bytes`.", "Objects",
        answer_types=_EMBEDDED),
    _v2(f"{_INSTANCE}/offsets", "post", "Commits what was read, or the offsets of the last records that were handled.",
        "Objects", body="ProxyPlaces", body_types=(_V2, *_EMBEDDED)),
    _v2(f"{_INSTANCE}/offsets", "get", "The committed offsets of the partitions in the body."),
    _done(f"{_INSTANCE}/positions", "post", "Reads on at these offsets, or at these times.", "ProxyPlaces"),
    _done(f"{_INSTANCE}/positions/beginning", "post", "Reads these partitions from their beginning.",
          "ProxyPartitions"),
    _done(f"{_INSTANCE}/positions/end", "post", "Reads only what comes from now on.", "ProxyPartitions"),
)  # fmt: skip

_CLUSTER: Final = "/v3/clusters/{cluster_id}"
_V3_BROKER: Final = f"{_CLUSTER}/brokers/{{broker_id}}"
_V3_TOPIC: Final = f"{_CLUSTER}/topics/{{topic_name}}"
_V3_CONFIG: Final = f"{_V3_TOPIC}/configs/{{name}}"
_V3_PARTITION: Final = f"{_V3_TOPIC}/partitions/{{partition_id}}"
_V3_GROUP: Final = f"{_CLUSTER}/consumer-groups/{{consumer_group_id}}"
_V3_CONSUMER: Final = f"{_V3_GROUP}/consumers/{{consumer_id}}"
_PLACED: Final = "{topic_name}/partitions/{partition_id}"


def _v3(path: str, method: Any, summary: str, answer: str = "ProxyResource", **more: Any) -> PathDoc:
    settings: dict[str, Any] = {"needs": "statement", **more}
    return PathDoc(path, method, summary, answer, tag="REST proxy v3", error="ProxyError", **settings)


def _list(path: str, summary: str, **more: Any) -> PathDoc:
    return _v3(path, "get", summary, "ProxyResources", **more)


def _change(path: str, method: Any, summary: str, body: str | None = None, **more: Any) -> PathDoc:
    return _v3(path, method, summary, body=body, answer_types=(), statuses=(204,), **more)


V3_PATHS: Final = (
    _list("/v3/clusters", "The one cluster.", needs="user"),
    _v3(_CLUSTER, "get", "The cluster.", needs="user"),
    _list(f"{_CLUSTER}/brokers", "The brokers.", needs="user"),
    _v3(_V3_BROKER, "get", "A broker.", needs="user"),
    _list(f"{_V3_BROKER}/configs", "The settings of a broker.", needs="user"),
    _v3(f"{_V3_BROKER}/configs/{{name}}", "get", "A setting of a broker.", needs="user"),
    _change(f"{_V3_BROKER}/configs/{{name}}", "put", "Refused: settings are in the configuration file.", "ProxyValue",
            needs="user"),
    _change(f"{_V3_BROKER}/configs/{{name}}", "delete", "Refused, as PUT is.", needs="user"),
    _change(f"{_V3_BROKER}/configs:alter", "post", "Refused, as PUT is.", "ProxyChanges", needs="user"),
    _list(f"{_CLUSTER}/brokers/-/configs", "The settings of all brokers.", needs="user"),
    _list(f"{_CLUSTER}/broker-configs", "Settings for all brokers that were set while they run: none.", needs="user"),
    _v3(f"{_CLUSTER}/broker-configs/{{name}}", "get", "One of them.", needs="user"),
    _change(f"{_CLUSTER}/broker-configs/{{name}}", "put", "Refused: settings are in the configuration file.",
            "ProxyValue", needs="user"),
    _change(f"{_CLUSTER}/broker-configs/{{name}}", "delete", "Refused, as PUT is.", needs="user"),
    _change(f"{_CLUSTER}/broker-configs:alter", "post", "Refused, as PUT is.", "ProxyChanges", needs="user"),
    _list(f"{_CLUSTER}/acls", "The ACLs that a filter finds.", needs="user"),
    _v3(f"{_CLUSTER}/acls", "post", "Creates an ACL.", body="ProxyAcl", answer_types=(), statuses=(201,),
        needs="user"),
    _v3(f"{_CLUSTER}/acls", "delete", "Deletes the ACLs that a filter finds.", "ProxyAcls", needs="user"),
    _v3(f"{_CLUSTER}/acls:batch", "post", "Creates ACLs.", body="ProxyAclBatch", answer_types=(), statuses=(201,),
        needs="user"),
    _list(f"{_V3_BROKER}/partition-replicas", "The replicas that a broker has.", needs="user"),
    _list(f"{_CLUSTER}/topics", "The topics that the user may see.", needs="user"),
    _v3(f"{_CLUSTER}/topics", "post", "Creates a topic.", needs="user", body="ProxyNewTopic", statuses=(200, 201)),
    _list(f"{_CLUSTER}/topics/-/configs", "The settings of all topics that the user may see.", needs="user"),
    _v3(_V3_TOPIC, "get", "A topic."),
    _v3(_V3_TOPIC, "patch", "Adds partitions.", body="ProxyPartitionCount"),
    _change(_V3_TOPIC, "delete", "Deletes a topic."),
    _list(f"{_V3_TOPIC}/configs", "The settings of a topic."),
    _change(f"{_V3_TOPIC}/configs:alter", "post", "Changes settings of a topic together.", "ProxyChanges"),
    _v3(_V3_CONFIG, "get", "A setting of a topic."),
    _change(_V3_CONFIG, "put", "Changes a setting of a topic.", "ProxyValue"),
    _change(_V3_CONFIG, "delete", "Sets a setting of a topic back to its default."),
    _list(f"{_V3_TOPIC}/partitions", "The partitions of a topic."),
    _v3(_V3_PARTITION, "get", "A partition."),
    _v3(f"{_V3_PARTITION}/offset", "get", "The first and the next offset of a partition."),
    _list(f"{_V3_PARTITION}/replicas", "The replicas of a partition."),
    _v3(f"{_V3_PARTITION}/replicas/{{broker_id}}", "get", "A replica."),
    _v3(f"{_V3_TOPIC}/records", "post", "Writes records, one JSON object after the other, and reports each.",
        "ProxyReports", body="ProxyRecord"),
    _v3(f"{_V3_TOPIC}/records:batch", "post", "Writes records together.", "ProxyBatchReport", body="ProxyBatch",
        statuses=(207,)),
    _list(f"{_CLUSTER}/consumer-groups", "The consumer groups that the user may use.", needs="user"),
    _v3(_V3_GROUP, "get", "A consumer group."),
    _list(f"{_V3_GROUP}/consumers", "The members of a group."),
    _v3(_V3_CONSUMER, "get", "A member of a group."),
    _list(f"{_V3_CONSUMER}/assignments", "The partitions that a member reads."),
    _v3(f"{_V3_CONSUMER}/assignments/{_PLACED}", "get", "One of them."),
    _v3(f"{_V3_GROUP}/lag-summary", "get", "The largest lag of a group, and the sum."),
    _list(f"{_V3_GROUP}/lags", "The lag of a group in each partition that it has committed."),
    _v3(f"{_V3_GROUP}/lags/{_PLACED}", "get", "The lag in one partition."),
)  # fmt: skip

PROXY_PATHS: Final = (*V2_PATHS, *CONSUMER_PATHS, *V3_PATHS)

_INTEGER: Final = {"type": "integer"}
_MAYBE: Final = {"type": ["integer", "null"]}
_TEXT: Final = {"type": "string"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


_PLACE: Final = _object(["topic", "partition"], topic=_TEXT, partition=_INTEGER)

_NAMED: Final = {"type": "array", "items": _object(["name"], name=_TEXT, value={"type": ["string", "null"]})}

_ACL: Final = _object(
    ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"],
    resource_type={"enum": ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]},
    resource_name=_TEXT, pattern_type={"enum": ["LITERAL", "PREFIXED"]}, principal=_TEXT, host=_TEXT, operation=_TEXT,
    permission={"enum": ["ALLOW", "DENY"]},
)  # fmt: skip

_DATA: Final = {
    "type": ["object", "null"],
    "properties": {
        "type": {"enum": ["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]}, "data": {},
        "subject": _TEXT, "subject_name_strategy": {"enum": ["TOPIC_NAME"]}, "schema_id": _MAYBE,
        "schema_version": _MAYBE, "schema": _TEXT,
    },
}  # fmt: skip
_RECORD: Final = {
    "partition_id": _MAYBE, "timestamp": {"type": ["string", "null"], "format": "date-time"}, "key": _DATA,
    "value": _DATA, "headers": {"type": "array", "items": _object(["name"], name=_TEXT, value=_TEXT)},
}  # fmt: skip
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}

PROXY_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "ProxyRecord": _object([], **_RECORD),
    "ProxyReports": {"description": "For each record an object with its place, or with `error_code` and `message`."},
    "ProxyBatch": _object(
        ["entries"], entries={"type": "array", "items": _object(["id"], id=_TEXT, **_RECORD), "minItems": 1},
    ),
    "ProxyBatchReport": _object(["successes", "failures"], successes=_OBJECTS, failures=_OBJECTS),
    "ProxyResource": _object(
        ["kind", "metadata"], kind=_TEXT, metadata=_object(["self"], self=_TEXT, resource_name=_TEXT), cluster_id=_TEXT,
    ),
    "ProxyResources": _object(
        ["kind", "metadata", "data"],
        kind=_TEXT, metadata=_object(["self"], self=_TEXT, next={"type": ["string", "null"]}),
        data={"type": "array", "items": {"$ref": "#/components/schemas/ProxyResource"}},
    ),
    "ProxyNewTopic": _object(
        ["topic_name"],
        topic_name={"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,20}$"},
        partitions_count={"type": "integer", "minimum": 1, "maximum": 10},
        replication_factor={"type": "integer", "minimum": 1, "maximum": 3},
        replicas_assignments={"type": "object", "additionalProperties": {"type": "array", "items": _INTEGER}},
        configs=_NAMED, validate_only={"type": "boolean"},
    ),
    "ProxyAcl": _ACL,
    "ProxyAcls": _object(["data"], data={"type": "array", "items": {"type": "object"}}),
    "ProxyAclBatch": _object(["data"], data={"type": "array", "items": _ACL}),
    "ProxyPartitionCount": _object(["partitions_count"], partitions_count={"type": "integer", "maximum": 10}),
    "ProxyValue": _object([], value={"type": ["string", "null"]}),
    "ProxyChanges": _object(["data"], data=_NAMED, validate_only={"type": "boolean"}),
    "ProxyInstance": _object(["instance_id", "base_uri"], instance_id=_TEXT, base_uri=_TEXT),
    "ProxyNewInstance": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "name": _TEXT, "format": {"enum": list(_FORMATS)},
            OFFSET_RESET.name: {"enum": ["earliest", "latest", "none"]},
            "auto.commit.enable": {"enum": ["true", "false", True, False]},
            "fetch.min.bytes": {"type": "integer", "minimum": -1, "maximum": 10_000_000},
            "consumer.request.timeout.ms": {"type": "integer", "minimum": 0, "maximum": 1000},
            "isolation.level": {"enum": ["read_committed", "read_uncommitted"]},
        },
    },
    "ProxySubscription": _object([], topics={"type": "array", "items": _TEXT, "minItems": 1}, topic_pattern=_TEXT),
    "ProxyTopics": _object(["topics"], topics={"type": "array", "items": _TEXT}),
    "ProxyPartitions": _object(["partitions"], partitions={"type": "array", "items": _PLACE}),
    "ProxyPlaces": _object(
        [],
        offsets={"type": "array", "items": _object(
            ["topic", "partition", "offset"], topic=_TEXT, partition=_INTEGER, offset=_INTEGER, metadata=_TEXT,
        )},
        timestamps={"type": "array", "items": _object(["topic", "partition", "timestamp"], topic=_TEXT)},
    ),
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
