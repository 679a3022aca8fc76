"""Statements about connectors if `ksql.connect.url` names a Kafka Connect cluster: they use the cluster's REST API.

A connector of the catalog, created before the property was set, still runs here, and statements with its name refer to
it. References such as `${file:…}` are for the config providers of Kafka Connect and are not resolved here. The engine's
lock is not held during requests, because the cluster may be slow.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from millstream.errors import InvalidProperty, InvalidStatement, MillstreamError, Span

from ...executor.connect.connector_plugins import COMMON, PluginKind
from ...executor.connect.connector_secrets import refers, secret_parts, secrets_of, shown_value
from ...executor.connect.connectors import ConnectorStatus
from ...executor.connect.sink_runner import topics_read
from ...executor.connect.task_worker import TaskState, TaskStatus
from ...planner.connector_info import ConnectorInfo
from ...sql.ast import (
    AlterConnector,
    ControlConnector,
    CreateConnector,
    Describe,
    DropConnector,
    Explain,
    Show,
    Statement,
)
from ...sql.settings.secret_values import HIDDEN
from ..connect.connect_client import ConnectClient, ConnectRefused
from ..engine.entities import (
    CommandState,
    ConnectorCreated,
    ConnectorDescribed,
    ConnectorDropped,
    ConnectorLine,
    ConnectorList,
    ConnectorPluginLine,
    ConnectorPlugins,
    CurrentStatus,
    Entity,
    Warned,
)
from ..engine.insight_entities import ConnectorStall
from ..engine.request import Request
from ..insight.connector_stall import connector_causes, connector_situation
from ..insight.descriptions import describe_sources
from ..security.statement_secrets import without_secrets
from . import connectors as own
from .connectors import ConnectorExists, UnknownConnector
from .create import command_id
from .insight import cause_lines

_NAMED_SETTING: Final = re.compile(r"configuration \"?([\w.-]+)\"?")
_STATES: Final[Mapping[str, TaskState]] = {"RUNNING": "RUNNING", "FAILED": "FAILED"}

Named = TypeVar("Named", bound=CreateConnector | AlterConnector | DropConnector | ControlConnector)


def is_about_connectors(statement: Statement) -> bool:
    """Whether a handler of this module runs it."""
    match statement:
        case Show(what="CONNECTORS" | "CONNECTOR PLUGINS") | Describe(what="CONNECTOR"):
            return True
        case _:
            return isinstance(statement, CreateConnector | AlterConnector | DropConnector | ControlConnector)


def _either(
    here: Callable[[Named, Request], list[Entity]], there: Callable[[Named, Request, ConnectClient], list[Entity]]
) -> Callable[[Named, Request], list[Entity]]:
    @functools.wraps(here)
    def run(statement: Named, request: Request) -> list[Entity]:
        cluster = _cluster_of(statement.name, request)
        return here(statement, request) if cluster is None else there(statement, request, cluster)

    return run


def _cluster_of(name: str, request: Request) -> ConnectClient | None:
    return None if name in request.catalog.connectors else request.connect_cluster


def _create(statement: CreateConnector, request: Request, cluster: ConnectClient) -> list[Entity]:
    text = without_secrets(statement.text)
    config = own.setting_texts(statement.properties)
    _check_kind(statement, config, cluster)
    try:
        info = cluster.send("POST", "connectors", body={"name": statement.name, "config": config})
    except ConnectRefused as error:
        if error.status != 409 or "already exists" not in error.message:
            raise _failed("create connector", error, config, statement) from None
        message = f"Connector {statement.name} already exists"
        if statement.if_not_exists:
            return [Warned(statement_text=text, message=message)]
        hint = "ALTER CONNECTOR changes its settings; DROP CONNECTOR removes it."
        raise ConnectorExists(message, span=statement.span, hint=hint) from None
    return [ConnectorCreated(statement_text=text, info=_shown_info(info, cluster), warnings=_warnings(config, request))]


def _alter(statement: AlterConnector, request: Request, cluster: ConnectClient) -> list[Entity]:
    config = own.setting_texts(statement.properties)
    try:
        info = _patched(statement.name, config, cluster)
    except ConnectRefused as error:
        if error.status == 404:
            raise _unknown(statement.name, statement.span) from None
        known = _quietly(lambda: cluster.get("connectors", statement.name, "config"), {})
        raise _failed("alter connector", error, {**known, **config}, statement) from None
    return [
        ConnectorCreated(
            statement_text=without_secrets(statement.text, _class_of(info)),
            info=_shown_info(info, cluster),
            warnings=_warnings(config, request),
        )
    ]


def _patched(name: str, config: Mapping[str, str], cluster: ConnectClient) -> Any:
    """Changes some settings. Workers before 3.8 have no PATCH: for them it reads all settings and writes them back."""
    try:
        return cluster.send("PATCH", "connectors", name, "config", body=config)
    except ConnectRefused as error:
        if error.status not in (404, 405):
            raise
    known = cluster.get("connectors", name, "config")
    masked = [each for each, value in known.items() if value == HIDDEN and each not in config]
    if masked:  # the worker hides secrets, so writing back would replace them by asterisks
        raise ConnectRefused(
            400,
            f"the worker hides the value of {masked[0]}, and has no PATCH, so ALTER would overwrite it",
            hint=f"Give {', '.join(masked)} again in the same statement.",
        )
    return cluster.send("PUT", "connectors", name, "config", body={**known, **config})


def _drop(statement: DropConnector, request: Request, cluster: ConnectClient) -> list[Entity]:
    del request
    if statement.properties:
        raise InvalidProperty("DROP CONNECTOR has no properties for a Kafka Connect cluster", span=statement.span)
    try:
        cluster.send("DELETE", "connectors", statement.name)
    except ConnectRefused as error:
        if error.status != 404:
            raise _failed("drop connector", error, {}, statement) from None
        if statement.if_exists:
            return [Warned(statement_text=statement.text, message=f"Connector '{statement.name}' does not exist.")]
        raise _unknown(statement.name, statement.span) from None
    return [ConnectorDropped(statement_text=statement.text, connector_name=statement.name)]


def _control(statement: ControlConnector, request: Request, cluster: ConnectClient) -> list[Entity]:
    del request
    action = statement.action.lower()
    try:
        if statement.action == "RESTART":
            cluster.send("POST", "connectors", statement.name, "restart", query="?includeTasks=true")
        else:
            cluster.send("PUT", "connectors", statement.name, action)
    except ConnectRefused as error:
        if error.status == 404:
            raise _unknown(statement.name, statement.span) from None
        raise _failed(f"{action} connector", error, {}, statement) from None
    done = f"Connector {statement.name} {own.DONE[statement.action]}."
    status = CurrentStatus(
        statement_text=statement.text,
        command_id=command_id("connector", statement.name, action),
        command_status=CommandState("SUCCESS", done),
    )
    return [status]


create_connector = _either(own.create_connector, _create)
alter_connector = _either(own.alter_connector, _alter)
drop_connector = _either(own.drop_connector, _drop)
control_connector = _either(own.control_connector, _control)


def show_connectors(statement: Show, request: Request) -> Entity:
    """SHOW [SOURCE|SINK] CONNECTORS: the connectors of the cluster, and those that still run here."""
    cluster = request.connect_cluster
    if cluster is None:
        return own.show_connectors(statement, request)
    here = own.connector_lines(statement, request)
    try:
        names = cluster.get("connectors")
        found = cluster.get("connectors", query="?expand=status&expand=info")
    except ConnectRefused as error:
        raise _failed("list connectors", error, {}, statement) from None
    for name in names:  # a worker leaves out new connectors that have no status yet
        if name not in found:
            found[name] = {"info": _quietly(lambda name=name: cluster.get("connectors", name), {})}
    there = [
        ConnectorLine(name, kind, _class_of(each.get("info", {})), _summary(each.get("status", {})))
        for name, each in sorted(found.items())
        if statement.connector_kind in (None, (kind := _kind(each.get("info", {}))).upper())
    ]
    return ConnectorList(statement_text=statement.text, connectors=sorted([*here, *there], key=lambda line: line.name))


def show_plugins(statement: Show, request: Request) -> Entity:
    """SHOW CONNECTOR PLUGINS: the plugins of the workers."""
    cluster = request.connect_cluster
    if cluster is None:
        return own.show_plugins(statement)
    try:
        found = cluster.get("connector-plugins")
    except ConnectRefused as error:
        raise _failed("list connector plugins", error, {}, statement) from None
    lines = [
        ConnectorPluginLine(str(plugin["class"]), str(plugin.get("type", "")), str(plugin.get("version", "")), "")
        for plugin in found
    ]
    return ConnectorPlugins(statement_text=statement.text, connector_plugins=lines)


def describe_connector(statement: Describe, request: Request) -> Entity:
    """DESCRIBE CONNECTOR name."""
    name = statement.name or ""
    cluster = _cluster_of(name, request)
    if cluster is None:
        with request.lock:
            return own.describe_connector(statement, request)
    info, status = _found(name, cluster, statement)
    tracked = _quietly(lambda: cluster.get("connectors", name, "topics")[name]["topics"], [])
    topics = sorted({*tracked, *own.named_topics(_known(info), request)})
    sources = [source for source in request.visible.sources.values() if source.topic in topics]
    return ConnectorDescribed(
        statement_text=statement.text,
        connector_class=_class_of(info),
        status=_scrubbed_status(status, info, cluster),
        sources=describe_sources(sources, request, extended=False),
        topics=topics,
        config=_shown_info(info, cluster)["config"],
        guarantee="unknown",
        task_figures=[],
    )


def stalled_connector(statement: Explain, request: Request) -> Entity:
    """EXPLAIN STALL CONNECTOR name: the tasks' states from the workers; for a sink also its group's lag."""
    name = statement.connector or ""
    cluster = _cluster_of(name, request)
    if cluster is None:
        return own.stalled_connector(statement, request)
    info, status = _found(name, cluster, statement)
    known, scrubbed = _known(info), _scrubbed_status(status, info, cluster)
    connector = scrubbed.get("connector", {})
    tasks = tuple(
        TaskStatus(int(task["id"]), _STATES.get(task["state"], "PAUSED"), error=task.get("trace"))
        for task in scrubbed.get("tasks", [])
    )
    seen = ConnectorStatus(name, _STATES.get(connector.get("state"), "PAUSED"), tasks, connector.get("trace"))
    topics = _topics_of(known, request) if known.kind == "SINK" else []
    causes = connector_causes(connector_situation(known, seen, topics, request.log, time.time_ns() // 1_000_000))
    return ConnectorStall(
        statement_text=statement.text,
        connector=name,
        state=seen.state,
        stalled=any(cause.blocks for cause in causes),
        causes=cause_lines(causes),
    )


def _topics_of(sink: ConnectorInfo, request: Request) -> list[str]:
    """The sink's topics that can be determined here: its pattern is one of Java, and may not be valid in Python."""
    try:
        return topics_read(sink.config, request.log)
    except (re.error, KeyError):
        return []


