"""A connector is one class, a `SourceConnector` or `SinkConnector`, with a frozen dataclass of settings.

    @dataclass(frozen=True)
    class CounterSettings:
        topic: str = setting("Topic that is written.")
        limit: int = setting("Records to write.", default=10)

    class Counter(SourceConnector):
        settings = CounterSettings

        def __init__(self, settings: CounterSettings, task: TaskInfo) -> None:
            self._settings = settings

        def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
            n = 0 if position is None else position["n"]
            if n >= self._settings.limit:
                return None
            return Chunk([ConnectRecord(self._settings.topic, None, {"n": n})], {"n": n + 1})

A source is a function of its position. The runner commits records and the next position in one transaction of the log.
So if a source can read again from a position, each of its records is in the log exactly once. A package provides its
connectors as entry points of the group `millstream.connectors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...logcore.client import TopicPartition
from .connector_errors import UnknownSourceTable
from .declared_columns import Declarations, nothing_declared
from .inbox import Inbox
from .leaving import Tenure
from .task_clock import MACHINE_CLOCK, TaskClock

Position = Mapping[str, Any]
"""Where to continue: a JSON object that only the source understands."""

Guarantee = Literal["transactional", "idempotent", "at least once"]
"""transactional: offsets are stored with the rows; idempotent: writing a row again changes nothing."""


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """`key`, `value`: JSON values, which transforms read and a converter encodes, or bytes, which are not changed. A
    value of None deletes the key. `timestamp_ms`: None means the time of writing. `partition`, `offset` and `read_from`
    (the topic before any transform) are set only in records for a sink. For a record of a source, the key decides the
    partition."""

    topic: str
    key: Any
    value: Any
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    offset: int | None = None
    read_from: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that a source cannot convert. `topic`: the topic for the record; `value`: the value as it was read;
    `reason`: a sentence that says where the record is and what is wrong; `hint`: what to do about it. Without
    `errors.tolerance` it ends the task."""

    topic: str
    value: bytes | None
    reason: str
    hint: str
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A whole table was read again: each key of its topic whose last record is older was deleted. `topic`: the name
    before any transform; `since`: by partition, the offset of the first record of the new reading."""

    topic: str
    since: Mapping[str, int]


TopicEnds = Callable[[str], Mapping[str, int]]
"""The current end of a topic: next offsets by partition. In: the name of the topic before any transform."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records, and the position after them. `complete`: if false, the transaction stays open, and the next chunk
    becomes visible together with these records. `empties`: topics of tables that were emptied before these records:
    each key with a value there is deleted. These are names before any transform. `refused`: data that could not be
    converted to records. `sweeps`: applied after the records."""

    records: Sequence[ConnectRecord]
    position: Position
    complete: bool = True
    empties: tuple[str, ...] = ()
    refused: Sequence[RefusedRecord] = ()
    sweeps: Sequence[Sweep] = ()


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task of a connector.

    `config`: the share that `tasks` gave it. `identity` (sinks): the same for all tasks of the sink; a recreated sink
    of the same name has another one. `clock`: to get the time and to wait. `declared` (sinks): gives the types of
    columns. `log_end` (sinks): the next offset of a partition that it reads. `topic_id` (sinks): changes if a topic was
    deleted and created again; None if unknown. `inbox`: for a source to which records are sent. `tenure`: call `check`
    between two requests that change the other system; while one hangs, a successor may begin. `began`: for a dropped
    connector, whether one of its positions was ever committed.
    """

    connector: str
    number: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    began: bool = True
    identity: str = ""
    clock: TaskClock = field(default=MACHINE_CLOCK, compare=False, repr=False)
    declared: Declarations = field(default=nothing_declared, compare=False, repr=False)
    log_end: Callable[[TopicPartition], int | None] = field(default=lambda at: None, compare=False, repr=False)
    topic_id: Callable[[str], str | None] = field(default=lambda topic: None, compare=False, repr=False)
    inbox: Inbox = field(default_factory=Inbox, compare=False, repr=False)
    tenure: Tenure = field(default_factory=Tenure, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """`type`: in the syntax of CREATE TABLE."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The schema for CREATE TABLE … FROM CONNECTOR. `topic`: the topic of the rows, before any transform. `key`: names
    of columns; empty if the table has no key."""

    topic: str
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]


