"""The server on a node of a cluster: it runs the engine if this is the right node, and answers HTTP on every node."""

from __future__ import annotations

import contextlib
import functools
import ssl
import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from prometheus_client.registry import Collector

from ...logcore.backup.snapshots import Snapshots
from ...logcore.clients.routed_log import RoutedLog
from ...logcore.cluster.node_log import NodeLog
from ...logcore.cluster.operations import Operations
from ...logcore.cluster.serving import ServedNode
from ...logcore.remote import TLS
from ..config.configuration import Configuration, ListenAddress
from ..engine.embedded import engine_on
from ..http.app import http_app
from ..http.context import HttpContext
from ..http.listener import HttpListener
from ..http.snapshots import snapshot_routes
from ..security.access import Authenticator
from ..security.host_check import HostCheck, names_of
from .admin import cluster_routes
from .engine_host import EngineHost, HostNode, RunningEngine
from .engine_log import EngineLog
from .forwarded_clients import ForwardedClients
from .node_http import ClusterApp, LocalContext, local_app

_PATIENCE_S: Final = 60.0  # how long the engine's queries wait for a leader
_LAST_WORDS_S: Final = 1.0  # for reporting to clients why their queries end
_SETTLES_S: Final = 5.0  # for queries to commit; if the cluster is stopping, too, they cannot


def start_engine_on_cluster(
    node: HostNode,
    *,
    open_log: Callable[[], RoutedLog],
    secret: str,
    cluster_id: str,
    configuration: Configuration,
    listener: HttpListener,
    users: Authenticator | None,
    parts: contextlib.ExitStack,
    figures: Collector | None = None,
    operations: Operations | None = None,
    snapshots: Snapshots | None = None,
) -> EngineHost:
    """Answers HTTP at `listener`, and runs the engine while this node should; `parts` ends both.

    In: `open_log`: see `log_for_engine`; `secret`: shared by all nodes. `figures`: the node's metrics for /metrics;
    `operations`: for /cluster; `snapshots`: for /v1/snapshots.
    """
    starting = _Starting(open_log)
    properties = configuration.engine_properties_at(listener.address)
    paused = iter([configuration.paused])  # a later fail-over is not a start

    def open_engine(on_loss: Callable[[], None]) -> RunningEngine:
        with starting.log() as log:
            return _open_engine(
                log, cluster_id, configuration, properties, users, figures, operations, on_loss, node,
                paused=next(paused, False),
            )  # fmt: skip

    def create_topic(name: str, partition_count: int, config: dict[str, str]) -> None:
        with starting.log() as log, log:
            log.create_topic(name, partition_count, config)

    context = LocalContext(figures)
    parts.callback(context.close)
    host = EngineHost(node, open_engine, create_topic)
    parts.callback(listener.stop)
    parts.callback(host.stop)
    parts.callback(starting.cut_off)
    tls = None if configuration.tls is None else configuration.tls.connecting()
    body_bytes_max = configuration.body_bytes_max
    routes = [
        *cluster_routes(operations, context.workers, body_bytes_max),
        *snapshot_routes(snapshots, context.workers, body_bytes_max),
    ]
    clients = ForwardedClients(secret, node.id)
    local = local_app(node, host, context, users, routes, console=configuration.console)
    app = ClusterApp(node, host, local, clients, tls=tls)
    listener.start(HostCheck(app, names_of(configuration), lambda scope: clients.client_of(scope) is not None))
    host.start()
    return host


class _Starting:
    """State: the log that the start of an engine is waiting for. If the process has to end, the wait is aborted."""

    def __init__(self, open_log: Callable[[], RoutedLog]) -> None:
        self._open_log = open_log
        self._log: RoutedLog | None = None
        self._guard = threading.Lock()
        self._over = False

    @contextlib.contextmanager
    def log(self) -> Generator[RoutedLog]:
        """The opened log. It is closed only if the block raises."""
        log = self._open_log()
        with self._guard:
            self._log = log
            if self._over:
                log.close()
        try:
            yield log
        except BaseException:
            log.close()
            raise
        finally:
            with self._guard:
                self._log = None

    def cut_off(self) -> None:
        """Closes the log, and every later one at once. From any thread."""
        with self._guard:
            self._over = True
            if self._log is not None:
                self._log.close()


def log_for_engine(
    node: HostNode, served: ServedNode, kafka_address: ListenAddress, tls: ssl.SSLContext | None
) -> RoutedLog:
    """The log for the engine of this node. In: `kafka_address`: of this node's listener; `tls`: for connections to the
    listeners of other nodes."""
    others = [broker.address("kafka") for broker in node.image.brokers.values() if broker.id != node.id]
    addresses = [str(kafka_address), *(address for address in others if address is not None)]
    bootstrap = f"{served.serving.log.secret}@{','.join(addresses)}"
    return NodeLog(served, bootstrap=bootstrap, patience_s=_PATIENCE_S, tls=tls)


def _open_engine(
    routed: RoutedLog,
    cluster_id: str,
    configuration: Configuration,
    properties: dict[str, str],
    users: Authenticator | None,
    figures: Collector | None,
    operations: Operations | None,
    on_loss: Callable[[], None],
    node: HostNode,
    *,
    paused: bool,
) -> RunningEngine:
    log = EngineLog(routed, on_loss)
    engine = engine_on(log, configuration.data, properties, routed.bootstrap, paused=paused)
    context = HttpContext(
        engine,
        cluster_id,
        configuration.body_bytes_max,
        figures,
        operations,
        kafka=functools.partial(_kafka_addresses, node, tls=configuration.kafka_tls is not None),
    )
    others = functools.partial(other_nodes, node)
    app = http_app(
        context,
        users,
        others,
        console=configuration.console,
        mcp=configuration.mcp,
        rest_proxy=configuration.rest_proxy_settings,
    )
    context.ready = True

    def end(*, settle: bool) -> None:
        """Runs all steps, even if some of them fail; failures are raised afterwards."""
        context.ready = False
        late = threading.Timer(_SETTLES_S, log.close)
        late.daemon = True
        with contextlib.ExitStack() as steps:  # the steps run in reverse order
            for step in (log.close, late.cancel, engine.close, context.close, context.open_queries.close, late.start):
                steps.callback(step)
            if not settle:
                log.close()  # no further writes; readers get an error
                _wait_for(lambda: not len(context.open_queries))

    return RunningEngine(engine, app, lambda: end(settle=True), lambda: end(settle=False))


def _kafka_addresses(node: HostNode, *, tls: bool) -> str | None:
    """The Kafka addresses of all nodes, for clients."""
    known = [broker.address("kafka") for broker in node.image.brokers.values()]
    addresses = ",".join(address for address in known if address is not None)
    return (f"{TLS}{addresses}" if tls else addresses) or None


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LAST_WORDS_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)


def other_nodes(node: HostNode) -> dict[str, bool]:
    """The other nodes by HTTP address, and whether they are alive."""
    found: dict[str, bool] = {}
    for broker in node.image.brokers.values():
        address = broker.address("http")
        if broker.id != node.id and address is not None:
            found[address] = not broker.fenced
    return found
