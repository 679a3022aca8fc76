"""The Sandbox's interface over a started server: statements and queries travel over HTTP, as any client sends them.

Records are produced and consumed through the log itself, as a client on the Kafka port would; time stands still.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

from running_server import service_in

from millstream.executor.sources.journal import JournaledLog, RecordPlace
from millstream.logcore.client import LogClient, TopicPartition
from millstream.server.client import HttpClient
from millstream.server.config.properties import lenient_properties
from millstream.server.engine.session import Session
from millstream.testing import Sandbox, TopicRecord

_IDLE_S: Final = 1.0  # a push query that says nothing for so long has nothing more to say
_WAIT_S: Final = 30.0
_DECODER: Final = json.JSONDecoder(parse_float=Decimal)


class HttpSandbox(Sandbox):
    """See `Sandbox`. `drain` waits until every query has read everything."""

    def __init__(self, executor: str = "duckdb", properties: Mapping[str, Any] | None = None) -> None:
        settings = {"ksql.streams.cache.max.bytes.buffering": "0", **lenient_properties(properties or {})}
        self._directory = tempfile.mkdtemp(prefix="millstream-http-")
        self._service = service_in(Path(self._directory), executor=executor, properties=settings)
        self._service.start()
        self.session = Session(settings)
        self.engine = self._service.engine
        self.engine.schemas.default_level = "NONE"
        self.engine._now_ms = lambda: 0
        self._open_log = cast(Any, self.engine.log)
        self.log = JournaledLog(self.engine.log)
        self._client = HttpClient(f"http://{self._service.http_address}")
        self._pending = []

    def close(self) -> None:
        self._service.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def execute(self, sql: str) -> list[dict[str, Any]]:
        if self._pending:
            self._register_pending(sql)
        return self._client.execute(sql)

    def query(self, sql: str) -> Iterator[dict[str, Any]]:
        """The objects of /query, as they come."""
        address = self._service.http_address
        connection = http.client.HTTPConnection(address.host, address.port)
        body = {"ksql": sql, "streamsProperties": self._client.properties}
        connection.request("POST", "/query", json.dumps(body), {"content-type": "application/json"})
        assert connection.sock is not None
        connection.sock.settimeout(_WAIT_S)
        response = connection.getresponse()
        if response.status != 200:
            with contextlib.closing(connection):
                raise ServerSaidNo(json.loads(response.read())["message"])
        objects = self._objects(connection, response)
        first = next(objects)  # then the query runs
        return itertools.chain([first], objects)

    def _objects(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> Iterator[dict[str, Any]]:
        assert response.fp is not None
        cast(Any, response.fp).raw._sock.settimeout(_IDLE_S)
        text = ""
        with contextlib.closing(connection):
            while True:
                text = text.lstrip("[,\n ")
                try:
                    found, end = _DECODER.raw_decode(text)
                except ValueError:
                    try:
                        data = response.read1(65536)
                    except TimeoutError:
                        return
                    if not data:
                        return
                    text += data.decode()
                    continue
                text = text[end:]
                if "errorMessage" in found:
                    raise ServerSaidNo(found["errorMessage"]["message"])
                yield found

    def drain(self) -> None:
        """Waits until no query has anything left to read. Raises where one cannot go on."""
        deadline = time.monotonic() + _WAIT_S
        while not self._quiet():
            if time.monotonic() > deadline:
                raise TimeoutError("the queries do not come to rest")
            time.sleep(0.02)

    def consume(self, topic: str) -> list[TopicRecord]:
        """Partition by partition."""
        source = self._source_on(topic)
        found: dict[RecordPlace, TopicRecord] = {}
        for partition in range(self._open_log.topics()[topic].partition_count):
            found.update(self._decode(TopicPartition(topic, partition), source))
        return list(found.values())

    def _quiet(self) -> bool:
        return self._caught_up() and self._caught_up()  # what one query writes, another reads

    def _caught_up(self) -> bool:
        log: LogClient = self.engine.log
        for query_id, query in self.engine.catalog.queries.items():
            status = self.engine.executor.status(query_id)
            if status.error is not None:
                raise ServerSaidNo(status.error)
            for source in query.plan.sources():
                for partition in range(log.topics()[source.topic].partition_count):
                    at = TopicPartition(source.topic, partition)
                    if status.positions.get(at, 0) < log.offsets(*at).last_stable_offset:
                        return False
        return True


class ServerSaidNo(Exception):
    """An error that came over HTTP."""