def _found(name: str, cluster: ConnectClient, statement: Statement) -> tuple[Any, Any]:
    """Info and status. Raises `UnknownConnector`."""
    try:
        info = cluster.get("connectors", name)
    except ConnectRefused as error:
        if error.status == 404:
            raise _unknown(name, statement.span) from None
        raise _failed("query connector status", error, {}, statement) from None
    try:
        return info, cluster.get("connectors", name, "status")
    except ConnectRefused as error:
        if error.status == 404:  # a new connector has no status yet
            return info, {"name": name, "connector": {"state": "UNASSIGNED"}, "tasks": [], "type": _kind(info)}
        raise _failed("query connector status", error, {}, statement) from None


def _check_kind(statement: CreateConnector, config: Mapping[str, str], cluster: ConnectClient) -> None:
    """Raises `InvalidStatement` if the workers report that the class is of the other kind."""
    wanted = config.get("connector.class", "")
    kinds = {
        str(plugin.get("type", "")).upper()
        for plugin in _quietly(lambda: cluster.get("connector-plugins"), [])
        if wanted in (str(plugin["class"]), str(plugin["class"]).rpartition(".")[2])
    }
    if kinds and statement.kind not in kinds and kinds <= {"SOURCE", "SINK"}:
        (kind,) = kinds
        raise InvalidStatement(
            f"{wanted} is a {kind.lower()} connector", span=statement.span, hint=f"Write CREATE {kind} CONNECTOR."
        )


