"""Commands survive the command topic."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from millstream.planner.catalog import PersistentQuery
from millstream.planner.connector_info import ConnectorInfo, SecretInfo
from millstream.planner.mirror_info import MirrorInfo
from millstream.planner.physical import PhysicalPlan
from millstream.planner.planning import NewTopic
from millstream.planner.schema import Column, Schema
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import FormatSpec
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.source import Source
from millstream.server.catalog.command_codec import UnreadableCommand, command_from_json, command_to_json
from millstream.server.catalog.commands import (
    Command,
    PauseConnector,
    PauseQuery,
    PutConnector,
    PutMirror,
    PutSecret,
    PutSource,
    PutType,
    RemoveConnector,
    RemoveMirror,
    RemoveSecret,
    RemoveSource,
    RemoveType,
    StartQuery,
    TerminateQuery,
)
from millstream.sql.types import INTEGER, STRING, Array, Decimal, Field, Map, Struct

SCHEMA = Schema((Column("ID", INTEGER, "KEY"), Column("weird `name`", Array(Decimal(4, 2)))))
JSON = FormatSpec("JSON")
SOURCE = SourceInfo("S", "STREAM", "s", SCHEMA, FormatSpec("KAFKA"), JSON, statement="CREATE STREAM S …")
READ = Source("0", "s", "STREAM", SCHEMA, FormatSpec("KAFKA"), JSON)
SINK = Sink("1", READ, "T", "STREAM", "T", SCHEMA, FormatSpec("KAFKA"), JSON, 3)
PLAN = PhysicalPlan("CSAS_T_1", SINK, {"auto.offset.reset": "earliest"})
QUERY = PersistentQuery("CSAS_T_1", "CREATE STREAM T …", PLAN, "T", ("S",), "CREATE_AS")

COMMANDS: list[Command] = [
    PutSource(source=SOURCE, topic=NewTopic("s", 3), statement="CREATE …", properties={"a": "b"}),
    PutSource(source=SOURCE),
    StartQuery(query=QUERY, sink=SOURCE, topic=NewTopic("T", 3, {"retention.ms": "1"}, replicas=2)),
    StartQuery(query=QUERY),
    RemoveSource(name="S", terminate="CSAS_T_1", delete_topic="s"),
    TerminateQuery(query_id="CSAS_T_1"),
    PauseQuery(query_id="CSAS_T_1", paused=True),
    PutType(name="A", type=Struct((Field("x y", Map(STRING, INTEGER)), Field("D", Decimal(3, 1))))),
    RemoveType(name="A"),
    PutMirror(mirror=MirrorInfo("M", "h:9092", ("a*", "b"), {"mode": "exact"}, "CREATE …", "PROMOTED")),
    RemoveMirror(name="M"),
    PutConnector(connector=ConnectorInfo("PG", "SOURCE", {"connector.class": "file"}, "CREATE …", paused=True)),
    PutConnector(connector=ConnectorInfo("PG", "SINK", {"connector.class": "http"}, stopped=True)),
    PauseConnector(name="PG", paused=False),
    PauseConnector(name="PG", paused=True, stopped=True),
    RemoveConnector(name="PG"),
    RemoveConnector(name="PG", connector=ConnectorInfo("PG", "SOURCE", {"connector.class": "file"})),
    PutSecret(secret=SecretInfo("PG", "AQ=="), statement="CREATE SECRET PG ***"),
    RemoveSecret(name="PG"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_read_back_is_the_same(command: Command) -> None:
    assert command_from_json(command_to_json(command)) == command


@pytest.mark.parametrize(
    ("statement", "session", "stays"),
    [
        ("CREATE STREAM t AS SELECT * FROM s", {}, False),
        ("CREATE STREAM t AS SELECT executor FROM s", {"a": "b"}, False),
        ("CREATE STREAM t WITH (Executor = 'spark') AS SELECT * FROM s", {}, True),
        ("CREATE STREAM t WITH (`EXECUTOR`='spark') AS SELECT * FROM s", {}, True),
        ("CREATE STREAM t AS SELECT * FROM s", {"millstream.executor": "spark"}, True),
    ],
)
def test_a_servers_executor_in_a_plan_of_an_earlier_version_is_nobodys_wish(
    statement: str, session: dict[str, str], stays: bool
) -> None:
    plan = replace(PLAN, properties={**PLAN.properties, "millstream.executor": "spark"})
    command = StartQuery(query=replace(QUERY, plan=plan), statement=statement, properties=session)
    assert command_from_json(command_to_json(command)) == command
    earlier = orjson.loads(command_to_json(command))
    del earlier["own_executor"]
    read = command_from_json(orjson.dumps(earlier))
    assert isinstance(read, StartQuery)
    assert read.query.plan == (plan if stays else PLAN)


def test_what_is_not_a_command_or_too_new_is_refused_with_a_reason() -> None:
    with pytest.raises(UnreadableCommand, match="not a command"):
        command_from_json(b"garbage")
    newer = orjson.loads(command_to_json(RemoveType(name="A"))) | {"version": 99}
    with pytest.raises(UnreadableCommand, match="this server supports versions up to"):
        command_from_json(orjson.dumps(newer))
