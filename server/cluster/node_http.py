"""HTTP on a node of a cluster: requests about the node are answered here, all others on the node that runs the engine.

While no node runs the engine, a request waits, and then fails with 503. A forwarded request is never forwarded again:
if two nodes each assume that the other runs the engine, the second one answers that it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Sequence
from typing import Final

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config.configuration import ListenAddress
from ..console.own_origin import OwnOrigin
from ..console.page_files import console_routes
from ..http.connection_places import PLACE, ConnectionPlace
from ..http.context import Workers, rights_of
from ..http.errors import NO_ENGINE, RequestRefused
from ..http.gate import Gate
from ..http.metrics import Metrics
from ..http.pages import metrics_response
from ..http.routes import PROBES
from ..http.statements import error_response, json_response
from ..security.access import FORWARDED_CERTIFICATE, Authenticator
from ..security.rights import NotPermitted
from .engine_host import EngineHost, HostNode
from .forwarded_clients import ForwardedClients
from .forwarding import FORWARDED, NOT_HERE, Incoming, NotThere, forward
from .socket_forwarding import forward_socket

_LOCAL: Final = PROBES | {"/metrics", "/cluster", "/console", "/heartbeat", "/lag", "/v1/snapshots"}
_LOCAL_BELOW: Final = ("/cluster/", "/console/", "/v1/snapshots/")
_OF_THE_ENGINE: Final = frozenset({"/metrics", "/heartbeat", "/lag"})  # if it is here
_LOOK_S: Final = 0.05
_READ_S: Final = 10.0
WAIT_S: Final = 10.0
"""How long a request waits for an engine."""
_TRY_AGAIN_LATER: Final = 1013
_POLICY_VIOLATION: Final = 1008
_CAN_REFUSE: Final = "websocket.http.response"  # with an HTTP response instead of a socket


class LocalContext:
    """The context that the gate needs on a node without the engine."""

    def __init__(self, figures: Collector | None) -> None:
        self.workers = Workers()
        self.metrics = Metrics(None, None, None, figures)

    def close(self) -> None:
        self.workers.close()


def engine_is_there(node: HostNode, host: EngineHost) -> bool:
    """Whether a node answers statements: this one if the engine should run here, else another one that is alive. A node
    that is cut off cannot know, and engines need a majority of the voters themselves."""
    if node.cut_off:
        return False
    place = host.place
    if place is None or place == node.id:
        return host.running is not None
    broker = node.image.brokers.get(place)
    return broker is not None and not broker.fenced


def local_app(
    node: HostNode,
    host: EngineHost,
    context: LocalContext,
    authenticator: Authenticator | None,
    routes: Sequence[BaseRoute],
    *,
    console: bool = True,
) -> ASGIApp:
    """In: `routes`: /cluster, /v1/snapshots, and the routes below them."""

    async def health(request: Request) -> Response:
        del request
        kafka = node.serving and not node.cut_off
        engine = kafka and engine_is_there(node, host)
        healthy = {"metastore": engine, "kafka": kafka, "commandRunner": engine}
        parts = {name: {"isHealthy": well} for name, well in healthy.items()}
        body = {"isHealthy": engine, "details": parts, "serverState": "READY" if engine else "NOT_READY"}
        return json_response(body, 200 if engine else 503)

    async def live(request: Request) -> Response:
        del request
        return json_response({}, 200)

    async def ready(request: Request) -> Response:
        del request
        return json_response({}, 200 if node.serving and engine_is_there(node, host) else 503)

    async def metrics(request: Request) -> Response:
        return await metrics_response(context.workers, context.metrics, request)

    async def told(request: Request) -> Response:
        """Accepts the reports between ksqlDB servers, and ignores them: our nodes know more from the cluster's
        metadata."""
        try:
            rights_of(request.scope).require_administrator()
        except NotPermitted as error:
            return error_response(error)
        return json_response({"isOk": True}, 200)

    app = Starlette(
        routes=[
            Route("/healthcheck", health),
            *(Route(path, live) for path in ("/chc/live", "/livez")),
            *(Route(path, ready) for path in ("/chc/ready", "/readyz")),
            Route("/metrics", metrics),
            *(Route(path, told, methods=["POST"]) for path in ("/heartbeat", "/lag")),
            *routes,
            *(console_routes() if console else ()),
        ]
    )
    return Gate(OwnOrigin(app) if console else app, context, authenticator)


class ClusterApp:
    """An ASGI application. In: `tls`: for connections to other nodes, if they use HTTP over TLS."""

    def __init__(
        self,
        node: HostNode,
        host: EngineHost,
        local: ASGIApp,
        clients: ForwardedClients,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._node = node
        self._host = host
        self._local = local
        self._clients = clients
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._local(scope, receive, send)
            return
        try:
            self._count(scope)
        except RequestRefused as refusal:
            await _turn_away(refusal, scope, receive, send)
            return
        running = self._host.running
        path = scope["path"]
        if path in _LOCAL or path.startswith(_LOCAL_BELOW):
            here = running is not None and path in _OF_THE_ENGINE
            await (running.app if here and running is not None else self._local)(scope, receive, send)
        elif running is not None:
            await running.app(scope, receive, send)
        else:
            await self._when_there(scope, receive, send)

    def _count(self, scope: Scope) -> None:
        """Counts a forwarded request's connection for its client, and stores the certificate that the client presented
        to the other node. Raises `RequestRefused` if the client has too many connections."""
        client = self._clients.client_of(scope)
        if client is not None:
            place: ConnectionPlace | None = scope["state"].get(PLACE)
            if place is not None:
                place.count_as(client.address)
            scope["state"] = {**scope["state"], FORWARDED_CERTIFICATE: client.certificate}

    async def _when_there(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Waits for an engine, on this or on another node."""
        incoming = Incoming(receive)
        if scope["type"] == "websocket":
            await incoming.begin()  # the connect message arrives only once, and a second attempt may need it
        forwarded = any(name.lower() == FORWARDED for name, _ in scope["headers"])
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while asyncio.get_running_loop().time() < deadline:
            running = self._host.running
            if running is not None:
                await running.app(scope, incoming.again, send)
                return
            if self._host.place != self._node.id and forwarded:
                break
            try:
                if await self._elsewhere(scope, incoming, send):
                    return
            except NotThere:
                if incoming.gone_on:
                    break
            await asyncio.sleep(_LOOK_S)
        if forwarded:
            await _read_what_comes(incoming)
        await _refuse(scope, receive, send)

    async def _elsewhere(self, scope: Scope, incoming: Incoming, send: Send) -> bool:
        """False if no node is known to forward to. Raises `NotThere`."""
        to = self._engine_address()
        if to is None:
            return False
        said = self._clients.said_of(scope)
        runs_there = functools.partial(self._runs_at, to)
        if scope["type"] == "websocket":
            await forward_socket(scope, incoming.receive, send, to, self._tls, said, runs_there)
        else:
            await forward(scope, incoming, send, to, self._tls, said, runs_there)
        return True

    def _runs_at(self, address: ListenAddress) -> bool:
        return self._engine_address() == address

    def _engine_address(self) -> ListenAddress | None:
        """The address of the other node that runs the engine or is about to; None if this node cannot know."""
        place = self._host.place
        if place is None or place == self._node.id or self._node.cut_off:
            return None
        broker = self._node.image.brokers.get(place)
        found = None if broker is None else broker.address("http")
        return None if found is None else ListenAddress.parse(found)


async def _read_what_comes(incoming: Incoming) -> None:
    """Reads the first part of the body: the forwarding node sends it directly after the headers. If the connection were
    closed before it arrives, TCP would reset the connection, and the answer would be lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READ_S):
            await incoming.begin()


async def _turn_away(refusal: RequestRefused, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.message[:100]})
        return
    await _read_what_comes(Incoming(receive))
    await error_response(refusal)(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and _CAN_REFUSE not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": "no node runs the engine"})
        return
    error = RequestRefused(
        NO_ENGINE,
        "no node of the cluster runs the engine",
        hint="Another node starts it within seconds, if a majority of the nodes is up: retry.",
    )
    response = error_response(error)
    response.headers[NOT_HERE.decode()] = "1"
    await response(scope, receive, send)
