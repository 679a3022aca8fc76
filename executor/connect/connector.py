"""What a connector is: one class, `SourceConnector` or `SinkConnector`, with a frozen dataclass of settings.

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

A source is a function of its position: the runner commits records and next position in one transaction of the log, so
whatever can be read again from a position is in the log exactly once. A package offers its connectors as entry points
of the group `millstream.connectors`.
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
"""Where to go on: a JSON object that only the source understands."""

Guarantee = Literal["transactional", "idempotent", "at least once"]
"""transactional: offsets are stored with the rows; idempotent: a row that is written again changes nothing."""


@dataclass(frozen=True, slots=True)
class ConnectRecord:
    """`key`, `value`: JSON values, which transforms see and a converter encodes, or bytes, which stay as they are. A
    value of None deletes the key. `timestamp_ms`: None is the time of writing. Only records that a sink gets have a
    `partition`, an `offset`, and in `read_from` their topic before any transform; of a source's the key decides the
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
    """What a source cannot convert. `topic`: of the record; `value`: as it came; `reason`: a sentence that says where
    it is and what is wrong; `hint`: what to do about it. Without `errors.tolerance` it ends the task."""

    topic: str
    value: bytes | None
    reason: str
    hint: str
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A table was read again as a whole: each key of its topic whose last record is older is gone. `topic`: as before
    any transform; `since`: by partition, the offset of the first record of the new reading."""

    topic: str
    since: Mapping[str, int]


TopicEnds = Callable[[str], Mapping[str, int]]
"""Where a topic, named as before any transform, ends now: next offsets by partition."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records, and the position after them. `complete`: where it is false the transaction stays open, and what follows
    becomes visible together with these records. `empties`: topics of tables that are empty from here on, before these
    records: each key that has a value there is deleted. They are named as before any transform. `refused`: what was
    read and is no record. `sweeps`: carried out behind the records."""

    records: Sequence[ConnectRecord]
    position: Position
    complete: bool = True
    empties: tuple[str, ...] = ()
    refused: Sequence[RefusedRecord] = ()
    sweeps: Sequence[Sweep] = ()


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task of a connector. `config`: the share that `tasks` gave it. `identity`: of a sink, the same for all its
    tasks; another one of the same name has another. `clock`: for the time, and to wait. `declared`: what a sink
    may ask for the types of columns. `log_end`: of a sink, the next offset of a partition that it reads; `topic_id`:
    another one where a topic was deleted and created again; None, where nobody knows. `inbox`: of a source that is sent
    its records. `tenure`: to `check` between two requests that change the other system; while one hangs, a successor
    may begin. `began`: of one that is dropped, whether a position of it was committed."""

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
    """`type`: as CREATE TABLE has it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SourceTable:
    """What CREATE TABLE … FROM CONNECTOR takes over. `topic`: where the rows are, before any transform. `key`: names of
    columns; empty where nothing tells rows apart."""

    topic: str
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]


class SourceConnector(ABC):
    """Brings records in. One instance is one running task; only one thread uses it.

    Raises, from any method: `ConnectorFailed` where somebody has to change something, `SystemUnavailable` or OSError
    where waiting helps, `SystemFault` where nobody knows. After an exception the instance is closed and a new one
    begins at the committed position.
    """

    settings: ClassVar[type[Any]]
    guarantee: ClassVar[Guarantee] = "transactional"
    """"at least once" of a source that cannot read again what it has read."""
    is_sent_records = False
    """Whether others hand its records in, to `TaskInfo.inbox`."""
    may_empty = False
    """Whether a chunk with `empties` may come: then the runner remembers the keys of an open transaction."""

    @classmethod
    def tasks(cls, settings: Any, most: int) -> Sequence[Mapping[str, Any]]:
        """How the work is divided: at most `most` shares, which stay the same from start to start."""
        del settings, most
        return ({},)

    @classmethod
    def resnapshot(
        cls, settings: Any, position: Position | None, table: str | None, ends: TopicEnds
    ) -> Position | None:
        """RESNAPSHOT CONNECTOR: the position from which all rows come again, or those of one table. In: `ends`: for
        the sweep behind them. Raises `UnknownSourceTable`."""
        del settings, position, table, ends
        raise UnknownSourceTable("this connector reads no snapshots", hint="DROP and create it to read all anew.")

    @classmethod
    def table(cls, settings: Any, task: TaskInfo, name: str) -> SourceTable:
        """The schema of a table of the other system, whose records are rows or Debezium's envelopes. Raises
        `UnknownSourceTable`, and what `read` raises."""
        del settings, name
        raise UnknownSourceTable(
            f"the connector {task.connector} has no tables that could say what their columns are",
            hint="Declare the columns: CREATE STREAM or CREATE TABLE … WITH (kafka_topic=…).",
        )

    @abstractmethod
    def __init__(self, settings: Any, task: TaskInfo) -> None: ...

    @abstractmethod
    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        """What comes after `position`, a bounded amount; None where nothing came within `timeout_s`. In: `position`:
        of the last chunk, or the committed one at the start; None at the very beginning."""

    def acknowledge(self, position: Position) -> None:
        """The position is committed: nothing before it will be asked for again."""
        del position

    def lag(self) -> int | None:
        """How much there is that was not read yet, in units of the source; None where nobody knows."""
        return None

    def close(self) -> None:  # noqa: B027 - not everything has something open
        """Lets go of files and connections. Must not fail."""

    @classmethod
    def keeps(cls, settings: Any, task: TaskInfo) -> str | None:
        """What `forget` removes, and where, as in "the replication slot a of PostgreSQL at host:5432/shop"; nothing
        else has these words. `forget` is called until it is removed, and who keeps the same begins after that. None:
        it does no harm if it stays, and `forget` is called once."""
        del settings, task
        return None

    @classmethod
    def forget(cls, settings: Any, task: TaskInfo) -> None:
        """DROP CONNECTOR: removes what the source keeps in the other system. What is gone already is fine."""
        del settings, task


class RecordsRefused(Exception):
    """Raised by `SinkConnector.write` when the other system does not take some records. They are dead letters, or end
    the task. In: `records`: each with what is wrong, a clause about it; `others_written`: whether the other system has
    all others. Where it has not, `write` is called again without the refused ones, once they are dead letters."""

    def __init__(
        self, records: Sequence[tuple[ConnectRecord, str]], *, others_written: bool = True, hint: str | None = None
    ) -> None:
        super().__init__(f"{len(records)} records are refused, the first because {records[0][1]}")
        self.records = records
        self.others_written = others_written
        self.hint = hint or "Change the records, or what they are written to."


class SinkConnector(ABC):
    """Takes records out. One instance is one running task; only one thread uses it. Raises as a source does."""

    settings: ClassVar[type[Any]]
    guarantee: ClassVar[Guarantee] = "at least once"
    batch_records: ClassVar[int] = 1_000_000
    """After so many records at most the offsets are committed: a write that fails is repeated from there."""
    kill_points: ClassVar[tuple[str, ...]] = ()
    """Failpoints `connect.<name>` in its own code, beside those of the runner: where a test can kill a task."""

    @abstractmethod
    def __init__(self, settings: Any, task: TaskInfo) -> None: ...

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Where to go on, of a transactional sink, which stores offsets with the rows; None: the log keeps them."""
        del partitions
        return None

    @property
    def pause_s(self) -> float:
        """How long not to read, from now on: a sink whose writes should be few lets records come together."""
        return 0.0

    @abstractmethod
    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        """Durable on return, but for what `held` names. In: records in the order of each partition; `positions`: the
        next offsets after them. Raises `RecordsRefused` too."""

    def held(self) -> Mapping[TopicPartition, int]:
        """Offsets of the first records that were written and are not durable yet: a sink that collects records into
        larger pieces is given them again after a death."""
        return {}

    def tick(self) -> None:  # noqa: B027 - not everything waits
        """Called while nothing comes: what is held may be due."""

    def close(self) -> None:  # noqa: B027 - not everything has something open
        """Lets go of files and connections. Must not fail."""

    @classmethod
    def keeps(cls, settings: Any, task: TaskInfo) -> str | None:
        """As of a source."""
        del settings, task
        return None

    @classmethod
    def forget(cls, settings: Any, task: TaskInfo) -> None:
        """DROP CONNECTOR: removes what the sink keeps in the other system beside the rows."""
        del settings, task