def _warnings(config: Mapping[str, str], request: Request) -> list[str]:
    """Warns about references to secrets of this server, which are not sent to Kafka Connect."""
    return [
        f"${{secret:{name}}} is for a config provider of Kafka Connect: the secret {name} of this server is not sent"
        for name in sorted(secrets_of(config) & request.catalog.secrets.keys())
    ]


def _unknown(name: str, span: Span | None) -> UnknownConnector:
    return UnknownConnector(f"Connector {name} does not exist", span=span, hint="SHOW CONNECTORS lists them.")


def _failed(what: str, error: ConnectRefused, config: Mapping[str, str], statement: Statement) -> ConnectRefused:
    """The error in ksqlDB's wording, without secrets, pointing at the setting that Kafka Connect names."""
    message = _without_values(f"Failed to {what}: {error.message}", config)
    failed = ConnectRefused(error.status, message, hint=error.hint)
    spans: Mapping[str, Span] = getattr(getattr(statement, "properties", {}), "spans", {})
    named = (spans[found[1]] for found in _NAMED_SETTING.finditer(error.message) if found[1] in spans)
    failed.span = next(named, statement.span)
    return failed


def _quietly(ask: Callable[[], Any], otherwise: Any) -> Any:
    """The answer, or `otherwise` after an error: for requests that are not essential."""
    try:
        return ask()
    except (MillstreamError, KeyError, TypeError, AttributeError):  # also for an answer of an unexpected form
        return otherwise


