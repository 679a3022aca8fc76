"""The available connectors: ours, and those that installed packages provide as entry points of the group
`millstream.connectors`. A connector is found by its short name, or by the name of the Java class that it replaces."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from millstream.errors import did_you_mean

from .connector import SinkConnector, SourceConnector
from .connector_errors import InvalidConnector
from .connector_secrets import shown_value
from .connector_settings import ConnectorSetting, settings_of

ENTRY_POINTS: Final = "millstream.connectors"
PLUGIN_VERSION: Final = "1.0"
"""What Kafka Connect's API says of all of them."""
COMMON: Final = (
    "connector.class", "name", "tasks.max", "topics", "transforms", "predicates", "key.converter", "value.converter",
    "errors.", "topic.creation.",
)  # fmt: skip
"""Prefixes of the settings that every connector has."""
COMMON_FAMILIES: Final = (
    "transforms.", "predicates.", "key.converter.", "value.converter.", "topic.creation.", "errors.log.",
    "errors.retry.", "errors.deadletterqueue.",
)  # fmt: skip
"""The same without the names: of settings whose rest the user chooses, or that only Kafka Connect has."""

_INSTALLING_NS: Final = 60_000_000_000

PluginKind = Literal["SOURCE", "SINK"]


@dataclass(frozen=True, slots=True)
class ConnectorPlugin:
    """`target`: `module:Class`, loaded when it is needed; `java_classes`: the names that configurations of Kafka
    Connect use."""

    name: str
    kind: PluginKind
    doc: str
    target: str
    java_classes: tuple[str, ...] = ()

    def load(self) -> type[SourceConnector] | type[SinkConnector]:
        """The class of the connector. Raises `InvalidConnector` if a package is missing."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise InvalidConnector(
                f"the connector {self.name} cannot be loaded: {error}",
                setting="connector.class",
                hint="Install the packages that it needs; docs/connectors.md names the extra of each connector.",
            ) from None

    def settings(self) -> tuple[ConnectorSetting, ...]:
        return settings_of(self.load().settings)

    def secret_names(self) -> frozenset[str]:
        return frozenset(name for item in self.settings() if item.secret for name in item.names)

    def shows(self, name: str) -> bool:
        """Whether the value of a setting may be shown. A setting that is not declared may contain anything, for example
        a password if its name has a typing error, so it is not shown."""
        return name.startswith(COMMON) or any(name in item.names and not item.secret for item in self.settings())


def _own(name: str, kind: PluginKind, doc: str, target: str, *java_classes: str) -> ConnectorPlugin:
    package = __package__ or ""
    return ConnectorPlugin(name, kind, doc, f"{package}.{target}", java_classes)


BUILT_IN: Final = (
    _own("datagen", "SOURCE", "Generated records: orders, users, pageviews or clickstream.",
         "sources.datagen:Datagen", "io.confluent.kafka.connect.datagen.DatagenConnector"),
    _own("file", "SOURCE", "Lines of files: text, NDJSON or CSV; follows a file that grows or is rotated.",
         "sources.file_source:FileSource", "org.apache.kafka.connect.file.FileStreamSourceConnector"),
    _own("s3", "SOURCE", "Rows of objects of an S3-compatible store, or of whole files: text, NDJSON, CSV, Parquet.",
         "sources.object_source:ObjectSource", "io.confluent.connect.s3.source.S3SourceConnector"),
    _own("postgres", "SOURCE", "Tables of PostgreSQL: a snapshot, then all changes, in Debezium's format.",
         "postgres.pg_source:PostgresSource", "io.debezium.connector.postgresql.PostgresConnector"),
    _own("mysql", "SOURCE", "Tables of MySQL: a snapshot, then all changes, in Debezium's format.",
         "mysql.mysql_source:MySqlSource", "io.debezium.connector.mysql.MySqlConnector"),
    _own("mariadb", "SOURCE", "Tables of MariaDB: a snapshot, then all changes, in Debezium's format.",
         "mysql.mysql_source:MySqlSource", "io.debezium.connector.mariadb.MariaDbConnector"),
    _own("sql", "SOURCE", "Rows of tables of any database that SQLAlchemy knows, looked for at intervals.",
         "sources.sql_source:SqlSource", "io.confluent.connect.jdbc.JdbcSourceConnector"),
    _own("sql", "SINK", "Tables of any database that SQLAlchemy knows: upserts and deletes by key, exactly once.",
         "sinks.sql_sink:SqlSink", "io.confluent.connect.jdbc.JdbcSinkConnector",
         "io.debezium.connector.jdbc.JdbcSinkConnector"),
    _own("webhook", "SOURCE", "Signed requests that others send to POST /hooks/<connector>.",
         "sources.webhook_source:WebhookSource"),
    _own("mqtt", "SOURCE", "Messages of an MQTT broker, kept there until they are committed.",
         "sources.mqtt_source:MqttSource", "io.confluent.connect.mqtt.MqttSourceConnector"),
    _own("mqtt", "SINK", "A message to an MQTT broker for each record.",
         "sinks.mqtt_sink:MqttSink", "io.confluent.connect.mqtt.MqttSinkConnector"),
    _own("delta", "SINK", "Tables of Delta Lake: rows are added, or kept by their key, exactly once.",
         "sinks.delta_sink:DeltaSink"),
    _own("iceberg", "SINK", "Tables of Apache Iceberg: rows are added, or kept by their key, exactly once.",
         "sinks.iceberg_sink:IcebergSink", "org.apache.iceberg.connect.IcebergSinkConnector"),
    _own("parquet", "SINK", "Folders of Parquet files, on disk or in an S3-compatible store, exactly once.",
         "sinks.parquet_sink:ParquetSink", "io.confluent.connect.s3.S3SinkConnector"),
    _own("clickhouse", "SINK", "Tables of ClickHouse: rows are added, or kept by their key.",
         "sinks.clickhouse_sink:ClickHouseSink", "com.clickhouse.kafka.connect.ClickHouseSinkConnector"),
    _own("elasticsearch", "SINK", "Documents of Elasticsearch, one for each key or each record.",
         "sinks.elasticsearch_sink:ElasticsearchSink",
         "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"),
    _own("opensearch", "SINK", "Documents of OpenSearch, one for each key or each record.",
         "sinks.elasticsearch_sink:ElasticsearchSink", "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector"),
    _own("http", "SOURCE", "Rows of the answers of an HTTP server, asked at intervals, page by page.",
         "sources.http_source:HttpSource"),
    _own("http", "SINK", "A request for each record, with an Idempotency-Key.",
         "sinks.http_sink:HttpSink", "io.confluent.connect.http.HttpSinkConnector"),
)  # fmt: skip


def plugins() -> tuple[ConnectorPlugin, ...]:
    """All plugins, sorted by name. A plugin of a package cannot have the name of one of ours."""
    found = list(BUILT_IN)
    names = {plugin.name for plugin in BUILT_IN}
    for entry in _entry_points():
        if entry.name not in names:
            names.add(entry.name)
            found.append(_offered(entry))
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.kind)))


def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Python reads a file of every installed package for them, 6 ms of CPU for two hundred. An installation changes one
    of the folders: then, and until it is surely over, they are read again."""
    folders = tuple((folder, _changed_ns(folder)) for folder in sys.path)
    if time.time_ns() - max(changed for _, changed in folders) < _INSTALLING_NS:
        _read_entry_points.cache_clear()
    return _read_entry_points(folders)


