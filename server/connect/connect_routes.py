"""Kafka Connect's REST API: each route builds the equivalent statement, so rights and effects are those of the
statement. Errors have Connect's codes, which are HTTP statuses."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...executor.connect.connector_errors import InvalidConnector
from ...executor.connect.connector_plugins import PLUGIN_VERSION, ConnectorPlugin, configured_plugin, plugins_called
from ...executor.connect.connectors import config_problems
from ...planner.connector_info import ConnectorInfo
from ...sql.ast import (
    AlterConnector,
    ControlConnector,
    CreateConnector,
    Describe,
    DropConnector,
    Properties,
    Show,
    Statement,
)
from ...sql.identifiers import quote_identifier
from ...sql.settings.property import says_true, text_of
from ..encoded_route import EncodedRoute
from ..engine.engine import Engine
from ..engine.entities import ConnectorCreated, ConnectorDescribed, ConnectorList, Entity
from ..engine.session import Session
from ..handlers.connectors import UnknownConnector
from ..http.context import HttpContext, rights_of
from ..http.errors import BAD_REQUEST, FORBIDDEN, NOT_FOUND, RequestRefused
from ..http.requests import check_acceptable, read_object
from ..http.statements import JSON_TYPE, json_response
from ..security.statement_secrets import without_secrets
from .connect_refusals import refusal
from .connector_offsets import alter_offsets, reset_offsets, shown_offsets
from .logger_routes import all_loggers, change_logger, one_logger
from .plugin_answers import all_settings, definition, plugin_list, refused_settings, validation

_SETTINGS_MAX: Final = 1000
_NAME_MAX: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STATES: Final = ("RUNNING", "PAUSED", "STOPPED")
_MEMBERS: Final = frozenset({"name", "config", "initial_state"})
_NEW: Final = '{"name": "…", "config": {"connector.class": "…"}}'
_CONFIG: Final = '{"connector.class": "…"}'
_OFFSETS: Final = '{"offsets": [{"partition": {"task": 0}, "offset": null}]}'
_Answer = Callable[[Request], Awaitable[Response]]


class ConnectRoutes:
    """Each method answers one route. Statements run on the threads of the context."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        answers: tuple[tuple[str, str, _Answer], ...] = (
            ("/health", "GET", self.health),
            ("/connectors", "GET", self.names),
            ("/connectors", "POST", self.create),
            ("/connectors/{name}", "GET", self.info),
            ("/connectors/{name}", "DELETE", self.delete),
            ("/connectors/{name}/config", "GET", self.config),
            ("/connectors/{name}/config", "PUT", self.put_config),
            ("/connectors/{name}/config", "PATCH", self.patch_config),
            ("/connectors/{name}/status", "GET", self.status),
            ("/connectors/{name}/topics", "GET", self.topics),
            ("/connectors/{name}/offsets", "GET", self.offsets),
            ("/connectors/{name}/offsets", "PATCH", self.alter_offsets),
            ("/connectors/{name}/offsets", "DELETE", self.reset_offsets),
            ("/connectors/{name}/topics/reset", "PUT", self.reset_topics),
            ("/connectors/{name}/stop", "PUT", self.stop),
            ("/connectors/{name}/pause", "PUT", self.pause),
            ("/connectors/{name}/resume", "PUT", self.resume),
            ("/connectors/{name}/restart", "POST", self.restart),
            ("/connectors/{name}/tasks", "GET", self.tasks),
            ("/connectors/{name}/tasks/{task}/status", "GET", self.task_status),
            ("/connectors/{name}/tasks/{task}/restart", "POST", self.restart_task),
            ("/admin/loggers", "GET", all_loggers),
            ("/admin/loggers/{name}", "GET", one_logger),
            ("/admin/loggers/{name}", "PUT", lambda request: change_logger(request, self._context)),
            ("/connector-plugins", "GET", self.plugins),
            ("/connector-plugins/{name}/config", "GET", self.plugin_config),
            ("/connector-plugins/{name}/config/validate", "PUT", self.validate),
        )
        by_path: dict[str, dict[str, _Answer]] = {}
        for path, method, answer in answers:
            by_path.setdefault(path, {})[method] = answer
        return [EncodedRoute(path, _by_method(methods), methods=list(methods)) for path, methods in by_path.items()]

    # Reading

    async def health(self, request: Request) -> Response:
        """For probes, without authentication, as a worker of Kafka Connect 3.9 or newer answers."""
        del request
        if self._context.ready:
            message = "Worker has completed startup and is ready to handle requests."
            return json_response({"status": "healthy", "message": message}, 200)
        return json_response({"status": "starting", "message": "Worker is still starting up, or ends."}, 503)

    async def names(self, request: Request) -> Response:
        """`expand=status` or `expand=info`: an object with both, by name, instead of the names."""
        expand = set(request.query_params.getlist("expand"))
        listed = await self._run(request, Show(what="CONNECTORS", text="SHOW CONNECTORS"))
        assert isinstance(listed, ConnectorList)
        names = [line.name for line in listed.connectors]
        if not expand:
            return json_response(names, 200)
        found: dict[str, Any] = {}
        for name in names:
            described = await self._described(request, name)
            both = {"status": _status(described), "info": _info(described)}
            found[name] = {part: value for part, value in both.items() if part in expand}
        return json_response(found, 200)

    async def info(self, request: Request) -> Response:
        return json_response(_info(await self._described(request)), 200)

    async def config(self, request: Request) -> Response:
        return json_response(_info(await self._described(request))["config"], 200)

    async def status(self, request: Request) -> Response:
        return json_response(_status(await self._described(request)), 200)

    async def topics(self, request: Request) -> Response:
        described = await self._described(request)
        return json_response({described.status["name"]: {"topics": described.topics}}, 200)

    async def reset_topics(self, request: Request) -> Response:
        """As a worker with `topic.tracking.allow.reset=false`."""
        self._known(request)
        raise RequestRefused(FORBIDDEN, "Topic tracking reset is disabled.", hint="The settings say which they are.")

    async def tasks(self, request: Request) -> Response:
        described = await self._described(request)
        info = _info(described)
        tasks = [{"id": task, "config": info["config"]} for task in info["tasks"]]
        return json_response(tasks, 200)

    async def task_status(self, request: Request) -> Response:
        number, described = _task(request), await self._described(request)
        found = next((task for task in _status(described)["tasks"] if task["id"] == number), None)
        if found is None:
            raise RequestRefused(NOT_FOUND, f"connector {described.status['name']} has no task {number}")
        return json_response(found, 200)

    async def offsets(self, request: Request) -> Response:
        """For a source, the position of each task; for a sink, the offset of each partition."""
        info, engine = self._known(request), self._context.engine
        found = await self._context.workers.run(lambda: shown_offsets(info, engine.log))
        return json_response({"offsets": found}, 200)

    async def alter_offsets(self, request: Request) -> Response:
        rights_of(request.scope).require_administrator()
        body = await read_object(request, self._context.body_bytes_max, _OFFSETS)
        return await self._change_offsets(
            request, "altered", lambda info, engine: alter_offsets(info, body, engine.connectors, engine.log)
        )

    async def reset_offsets(self, request: Request) -> Response:
        return await self._change_offsets(
            request, "reset", lambda info, engine: reset_offsets(info, engine.connectors, engine.log)
        )

    async def _change_offsets(
        self, request: Request, what: str, change: Callable[[ConnectorInfo, Engine], None]
    ) -> Response:
        engine = self._context.engine

        def changed() -> None:
            with engine.lock:
                change(self._known(request), engine)

        rights_of(request.scope).require_administrator()
        await self._context.workers.run(changed)
        return json_response({"message": f"The offsets for this connector have been {what} successfully"}, 200)

    def _known(self, request: Request) -> ConnectorInfo:
        """Raises `UnknownConnector`, `NotPermitted`."""
        rights_of(request.scope).require_administrator()
        name = _name(request)
        found = self._context.engine.catalog.connectors.get(name)
        if found is None:
            raise UnknownConnector(f"Connector {name} not found", hint="SHOW CONNECTORS lists them.")
        return found

    # Changes

    async def create(self, request: Request) -> Response:
        """The body is {name, config, initial_state}. Spaces around the name are left out."""
        rights_of(request.scope).require_administrator()
        body = await read_object(request, self._context.body_bytes_max, _NEW)
        for member in body.keys() - _MEMBERS:
            raise RequestRefused(
                BAD_REQUEST, f'"{member}" is unknown', hint=f"The members are {', '.join(sorted(_MEMBERS))}."
            )
        name, state = body.get("name"), body.get("initial_state")
        if not isinstance(name, str | int | float):
            raise RequestRefused(BAD_REQUEST, 'the body needs a text under "name"')
        name = text_of(name).strip()
        state = "RUNNING" if state is None else str(state).upper()
        if state not in _STATES:
            raise RequestRefused(BAD_REQUEST, f"initial_state must be one of {', '.join(_STATES)}")
        return await self._create(request, name, _settings(body.get("config"), name), state)

    async def put_config(self, request: Request) -> Response:
        """Replaces the whole configuration; creates a missing connector."""
        rights_of(request.scope).require_administrator()
        name = _name(request)
        config = _settings(await read_object(request, self._context.body_bytes_max, _CONFIG), name)
        if name not in self._context.engine.catalog.connectors:
            return await self._create(request, name, config)
        return await self._alter(request, name, config, replaces=True)

    async def patch_config(self, request: Request) -> Response:
        """Changes some settings, and takes away those that are null; the others stay."""
        rights_of(request.scope).require_administrator()
        body = await read_object(request, self._context.body_bytes_max, _CONFIG)
        removed = tuple(name for name, value in body.items() if value is None)
        config = _settings(body, _name(request))
        return await self._alter(request, _name(request), config, replaces=False, removed=removed)

    async def delete(self, request: Request) -> Response:
        name = _name(request)
        await self._run(request, DropConnector(name=name, text=f"DROP CONNECTOR {quote_identifier(name)}"))
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        return await self._control(request, "PAUSE", 202)

    async def resume(self, request: Request) -> Response:
        return await self._control(request, "RESUME", 202)

    async def stop(self, request: Request) -> Response:
        return await self._control(request, "STOP", 204)

    async def restart(self, request: Request) -> Response:
        """Restarts all tasks. `onlyFailed`: only failed ones. With it or `includeTasks`, the answer is the status."""
        only_failed = _says_true(request, "onlyFailed")
        if not (only_failed or _says_true(request, "includeTasks")):
            return await self._control(request, "RESTART", 204)
        status = _status(await self._described(request))
        if not only_failed or status["connector"]["state"] == "FAILED":
            await self._control(request, "RESTART", 202)
        else:
            for task in status["tasks"]:
                if task["state"] == "FAILED" and _says_true(request, "includeTasks"):
                    await self._control(request, "RESTART", 202, task["id"])
        return json_response(_status(await self._described(request)), 202)

    async def restart_task(self, request: Request) -> Response:
        return await self._control(request, "RESTART", 204, _task(request))

    # Plugins

    async def plugins(self, request: Request) -> Response:
        only = says_true(request.query_params.get("connectorsOnly", "true"))
        return json_response(await self._context.workers.run(lambda: plugin_list(connectors_only=only)), 200)

    async def plugin_config(self, request: Request) -> Response:
        plugin = _plugin(request)
        settings = await self._context.workers.run(lambda: all_settings(plugin))
        return json_response([definition(item) for item in settings], 200)

    async def validate(self, request: Request) -> Response:
        """The problems of each setting. It makes no connection, and returns no secret."""
        body = await read_object(request, self._context.body_bytes_max, _CONFIG)
        config = _settings(body)
        plugin = _plugin(request, config)
        _check_class(config, plugin, _name(request))
        problems = await self._context.workers.run(lambda: config_problems(plugin, config))
        named = config if body.get("name") is None else {**config, "name": text_of(body["name"])}
        return json_response(validation(plugin, named, problems), 200)

    async def _create(self, request: Request, name: str, config: dict[str, str], state: Any = "RUNNING") -> Response:
        _check_name(name)
        plugin = configured_plugin(config)
        text = _text(f"CREATE {plugin.kind} CONNECTOR {quote_identifier(name)}", config)
        statement = CreateConnector(
            kind=plugin.kind, name=name, properties=_properties(config), text=text, initial_state=state
        )
        created = await self._changed(request, statement)
        response = json_response(created.info, 201)
        place = f"{request.url.scheme}://{request.url.netloc}/connectors/{quote(name, safe='')}"
        response.headers["location"] = place
        return response

    async def _alter(
        self, request: Request, name: str, config: dict[str, str], *, replaces: bool, removed: tuple[str, ...] = ()
    ) -> Response:
        text = _text(f"ALTER CONNECTOR {quote_identifier(name)}", config)
        statement = AlterConnector(
            name=name, properties=_properties(config), replaces=replaces, removed=removed, text=text
        )
        changed = await self._changed(request, statement)
        return json_response(changed.info, 200)

    async def _changed(self, request: Request, statement: CreateConnector | AlterConnector) -> ConnectorCreated:
        """Runs the statement. Raises `RequestRefused`, with the problems of all settings, if one is wrong."""
        try:
            changed = await self._run(request, statement)
        except InvalidConnector as error:
            if not error.problems:
                raise
            raise RequestRefused(BAD_REQUEST, refused_settings(error.problems)) from None
        assert isinstance(changed, ConnectorCreated)
        return changed

    async def _control(self, request: Request, action: Any, status: int, task: int | None = None) -> Response:
        name = _name(request)
        text = f"{action} CONNECTOR {quote_identifier(name)}"
        await self._run(request, ControlConnector(action=action, name=name, task=task, text=text))
        return Response(status_code=status)

    async def _described(self, request: Request, name: str | None = None) -> ConnectorDescribed:
        of = _name(request) if name is None else name
        text = f"DESCRIBE CONNECTOR {quote_identifier(of)}"
        described = await self._run(request, Describe(what="CONNECTOR", name=of, text=text))
        assert isinstance(described, ConnectorDescribed)
        return described

    async def _run(self, request: Request, statement: Statement) -> Entity:
        session = Session(rights=rights_of(request.scope), own_connectors=True)
        (entity,) = await self._context.workers.run(lambda: self._context.engine.run(statement, session))
        return entity


