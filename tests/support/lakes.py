"""Tables of Delta Lake and Iceberg in a folder, for tests of the sinks that write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.executor.connect.connector import SinkConnector, TaskInfo
from millstream.executor.connect.connector_plugins import find_plugin
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sinks.lake_sink import LakeSink
from millstream.testing import ConnectorSandbox

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog  # noqa: E402 - where it is installed


class Lake:
    """One of the formats in a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        (folder / "lake").mkdir()
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    @property
    def config(self) -> dict[str, str]:
        if self.name == "delta":
            return {"location": f"{self._folder}/lake/${{topic}}"}
        catalog = ",".join(f"{name}={value}" for name, value in self.catalog.items())
        return {"table": "shop.${topic}", "catalog.properties": catalog}

    @property
    def kind(self) -> type[SinkConnector]:
        loaded = find_plugin(self.name).load()
        assert issubclass(loaded, LakeSink)
        return loaded

    def sandbox(self, **more: str) -> ConnectorSandbox:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return ConnectorSandbox(
            self.kind, {"topics": "orders,refunds", "commit.interval.ms": "0", **self.config, **given}
        )

    def sink(self, task: TaskInfo, **more: str) -> SinkConnector:
        given = {name.replace("_", "."): value for name, value in more.items()}
        return self.kind(read_settings(self.kind.settings, {**self.config, **given}), task)

    def create(self, topic: str, schema: pa.Schema) -> None:
        if self.name == "delta":
            deltalake.DeltaTable.create(f"{self._folder}/lake/{topic}", schema)
            return
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace_if_not_exists("shop")
        catalog.create_table(f"shop.{topic}", schema)

    def table(self, topic: str = "orders") -> pa.Table:
        if self.name == "delta":
            return deltalake.DeltaTable(f"{self._folder}/lake/{topic}").to_pyarrow_table()
        return load_catalog("default", **self.catalog).load_table(f"shop.{topic}").scan().to_arrow()

    def rows(self, topic: str = "orders") -> list[dict[str, Any]]:
        return sorted(self.table(topic).to_pylist(), key=lambda row: str(row.get("id")))

    def commits(self, topic: str = "orders") -> int:
        """Those that wrote rows, one after the other."""
        if self.name == "delta":
            return deltalake.DeltaTable(f"{self._folder}/lake/{topic}").version()
        return len(load_catalog("default", **self.catalog).load_table(f"shop.{topic}").history())

    def statement(self, **more: str) -> str:
        """CREATE SINK CONNECTOR lake."""
        given = {name.replace("_", "."): value for name, value in more.items()}
        config = {"connector.class": self.name, "commit.interval.ms": "0", **self.config, **given}
        properties = ", ".join(f"'{name}'='{value.replace('${', '$${')}'" for name, value in config.items())
        return f"CREATE SINK CONNECTOR lake WITH ({properties});"

    def types(self, topic: str = "orders") -> Mapping[str, pa.DataType]:
        """Of the columns, texts and lists with the short names of their types."""
        schema = self.table(topic).schema
        return {field.name: _short(field.type) for field in schema}


def _short(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("item", _short(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _short(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_short(type_.key_type), _short(type_.item_type))
    return type_