# ------------------------------------------------------------------ what may be shown


def _shown_info(info: Mapping[str, Any], cluster: ConnectClient) -> dict[str, Any]:
    """The connector with hidden secrets. A setting is hidden if the worker declares it as a password, if it is not
    declared, or because of its name."""
    types = _declared_types(info, cluster)
    config = {
        name: shown_value(
            name, str(value), secret=not name.startswith(COMMON) and types.get(name, "PASSWORD") == "PASSWORD"
        )
        for name, value in info.get("config", {}).items()
    }
    return {**info, "config": config}


def _declared_types(info: Mapping[str, Any], cluster: ConnectClient) -> dict[str, str]:
    """The types of the settings, as the worker declares them; empty if it does not answer."""

    def ask() -> dict[str, str]:
        definitions = cluster.get("connector-plugins", _class_of(info), "config")
        return {str(item.get("name")): str(item.get("type")) for item in definitions}

    return _quietly(ask, {})


def _scrubbed_status(status: Mapping[str, Any], info: Mapping[str, Any], cluster: ConnectClient) -> dict[str, Any]:
    """The status without secrets: a worker's stack traces may contain values of settings."""

    config = info.get("config", {})
    passwords = {name for name, type_ in _declared_types(info, cluster).items() if type_ == "PASSWORD"}

    def scrubbed(state: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **state,
            **({"trace": _without_values(str(state["trace"]), config, passwords)} if "trace" in state else {}),
        }

    return {
        **status,
        "connector": scrubbed(status.get("connector", {})),
        "tasks": [scrubbed(task) for task in status.get("tasks", [])],
    }


def _without_values(text: str, config: Mapping[str, str], passwords: Collection[str] = ()) -> str:
    """The text without secret values. In: `config`: the settings; `passwords`: names of settings that a worker declares
    as passwords."""
    secrets: set[str] = set()
    for name, value in config.items():
        if value and not refers(str(value)):
            secrets |= secret_parts(name, str(value), secret=name in passwords)
    for value in sorted((each for each in secrets if len(each) > 2), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _known(info: Mapping[str, Any]) -> ConnectorInfo:
    kind: PluginKind = "SINK" if _kind(info) == "sink" else "SOURCE"
    return ConnectorInfo(str(info.get("name", "")), kind, info.get("config", {}))


def _kind(info: Mapping[str, Any]) -> str:
    return str(info.get("type", "unknown"))


def _class_of(info: Mapping[str, Any]) -> str:
    return str(info.get("config", {}).get("connector.class", ""))


def _summary(status: Mapping[str, Any]) -> str:
    """The state with the number of running tasks, as in ksqlDB."""
    tasks = status.get("tasks", [])
    running = sum(task.get("state") == "RUNNING" for task in tasks)
    state = str(status.get("connector", {}).get("state", "UNASSIGNED"))
    if state == "RUNNING" and running < len(tasks):
        state = "FAILED" if all(task.get("state") == "FAILED" for task in tasks) else "WARNING"
    return f"{state} ({running}/{len(tasks)} tasks RUNNING)"