def _by_method(methods: dict[str, _Answer]) -> _Answer:
    async def answer(request: Request) -> Response:
        try:
            check_acceptable(request.headers.get("accept", ""), (JSON_TYPE,))
            found = methods.get(request.method) or methods["GET"]  # HEAD
            return await found(request)
        except Exception as error:
            return refusal(error)

    return answer


def _name(request: Request) -> str:
    return request.path_params["name"]


def _task(request: Request) -> int:
    text = request.path_params["task"]
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise RequestRefused(NOT_FOUND, f"{text} is no number of a task")
    return int(text)


def _check_name(name: str) -> None:
    """Raises `RequestRefused`."""
    if not name.strip() or len(name) > _NAME_MAX or _CONTROL.search(name):
        raise RequestRefused(
            BAD_REQUEST, f"the name of a connector has 1 to {_NAME_MAX} characters, and no control characters"
        )


def _check_class(config: Mapping[str, str], plugin: ConnectorPlugin, path: str) -> None:
    """Raises `RequestRefused` if the settings name another plugin than the path."""
    given = config.get("connector.class")
    if given is not None and plugin not in plugins_called(given):
        raise RequestRefused(BAD_REQUEST, f"Included connector type {given} does not match request type {path}")


def _says_true(request: Request, name: str) -> bool:
    return says_true(request.query_params.get(name, ""))


