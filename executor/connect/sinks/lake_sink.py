"""The common part of the data lake sinks: they write rows of topics to tables of files, exactly once.

Each commit of a table contains the next offset of every partition of its records. A task begins at the committed
offsets of the log, and skips records that a table already has. If a second task still runs, the table refuses its
commit, because the commit is based on other offsets. The names of the offsets contain the connector's identity, so a
recreated connector writes everything again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, Guarantee, SinkConnector, TaskInfo
from ..connector_errors import ConnectorFailed
from ..connector_settings import setting
from ..declared_columns import DeclaredColumns
from .lake_values import SpelledNames, added_name, columns_of, grown, suggested_types
from .record_rows import KeyedRow, last_of_each_key, rows_of

FULL: Final = 10_000
"""After a batch of at least this many records, the next one follows at once, because the task is behind."""


@dataclass(frozen=True, kw_only=True)
class LakeSettings:
    """The settings of a sink that adds a row for each record."""

    pk_mode: str = setting(
        "Where the columns of the key are; record_key adds them to those of the value.",
        default="none",
        choices=("record_key", "record_value", "none"),
    )
    pk_fields: tuple[str, ...] = setting("Columns of the key; the name of a key that is one value.", default=())
    auto_create: bool = setting(
        "Create a table that does not exist, with the types that a stream or table declares on the topic, else by the"
        " first records.",
        default=True,
    )
    auto_evolve: bool = setting(
        "Add columns, and fields of structs, for fields that the table does not have.", default=False
    )

    def __post_init__(self) -> None:
        if self.pk_mode == "record_value" and not self.pk_fields:
            raise ValueError("pk.mode=record_value needs pk.fields")

    @property
    def upserts(self) -> bool:
        """Whether there is one row for each key."""
        return False

    @property
    def deletes(self) -> bool:
        """Whether a tombstone deletes the row of its key."""
        return False

    @property
    def pause_ms(self) -> int:
        """The time between two commits."""
        return 0


@dataclass(frozen=True, kw_only=True)
class KeyedLakeSettings(LakeSettings):
    """The settings of a sink that can keep one row for each key."""

    insert_mode: str = setting(
        "insert adds a row for each record, upsert keeps one row for each key.",
        default="insert",
        choices=("upsert", "insert"),
    )
    delete_enabled: bool = setting("With upsert, a tombstone deletes the row of its key.", default=True)
    commit_interval_ms: int = setting(
        f"Time between two commits, unless {FULL} records or more were in the last one: each adds files.",
        default=10_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.upserts and self.pk_mode == "none":
            raise ValueError("insert.mode=upsert needs a key: pk.mode is none")
        if self.commit_interval_ms < 0:
            raise ValueError("commit.interval.ms must not be negative")

    @property
    def upserts(self) -> bool:
        return self.insert_mode == "upsert"

    @property
    def deletes(self) -> bool:
        return self.upserts and self.delete_enabled

    @property
    def pause_ms(self) -> int:
        return self.commit_interval_ms


@dataclass(frozen=True, slots=True)
class LakeChange:
    """The changes of one commit: `columns` are added, or get more fields; `rows` are added, or replace those with the
    same `key`; rows with the keys in `deleted` are removed.

    `key`: names of columns; empty if rows are only added and never deleted. `offsets`: the next offsets, by the names
    under which the table stores them.
    """

    columns: Mapping[str, pa.DataType]
    rows: pa.Table
    key: tuple[str, ...]
    deleted: pa.Table
    offsets: Mapping[str, int]


class LakeTable(Protocol):
    """A table as it was when it was opened."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types of its columns."""
        ...

    def offset(self, name: str) -> int | None: ...

    def commit(self, change: LakeChange) -> None:
        """Commits atomically. Raises `SystemUnavailable` if the table has changed meanwhile in a way that conflicts
        with this change."""
        ...


