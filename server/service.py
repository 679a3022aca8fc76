"""A running server: the log with its Kafka listener, the engine with its queries, the HTTP listener, in this order."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import structlog

from ..executor.connect.leaving import TASK_THREADS
from ..logcore.backup.snapshots import Snapshots
from ..logcore.cluster.node_log import NodeLog
from ..logcore.cluster.operations import Operations
from ..logcore.external.external_log import ExternalLogSettings
from ..logcore.external.kafka_properties import BOOTSTRAP
from ..logcore.log import Log, open_log
from ..logcore.protocol.admission import ConnectionLimits
from ..logcore.protocol.requests.scram_requests import KeptUsers
from ..logcore.protocol.security.users import NoUsers, Users
from ..logcore.remote import TLS
from ..logcore.server import ListenFailed, LogServer
from ..logcore.storage.open_files import raise_limit_of_process
from ..sql.compiling.later import LaterModule
from .allocators import MemoryReturns
from .cluster.followed_catalog import FollowedCatalog
from .cluster.node_engine import log_for_engine, start_engine_on_cluster
from .cluster.node_metrics import ClusterMetrics
from .cluster.node_service import start_node
from .config.configuration import Configuration, ListenAddress
from .engine.embedded import engine_on
from .engine.engine import Engine
from .engine.executors import check_executor, describe_executor
from .external_engine import cluster_id, engine_on_brokers
from .folder_watch import FolderWatch
from .foreign_rows import ForeignRows, is_own_name
from .http.app import http_app
from .http.context import CALL_THREADS, PATIENT_THREADS, HttpContext
from .http.gate import Gate
from .http.listener import HttpListener
from .insight.log_metrics import LogMetrics
from .kafka_listener import kafka_listener
from .registry.registry_app import schema_registry_app
from .security.access import Authenticator
from .security.host_check import HostCheck, names_of
from .security.kafka_users import KafkaUsers
from .security.private_folder import PRIVATE_UMASK, make_private
from .socket_listener import cannot_listen

# Few servers use PostgreSQL's protocol, and it needs 28 modules.
if TYPE_CHECKING:
    from .pg import pg_listener
else:
    pg_listener = LaterModule(f"{__package__}.pg.pg_listener")

_SWITCH_S: Final = 0.001
"""How long the event loop waits for a thread that computes. Compared with Python's 5 ms, measured in turns: pull
queries by key reach 0.80 instead of 0.63 of /healthcheck; p99 of 200 push queries is 9 to 26 ms instead of 29 to 32;
with concurrent writers there is no difference."""

_log = structlog.get_logger("millstream.server")


class Service:
    """Everything that `millstream server` runs. Call `start`, then `stop`; everything durable is in the data
    directory."""

    def __init__(self, configuration: Configuration, panicked: Callable[[str], None] = lambda reason: None) -> None:
        """In: `panicked`: called with the reason when the log cannot continue. Then the process has to end."""
        self.configuration = configuration
        self._panicked = panicked
        self._engine: Engine | None = None
        self._parts = contextlib.ExitStack()  # the parts to stop, last one first
        self._http = configuration.http
        self._kafka = configuration.kafka_listener
        self._schema_registry = configuration.schema_registry
        self._pg = configuration.pg

    @property
    def engine(self) -> Engine:
        """Available after `start`."""
        assert self._engine is not None
        return self._engine

    @property
    def http_address(self) -> ListenAddress:
        """With the real port, after `start`."""
        return self._http

    @property
    def kafka_address(self) -> ListenAddress:
        """A server with an external log has no such address."""
        assert self._kafka is not None
        return self._kafka

    @property
    def schema_registry_address(self) -> ListenAddress | None:
        return self._schema_registry

    @property
    def pg_address(self) -> ListenAddress | None:
        return self._pg

    def start(self) -> None:
        """Returns once the server answers requests and runs all queries of the catalog.

        Raises what prevents a start: `CannotListen`, `LogLocked`, `InvalidProperty`, `NoSpark`, … In that case nothing
        is left running.
        """
        began = time.monotonic()
        sys.setswitchinterval(_SWITCH_S)
        raise_limit_of_process()
        try:
            with contextlib.ExitStack() as parts:
                self._start(parts)
                self._parts = parts.pop_all()
        except ListenFailed as error:
            raise cannot_listen("kafka", self.kafka_address, error.__cause__) from error
        seconds = round(time.monotonic() - began, 2)
        arrow_memory = pa.default_memory_pool().backend_name
        _log.info("server started", data=str(self.configuration.data), seconds=seconds, arrow_memory=arrow_memory)

    def stop(self) -> None:
        """Ends clients' queries, lets requests finish, and stops persistent queries at their current positions. May be
        called twice."""
        self._parts.close()

    def announcements(self) -> list[str]:
        """The lines that `millstream server` prints when it is ready: one per listener, and one about the executor."""
        registry, external = self._schema_registry, self.configuration.external
        return [
            f"http: listening on {'http' if self.configuration.tls is None else 'https'}://{self._http}",
            f"kafka: external log at {external[BOOTSTRAP]}" if external else f"kafka: listening on {self._kafka}",
            *([] if registry is None else [f"schema registry: listening on http://{registry}"]),
            *([] if self._pg is None else [f"pg: listening on {self._pg}"]),
            f"executor: {describe_executor(self.configuration.engine_properties)}",
        ]

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, parts: contextlib.ExitStack) -> None:
        check_executor(self.configuration.engine_properties)
        returns = MemoryReturns()
        parts.callback(returns.close)
        returns.start()
        parts.callback(os.umask, os.umask(PRIVATE_UMASK))
        make_private(self.configuration.data)
        limits = ConnectionLimits(self.configuration.connections_max, self.configuration.connections_per_address_max)
        listener = HttpListener(self.configuration.http, tls=self.configuration.tls, limits=limits)
        parts.callback(listener.stop)
        self._http = listener.address
        registry = self._registry_listener(parts)
        pg = self._pg_listener(parts)
        access = self.configuration.access
        users = None if access is None else Authenticator(access)
        external = self.configuration.external_log
        if external is not None:
            self._start_external(external, listener, users, registry, pg, parts)
        elif self.configuration.node is not None:
            self._start_node(listener, users, parts)
        else:
            self._start_alone(listener, users, registry, pg, parts)
        addresses = {"http": self._http, "kafka": self._kafka, "schema registry": self._schema_registry, "pg": self._pg}
        for what, address in addresses.items():
            is_open = self.configuration.access is None
            if address is not None and not address.is_local and is_open:
                _log.warning(
                    "anybody who can reach this address may do everything", listener=what, address=str(address)
                )

    def _start_node(self, listener: HttpListener, users: Authenticator | None, parts: contextlib.ExitStack) -> None:
        """Starts a node of a cluster. The engine runs on one node at a time, this one or another."""
        node, served, kafka = start_node(self.configuration, self._http, users, parts, self._panicked)
        self._watch_folder(parts)
        self._kafka = ListenAddress(self.kafka_address.host, kafka.port)
        tls = None if self.configuration.kafka_tls is None else self.configuration.kafka_tls.connecting()
        catalog = FollowedCatalog(node, lambda: NodeLog(served, tls=tls))
        kafka.transcoder = ForeignRows(lambda: catalog.catalog)
        kafka.is_reserved, kafka.knows_names = catalog.is_own_name, catalog.is_known
        node.expires = lambda group: not catalog.is_own_name(group)
        parts.callback(catalog.stop)
        catalog.start()
        snapshots = Snapshots(node)
        parts.callback(snapshots.close)
        start_engine_on_cluster(
            node,
            open_log=functools.partial(log_for_engine, node, served, self.kafka_address, tls),
            secret=kafka.log.secret,
            cluster_id=kafka.log.id,
            configuration=self.configuration,
            listener=listener,
            users=users,
            parts=parts,
            figures=ClusterMetrics(node, LogMetrics(kafka.log, self.configuration.metrics_partitions_max)),
            operations=Operations(node, node.settings.name),
            snapshots=snapshots,
        )

    def _watch_folder(self, parts: contextlib.ExitStack) -> None:
        watch = FolderWatch(self.configuration.data / "log", self._panicked)
        parts.callback(watch.close)
        watch.start()

    def _start_alone(
        self,
        listener: HttpListener,
        users: Authenticator | None,
        registry: HttpListener | None,
        pg: pg_listener.PgListener | None,
        parts: contextlib.ExitStack,
    ) -> None:
        properties = self.configuration.engine_properties_at(self._http)
        log = open_log(self.configuration.data / "log", expiry=self.configuration.expiry, panicked=self._panicked)
        parts.callback(log.close)
        self._watch_folder(parts)
        kafka = kafka_listener(log, self.configuration, users)
        kafka.start()
        parts.callback(kafka.stop)
        self._kafka = ListenAddress(self.kafka_address.host, kafka.port)
        engine = engine_on(
            log,
            self.configuration.data,
            properties,
            self._address_for_workers(log, parts),
            paused=self.configuration.paused,
            alone=True,
        )
        parts.callback(engine.close)
        self._engine = engine
        kafka.transcoder = ForeignRows(lambda: engine.catalog)
        kafka.is_reserved = lambda name: is_own_name(engine.catalog, name)
        log.expire_offsets_of(lambda group: not is_own_name(engine.catalog, group))
        figures = LogMetrics(log.served, self.configuration.metrics_partitions_max)
        snapshots = Snapshots(log.node)
        parts.callback(snapshots.close)
        body_bytes_max = self.configuration.body_bytes_max
        context = HttpContext(
            engine, log.served.id, body_bytes_max, figures, snapshots=snapshots, kafka=self._address_for_clients
        )
        access = self.configuration.access
        known = None if access is None or users is None else KeptUsers(KafkaUsers(access, users), log.served)
        self._answer(context, listener, users, registry, pg, known, parts)

    def _start_external(
        self,
        settings: ExternalLogSettings,
        listener: HttpListener,
        users: Authenticator | None,
        registry: HttpListener | None,
        pg: pg_listener.PgListener | None,
        parts: contextlib.ExitStack,
    ) -> None:
        properties = self.configuration.engine_properties_at(self._http)
        engine, give_up = engine_on_brokers(settings, self.configuration, properties, parts, self._panicked)
        self._engine = engine
        context = HttpContext(engine, cluster_id(settings), self.configuration.body_bytes_max)
        access = self.configuration.access
        known = None if access is None or users is None else KafkaUsers(access, users)
        self._answer(context, listener, users, registry, pg, known, parts)
        parts.callback(give_up)

    def _answer(
        self,
        context: HttpContext,
        listener: HttpListener,
        users: Authenticator | None,
        registry: HttpListener | None,
        pg: pg_listener.PgListener | None,
        known: Users | None,
        parts: contextlib.ExitStack,
    ) -> None:
        """Starts answering clients. In: `known`: the users who may connect to `pg`."""
        engine = context.engine
        parts.callback(self._end_requests, context, listener)
        names = names_of(self.configuration)
        listener.start(
            HostCheck(
                http_app(
                    context,
                    users,
                    console=self.configuration.console,
                    mcp=self.configuration.mcp,
                    rest_proxy=self.configuration.rest_proxy_settings,
                ),
                names,
            )
        )
        context.ready = True
        if registry is not None:
            parts.callback(registry.stop)
            pages = schema_registry_app(engine.schemas, engine.lock)
            registry.start(HostCheck(Gate(pages, context, users, open_paths=()), names))
        if pg is not None:
            parts.callback(pg.stop)
            pg.start(context, known, self.configuration.body_bytes_max)

    def _pg_listener(self, parts: contextlib.ExitStack) -> pg_listener.PgListener | None:
        """Opens the port for PostgreSQL's clients, if it is configured; the engine answers there later."""
        if self.configuration.pg is None:
            return None
        limits = ConnectionLimits(
            self.configuration.pg_connections_max, self.configuration.pg_connections_per_address_max
        )
        listener = pg_listener.PgListener(self.configuration.pg, self.configuration.tls, limits)
        parts.callback(listener.stop)
        self._pg = listener.address
        return listener

    def _address_for_workers(self, log: Log, parts: contextlib.ExitStack) -> str:
        """The address at which Spark's processes reach the log. They know its secret, but do not support TLS."""
        if self.configuration.kafka_tls is None:
            return str(self.kafka_address)
        inner = LogServer(log, port=0, users=NoUsers())
        inner.start()
        parts.callback(inner.stop)
        return inner.address

    def _address_for_clients(self) -> str:
        """The Kafka address as the server knows it. If the server listens on all interfaces, that address is
        returned."""
        address = self.configuration.kafka_advertised or self.kafka_address
        return str(address) if self.configuration.kafka_tls is None else f"{TLS}{address}"

    def _registry_listener(self, parts: contextlib.ExitStack) -> HttpListener | None:
        """Opens the port of the schema registry, if it is configured; the engine answers there later."""
        if self.configuration.schema_registry is None:
            return None
        listener = HttpListener(self.configuration.schema_registry, "schema-registry")
        parts.callback(listener.stop)
        self._schema_registry = listener.address
        return listener

    def _end_requests(self, context: HttpContext, listener: HttpListener) -> None:
        context.ready = False
        context.engine.ask_to_stop()
        context.open_queries.close()
        listener.stop()
        context.close()


def has_left_threads() -> bool:
    """Whether a closed service has left threads running because an external system does not answer them."""
    names = (TASK_THREADS, CALL_THREADS, PATIENT_THREADS)
    return any(thread.name.startswith(names) for thread in threading.enumerate())
