"""The adapter: what dbt and the macros ask of a server."""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import agate
from dbt.adapters.base import available
from dbt.adapters.base.column import Column
from dbt.adapters.protocol import AdapterConfig
from dbt.adapters.sql import SQLAdapter
from dbt_common.clients.agate_helper import table_from_data_flat
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from millstream.errors import MillstreamError
from millstream.repl.text.entity_text import type_text
from millstream.waiting import wait_for_contents

from . import statements
from .connections import MillstreamConnectionManager
from .relation import DATABASE, SCHEMA, MillstreamRelation, quoted, shown_name
from .seeds import SeedChange, seed_change
from .server_connection import ServerConnection, text_of


@dataclass
class MillstreamConfigs(AdapterConfig):
    """The configs of models and seeds beside dbt's own."""

    kind: str | None = None
    topic: str | None = None
    format: str | None = None
    key_format: str | None = None
    value_format: str | None = None
    partitions: int | None = None
    replicas: int | None = None
    timestamp: str | None = None
    timestamp_format: str | None = None
    with_options: dict[str, Any] | None = None
    properties: dict[str, Any] | None = None
    delete_topic: bool | None = None
    key: Any = None


class MillstreamColumn(Column):
    """A column with a type in the server's words."""

    TYPE_LABELS = {"TEXT": "STRING"}  # noqa: RUF012 (a class variable of dbt's)

    @property
    def data_type(self) -> str:
        return self.dtype

    @property
    def quoted(self) -> str:
        return quoted(self.column)


