"""Statements about connectors. The routes of Kafka Connect's API build the same statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millstream.errors import InvalidProperty, InvalidStatement, Span, StatementError, did_you_mean

from ...executor.connect.connector_errors import InvalidConnector
from ...executor.connect.connector_plugins import (
    COMMON_FAMILIES,
    PLUGIN_VERSION,
    ConnectorPlugin,
    PluginKind,
    find_plugin,
    plugins,
    shown_config,
)
from ...executor.connect.connector_secrets import Secrets, is_secret_name, sealed_value, secrets_of
from ...executor.connect.connectors import ConnectorStatus, config_problems
from ...executor.connect.secret_vault import SecretKeyMissing
from ...executor.connect.sink_runner import topics_read
from ...planner.connector_info import ConnectorInfo
from ...sql.ast import (
    AlterConnector,
    ControlConnector,
    CreateConnector,
    Describe,
    DropConnector,
    Explain,
    Properties,
    Resnapshot,
    Show,
)
from ..catalog.commands import PauseConnector, PutConnector, RemoveConnector
from ..connect.plugin_answers import all_settings
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
from .create import command_id
from .insight import cause_lines

_LEFTOVERS = "LEFTOVERS"
DONE = {"PAUSE": "paused", "RESUME": "resumed", "RESTART": "restarted", "STOP": "stopped"}


class UnknownConnector(StatementError):
    """No connector has this name."""

    code = "UNKNOWN_CONNECTOR"


class ConnectorExists(StatementError):
    """A connector has this name already."""

    code = "CONNECTOR_EXISTS"


def create_connector(statement: CreateConnector, request: Request) -> list[Entity]:
    """CREATE SOURCE|SINK CONNECTOR [IF NOT EXISTS] name WITH (…)."""
    with request.lock:
        return _created(statement, request)


def _created(statement: CreateConnector, request: Request) -> list[Entity]:
    text = without_secrets(statement.text)
    if statement.name in request.catalog.connectors:
        message = f"Connector {statement.name} already exists"
        if statement.if_not_exists:
            return [Warned(statement_text=text, message=message)]
        hint = "ALTER CONNECTOR changes its settings; DROP CONNECTOR removes it."
        raise ConnectorExists(message, span=statement.span, hint=hint)
    config = setting_texts(statement.properties)
    plugin = _checked(statement.kind, config, statement.properties, request, statement.span)
    if plugin.kind != statement.kind:
        raise InvalidStatement(
            f"{plugin.name} is a {plugin.kind.lower()} connector",
            span=statement.span,
            hint=f"Write CREATE {plugin.kind} CONNECTOR.",
        )
    kept, warnings = _kept(plugin, config, request)
    state = statement.initial_state
    info = ConnectorInfo(statement.name, plugin.kind, kept, text, paused=state != "RUNNING", stopped=state == "STOPPED")
    request.store.submit(PutConnector(connector=info, statement=text))
    return [
        ConnectorCreated(
            statement_text=text, info=connector_json(info, request), warnings=[*_unknown(plugin, config), *warnings]
        )
    ]


def alter_connector(statement: AlterConnector, request: Request) -> list[Entity]:
    """ALTER CONNECTOR name WITH (…): its tasks continue from their positions, with these settings."""
    return settled(lambda: _altered(statement, request), request, lambda: [statement.name])


def _altered(statement: AlterConnector, request: Request) -> list[Entity]:
    known = found_connector(statement.name, request, statement.span)
    given = setting_texts(statement.properties)
    text = without_secrets(statement.text, known.config.get("connector.class"))
    config = given if statement.replaces else {**known.config, **given}
    config = {name: value for name, value in config.items() if name not in statement.removed}
    plugin = _checked(known.kind, config, statement.properties, request, statement.span)
    if plugin.kind != known.kind:
        raise InvalidStatement(f"{known.name} is a {known.kind.lower()} connector and stays one", span=statement.span)
    kept, warnings = _kept(plugin, config, request)
    info = replace(known, config=kept, statement=text)
    left = request.connectors.left_by(known, info)
    if left is not None:
        warnings = [
            *warnings,
            f"Connector {info.name}: {left} stays until somebody drops it, or the connector is altered back.",
        ]
    request.store.submit(PutConnector(connector=info, statement=text))
    return [
        ConnectorCreated(
            statement_text=text, info=connector_json(info, request), warnings=[*_unknown(plugin, config), *warnings]
        )
    ]


def drop_connector(statement: DropConnector, request: Request) -> list[Entity]:
    """DROP CONNECTOR [IF EXISTS] name. Topics stay. With leftovers='keep' it gives up what a connector that was dropped
    before has left in a system that is gone."""
    if statement.properties:
        return _given_up(statement, request)
    return settled(lambda: _dropped(statement, request), request, lambda: [statement.name])


def _dropped(statement: DropConnector, request: Request) -> list[Entity]:
    if statement.if_exists and statement.name not in request.catalog.connectors:
        return [Warned(statement_text=statement.text, message=f"Connector '{statement.name}' does not exist.")]
    known = found_connector(statement.name, request, statement.span)
    request.store.submit(RemoveConnector(name=known.name, connector=known, statement=statement.text))
    return [ConnectorDropped(statement_text=statement.text, connector_name=known.name)]


def _given_up(statement: DropConnector, request: Request) -> list[Entity]:
    """Raises `InvalidProperty`, `InvalidStatement`, `UnknownConnector`."""
    name = statement.name
    if dict(statement.properties) != {_LEFTOVERS: "keep"}:
        hint = f"Write DROP CONNECTOR {name} WITH (leftovers='keep')."
        raise InvalidProperty("DROP CONNECTOR has the property leftovers='keep' only", span=statement.span, hint=hint)
    if name in request.catalog.connectors:
        hint = f"DROP CONNECTOR {name} removes it, and what it has left in the other system."
        raise InvalidStatement(f"Connector {name} is still there", span=statement.span, hint=hint)
    given_up = request.connectors.give_up(name)
    if not given_up and not statement.if_exists:
        hint = "SHOW CONNECTORS warns of what is not removed yet."
        raise UnknownConnector(f"No connector {name} has left something behind", span=statement.span, hint=hint)
    warnings = [f"{what} stays, and is not tried any more." for what in given_up]
    return [ConnectorDropped(statement_text=statement.text, connector_name=name, warnings=warnings)]


def control_connector(statement: ControlConnector, request: Request) -> list[Entity]:
    """PAUSE|RESUME|RESTART CONNECTOR name. RESTART affects only the running server: the catalog does not change."""
    return settled(lambda: _controlled(statement, request), request, lambda: [statement.name])


def _controlled(statement: ControlConnector, request: Request) -> list[Entity]:
    known = found_connector(statement.name, request, statement.span)
    offset = -1
    if statement.action == "RESTART":
        request.connectors.restart(known.name, statement.task)
    else:
        stopped = statement.action == "STOP"
        paused = statement.action == "PAUSE" or stopped
        command = PauseConnector(name=known.name, paused=paused, stopped=stopped, statement=statement.text)
        offset = request.store.submit(command)
    status = CurrentStatus(
        statement_text=statement.text,
        command_id=command_id("connector", known.name, statement.action.lower()),
        command_status=CommandState("SUCCESS", f"Connector {known.name} {DONE[statement.action]}."),
        command_sequence_number=offset,
    )
    return [status]


def resnapshot(statement: Resnapshot, request: Request) -> list[Entity]:
    """RESNAPSHOT CONNECTOR name [TABLE 'table']. The request is stored in the position, so it survives a restart."""
    return settled(lambda: _resnapshot(statement, request), request, lambda: [statement.name])


def _resnapshot(statement: Resnapshot, request: Request) -> list[Entity]:
    known = found_connector(statement.name, request, statement.span)
    try:
        request.connectors.resnapshot(known, statement.table)
    except StatementError as error:
        error.span = statement.span
        raise
    what = "all its tables" if statement.table is None else statement.table
    return [
        CurrentStatus(
            statement_text=statement.text,
            command_id=command_id("connector", known.name, "resnapshot"),
            command_status=CommandState("SUCCESS", f"Connector {known.name} reads {what} again."),
        )
    ]


def show_connectors(statement: Show, request: Request) -> Entity:
    """SHOW [SOURCE|SINK] CONNECTORS."""
    left = request.connectors.leftovers()
    return ConnectorList(
        statement_text=statement.text,
        connectors=connector_lines(statement, request),
        warnings=[f"Connector {name} was dropped, and {waits_for}." for name, waits_for in sorted(left.items())],
    )


def connector_lines(statement: Show, request: Request) -> list[ConnectorLine]:
    """The connectors that run here."""
    wanted = statement.connector_kind
    return [
        ConnectorLine(info.name, info.kind.lower(), info.config.get("connector.class", ""), _summary(info, request))
        for _, info in sorted(request.catalog.connectors.items())
        if wanted in (None, info.kind)
    ]


def show_plugins(statement: Show) -> Entity:
    """SHOW CONNECTOR PLUGINS."""
    lines = [ConnectorPluginLine(plugin.name, plugin.kind.lower(), PLUGIN_VERSION, plugin.doc) for plugin in plugins()]
    return ConnectorPlugins(statement_text=statement.text, connector_plugins=lines)


def describe_connector(statement: Describe, request: Request) -> Entity:
    """DESCRIBE CONNECTOR name. Its sources are the streams and tables on the topics that its settings name."""
    info = found_connector(statement.name or "", request, statement.span)
    status = request.connectors.status(info.name)
    topics = named_topics(info, request)
    sources = [source for source in request.visible.sources.values() if source.topic in topics]
    return ConnectorDescribed(
        statement_text=statement.text,
        connector_class=info.config.get("connector.class", ""),
        status=status_json(info, status),
        sources=describe_sources(sources, request, extended=False),
        topics=topics,
        config=shown_config(info.config),
        guarantee=_guarantee(info),
        task_figures=[
            {"id": task.number, "records": task.records, "lag": task.lag, "restarts": task.restarts}
            for task in status.tasks
        ],
    )


def stalled_connector(statement: Explain, request: Request) -> Entity:
    """EXPLAIN STALL CONNECTOR name."""
    info = found_connector(statement.connector or "", request, statement.span)
    status = request.connectors.status(info.name)
    topics = topics_read(info.config, request.log) if info.kind == "SINK" else []
    causes = connector_causes(connector_situation(info, status, topics, request.log, time.time_ns() // 1_000_000))
    return ConnectorStall(
        statement_text=statement.text,
        connector=info.name,
        state=status.state,
        stalled=any(cause.blocks for cause in causes),
        causes=cause_lines(causes),
    )


# ------------------------------------------------------------------ shared with the routes


def settled(change: Callable[[], list[Entity]], request: Request, names: Callable[[], list[str]]) -> list[Entity]:
    """Makes the change under the engine's lock. Then waits briefly, without the lock, for tasks that have to end. In:
    `names`: of the connectors that it changes."""
    with request.lock:
        entities = change()
    left = request.connectors.settled(names())
    warnings = [f"Connector {name}: {waits_for}." for name, waits_for in left.items()]
    return [replace(entity, warnings=[*entity.warnings, *warnings]) for entity in entities] if warnings else entities


def found_connector(name: str, request: Request, span: Span | None = None) -> ConnectorInfo:
    """Raises `UnknownConnector`."""
    known = request.catalog.connectors.get(name)
    if known is None:
        hint = did_you_mean(name, request.catalog.connectors) or "SHOW CONNECTORS lists them."
        if request.connect_cluster is not None:
            hint = "This is for connectors that run in this server, and ksql.connect.url is set."
        raise UnknownConnector(f"Connector {name} does not exist", span=span, hint=hint)
    return known


def connector_json(info: ConnectorInfo, request: Request) -> dict[str, Any]:
    """Name, type, config without secrets, and tasks, as in Kafka Connect's API."""
    tasks = request.connectors.status(info.name).tasks
    return {
        "name": info.name,
        "config": {**shown_config(info.config), "name": info.name},
        "tasks": [{"connector": info.name, "task": task.number} for task in tasks],
        "type": info.kind.lower(),
    }


