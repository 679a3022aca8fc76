"""The sink `clickhouse`: writes rows of topics to tables of ClickHouse, over its HTTP interface. Idempotent.

Each row contains where it was read: connector, topic and partition in one column, the offset in another. A new task
asks the table for the last offset of each partition and skips the rows that exist. A request contains rows of one
partition. It is one block, so it is atomic, and its token consists of its offsets: if the response was lost, the server
ignores the repeated block. If two tasks write the same row, ReplacingMergeTree keeps one. With upsert the offset is the
version of a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from ....logcore.client import TopicPartition
from ....logcore.failpoints import fp
from ..connector import ConnectRecord, TaskInfo
from ..connector_errors import ConnectorFailed, SystemFault, SystemUnavailable
from ..connector_settings import setting
from ..converters import json_text
from .json_posts import HttpAnswer, HttpDatabase
from .lake_sink import KeyedLakeSettings, LakeSink, LakeTable, key_names, origin_of
from .lake_values import SpelledNames, columns_of
from .record_rows import KeyedRow, rows_of

_URL: Final = "connection.url"
SOURCE: Final = "_millstream_source"
OFFSET: Final = "_millstream_offset"
DELETED: Final = "_millstream_deleted"
_ROWS_MAX: Final = 100_000
_CODE: Final = re.compile(r"Code: (\d+)")
_PASSES: Final = frozenset({3, 159, 160, 198, 202, 209, 210, 225, 236, 241, 242, 243, 252, 285, 286, 319, 394, 999})
"""Codes of ClickHouse: timeouts, too many queries or parts, no memory, disk or coordinator, a read-only table."""
_UNKNOWN_TABLE: Final = 60
_WRAPPED: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_DECIMAL: Final = re.compile(r"Decimal\((\d+), ?(\d+)\)")
_MOMENT: Final = re.compile(r"DateTime64\((\d)(?:, ?'(?:UTC|Etc/UTC)')?\)")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "Bool": pa.bool_(), "String": pa.string(), "Date32": pa.date32(), "Float32": pa.float32(), "Float64": pa.float64(),
    "Int8": pa.int8(), "Int16": pa.int16(), "Int32": pa.int32(), "Int64": pa.int64(),
    "UInt8": pa.uint8(), "UInt16": pa.uint16(), "UInt32": pa.uint32(), "UInt64": pa.uint64(),
}  # fmt: skip
_REPLACING: Final = re.compile(r"(?:Replicated|Shared)?ReplacingMergeTree\(([^)]*)\)")
_SORTED_BY: Final = re.compile(r"`([^`]+)`|([^\s,`](?:[^,`]*[^\s,`])?)")
_UNITS: Final = {"0": "s", "3": "ms", "6": "us", "9": "ns"}


@dataclass(frozen=True, kw_only=True)
class ClickHouseSinkSettings(KeyedLakeSettings):
    connection_url: str = setting("Address of the HTTP interface, http://host:8123.")
    connection_username: str = setting("User.", default="default")
    connection_password: str | None = setting("Password of the user.", default=None, secret=True)
    database: str = setting("Database of the tables.", default="default")
    table_name_format: str = setting("Table of a topic; ${topic} is the topic's name.", default="${topic}")
    commit_interval_ms: int = setting("Time between two inserts, unless there is much to catch up with.", default=1000)
    request_timeout_ms: int = setting("A longer request is sent again.", default=60_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        HttpDatabase([self.connection_url], _URL, {}, 1)
        if any(not sign.isprintable() for sign in f"{self.connection_username}{self.connection_password or ''}"):
            raise ValueError("connection.username and connection.password must be printable")


class ClickHouseSink(LakeSink):
    """Tables of ClickHouse. State: the open connection, and the current definitions of the tables."""

    settings = ClickHouseSinkSettings
    guarantee = "idempotent"
    has_times: ClassVar[bool] = False
    kill_points: ClassVar[tuple[str, ...]] = ("lake_before_commit", "lake_after_commit")

    def __init__(self, settings: ClickHouseSinkSettings, task: TaskInfo) -> None:
        super().__init__(settings, task)
        self._own = settings
        user = {"X-ClickHouse-User": settings.connection_username}
        if settings.connection_password is not None:
            user["X-ClickHouse-Key"] = settings.connection_password
        self._server = HttpDatabase([settings.connection_url], _URL, user, settings.request_timeout_ms / 1000)
        self._tables: dict[str, ClickHouseTable] = {}
        self._sources: dict[str, str] = {}

    def held_type(self, type_: pa.DataType) -> pa.DataType:
        """As in `LakeSink`, but bytes are base64 texts, and nested values are JSON texts."""
        held = super().held_type(type_)
        plain = pa.types.is_decimal(held) or pa.types.is_timestamp(held) or held in _TYPES.values()
        return held if plain else pa.string()

    def open_table(self, topic: str) -> LakeTable | None:
        if topic not in self._tables:
            name = self._own.table_name_format.replace("${topic}", topic)
            table = ClickHouseTable(self._server, self._own.database, name)
            if not table.look():
                return None
            self._check(table)
            self._tables[topic] = table
        return self._tables[topic]

    def create_table(self, topic: str, types: Mapping[str, pa.DataType]) -> LakeTable:
        name = self._own.table_name_format.replace("${topic}", topic)
        key = self._own.pk_fields if self._own.upserts else ()
        names = SpelledNames(types)
        ClickHouseTable(self._server, self._own.database, name).create(
            {column: self.held_type(type_) for column, type_ in types.items()}, tuple(names.of(each) for each in key)
        )
        made = self.open_table(topic)
        assert made is not None
        return made

    def close(self) -> None:
        self._server.close()

    def _write(self, topic: str, records: Sequence[ConnectRecord], positions: Mapping[Any, int]) -> None:
        del positions
        table = self.open_table(topic)
        assert table is None or isinstance(table, ClickHouseTable)
        if self._own.upserts:
            self._check_sources(table, records)
        declared = self._declared(records)
        names = SpelledNames([*({} if table is None else table.types), *declared])
        new = self._new(table, records)
        found = rows_of(new, self._own.pk_mode, self._own.pk_fields)
        rows = [(record, _flat_row(row, names)) for record, row in zip(new, found, strict=True)]
        rows = [(record, row) for record, row in rows if self._counts(row)]
        values = [row.values for _, row in rows if row.values is not None]
        if table is None and values:
            table = self._created(topic, values, declared)
        if table is None:
            return
        assert isinstance(table, ClickHouseTable)
        table.refuse_unknown_types(values)
        new_types = self._types(table, topic, values, declared)
        if self._own.upserts and rows:
            _check_keys(rows, {**table.types, **new_types})
        table.add(new_types)
        for some in _blocks(rows):
            fp("connect.lake_before_commit")
            table.insert(self._block(some, table, declared), self._offset_name(origin_of(some[0][0])))
            fp("connect.lake_after_commit")

    def _block(
        self, rows: Sequence[tuple[ConnectRecord, KeyedRow]], table: ClickHouseTable, declared: Mapping[str, Any]
    ) -> pa.Table:
        values = [row.key if row.values is None else row.values for _, row in rows]
        given = dict.fromkeys(name for row in values for name in row)
        types = {name: type_ for name, type_ in table.types.items() if name in given}
        try:
            block = columns_of(values, types, declared)
        except UnicodeEncodeError:
            raise ConnectorFailed("a text is not Unicode", hint="Leave the record out with a transform.") from None
        source = self._offset_name(origin_of(rows[0][0]))
        own = {  # at first, because rows may have no other columns
            SOURCE: pa.array([source] * len(rows), pa.string()),
            OFFSET: pa.array([record.offset for record, _ in rows], pa.uint64()),
        }
        if self._own.upserts:
            own[DELETED] = pa.array([int(row.values is None) for _, row in rows], pa.uint8())
        return pa.table({**own, **dict(zip(block.column_names, block.columns, strict=True))})

    def _check(self, table: ClickHouseTable) -> None:
        """Raises `ConnectorFailed` for a table in which rows could be duplicated, or older rows could win."""
        needed = [SOURCE, OFFSET, *([DELETED] if self._own.upserts else [])]
        missing = [name for name in needed if name not in table.own_columns]
        if missing:
            raise ConnectorFailed(
                f"the table {table.name} has no column {missing[0]}, which tells what was written",
                hint=f"Add {SOURCE} String, {OFFSET} UInt64{', ' + DELETED + ' UInt8' if self._own.upserts else ''}, or"
                " leave the table to the connector; docs/connectors.md has its definition.",
            )
        wrong = table.upsert_problem(self._own.pk_fields) if self._own.upserts else None
        if table.partition_key:
            wrong = f"is partitioned by {table.partition_key}, so a block of rows would be several, not written as one"
        if wrong is not None:
            raise ConnectorFailed(
                f"the table {table.name} {wrong}",
                hint="Leave it to the connector, or define it as docs/connectors.md says, then RESTART CONNECTOR.",
            )

    def _check_sources(self, table: ClickHouseTable | None, records: Sequence[ConnectRecord]) -> None:
        """Raises `ConnectorFailed` if the versions of rows would be offsets of several topics."""
        mine = dict.fromkeys(self._source(record.read_from or record.topic) for record in records)
        there = [] if table is None else [source.rpartition("/")[0] for source in table.offsets if source]
        others = [source for source in (*mine, *there) if source != next(iter(mine))]
        if not others:
            return
        name = self._own.table_name_format if table is None else table.name
        own = f"millstream/{self._task.identity}/"
        if not others[0].startswith(own):
            whose = "another connector"
        else:
            topic = others[0].removeprefix(own).partition("@")[0]
            whose = f"the topic {topic}"
            if f"{own}{topic}@" == next(iter(mine)).partition("@")[0] + "@":
                whose += " from before it was deleted and created again"
        raise ConnectorFailed(
            f"the table {name} has rows of {whose}, whose offsets do not compare with these",
            hint="With upsert each topic needs its own table: TRUNCATE or drop the table, or set table.name.format to"
            " another one, then RESTART CONNECTOR.",
        )

    def _offset_name(self, at: TopicPartition) -> str:
        return f"{self._source(at.topic)}/{at.partition}"

    def _source(self, topic: str) -> str:
        """The name of a topic as a source. A recreated topic has another one."""
        if topic not in self._sources:
            id_ = self._task.topic_id(topic)
            self._sources[topic] = f"millstream/{self._task.identity}/{topic}{'' if id_ is None else f'@{id_}'}"
        return self._sources[topic]


class ClickHouseTable:
    """State: its columns and, by source, the next offset."""

    def __init__(self, server: HttpDatabase, database: str, name: str) -> None:
        self.name = name
        self._server = server
        self._place = f"{_quoted(database)}.{_quoted(name)}"
        self._database = database
        self._types: dict[str, pa.DataType] = {}
        self._unknown: dict[str, str] = {}
        self.own_columns: set[str] = set()
        self.partition_key = ""
        self._engine = self._sorting_key = ""
        self.offsets: dict[str, int] = {}

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return self._types

    def offset(self, name: str) -> int | None:
        return self.offsets.get(name)

    def commit(self, change: object) -> None:
        raise AssertionError("blocks are inserted one by one")

    def look(self) -> bool:
        """Reads the definition of the table. False if there is no table."""
        columns = self._rows(
            "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String}"
            " AND default_kind NOT IN ('ALIAS', 'MATERIALIZED') ORDER BY position",
            {"param_database": self._database, "param_table": self.name},
        )
        self._types, self._unknown, self.own_columns = {}, {}, set()
        for column in columns:
            name, written = column["name"], column["type"]
            if name in (SOURCE, OFFSET, DELETED):
                self.own_columns.add(name)
            elif (type_ := _type_of(written)) is not None:
                self._types[name] = type_
            else:
                self._unknown[name] = written
        if {SOURCE, OFFSET} <= self.own_columns:
            found = self._rows(f"SELECT {SOURCE} AS s, toString(max({OFFSET})) AS o FROM {self._place} GROUP BY s", {})
            self.offsets = {row["s"]: int(row["o"]) + 1 for row in found}
            for row in self._rows(
                "SELECT engine_full, partition_key, sorting_key FROM system.tables"
                " WHERE database = {database:String} AND name = {table:String}",
                {"param_database": self._database, "param_table": self.name},
            ):
                self._engine, self.partition_key = row["engine_full"], row["partition_key"]
                self._sorting_key = row["sorting_key"]
        return bool(columns)

    def upsert_problem(self, key: Sequence[str]) -> str | None:
        """Why the table does not keep the last row of each key; None if it does. In: `key`: names of its columns, if
        known."""
        needed = f"ReplacingMergeTree({OFFSET}, {DELETED})"
        found = _REPLACING.match(self._engine)
        if found is None or re.findall(r"\w+", found[1])[-2:] != [OFFSET, DELETED]:
            return f"has the engine {self._engine.partition(' ')[0]}, and upsert needs {needed}"
        names = SpelledNames(self._types)
        listed = self._sorting_key
        if listed.startswith("(") and listed.endswith(")"):  # some versions write it in parentheses
            listed = listed[1:-1]
        sorted_by = {quoted or bare for quoted, bare in _SORTED_BY.findall(listed)}
        if key and sorted_by != {names.of(name) for name in key}:
            return f"is ordered by {self._sorting_key}, and upsert needs the key, {', '.join(key)}"
        return None

    def create(self, types: Mapping[str, pa.DataType], key: Sequence[str]) -> None:
        """Creates the table, unless it exists. In: `key`: if given, the table keeps one row for each key, with the last
        version."""
        written = [
            f"{_quoted(name)} {_written(type_) if name in key else f'Nullable({_written(type_)})'}"
            for name, type_ in types.items()
        ]
        written += [f"{SOURCE} LowCardinality(String)", f"{OFFSET} UInt64"]
        if key:
            engine = f"ReplacingMergeTree({OFFSET}, {DELETED}) ORDER BY ({', '.join(map(_quoted, key))})"
            written.append(f"{DELETED} UInt8 DEFAULT 0")
        else:
            engine = f"ReplacingMergeTree ORDER BY ({SOURCE}, {OFFSET})"
        settings = "SETTINGS non_replicated_deduplication_window = 1000"
        self._run(f"CREATE TABLE IF NOT EXISTS {self._place} ({', '.join(written)}) ENGINE = {engine} {settings}")

    def add(self, types: Mapping[str, pa.DataType]) -> None:
        """Adds columns."""
        for name, type_ in types.items():
            held = type_ if type_ in _TYPES.values() or pa.types.is_decimal(type_) else _held(type_)
            added = f"ADD COLUMN IF NOT EXISTS {_quoted(name)} Nullable({_written(held)})"
            self._run(f"ALTER TABLE {self._place} {added}")
            self._types[name] = held

    def refuse_unknown_types(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Raises `ConnectorFailed` if a row has a value for a column whose type this sink does not write."""
        if self._unknown:
            for row in rows:
                for name in row.keys() & self._unknown.keys():
                    if row[name] is not None:
                        raise ConnectorFailed(
                            f"the column {name} of {self.name} has the type {self._unknown[name]}, which the connector"
                            " does not write",
                            hint="Use String, Bool, Int…, Float…, Decimal, Date32 or DateTime64(6, 'UTC'), or leave"
                            " the field out.",
                        )

    def insert(self, block: pa.Table, source: str) -> None:
        """Inserts one block. Raises `SystemUnavailable`, `SystemFault`, `ConnectorFailed`."""
        offsets = block.column(OFFSET)
        first, last = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, block.schema) as writer:
            writer.write_table(block.combine_chunks())
        columns = ", ".join(map(_quoted, block.column_names))
        self._run(
            f"INSERT INTO {self._place} ({columns}) FORMAT ArrowStream",
            {
                "insert_deduplication_token": f"{source}/{first}-{last}",
                "min_insert_block_size_rows": str(_ROWS_MAX),
                "min_insert_block_size_bytes": "0",
                "max_insert_block_size": str(_ROWS_MAX),
                "input_format_arrow_allow_missing_columns": "1",
                "async_insert": "0",
            },
            sink.getvalue().to_pybytes(),
        )
        self.offsets[source] = last + 1

    def _rows(self, query: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        answer = self._run(f"{query} FORMAT JSON", parameters)
        try:
            return list(orjson.loads(answer.content)["data"])
        except (ValueError, KeyError, TypeError):
            raise ConnectorFailed(
                f"{self._server.name} does not answer as ClickHouse does: {answer.said}",
                hint=f"{_URL} must be the address of its HTTP interface, usually of port 8123.",
            ) from None

    def _run(self, query: str, parameters: Mapping[str, str] | None = None, body: bytes | None = None) -> HttpAnswer:
        target = "/?" + urlencode({**({} if body is None else {"query": query}), **(parameters or {}),
                                   "wait_end_of_query": "1"})  # fmt: skip
        answer = self._server.request("POST", target, query.encode() if body is None else body)
        if answer.status == 200:
            return answer
        found = _CODE.search(answer.said)
        code = 0 if found is None else int(found[1])
        said = f"{self._server.name} answered {answer.status}: {answer.said}"
        if code in _PASSES:
            raise SystemUnavailable(said)
        if code == 0 and answer.status >= 500:
            raise SystemFault(said)
        hint = "Change the table or the records, then RESTART CONNECTOR."
        if code == _UNKNOWN_TABLE:
            hint = "The table was dropped while the connector ran: RESTART CONNECTOR."
        raise ConnectorFailed(said, hint=hint)


def _check_keys(rows: Sequence[tuple[ConnectRecord, KeyedRow]], types: Mapping[str, pa.DataType]) -> None:
    """Raises `ConnectorFailed` for keys that would not be stored unchanged: ClickHouse replaces missing values and NULL
    by 0 or the empty text, which may be the key of another row."""
    key_names([row for _, row in rows], types)
    for record, row in rows:
        for name, value in row.key.items():
            if value is None:
                raise ConnectorFailed(
                    f"the record at {record.read_from or record.topic}, partition {record.partition}, offset"
                    f" {record.offset} has NULL in {name} of its key, which a key of ClickHouse cannot hold",
                    hint="Set pk.fields to columns that are never NULL, or leave the record out with a transform.",
                )


def _blocks(
    rows: Sequence[tuple[ConnectRecord, KeyedRow]],
) -> Iterator[list[tuple[ConnectRecord, KeyedRow]]]:
    """Groups the rows into blocks, each with rows of one partition in the order of its offsets."""
    by_origin: dict[Any, list[tuple[ConnectRecord, KeyedRow]]] = {}
    for row in rows:
        by_origin.setdefault(origin_of(row[0]), []).append(row)
    for found in by_origin.values():
        for begin in range(0, len(found), _ROWS_MAX):
            yield found[begin : begin + _ROWS_MAX]


def _flat_row(row: KeyedRow, names: SpelledNames) -> KeyedRow:
    return KeyedRow(names.row(_flat(row.key)), None if row.values is None else names.row(_flat(row.values)))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with nested values as JSON texts."""
    return {name: json_text(value) if isinstance(value, (dict, list)) else value for name, value in row.items()}


def _held(type_: pa.DataType) -> pa.DataType:
    return type_ if pa.types.is_timestamp(type_) else pa.string()


def _type_of(written: str) -> pa.DataType | None:
    """The Arrow type. None for a type that this sink does not write, because it rounds or wraps values, or Arrow does
    not have it."""
    while (wrapped := _WRAPPED.fullmatch(written)) is not None:
        written = wrapped[1]
    if (decimal := _DECIMAL.fullmatch(written)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if (moment := _MOMENT.fullmatch(written)) is not None:
        unit = _UNITS.get(moment[1])
        return None if unit is None else pa.timestamp(unit, "UTC")
    return _TYPES.get(written)


def _written(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"Decimal({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_):
        return "DateTime64(6, 'UTC')"
    return next((name for name, known in _TYPES.items() if known == type_), "String")


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