class LakeSink(SinkConnector, ABC):
    """State: the earliest time of the next commit."""

    guarantee: ClassVar[Guarantee] = "transactional"
    kill_points: ClassVar[tuple[str, ...]] = ("lake_before_commit", "lake_after_commit")
    has_times: ClassVar[bool] = True
    """Whether tables support the type TIME; otherwise times of day are stored as milliseconds."""

    def __init__(self, settings: LakeSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._task = task
        self._next_s = task.clock.monotonic()

    @abstractmethod
    def open_table(self, topic: str) -> LakeTable | None:
        """The table of a topic; None if it does not exist."""

    @abstractmethod
    def create_table(self, topic: str, types: Mapping[str, pa.DataType]) -> LakeTable:
        """Creates the table without rows, unless it exists by now."""

    def held_type(self, type_: pa.DataType) -> pa.DataType:
        """The column type for a declared type. A TIMESTAMP is a moment, so its column is in UTC."""
        if pa.types.is_timestamp(type_):
            return pa.timestamp("us", "UTC")
        if pa.types.is_time(type_) and not self.has_times:
            return pa.int64()
        if pa.types.is_list(type_):
            return pa.list_(self.held_type(type_.value_type))
        if pa.types.is_map(type_):
            return pa.map_(self.held_type(type_.key_type), self.held_type(type_.item_type))
        if pa.types.is_struct(type_):
            fields = [(field.name, self.held_type(field.type)) for field in type_]
            return pa.struct(fields) if fields else pa.string()
        return type_

    @property
    def pause_s(self) -> float:
        return self._next_s - self._task.clock.monotonic()

    def write(self, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        by_topic: dict[str, list[ConnectRecord]] = defaultdict(list)
        for record in records:
            by_topic[record.topic].append(record)
        for topic, found in by_topic.items():
            self._write(topic, found, positions)
        full = len(records) >= FULL
        self._next_s = self._task.clock.monotonic() + (0 if full else self._settings.pause_ms / 1000)

    def _write(self, topic: str, records: Sequence[ConnectRecord], positions: Mapping[TopicPartition, int]) -> None:
        settings = self._settings
        table = self.open_table(topic)
        new = self._new(table, records)
        declared = self._declared(records)
        names = SpelledNames([*({} if table is None else table.types), *declared])
        rows = [
            KeyedRow(names.row(row.key), None if row.values is None else names.row(row.values))
            for row in rows_of(new, settings.pk_mode, settings.pk_fields)
            if self._counts(row)
        ]
        if settings.upserts:
            rows = last_of_each_key(rows)
        if not rows:
            return
        values = [row.values for row in rows if row.values is not None]
        if table is None:
            table = self._created(topic, values, declared)
        if table is None:
            return
        new_types = self._types(table, topic, values, declared)
        types = {**table.types, **new_types}
        key = key_names(rows, types) if settings.upserts else ()
        deleted = [row.key for row in rows if row.values is None]
        read = {origin_of(record) for record in new}
        change = LakeChange(
            new_types,
            columns_of(values, types, declared),
            key,
            columns_of(deleted, {name: types[name] for name in key}),
            {self._offset_name(at): offset for at, offset in positions.items() if at in read},
        )
        self.commit(table, change)

    def commit(self, table: LakeTable, change: LakeChange) -> None:
        fp("connect.lake_before_commit")
        table.commit(change)
        fp("connect.lake_after_commit")

    def _new(self, table: LakeTable | None, records: Sequence[ConnectRecord]) -> list[ConnectRecord]:
        """The records that the table does not have yet. It asks the table once for each partition, because a table of
        Delta Lake reads its log for the answer, which takes 14 ms of CPU time. Raises `ConnectorFailed` if its offsets
        belong to an earlier topic of this name."""
        known: dict[TopicPartition, int] = {}
        for at in dict.fromkeys(map(origin_of, records)):
            known[at] = 0 if table is None else table.offset(self._offset_name(at)) or 0
            end = self._task.log_end(at)
            if end is not None and known[at] > end:
                raise ConnectorFailed(
                    f"the table has the records of {at.topic}, partition {at.partition}, up to offset {known[at] - 1},"
                    f" but the topic ends at {end}: it was deleted and created again",
                    hint="DROP and create the connector again; with insert.mode=upsert, empty the table before.",
                )
        return [record for record in records if record.offset is None or record.offset >= known[origin_of(record)]]

    def _counts(self, row: KeyedRow) -> bool:
        """Whether the row changes anything. A tombstone does so if the sink deletes rows and the key is not in the
        value."""
        return row.values is not None or (self._settings.deletes and bool(row.key))

    def _declared(self, records: Sequence[ConnectRecord]) -> dict[str, pa.DataType]:
        """The declared types of the columns, by the topics of the records. If topics declare different types for a
        column, it counts as not declared."""
        found: dict[str, pa.DataType] = {}
        disputed: set[str] = set()
        for topic in dict.fromkeys(record.read_from or record.topic for record in records):
            columns = self._task.declared(topic)
            for name, type_ in {**self._declared_key(columns), **columns.value}.items():
                held = self.held_type(type_)
                if found.setdefault(name, held) != held:
                    disputed.add(name)
        return {name: type_ for name, type_ in found.items() if name not in disputed}

    def _declared_key(self, columns: DeclaredColumns) -> Mapping[str, pa.DataType]:
        """The declared types of the key, by the names of its columns in the table."""
        settings = self._settings
        if settings.pk_mode != "record_key":
            return {}
        if len(columns.key) == 1 and len(settings.pk_fields) == 1:
            return dict(zip(settings.pk_fields, columns.key.values(), strict=True))
        names = SpelledNames(columns.key)
        wanted = settings.pk_fields or tuple(columns.key)
        return {name: columns.key[names.of(name)] for name in wanted if name and names.of(name) in columns.key}

    def _created(
        self, topic: str, values: Sequence[Mapping[str, Any]], declared: Mapping[str, pa.DataType]
    ) -> LakeTable | None:
        """Creates the table. None if its columns are still unknown; then there are no rows to write."""
        suggested = suggested_types(values)
        if not values or not (declared or suggested):
            return None
        types = {**declared, **{name: grown(declared.get(name), type_) for name, type_ in suggested.items()}}
        if not self._settings.auto_create:
            raise ConnectorFailed(
                f"the table of the topic {topic} does not exist", hint="Create it, or set auto.create=true."
            )
        return self.create_table(topic, types)

    def _types(
        self,
        table: LakeTable,
        topic: str,
        values: Sequence[Mapping[str, Any]],
        declared: Mapping[str, pa.DataType],
    ) -> Mapping[str, pa.DataType]:
        """The types of missing columns, and of columns whose structs lack fields. Raises `ConnectorFailed` if the
        settings do not allow to add them."""
        known, new = table.types, dict[str, pa.DataType]()
        for name, suggested in suggested_types(values).items():
            type_ = grown(known.get(name, declared.get(name)), suggested)
            if type_ is not known.get(name):
                new[name] = type_
        if new and not self._settings.auto_evolve:
            name, type_ = next(iter(new.items()))
            raise ConnectorFailed(
                f"the table of the topic {topic} has no column {added_name(name, known.get(name), type_)}",
                hint="Add it, leave the field out with a query or a transform, or set auto.evolve=true.",
            )
        return new

    def _offset_name(self, at: TopicPartition) -> str:
        """The name of an offset in a table's metadata."""
        return f"millstream/{self._task.identity}/{at.topic}/{at.partition}"


def origin_of(record: ConnectRecord) -> TopicPartition:
    assert record.partition is not None
    return TopicPartition(record.read_from or record.topic, record.partition)


def key_names(rows: Sequence[KeyedRow], types: Mapping[str, pa.DataType]) -> tuple[str, ...]:
    """The names of the key's columns. Raises `ConnectorFailed` if rows have different ones, or the table lacks one."""
    names = tuple(rows[0].key)
    for row in rows:
        if tuple(row.key) != names:
            raise ConnectorFailed(
                f"keys have different fields: {', '.join(names)} and {', '.join(row.key)}", hint="Set pk.fields."
            )
    for name in names:
        if name not in types:
            raise ConnectorFailed(
                f"the table has no column {name} of the key", hint="Set pk.fields to columns that it has."
            )
    return names