class MillstreamAdapter(SQLAdapter):
    Relation = MillstreamRelation
    Column = MillstreamColumn
    ConnectionManager = MillstreamConnectionManager
    AdapterSpecificConfigs = MillstreamConfigs
    connections: MillstreamConnectionManager

    # ----------------------------------------------------------------- what the server has

    def _server(self) -> ServerConnection:
        return self.connections.server

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        try:
            return self._server().client.execute(sql)
        except MillstreamError as error:
            raise DbtDatabaseError(text_of(error)) from error

    def _kinds(self) -> dict[str, str]:
        """STREAM or TABLE, by the name of each."""
        streams, tables = self._ask("SHOW STREAMS; SHOW TABLES;")
        named = {each["name"]: statements.STREAM for each in streams["streams"]}
        return named | {each["name"]: statements.TABLE for each in tables["tables"]}

    def _described(self, stored_name: str) -> dict[str, Any]:
        (entity,) = self._ask(f"DESCRIBE {quoted(stored_name)};")
        return entity["sourceDescription"]

    def list_relations_without_caching(self, schema_relation: Any) -> list[Any]:
        found = sorted(self._kinds().items())
        return [self._relation(name, kind, schema_relation.schema) for name, kind in found]

    def _relation(self, stored_name: str, kind: str, schema: str | None) -> MillstreamRelation:
        shown = shown_name(stored_name)
        policy = {"database": False, "schema": False, "identifier": shown == stored_name and shown != shown.upper()}
        return self.Relation.create(
            database=DATABASE, schema=schema, identifier=shown, type=kind.lower(), quote_policy=policy
        )

    def list_schemas(self, database: str) -> list[str]:
        return [SCHEMA]

    def check_schema_exists(self, database: str, schema: str) -> bool:
        return True

    def create_schema(self, relation: Any) -> None:
        """Does nothing: a server has one namespace."""

    def drop_schema(self, relation: Any) -> None:
        """Does nothing, as `create_schema`."""

    def get_columns_in_relation(self, relation: Any) -> list[Any]:
        return [
            MillstreamColumn(shown_name(field["name"]), type_text(field["schema"]))
            for field in self._described(relation.stored_name)["fields"]
        ]

    def get_catalog(
        self, relation_configs: Iterable[Any], used_schemas: frozenset[tuple[str, str]]
    ) -> tuple[agate.Table, list[Exception]]:
        with self.connection_named("catalog"):
            kinds = self._kinds()
            rows: list[dict[str, Any]] = []
            for config in relation_configs:
                relation = self.Relation.create_from(self.config, config)
                if relation.stored_name in kinds:
                    rows += _catalog_rows(relation, self._described(relation.stored_name))
        return table_from_data_flat(rows, list(rows[0]) if rows else list(_NO_ROW)), []

    def calculate_freshness(
        self, source: Any, loaded_at_field: str, filter: str | None, macro_resolver: Any = None
    ) -> tuple[Any, Any]:
        where = f" WHERE {filter}" if filter else ""
        response, table = self.execute(f"SELECT MAX({loaded_at_field}) AS loaded FROM {source}{where};", fetch=True)
        now = datetime.datetime.now(datetime.UTC)
        return response, self._create_freshness_response(_as_time(table[0][0]), now)

    # ----------------------------------------------------------------- models

    @available.parse(lambda *a, **k: {})
    def plan(
        self, relation: Any, statement: str, config: Mapping[str, Any], full_refresh: bool, selected: Mapping[str, bool]
    ) -> dict[str, Any]:
        """What brings the server to `statement`: `drop`, `create` (either may be None) and what there was before.

        In: `selected`: the relations that this run makes, which may be dropped with what they read; true: with their
        topics.
        """
        kind = statement.split(None, 2)[1]
        name = relation.stored_name
        existing = self._kinds().get(name)
        if existing is None:
            return {"drop": None, "create": statement}
        if full_refresh:
            return {"drop": self._drop(relation, config, selected), "create": statement}
        if existing != kind:
            raise DbtRuntimeError(
                f"{relation} is a {existing.lower()}, and the model makes a {kind.lower()} of it\n"
                "hint: dbt run --full-refresh drops it and creates it again, or give the model another name."
            )
        if statements.same_statement(self._described(name)["statement"], statement):
            return {"drop": None, "create": None}
        return {"drop": None, "create": statements.or_replace(statement)}

    def _drop(self, relation: Any, config: Mapping[str, Any], selected: Mapping[str, bool]) -> str:
        """Drops what reads it as well, readers before what they read, each with its topic if its own config says so."""
        topics = {_stored(name): delete_topic for name, delete_topic in selected.items()}
        topics[relation.stored_name] = bool(config.get("delete_topic"))
        names = self._readers_first(relation.stored_name)
        if others := [shown_name(name) for name in names if name not in topics]:
            raise DbtRuntimeError(
                f"{relation} is read by {', '.join(others)}, which this run does not create again\n"
                f"hint: dbt build --full-refresh --select {relation.identifier}+ does; drop those that are not models."
            )
        kinds = self._kinds()
        for name in names:
            self.cache_dropped(self._relation(name, kinds[name], relation.schema))
        cascade = len(names) > 1  # also for INSERT INTO queries between them
        return "\n".join(
            statements.drop(kinds[name], quoted(name), cascade=cascade, delete_topic=topics[name]) for name in names
        )

    def _readers_first(self, stored_name: str) -> list[str]:
        """The stream or table, after all that is written from it, directly or through others."""
        order: list[str] = []
        visited = {stored_name}

        def visit(name: str) -> None:
            for query in self._described(name)["readQueries"]:
                for sink in query["sinks"]:
                    if sink not in visited:
                        visited.add(sink)
                        visit(sink)
            order.append(name)

        visit(stored_name)
        return order

    @available.parse_none
    def use_properties(self, properties: Mapping[str, Any] | None) -> None:
        """The properties for later statements of this thread, in addition to the profile's."""
        self._server().use(properties or {})

    @available
    def create_as(self, kind: str, relation: Any, query: str, config: Mapping[str, Any]) -> str:
        with _configured():
            return statements.create_as(kind, str(relation), query, config)

    @available
    def create_source(self, relation: Any, columns: str, config: Mapping[str, Any]) -> str:
        with _configured():
            return statements.create_source(str(relation), columns, config)

    @available.parse(lambda *a, **k: {})
    def plan_sink(self, relation: Any, settings: str, full_refresh: bool) -> dict[str, Any]:
        """What brings the connector to `settings`, as `plan` does. A changed one is dropped and created again only with
        `full_refresh`, because that forgets its position; otherwise ALTER CONNECTOR changes its settings."""
        create = statements.create_sink(str(relation), settings)
        (shown,) = self._ask("SHOW CONNECTORS;")
        if relation.stored_name not in (each["name"].upper() for each in shown["connectors"]):
            return {"drop": None, "create": create}
        if full_refresh:
            return {"drop": f"DROP CONNECTOR {relation};", "create": create}
        return {"drop": None, "create": create.replace("CREATE SINK CONNECTOR", "ALTER CONNECTOR", 1)}

    @available.parse(lambda *a, **k: "")
    def topic_of(self, relation: Any) -> str:
        """The topic of a stream or table, for the settings of connectors."""
        return self._described(relation.stored_name)["topic"]

    # ----------------------------------------------------------------- seeds and tests

    @available.parse(lambda *a, **k: None)
    def change_seed(
        self,
        relation: Any,
        rows: agate.Table,
        config: Mapping[str, Any],
        full_refresh: bool,
        selected: Mapping[str, bool],
    ) -> SeedChange:
        """The statements that bring the server to the rows of the CSV."""
        given = config.get("column_types") or {}
        quote = bool(config.get("quote_columns"))
        types = {
            quoted(name) if quote else name: str(given.get(name) or self.convert_type(rows, index))
            for index, name in enumerate(rows.column_names)
        }
        with _configured():
            create = statements.create_seed(str(relation), types, config)
            existing = self._kinds().get(relation.stored_name)
            before: list[str] = []
            if existing is not None and full_refresh:
                # Without its topic: the rows of before would be in it, and would be those of the seed.
                before, existing = [self._drop(relation, {"delete_topic": True}, selected)], None
            current = None
            if existing is not None:
                if not statements.same_statement(self._described(relation.stored_name)["statement"], create):
                    raise statements.InvalidConfiguration(
                        f"the columns or options of the seed {relation} have changed; run dbt seed --full-refresh"
                    )
                columns = ", ".join(types)
                current = self._server().client.query(f"SELECT {columns} FROM {relation};")
            wanted = [tuple(row) for row in rows.rows]
            found = None if current is None else [row.values for row in current]
            return seed_change(str(relation), types, config, wanted, found, [*before, create])

    @available.parse_none
    def wait_for_nodes(self, ids: Sequence[str], graph: Mapping[str, Any]) -> None:
        """Returns when the queries that write these nodes have processed their input, as the profile's wait_seconds
        says."""
        seconds = float(self.config.credentials.wait_seconds)
        if seconds <= 0:
            return
        names = [
            self.Relation.create_from(self.config, _Node(node)).stored_name for node in _with_ephemeral(ids, graph)
        ]
        try:
            wait_for_contents(self._server().client, names, seconds)
        except MillstreamError as error:
            raise DbtDatabaseError(f"{text_of(error)}\nhint: wait_seconds of the profile sets how long.") from error

    # ----------------------------------------------------------------- dbt's own questions

    @classmethod
    def date_function(cls) -> str:
        return "UNIX_TIMESTAMP()"

    @classmethod
    def quote(cls, identifier: str) -> str:
        return quoted(identifier)

    @classmethod
    def is_cancelable(cls) -> bool:
        return True

    def debug_query(self) -> None:
        self.execute("SHOW STREAMS;")  # dbt's own has no FROM

    def drop_relation(self, relation: Any) -> None:
        self.cache_dropped(relation)
        self.execute(statements.drop(str(relation.type).upper(), relation.render()))

    def truncate_relation(self, relation: Any) -> None:
        raise DbtRuntimeError(f"{relation} cannot be truncated: a topic keeps its records")

    def rename_relation(self, from_relation: Any, to_relation: Any) -> None:
        self.cache_renamed(from_relation, to_relation)
        self.execute(f"ALTER {str(from_relation.type).upper()} {from_relation} RENAME TO {to_relation};")

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "STRING"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "DOUBLE" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "BIGINT"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "BIGINT"

    @classmethod
    def convert_boolean_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "BOOLEAN"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "TIMESTAMP"

    @classmethod
    def convert_date_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "DATE"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "TIME"


