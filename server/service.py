"""A running server: the log with its Kafka listener, the engine with its queries, the HTTP listener, in this order."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

import structlog

from ..logcore.log import open_log
from ..logcore.server import ListenFailed, LogServer
from .configuration import Address, Configuration
from .embedded import engine_on
from .executors import check_executor, describe_executor
from .http_app import http_app
from .http_context import HttpContext
from .http_listener import HttpListener, cannot_listen

_log = structlog.get_logger("millstream.server")


class Service:
    """Everything that `millstream server` runs. `start` it, `stop` it; the data directory has the rest."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._parts = contextlib.ExitStack()  # what to stop, the last one first
        self._http = configuration.http
        self._kafka = configuration.kafka

    @property
    def http_address(self) -> Address:
        """With the real port, once started."""
        return self._http

    @property
    def kafka_address(self) -> Address:
        return self._kafka

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
        return [
            f"http: listening on http://{self._http}",
            f"kafka: listening on {self._kafka}",
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
        listener = HttpListener(self.configuration.http)
        parts.callback(listener.stop)
        self._http = listener.address
        log = open_log(self.configuration.data / "log")
        parts.callback(log.close)
        kafka = LogServer(log, self.configuration.kafka.host, self.configuration.kafka.port)
        kafka.start()
        parts.callback(kafka.stop)
        self._kafka = Address(self.configuration.kafka.host, kafka.port)
        engine = engine_on(log, self.configuration.data, properties, str(self._kafka))
        parts.callback(engine.close)
        context = HttpContext(engine, log.id, self.configuration.body_bytes_max)
        parts.callback(self._end_requests, context, listener)
        listener.start(http_app(context))
        context.ready = True
        for what, address in (("http", self._http), ("kafka", self._kafka)):
            if not address.is_local:
                _log.warning("anybody who reaches this address may do anything", listener=what, address=str(address))

    def _end_requests(self, context: HttpContext, listener: HttpListener) -> None:
        context.ready = False
        context.open_queries.close()
        listener.stop()
        context.close()
