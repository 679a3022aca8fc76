"""A running server: the log with its Kafka listener, the engine with its queries, the HTTP listener, in this order."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

import structlog

from ..logcore.log import open_log
from ..logcore.protocol.quotas import Quotas
from ..logcore.server import ListenFailed, LogServer
from .access import Authenticator
from .configuration import Address, Configuration
from .embedded import engine_on
from .engine import Engine
from .executors import check_executor, describe_executor
from .foreign_rows import ForeignRows, is_own_name
from .http_app import http_app
from .http_context import HttpContext
from .http_listener import HttpListener, cannot_listen
from .schema_registry import schema_registry_app

_log = structlog.get_logger("millstream.server")


class Service:
    """Everything that `millstream server` runs. `start` it, `stop` it; the data directory has the rest."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._engine: Engine | None = None
        self._parts = contextlib.ExitStack()  # what to stop, the last one first
        self._http = configuration.http
        self._kafka = configuration.kafka
        self._schema_registry = configuration.schema_registry

    @property
    def engine(self) -> Engine:
        """Only once started."""
        assert self._engine is not None
        return self._engine

    @property
    def http_address(self) -> Address:
        """With the real port, once started."""
        return self._http

    @property
    def kafka_address(self) -> Address:
        return self._kafka

    @property
    def schema_registry_address(self) -> Address | None:
        return self._schema_registry

    def start(self) -> None:
        """Returns once requests are answered and all queries of the catalog run.

        Raises what makes a server impossible: `CannotListen`, `LogLocked`, `InvalidProperty`, `NoSpark`, … Then nothing
        is left running.
        """
        began = time.monotonic()
        try:
            with contextlib.ExitStack() as parts:
                self._start(parts)
                self._parts = parts.pop_all()
        except ListenFailed as error:
            raise cannot_listen("kafka", self.configuration.kafka, error.__cause__) from error
        _log.info("server started", data=str(self.configuration.data), seconds=round(time.monotonic() - began, 2))

    def stop(self) -> None:
        """Ends clients' queries, lets requests finish, stops persistent queries where they stand. Twice is fine."""
        self._parts.close()

    def announcements(self) -> list[str]:
        """A line per listener, and one about the executor: what `millstream server` prints when it is ready."""
        registry = self._schema_registry
        return [
            f"http: listening on {'http' if self.configuration.tls is None else 'https'}://{self._http}",
            f"kafka: listening on {self._kafka}",
            *([] if registry is None else [f"schema registry: listening on http://{registry}"]),
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
        properties = self.configuration.engine_properties
        check_executor(properties)
        listener = HttpListener(self.configuration.http, tls=self.configuration.tls)
        parts.callback(listener.stop)
        self._http = listener.address
        registry = self._registry_listener(parts)
        log = open_log(self.configuration.data / "log")
        parts.callback(log.close)
        quotas = Quotas(self.configuration.kafka_produce_bytes, self.configuration.kafka_fetch_bytes)
        kafka = LogServer(log, self.configuration.kafka.host, self.configuration.kafka.port, quotas=quotas)
        kafka.start()
        parts.callback(kafka.stop)
        self._kafka = Address(self.configuration.kafka.host, kafka.port)
        engine = engine_on(log, self.configuration.data, properties, str(self._kafka))
        parts.callback(engine.close)
        self._engine = engine
        kafka.transcoder = ForeignRows(lambda: engine.catalog)
        kafka.is_reserved = lambda name: is_own_name(engine.catalog, name)
        context = HttpContext(
            engine, log.id, self.configuration.body_bytes_max, lambda topic, at: log.partition(topic, at).size_on_disk
        )
        parts.callback(self._end_requests, context, listener)
        access = self.configuration.access
        listener.start(http_app(context, None if access is None else Authenticator(access)))
        context.ready = True
        if registry is not None:
            parts.callback(registry.stop)
            registry.start(schema_registry_app(engine.schemas, engine.lock))
        addresses = {"http": self._http, "kafka": self._kafka, "schema registry": self._schema_registry}
        for what, address in addresses.items():
            is_open = what != "http" or self.configuration.access is None
            if address is not None and not address.is_local and is_open:
                _log.warning("anybody who reaches this address may do anything", listener=what, address=str(address))

    def _registry_listener(self, parts: contextlib.ExitStack) -> HttpListener | None:
        """Takes the port of the schema registry, if one is wanted; the engine answers there later."""
        if self.configuration.schema_registry is None:
            return None
        listener = HttpListener(self.configuration.schema_registry, "schema-registry")
        parts.callback(listener.stop)
        self._schema_registry = listener.address
        return listener

    def _end_requests(self, context: HttpContext, listener: HttpListener) -> None:
        context.ready = False
        context.open_queries.close()
        listener.stop()
        context.close()
