"""ConnectorSandbox: runs a connector on its own log, with a clock that the test moves and crashes that it chooses.

    with ConnectorSandbox(Squares, {"topic": "squares", "limit": "5"}) as sandbox:
        sandbox.kill_at("after_records")
        sandbox.run()
        assert [record.value["square"] for record in sandbox.records("squares")] == [0, 1, 4, 9, 16]

The runner is the one of the server. Nothing runs by itself: `run` steps the task until it has nothing to do. Killing a
task has the effect of a process crash, and the next task begins at the committed position.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, Self

import pyarrow as pa

from ...logcore.client import FetchedRows, RowRecords
from ...logcore.failpoints import FailpointHit, arm
from ...logcore.log import open_log
from ...logcore.murmur2 import partition_of
from ..formats.wire import SchemaLookup, no_schemas
from ..state.temporary_folders import TemporaryFolder
from .connector import ConnectRecord, Position, SinkConnector, SourceConnector, TaskInfo
from .connector_errors import InvalidConnector, SystemFault, SystemUnavailable
from .connector_secrets import Secrets
from .connector_settings import read_settings
from .converters import Converter, converter_of, sink_converter_of
from .inbox import Inbox
from .secret_vault import KnownSecrets, SecretVault
from .sink_runner import SinkRunner, reading
from .source_runner import SourceRunner
from .task_clock import VirtualClock
from .task_positions import read_position
from .task_worker import TaskRunner

SOURCE_KILL_POINTS: Final = ("after_read", "after_records", "after_position", "after_commit", "after_acknowledge")
SINK_KILL_POINTS: Final = ("sink_after_read", "sink_after_write", "sink_after_commit")
_AGAIN_MS: Final = 100
_ATTEMPTS: Final = 20
_STEPS_MAX: Final = 100_000


class ConnectorSandbox:
    """One task of one connector. Not thread-safe. Failpoints belong to the process, so only one sandbox at a time may
    use kill points.

    In: `config`: settings as in CREATE CONNECTOR, including references. State: the log, the clock, the current life of
    the task, and the number of deaths.
    """

    def __init__(
        self,
        connector: type[SourceConnector] | type[SinkConnector],
        config: Mapping[str, str],
        *,
        now_ms: int = 0,
        schemas: SchemaLookup = no_schemas,
    ) -> None:
        """In: `schemas`: the schemas that records for a sink name. Raises `InvalidConnector`."""
        self.clock = VirtualClock(now_ms)
        self.deaths = 0
        self._connector = connector
        self._config = Secrets(KnownSecrets(SecretVault(), dict)).resolve(config)
        self._settings = read_settings(connector.settings, self._config)
        self.inbox = Inbox()
        self._task = TaskInfo("sandbox", identity=uuid.uuid4().hex, clock=self.clock, inbox=self.inbox)
        self._schemas = schemas
        self._key, self._value = self._converter("key"), self._converter("value")
        self._folder = TemporaryFolder("connector-sandbox")
        self.log = open_log(self._folder.path, sync="never")
        self._life: TaskRunner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the task and removes the log."""
        arm("")
        self._end_life()
        self.log.close()
        self._folder.remove()

    @property
    def kill_points(self) -> tuple[str, ...]:
        """The points at which a task of this kind can be killed."""
        if issubclass(self._connector, SourceConnector):
            return SOURCE_KILL_POINTS
        return (*SINK_KILL_POINTS, *self._connector.kill_points)

    @property
    def position(self) -> Position | None:
        """The committed position of a source."""
        return read_position(self.log, self._task.connector, self._task.number)

    def kill_at(self, point: str, nth: int = 1) -> None:
        """Kills the task when it reaches the point for the `nth` time from now. Raises `InvalidConnector` for an
        unknown point."""
        if point not in self.kill_points:
            raise InvalidConnector(f'"{point}" is no kill point: there are {", ".join(self.kill_points)}')
        arm(f"connect.{point}:{nth}:raise")

    def run(self) -> None:
        """Runs the task, through deaths, until there is nothing to read. If the other system is not available, it
        retries as the server does, with the virtual clock. Raises the errors that end a task, and `SystemUnavailable`
        after 20 attempts."""
        attempts = 0
        for _ in range(_STEPS_MAX):
            try:
                if self._life is None:
                    self._life = self._begin_life()
                if not self._life.step(0):
                    return
                attempts = 0
            except FailpointHit:
                self.deaths += 1
                self._life = None  # without closing it, as in a crash
                arm("")
            except (SystemUnavailable, SystemFault, OSError):
                self._end_life()
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
                self.clock.advance(_AGAIN_MS * 2 ** min(attempts, 8))
            except BaseException:
                self._end_life()
                raise
        raise AssertionError(f"the connector has something to do after {_STEPS_MAX} steps: it never gives None")

    def restart(self) -> None:
        """Ends the task cleanly; the next `run` begins another one."""
        self._end_life()

    def records(self, topic: str) -> list[ConnectRecord]:
        """The records that a reader sees, in order of partition and offset. The converters of the settings decode keys
        and values."""
        found: list[ConnectRecord] = []
        if self.log.topic(topic) is None:
            return found
        for partition in range(self.log.partition_count(topic)):
            position = self.log.offsets(topic, partition).log_start_offset
            while (fetched := self.log.fetch(topic, partition, position)).next_offset > position:
                for run in fetched.runs:
                    assert isinstance(run, FetchedRows)
                    found += [self._decoded(topic, partition, row) for row in run.table.to_pylist()]
                position = fetched.next_offset
        return found

    def produce(self, topic: str, key: Any, value: Any, *, partitions: int = 1) -> None:
        """Writes a record for a sink, and creates the topic if it is missing. A value of None deletes the key.
        Bytes are written as they are."""
        if self.log.topic(topic) is None:
            self.log.create_topic(topic, partitions)
        data = self._key.to_bytes(key)
        columns = {
            "timestamp": pa.array([self.clock.now_ms()], pa.int64()),
            "key": pa.array([data], pa.binary()),
            "value": pa.array([self._value.to_bytes(value)], pa.binary()),
        }
        partition = 0 if data is None else partition_of(data, self.log.partition_count(topic))
        self.log.append(topic, partition, RowRecords(pa.table(columns)))

    def _converter(self, part: str) -> Converter:
        if issubclass(self._connector, SourceConnector):
            return converter_of(self._config, part)
        return sink_converter_of(self._config, part, self._schemas)

    def _begin_life(self) -> TaskRunner:
        task = self._task if issubclass(self._connector, SourceConnector) else reading(self._task, self.log)
        made: Any = self._connector(self._settings, task)
        if issubclass(self._connector, SourceConnector):
            return SourceRunner(self.log, made, task, self._config)
        return SinkRunner(self.log, made, task, self._config, _no_columns, self._schemas)

    def _end_life(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def _decoded(self, topic: str, partition: int, row: Mapping[str, Any]) -> ConnectRecord:
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        return ConnectRecord(
            topic, self._key.from_bytes(row["key"]), self._value.from_bytes(row["value"]), row["timestamp"], headers,
            partition, row["offset"],
        )  # fmt: skip


def _no_columns(topic: object, batch: object, time_ms: int) -> pa.Table:
    raise AssertionError("a sandbox has records in row form only")