@lru_cache(maxsize=1)
def _read_entry_points(_folders: tuple[tuple[str, int], ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINTS))


def _changed_ns(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _offered(entry: importlib.metadata.EntryPoint) -> ConnectorPlugin:
    """The plugin of a package. It is loaded to find out its kind. If that fails, its text says so."""
    try:
        loaded: Any = entry.load()
    except Exception as error:
        return ConnectorPlugin(entry.name, "SOURCE", f"cannot be loaded: {error}", entry.value)
    kind: PluginKind = "SINK" if issubclass(loaded, SinkConnector) else "SOURCE"
    return ConnectorPlugin(entry.name, kind, (loaded.__doc__ or "").partition("\n")[0], entry.value)


def find_plugin(name: str | None, kind: PluginKind | None = None) -> ConnectorPlugin:
    """In: `name`: the value of `connector.class`; `kind`: decides if a source and a sink have the same name. Raises
    `InvalidConnector`."""
    if not name:
        raise InvalidConnector(
            "connector.class is missing", setting="connector.class", hint="SHOW CONNECTOR PLUGINS lists the classes."
        )
    found = plugins_called(name)
    if found:
        return next((plugin for plugin in found if plugin.kind == kind), found[0])
    raise InvalidConnector(
        f'there is no connector "{name}"',
        setting="connector.class",
        hint=did_you_mean(name, [plugin.name for plugin in plugins()])
        or "SHOW CONNECTOR PLUGINS lists the classes. Java classes cannot be run here.",
    )


def configured_plugin(config: Mapping[str, str]) -> ConnectorPlugin:
    """The plugin for the settings of a new connector. It is a sink if they name topics. Raises `InvalidConnector`."""
    kind: PluginKind = "SINK" if "topics" in config or "topics.regex" in config else "SOURCE"
    return find_plugin(config.get("connector.class"), kind)


def plugins_called(name: str) -> list[ConnectorPlugin]:
    """As in Kafka Connect, a Java class may lack its package, and `Connector` behind that."""
    return [plugin for plugin in plugins() if name == plugin.name or any(map(_names(name), plugin.java_classes))]


def _names(name: str) -> Callable[[str], bool]:
    def named(java: str) -> bool:
        short = java.rpartition(".")[2]
        return name in (java, short, short.removesuffix("Connector"))

    return named


def shown_config(config: Mapping[str, str]) -> dict[str, str]:
    """The settings as they are shown to everybody who may see the connector."""
    shows = shown_names(config.get("connector.class"))
    return {name: shown_value(name, value, secret=not shows(name)) for name, value in config.items()}


def shown_names(connector_class: str | None) -> Callable[[str], bool]:
    """Decides by name which settings may be shown. If a source and a sink have the same name, these are the settings
    that one of them shows and neither hides. If the connector cannot be loaded, these are the common settings."""
    try:
        found = plugins_called(connector_class or "")
        secret = frozenset[str]().union(*(plugin.secret_names() for plugin in found))
    except InvalidConnector:
        found, secret = [], frozenset[str]()
    return lambda name: name.startswith(COMMON) or (name not in secret and any(plugin.shows(name) for plugin in found))
