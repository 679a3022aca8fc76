"""Commands: a statement that changes the catalog becomes a command, which is written, then applied.

A command contains decisions (plans, schemas, ids), never anything to decide again, so that replaying it gives the same
catalog on every server and version. `apply_command` is that fold; `catalog_store.py` applies the other effects (topics,
running queries).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from ...planner.catalog import Catalog, PersistentQuery
from ...planner.connector_info import ConnectorInfo, SecretInfo
from ...planner.mirror_info import MirrorInfo
from ...planner.planning import NewTopic
from ...planner.source_info import SourceInfo
from ...sql.functions.users.user_functions import UserFunction
from ...sql.types import SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBase:
    """`statement`: the accepted text, with variables substituted. `properties`: the session's properties at that
    time."""

    statement: str = ""
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSource(CommandBase):
    """CREATE STREAM|TABLE (…) or ALTER: the new state of the source. `topic` has to be created first; `replaces` is the
    previous name of the source."""

    source: SourceInfo
    topic: NewTopic | None = None
    replaces: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartQuery(CommandBase):
    """CREATE … AS SELECT (with `sink`) or INSERT INTO … SELECT. It replaces a query of the same id: the new one
    continues from the committed offsets and the state."""

    query: PersistentQuery
    sink: SourceInfo | None = None
    topic: NewTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSource(CommandBase):
    """`terminate`: the query that created the source. `delete_topic`: the topic to delete with it."""

    name: str
    terminate: str | None = None
    delete_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateQuery(CommandBase):
    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseQuery(CommandBase):
    """PAUSE, or RESUME if `paused` is false."""

    query_id: str
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetQuery(CommandBase):
    """The query loses its state, its offsets and its output, and starts again from the beginning."""

    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutType(CommandBase):
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveType(CommandBase):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFunction(CommandBase):
    """CREATE [OR REPLACE] FUNCTION; queries that call an older version keep using that version."""

    function: UserFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFunction(CommandBase):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutConnector(CommandBase):
    """CREATE CONNECTOR, or ALTER: the new state of the connector."""

    connector: ConnectorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveConnector(CommandBase):
    """`connector`: as it was, for what it has left in other systems; commands of before have none."""

    name: str
    connector: ConnectorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseConnector(CommandBase):
    """PAUSE CONNECTOR, or RESUME if `paused` is false. `stopped`: it has no tasks until RESUME."""

    name: str
    paused: bool
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSecret(CommandBase):
    """CREATE [OR REPLACE] SECRET; `statement` does not contain the values."""

    secret: SecretInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSecret(CommandBase):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMirror(CommandBase):
    """CREATE MIRROR, PAUSE, RESUME or PROMOTE: the new state of the mirror."""

    mirror: MirrorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMirror(CommandBase):
    name: str


Command = (
    PutSource
    | StartQuery
    | RemoveSource
    | TerminateQuery
    | PauseQuery
    | ResetQuery
    | PutType
    | RemoveType
    | PutFunction
    | RemoveFunction
    | PutConnector
    | RemoveConnector
    | PauseConnector
    | PutSecret
    | RemoveSecret
    | PutMirror
    | RemoveMirror
)


def apply_command(catalog: Catalog, command: Command) -> Catalog:
    """The catalog after the command. Never fails: invalid commands are refused before they are written."""
    match command:
        case PutSource():
            kept = catalog if command.replaces is None else catalog.without_source(command.replaces)
            return kept.with_source(command.source)
        case StartQuery():
            started = catalog if command.sink is None else catalog.with_source(command.sink)
            return started.with_query(command.query)
        case RemoveSource():
            kept = catalog if command.terminate is None else catalog.without_query(command.terminate)
            return kept.without_source(command.name)
        case TerminateQuery():
            return catalog.without_query(command.query_id)
        case PauseQuery():
            query = catalog.queries.get(command.query_id)
            return catalog if query is None else catalog.with_query(replace(query, paused=command.paused))
        case ResetQuery():
            return catalog
        case PutType():
            return catalog.with_type(command.name, command.type)
        case RemoveType():
            return catalog.without_type(command.name)
        case PutFunction():
            return catalog.with_function(command.function)
        case RemoveFunction():
            return catalog.without_function(command.name)
        case PutConnector():
            return catalog.with_connector(command.connector)
        case RemoveConnector():
            return catalog.without_connector(command.name)
        case PauseConnector():
            found = catalog.connectors.get(command.name)
            if found is None:
                return catalog
            return catalog.with_connector(replace(found, paused=command.paused, stopped=command.stopped))
        case PutSecret():
            return catalog.with_secret(command.secret)
        case RemoveSecret():
            return catalog.without_secret(command.name)
        case PutMirror():
            return catalog.with_mirror(command.mirror)
        case RemoveMirror():
            return catalog.without_mirror(command.name)
        case _:
            assert_never(command)