class SourceConnector(ABC):
    """Reads records from another system. One instance is one running task; only one thread uses it.

    Any method may raise: `ConnectorFailed` if a user has to change something, `SystemUnavailable` or OSError if waiting
    helps, `SystemFault` if it is unknown whether waiting helps. After an exception the instance is closed, and a new
    one begins at the committed position.
    """

    settings: ClassVar[type[Any]]
    guarantee: ClassVar[Guarantee] = "transactional"
    """"at least once" for a source that cannot read the same records again."""
    is_sent_records = False
    """Whether other systems send the records, to `TaskInfo.inbox`."""
    anew: ClassVar[Position | None] = None
    """The position of a source that has begun once and begins again from the start; None: as if it had never begun."""
    may_empty = False
    """Whether chunks may have `empties`: then the runner remembers the keys of an open transaction."""

    @classmethod
    def tasks(cls, settings: Any, most: int) -> Sequence[Mapping[str, Any]]:
        """Divides the work into at most `most` shares. Every start must give the same shares."""
        del settings, most
        return ({},)

    @classmethod
    def resnapshot(
        cls, settings: Any, position: Position | None, table: str | None, ends: TopicEnds
    ) -> Position | None:
        """RESNAPSHOT CONNECTOR: the position from which the source reads again all rows, or the rows of one table. In:
        `ends`: for the sweep after these rows. Raises `UnknownSourceTable`."""
        del settings, position, table, ends
        raise UnknownSourceTable("this connector reads no snapshots", hint="DROP and create it to read all anew.")

    @classmethod
    def table(cls, settings: Any, task: TaskInfo, name: str) -> SourceTable:
        """The schema of a table of the other system. Its records are rows or Debezium envelopes. Raises
        `UnknownSourceTable`, and the errors of `read`."""
        del settings, name
        raise UnknownSourceTable(
            f"the connector {task.connector} has no tables that could say what their columns are",
            hint="Declare the columns: CREATE STREAM or CREATE TABLE … WITH (kafka_topic=…).",
        )

    @abstractmethod
    def __init__(self, settings: Any, task: TaskInfo) -> None: ...

    @abstractmethod
    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        """The next records after `position`, a limited amount; None if none arrived within `timeout_s`. In: `position`:
        that of the last chunk; at the start the committed one; None if there is none yet."""

    def acknowledge(self, position: Position) -> None:
        """Called after the position is committed: nothing before it will be read again."""
        del position

    def lag(self) -> int | None:
        """How much is left to read, in units of the source; None if unknown."""
        return None

    def close(self) -> None:  # noqa: B027 - not everything has something open
        """Closes files and connections. Must not fail."""

    @classmethod
    def keeps(cls, settings: Any, task: TaskInfo) -> str | None:
        """A unique name of what `forget` removes, and where, as in "the replication slot a of PostgreSQL at
        host:5432/shop". `forget` is called until it succeeds, and a connector that keeps the same thing begins only
        after that. None: it does no harm if it stays, and `forget` is called once."""
        del settings, task
        return None

    @classmethod
    def forget(cls, settings: Any, task: TaskInfo) -> None:
        """DROP CONNECTOR: removes what the source keeps in the other system. It must accept that it is already gone."""
        del settings, task


class RecordsRefused(Exception):
    """Raised by `SinkConnector.write` if the other system does not accept some records. They become dead letters, or
    end the task. In: `records`: each with a clause that says what is wrong; `others_written`: whether the other system
    has stored all others. If it has not, `write` is called again without the refused ones, after these became dead
    letters."""

    def __init__(
        self, records: Sequence[tuple[ConnectRecord, str]], *, others_written: bool = True, hint: str | None = None
    ) -> None:
        super().__init__(f"{len(records)} records are refused, the first because {records[0][1]}")
        self.records = records
        self.others_written = others_written
        self.hint = hint or "Change the records, or what they are written to."


class SinkConnector(ABC):
    """Writes records to another system. One instance is one running task; only one thread uses it. Its methods may
    raise the same errors as those of a source."""

    settings: ClassVar[type[Any]]
    guarantee: ClassVar[Guarantee] = "at least once"
    batch_records: ClassVar[int] = 1_000_000
    """The most records between two commits of offsets; a failed write is repeated from the last commit."""
    kill_points: ClassVar[tuple[str, ...]] = ()
    """Failpoints `connect.<name>` in its own code, in addition to those of the runner, where a test can kill a task."""

    @abstractmethod
    def __init__(self, settings: Any, task: TaskInfo) -> None: ...

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Where to continue, for a transactional sink, which stores offsets with the rows. None: the log stores
        them."""
        del partitions
        return None

    @property
    def pause_s(self) -> float:
        """How long not to read from now on. A sink that should write rarely uses it to collect records."""
        return 0.0

    @abstractmethod
    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        """Writes the records. They are durable on return, except from the offsets in `held` on. In: `records`: in the
        order of each partition; `positions`: the next offsets after them. Raises also `RecordsRefused`."""

    def held(self) -> Mapping[TopicPartition, int]:
        """By partition, the offset of the first record that was passed to `write` but is not durable yet. A sink that
        collects records into larger pieces gets these records again after a crash."""
        return {}

    def tick(self) -> None:  # noqa: B027 - not everything waits
        """Called while no records arrive, because it may be time to write the held ones."""

    def close(self) -> None:  # noqa: B027 - not everything has something open
        """Closes files and connections. Must not fail."""

    @classmethod
    def keeps(cls, settings: Any, task: TaskInfo) -> str | None:
        """As `SourceConnector.keeps`."""
        del settings, task
        return None

    @classmethod
    def forget(cls, settings: Any, task: TaskInfo) -> None:
        """DROP CONNECTOR: removes what the sink keeps in the other system in addition to the rows."""
        del settings, task
