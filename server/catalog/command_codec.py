"""Commands as JSON, as the command topic stores them, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from millstream.errors import ServerError

from ...planner.catalog import PersistentQuery
from ...planner.connector_info import ConnectorInfo, SecretInfo
from ...planner.mirror_info import MirrorInfo
from ...planner.planning import NewTopic
from ...planner.serde import (
    function_from_json,
    function_to_json,
    plan_from_json,
    plan_to_json,
    source_from_json,
    source_to_json,
)
from ...sql.parser import parse_type
from ...sql.settings.property_table import EXECUTOR
from .commands import (
    Command,
    PauseConnector,
    PauseQuery,
    PutConnector,
    PutFunction,
    PutMirror,
    PutSecret,
    PutSource,
    PutType,
    RemoveConnector,
    RemoveFunction,
    RemoveMirror,
    RemoveSecret,
    RemoveSource,
    RemoveType,
    ResetQuery,
    StartQuery,
    TerminateQuery,
)

COMMAND_VERSION = 1
_EXECUTOR_CLAUSE = re.compile(r"\bEXECUTOR\b[`'\"]?\s*=", re.IGNORECASE)  # in WITH

_KINDS: dict[type, str] = {
    PutSource: "put_source",
    StartQuery: "start_query",
    RemoveSource: "drop_source",
    TerminateQuery: "terminate_query",
    PauseQuery: "pause_query",
    ResetQuery: "reset_query",
    PutType: "put_type",
    RemoveType: "drop_type",
    PutFunction: "put_function",
    RemoveFunction: "drop_function",
    PutConnector: "put_connector",
    RemoveConnector: "drop_connector",
    PauseConnector: "pause_connector",
    PutSecret: "put_secret",
    RemoveSecret: "drop_secret",
    PutMirror: "put_mirror",
    RemoveMirror: "drop_mirror",
}


class UnreadableCommand(ServerError):
    """A record of the command topic that this version cannot read."""

    code = "UNREADABLE_COMMAND"


def command_to_json(command: Command) -> bytes:
    """One JSON object: `version`, `kind`, `statement`, `properties`, and the fields of the kind."""
    record = {
        "version": COMMAND_VERSION,
        "kind": _KINDS[type(command)],
        "statement": command.statement,
        "properties": command.properties,
        **_fields(command),
    }
    return orjson.dumps(record)


def command_from_json(data: bytes) -> Command:
    """Raises `UnreadableCommand`."""
    try:
        record = orjson.loads(data)
        version = record["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableCommand(f"a record of the command topic is not a command: {error}") from error
    if version > COMMAND_VERSION:
        raise UnreadableCommand(
            f"a command has version {version}, but this server supports versions up to {COMMAND_VERSION}",
            hint="Start the server with the version of Millstream that wrote it, or a later one.",
        )
    common = {"statement": record["statement"], "properties": record["properties"]}
    return _command(record, common)


def _fields(command: Command) -> dict[str, Any]:
    match command:
        case PutSource():
            fields = {"source": source_to_json(command.source), "topic": _topic_json(command.topic)}
            return fields if command.replaces is None else {**fields, "replaces": command.replaces}
        case StartQuery():
            sink = None if command.sink is None else source_to_json(command.sink)
            fields = {"query": _query_json(command.query), "sink": sink, "topic": _topic_json(command.topic)}
            return {**fields, "own_executor": EXECUTOR.name in command.query.plan.properties}
        case RemoveSource():
            return {"name": command.name, "terminate": command.terminate, "delete_topic": command.delete_topic}
        case TerminateQuery() | ResetQuery():
            return {"query_id": command.query_id}
        case PauseQuery():
            return {"query_id": command.query_id, "paused": command.paused}
        case PutType():
            return {"name": command.name, "type": str(command.type)}
        case PutFunction():
            return {"function": function_to_json(command.function)}
        case PutConnector():
            return {"connector": _connector_json(command.connector)}
        case PauseConnector():
            fields = {"name": command.name, "paused": command.paused}
            return {**fields, "stopped": True} if command.stopped else fields
        case PutSecret():
            return {"secret": {"name": command.secret.name, "sealed": command.secret.sealed}}
        case PutMirror():
            return {"mirror": _mirror_json(command.mirror)}
        case RemoveConnector():
            known = command.connector
            return {"name": command.name, "connector": None if known is None else _connector_json(known)}
        case RemoveType() | RemoveFunction() | RemoveSecret() | RemoveMirror():
            return {"name": command.name}


def _command(record: dict[str, Any], common: dict[str, Any]) -> Command:
    match record["kind"]:
        case "put_source":
            source, topic = source_from_json(record["source"]), _topic(record["topic"])
            return PutSource(**common, source=source, topic=topic, replaces=record.get("replaces"))
        case "start_query":
            sink = None if record["sink"] is None else source_from_json(record["sink"])
            query = _query(record["query"])
            if "own_executor" not in record and not _names_executor(common["statement"], common["properties"]):
                query = _on_any_executor(query)
            return StartQuery(**common, query=query, sink=sink, topic=_topic(record["topic"]))
        case "drop_source":
            return RemoveSource(
                **common,
                name=record["name"],
                terminate=record["terminate"],
                delete_topic=record["delete_topic"],
            )
        case "terminate_query":
            return TerminateQuery(**common, query_id=record["query_id"])
        case "pause_query":
            return PauseQuery(**common, query_id=record["query_id"], paused=record["paused"])
        case "reset_query":
            return ResetQuery(**common, query_id=record["query_id"])
        case "put_type":
            return PutType(**common, name=record["name"], type=parse_type(record["type"]))
        case "drop_type":
            return RemoveType(**common, name=record["name"])
        case "put_function":
            return PutFunction(**common, function=function_from_json(record["function"]))
        case "drop_function":
            return RemoveFunction(**common, name=record["name"])
        case "put_connector":
            return PutConnector(**common, connector=ConnectorInfo(**record["connector"]))
        case "drop_connector":
            known = record.get("connector")
            connector = None if known is None else ConnectorInfo(**known)
            return RemoveConnector(**common, name=record["name"], connector=connector)
        case "pause_connector":
            stopped = record.get("stopped", False)
            return PauseConnector(**common, name=record["name"], paused=record["paused"], stopped=stopped)
        case "put_secret":
            return PutSecret(**common, secret=SecretInfo(**record["secret"]))
        case "drop_secret":
            return RemoveSecret(**common, name=record["name"])
        case "put_mirror":
            mirror = MirrorInfo(**record["mirror"])
            return PutMirror(**common, mirror=replace(mirror, topics=tuple(mirror.topics)))
        case "drop_mirror":
            return RemoveMirror(**common, name=record["name"])
        case kind:
            raise UnreadableCommand(f'a command has the unknown kind "{kind}"')


def _names_executor(statement: str, session: Mapping[str, str]) -> bool:
    """Whether the user who sent the statement named an executor."""
    return EXECUTOR.name in session or _EXECUTOR_CLAUSE.search(statement) is not None


def _on_any_executor(query: PersistentQuery) -> PersistentQuery:
    """Removes the executor from the plan. Earlier versions stored the server's current choice as if the user had named
    it."""
    properties = {name: value for name, value in query.plan.properties.items() if name != EXECUTOR.name}
    return replace(query, plan=replace(query.plan, properties=properties))


def _query_json(query: PersistentQuery) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": query.id,
        "statement": query.statement,
        "plan": plan_to_json(query.plan),
        "sink": query.sink,
        "sources": list(query.sources),
        "kind": query.kind,
        "paused": query.paused,
    }
    return fields if query.backfill is None else {**fields, "backfill": query.backfill}


def _query(record: dict[str, Any]) -> PersistentQuery:
    return PersistentQuery(
        id=record["id"],
        statement=record["statement"],
        plan=plan_from_json(record["plan"]),
        sink=record["sink"],
        sources=tuple(record["sources"]),
        kind=record["kind"],
        paused=record["paused"],
        backfill=_backfill(record.get("backfill")),
    )


def _backfill(ends: Mapping[str, list[int]] | None) -> dict[str, tuple[int, ...]] | None:
    return None if ends is None else {topic: tuple(offsets) for topic, offsets in ends.items()}


def _connector_json(connector: ConnectorInfo) -> dict[str, Any]:
    fields = {
        "name": connector.name,
        "kind": connector.kind,
        "config": dict(connector.config),
        "statement": connector.statement,
        "paused": connector.paused,
    }
    return {**fields, "stopped": True} if connector.stopped else fields


def _mirror_json(mirror: MirrorInfo) -> dict[str, Any]:
    return {
        "name": mirror.name,
        "brokers": mirror.brokers,
        "topics": list(mirror.topics),
        "config": dict(mirror.config),
        "statement": mirror.statement,
        "state": mirror.state,
    }


def _topic_json(topic: NewTopic | None) -> dict[str, Any] | None:
    if topic is None:
        return None
    fields: dict[str, Any] = {"name": topic.name, "partition_count": topic.partition_count}
    if topic.config:
        fields["config"] = dict(topic.config)
    if topic.replicas:
        fields["replicas"] = topic.replicas
    return fields


def _topic(record: dict[str, Any] | None) -> NewTopic | None:
    if record is None:
        return None
    return NewTopic(record["name"], record["partition_count"], record.get("config", {}), record.get("replicas", 0))
