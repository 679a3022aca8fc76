"""ksqlDB's routes between servers, and its reports: /heartbeat, /lag, /clusterStatus, /ksql/terminate.

Here a log belongs to one server, or to the nodes of a cluster, one of which runs the engine and answers. Other servers
that report are recorded and listed, nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

from ..engine.entities import CommandState, CurrentStatus
from ..engine.session import Session
from ..security.rights import Rights
from .context import HttpContext, rights_of
from .errors import BAD_REQUEST, RequestRefused
from .requests import read_object
from .statements import error_response, json_response

_PORT_MAX: Final = 65535
_HOSTS_MAX: Final = 64
_ALIVE_MS: Final = 6_000  # without a heartbeat for longer, a host is considered dead
_PATTERNS_MAX: Final = 1_000
_PATTERN_LENGTH_MAX: Final = 256


@dataclass(slots=True)
class _Host:
    """Another server, as it reported itself."""

    heard_ms: int = 0
    lags: dict[str, Any] = field(default_factory=dict)


class ClusterRoutes:
    def __init__(self, context: HttpContext, other_nodes: Callable[[], Mapping[str, bool]] = dict[str, bool]) -> None:
        """In: `other_nodes` of the cluster, and whether they are alive. The engine is here, so they run no queries."""
        self._context = context
        self._other_nodes = other_nodes
        self._hosts: dict[str, _Host] = {}  # only changed on the event loop

    async def heartbeat(self, request: Request) -> Response:
        """POST {hostInfo: {host, port}, timestamp}."""
        try:
            rights_of(request.scope).require_administrator()
            body = await read_object(request, self._context.body_bytes_max)
            _whole_number(body, "timestamp")
            self._host(body, "hostInfo").heard_ms = _now_ms()
            return json_response({"isOk": True}, 200)
        except Exception as error:
            return error_response(error)

    async def lag(self, request: Request) -> Response:
        """POST {ksqlHost: {host, port}, hostStoreLags: {…}}."""
        try:
            rights_of(request.scope).require_administrator()
            body = await read_object(request, self._context.body_bytes_max)
            if not isinstance(body.get("hostStoreLags"), dict):
                raise RequestRefused(BAD_REQUEST, 'the body needs an object under "hostStoreLags"')
            self._host(body, "ksqlHost").lags = body["hostStoreLags"]
            return json_response({"isOk": True}, 200)
        except Exception as error:
            return error_response(error)

    async def cluster_status(self, request: Request) -> Response:
        try:
            server = request.scope.get("server") or ("localhost", 0)
            rights = rights_of(request.scope)
            own = await self._context.workers.run(lambda: self._own_status(rights))
            known = {name: _host_status(host, rights) for name, host in self._hosts.items()}
            nodes = {name: _node_status(alive) for name, alive in self._other_nodes().items()}
            return json_response({"clusterStatus": {f"{server[0]}:{server[1]}": own, **nodes, **known}}, 200)
        except Exception as error:
            return error_response(error)

    async def terminate(self, request: Request) -> Response:
        """POST {deleteTopicList}: ends all queries, drops all sources, and deletes their topics that match the list."""
        try:
            rights_of(request.scope).require_administrator()
            body = await read_object(request, self._context.body_bytes_max)
            patterns = _patterns(body.get("deleteTopicList"))
            session = Session(rights=rights_of(request.scope))
            await self._context.workers.run(lambda: self._terminate(patterns, session))
            done = CurrentStatus(
                statement_text="TERMINATE CLUSTER",
                command_id="cluster/TerminateCluster/terminate",
                command_status=CommandState("SUCCESS", "Cluster terminated"),
                command_sequence_number=self._context.engine.command_number,
            )
            return json_response([done.as_json()], 200)
        except Exception as error:
            return error_response(error)

    def _terminate(self, patterns: Sequence[str], session: Session) -> None:
        engine = self._context.engine
        with engine.lock:
            engine.execute("TERMINATE ALL;", session)
            sources = list(engine.catalog.sources.values())
            doomed = _matching(sorted({source.topic for source in sources}), patterns)
            for source in sources:
                name = source.name.replace("`", "``")
                engine.execute(f"DROP {source.kind} `{name}`;", session)
            for topic in doomed & engine.log.topics().keys():
                engine.log.delete_topic(topic)

    def _own_status(self, rights: Rights) -> dict[str, Any]:
        engine = self._context.engine
        queries: dict[str, Any] = {}
        lags: dict[str, Any] = {}
        for query_id in rights.visible(engine.catalog).queries:
            status = engine.executor.status(query_id)
            places = [{"topic": at.topic, "partition": at.partition} for at in sorted(status.positions)]
            queries[query_id] = {
                "activeStores": [query_id], "activePartitions": places, "standByStores": [], "standByPartitions": [],
            }  # fmt: skip
            lags[query_id] = {"lagByPartition": _lags(status.positions, status.lag)}
        now_ms = _now_ms()
        return {
            "hostAlive": self._context.ready,
            "lastStatusUpdateMs": now_ms,
            "activeStandbyPerQuery": queries,
            "hostStoreLags": {"stateStoreLags": lags, "updateTimeMs": now_ms},
        }

    def _host(self, body: dict[str, Any], member: str) -> _Host:
        """Raises `RequestRefused`."""
        info = body.get(member)
        name, port = (info.get("host"), info.get("port")) if isinstance(info, dict) else (None, None)
        is_port = isinstance(port, int) and not isinstance(port, bool) and 0 <= port <= _PORT_MAX
        if not isinstance(name, str) or len(name) > 255 or not is_port:
            raise RequestRefused(BAD_REQUEST, f'the body needs host and port under "{member}"')
        key = f"{name}:{port}"
        if key not in self._hosts and len(self._hosts) >= _HOSTS_MAX:
            del self._hosts[min(self._hosts, key=lambda known: self._hosts[known].heard_ms)]
        return self._hosts.setdefault(key, _Host())


def _lags(positions: Any, lag: Any) -> dict[str, Any]:
    return {
        f"{at.topic}-{at.partition}": {
            "currentOffsetPosition": position,
            "endOffsetPosition": position + lag.get(at, 0),
            "offsetLag": lag.get(at, 0),
        }
        for at, position in sorted(positions.items())
    }


def _node_status(alive: bool) -> dict[str, Any]:
    return {
        "hostAlive": alive,
        "lastStatusUpdateMs": _now_ms(),
        "activeStandbyPerQuery": {},
        "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": _now_ms()},
    }


def _host_status(host: _Host, rights: Rights) -> dict[str, Any]:
    """The status of another server. Only administrators see its lags, because they contain names of queries."""
    return {
        "hostAlive": _now_ms() - host.heard_ms <= _ALIVE_MS,
        "lastStatusUpdateMs": host.heard_ms,
        "activeStandbyPerQuery": {},
        "hostStoreLags": host.lags if rights.everything else {},
    }


def _patterns(given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or any(not isinstance(item, str) for item in given):
        raise RequestRefused(BAD_REQUEST, '"deleteTopicList" is not a list of texts')
    if len(given) > _PATTERNS_MAX or any(len(item) > _PATTERN_LENGTH_MAX for item in given):
        raise RequestRefused(BAD_REQUEST, '"deleteTopicList" is too long')
    _matching(["check"], given)
    return given


def _matching(names: list[str], patterns: Sequence[str]) -> set[str]:
    """The names that a regular expression matches as a whole. RE2 evaluates it, so no expression takes excessive
    time."""
    found: set[str] = set()
    texts = pa.array(names, pa.string())
    for pattern in patterns:
        try:
            hits = pc.match_substring_regex(texts, pattern=f"^(?:{pattern})$").to_pylist()
        except pa.ArrowInvalid as error:
            raise RequestRefused(BAD_REQUEST, f'"{pattern}" in "deleteTopicList" is no pattern: {error}') from None
        found.update(name for name, hit in zip(names, hits, strict=True) if hit)
    return found


def _whole_number(body: dict[str, Any], member: str) -> int:
    value = body.get(member)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestRefused(BAD_REQUEST, f'the body needs an integer under "{member}"')
    return value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