def _stored(rendered: str) -> str:
    """The name in the catalog of a relation as SQL has it."""
    return rendered[1:-1].replace("``", "`") if rendered.startswith("`") else rendered.upper()


@contextmanager
def _configured() -> Generator[None]:
    """Turns what is wrong in a configuration, and what the server refuses, into dbt's errors."""
    try:
        yield
    except statements.InvalidConfiguration as error:
        raise DbtRuntimeError(str(error)) from error
    except MillstreamError as error:
        raise DbtDatabaseError(text_of(error)) from error


class _Node:
    """A node of dbt's graph, which is a dict, as `Relation.create_from` reads it."""

    def __init__(self, node: Mapping[str, Any]) -> None:
        self.database, self.schema = node["database"], node["schema"]
        self.identifier = node.get("identifier") or node.get("alias") or node["name"]
        self.quoting_dict = {
            name: value
            for name, value in (node.get("quoting") or node["config"].get("quoting") or {}).items()
            if isinstance(value, bool)
        }
        self.catalog_name: str | None = None
        self.config: dict[str, Any] = {}


def _with_ephemeral(ids: Sequence[str], graph: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The nodes; instead of an ephemeral model, those that it reads."""
    for each in ids:
        node = graph["nodes"].get(each) or graph["sources"].get(each)
        if node is None:
            continue
        if node["config"].get("materialized") == "ephemeral":
            yield from _with_ephemeral(node["depends_on"]["nodes"], graph)
        else:
            yield node


_NO_ROW = (
    "table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner", "column_name",
    "column_index", "column_type", "column_comment",
)  # fmt: skip


def _catalog_rows(relation: Any, described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    about: dict[str, Any] = {}
    for name, label in (("topic", "Topic"), ("keyFormat", "Key format"), ("valueFormat", "Value format")):
        about[f"stats:{name}:label"] = label
        about[f"stats:{name}:value"] = described[name]
        about[f"stats:{name}:description"] = ""
        about[f"stats:{name}:include"] = True
    for index, field in enumerate(described["fields"]):
        values = (
            relation.database, relation.schema, relation.identifier, described["type"], None, None,
            shown_name(field["name"]), index, type_text(field["schema"]), None,
        )  # fmt: skip
        yield {**dict(zip(_NO_ROW, values, strict=True)), **about}


def _as_time(value: Any) -> datetime.datetime | None:
    """A time of the server: milliseconds, or the text of a DATE or TIMESTAMP."""
    if value is None or isinstance(value, datetime.datetime):
        found = value
    elif isinstance(value, str):
        found = datetime.datetime.fromisoformat(value)
    elif isinstance(value, datetime.date):
        found = datetime.datetime(value.year, value.month, value.day)
    else:
        found = datetime.datetime.fromtimestamp(float(value) / 1000, datetime.UTC)
    return found if found is None or found.tzinfo else found.replace(tzinfo=datetime.UTC)