def _plugin(request: Request, config: Mapping[str, str] | None = None) -> ConnectorPlugin:
    try:
        return configured_plugin({**(config or {}), "connector.class": _name(request)})
    except InvalidConnector as error:
        raise RequestRefused(NOT_FOUND, error.message, hint=error.hint) from None


def _properties(config: dict[str, str]) -> Properties:
    return dict(config)


def _settings(given: object, connector: str | None = None) -> dict[str, str]:
    """In: `connector`: the only name that the settings may contain. Raises `RequestRefused`."""
    if not isinstance(given, dict):
        raise RequestRefused(BAD_REQUEST, "the settings of a connector are an object of texts")
    if len(given) > _SETTINGS_MAX:
        raise RequestRefused(BAD_REQUEST, f"a connector has {_SETTINGS_MAX} settings at most")
    if connector is not None and given.get("name", connector) != connector:
        raise RequestRefused(
            BAD_REQUEST,
            f"Connector name configuration ({given['name']}) doesn't match connector name in the URL ({connector})",
        )
    found: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, (dict, list)):
            raise RequestRefused(BAD_REQUEST, f'the setting "{name}" is not a text')
        if value is not None and name != "name":
            found[name] = text_of(value)
    return found


def _text(begin: str, config: dict[str, str]) -> str:
    """The equivalent statement, for the command topic, without secrets."""
    pairs = ", ".join(f"{_quoted(name)}={_quoted(value)}" for name, value in config.items())
    return without_secrets(f"{begin} WITH ({pairs})", config.get("connector.class"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _status(described: ConnectorDescribed) -> dict[str, Any]:
    """With the version of the connector, which a statement does not show."""
    status = described.status
    version = {"version": PLUGIN_VERSION}
    tasks = [{**task, **version} for task in status["tasks"]]
    return {**status, "connector": {**status["connector"], **version}, "tasks": tasks}


def _info(described: ConnectorDescribed) -> dict[str, Any]:
    name = described.status["name"]
    return {
        "name": name,
        "config": {**described.config, "name": name},
        "tasks": [{"connector": name, "task": task["id"]} for task in described.status["tasks"]],
        "type": described.status["type"],
    }