def status_json(info: ConnectorInfo, status: ConnectorStatus) -> dict[str, Any]:
    """The status as in Kafka Connect's API. A task that failed, or that waits for something, has a `trace`."""

    def state(of: str, error: str | None) -> dict[str, Any]:
        described = {"state": of, "worker_id": "millstream"}
        return described if error is None else {**described, "trace": error}

    return {
        "name": info.name,
        "connector": state(status.state, status.error),
        "tasks": [{"id": task.number, **state(task.state, task.error)} for task in status.tasks],
        "type": info.kind.lower(),
    }


def setting_texts(properties: Properties) -> dict[str, str]:
    """The settings as texts; numbers and booleans are written as in Kafka Connect's settings."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
        if value is not None and name != "name"
    }


def _checked(
    kind: PluginKind, config: Mapping[str, str], properties: Properties, request: Request, span: Span | None
) -> ConnectorPlugin:
    """Raises `InvalidConnector`, which points at the first wrong setting and names all wrong ones."""
    spans: Mapping[str, Span] = getattr(properties, "spans", {})
    try:
        plugin = find_plugin(config.get("connector.class"), kind)
        problems = config_problems(plugin, config)
        if not problems:
            _check_secrets(config, request)
    except InvalidConnector as error:
        error.span = spans.get(error.setting or "", span)
        raise
    if problems:
        raise_at = next((spans[problem.name] for problem in problems if problem.name in spans), span)
        hint = next((problem.hint for problem in problems if problem.hint is not None), None)
        messages = tuple(problem.message for problem in problems)
        error = InvalidConnector("; ".join(messages), setting=problems[0].name, hint=hint, problems=messages)
        error.span = raise_at
        raise error
    return plugin


def _check_secrets(config: Mapping[str, str], request: Request) -> None:
    """Checks that each `${secret:…}` can be read. Raises `InvalidConnector`."""
    Secrets(request.connectors.known_secrets).resolve(
        {name: value for name, value in config.items() if secrets_of({name: value})}
    )


def _kept(plugin: ConnectorPlugin, config: Mapping[str, str], request: Request) -> tuple[dict[str, str], list[str]]:
    """The settings for the command topic, with encrypted secrets, and a warning for each secret that the statement
    contains in plain text."""
    vault = request.connectors.known_secrets.vault
    kept: dict[str, str] = {}
    warnings: list[str] = []
    known = {name for item in plugin.settings() for name in item.names}
    for name, value in config.items():
        try:
            kept[name], where = sealed_value(name, value, vault, secret=not plugin.shows(name)), "It was sealed"
        except SecretKeyMissing as error:
            kept[name], where = value, f"It is in the command topic, readable, because {error.message}"
        # an unknown setting gets another warning
        if (where != "It was sealed" or kept[name] != value) and (is_secret_name(name) or name in known):
            warnings.append(
                f"{name} is written out in the statement. {where}. CREATE SECRET keeps a value out of statements;"
                f" '${{secret:name}}' refers to it."
            )
    return kept, warnings


def _unknown(plugin: ConnectorPlugin, config: Mapping[str, str]) -> list[str]:
    """A sentence for each setting that has no effect."""
    known = [name for item in all_settings(plugin) for name in item.names]
    unknown = [name for name in config if name not in known and not name.startswith(COMMON_FAMILIES)]
    return [f"{name} has no effect. {did_you_mean(name, known) or ''}".strip() for name in unknown]


def _summary(info: ConnectorInfo, request: Request) -> str:
    """The state with the number of running tasks, as in ksqlDB."""
    status = request.connectors.status(info.name)
    running = sum(task.state == "RUNNING" for task in status.tasks)
    state = status.state
    if state == "RUNNING" and running < len(status.tasks):
        state = "FAILED" if all(task.state == "FAILED" for task in status.tasks) else "WARNING"
    return f"{state} ({running}/{len(status.tasks)} tasks RUNNING)"


def _guarantee(info: ConnectorInfo) -> str:
    """The connector's guarantee. "transactional": a source is exactly once for everything that it can read again."""
    try:
        loaded = find_plugin(info.config.get("connector.class"), info.kind).load()
    except InvalidConnector:
        return "unknown"
    return loaded.guarantee


def named_topics(info: ConnectorInfo, request: Request) -> list[str]:
    """The existing topics that the settings name, or whose names begin with the prefix."""
    named = {
        item.strip()
        for setting in ("topic", "kafka.topic", "topics")
        for item in info.config.get(setting, "").split(",")
        if item.strip()
    }
    prefix = _topic_prefix(info)
    return sorted(
        topic
        for topic in request.log.topics()
        if topic in named or (prefix is not None and topic.startswith(f"{prefix}."))
    )


def _topic_prefix(info: ConnectorInfo) -> str | None:
    try:
        settings = find_plugin(info.config.get("connector.class"), info.kind).settings()
    except InvalidConnector:  # its package is gone
        return info.config.get("topic.prefix")
    return next((item.first(info.config) for item in settings if item.name == "topic.prefix"), None)
