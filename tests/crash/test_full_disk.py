"""Disks that are really full, below what sinks write and below the log: nothing is lost, and all goes on by itself."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset as ds
import pytest
from running_server import ServerProcess, millstream
from waiting import eventually, without_error

from tests.cluster.disks import SmallDisk

deltalake = pytest.importorskip("deltalake")
pyiceberg_catalog = pytest.importorskip("pyiceberg.catalog")
JSON_V2 = {"content-type": "application/vnd.kafka.json.v2+json"}
NAMES = ("delta", "iceberg", "parquet", "sql")


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[SmallDisk, SmallDisk]]:
    """Of the server, and of what its sinks write."""
    with contextlib.ExitStack() as mounted:
        found: list[SmallDisk] = []
        for name, size in (("server", 96), ("sinks", 24)):
            try:
                found.append(SmallDisk(tmp_path / name, size))
            except (FileNotFoundError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no disk of its own can be mounted: {error}")
            command = ["umount", "-l", str(tmp_path / name)]
            mounted.callback(subprocess.run, command, check=True)
        yield found[0], found[1]


def configs(folder: Path) -> dict[str, dict[str, str]]:
    catalog = f"type=sql,uri=sqlite:///{folder}/catalog.db,warehouse=file://{folder}/iceberg"
    own: dict[str, dict[str, str]] = {
        "delta": {"location": f"{folder}/delta", "commit.interval.ms": "0"},
        "iceberg": {"table": "shop.orders", "catalog.properties": catalog, "commit.interval.ms": "0"},
        "parquet": {"location": f"{folder}/parquet", "rotate.interval.ms": "200"},
        "sql": {"connection.url": f"sqlite:///{folder}/out.db", "pk.mode": "none", "insert.mode": "insert",
                "auto.create": "true"},
    }  # fmt: skip
    return {name: {"connector.class": name, "topics": "orders", **config} for name, config in own.items()}


def readers(folder: Path) -> dict[str, Callable[[], list[int]]]:
    def iceberg() -> list[int]:
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/iceberg"}
        table = pyiceberg_catalog.load_catalog("default", **properties).load_table("shop.orders")
        return table.scan().to_arrow()["ID"].to_pylist()

    def sql() -> list[int]:
        with contextlib.closing(sqlite3.connect(f"file:{folder}/out.db?mode=ro", uri=True)) as database:
            return [row[0] for row in database.execute("SELECT id FROM orders")]

    return {
        "delta": lambda: deltalake.DeltaTable(f"{folder}/delta").to_pyarrow_table()["ID"].to_pylist(),
        "iceberg": iceberg,
        "parquet": lambda: ds.dataset(f"{folder}/parquet", format="parquet").to_table()["ID"].to_pylist(),
        "sql": sql,
    }


class Sender:
    """State: what was acknowledged, and the last refusal."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.refused = ""
        self._next = 0

    def send(self, url: str, batches: int) -> None:
        for _ in range(batches):
            ids = list(range(self._next, self._next + 100))
            self._next += 100
            body = {"records": [{"value": {"ID": n, "pad": "x" * 200}} for n in ids]}
            answer = httpx.post(f"{url}/topics/orders", headers=JSON_V2, json=body, timeout=60)
            offsets: list[Any] = answer.json().get("offsets", [])
            if answer.status_code == 200 and all(each.get("error") is None for each in offsets):
                self.acknowledged += ids
            else:
                self.refused = answer.text


def missing(found: dict[str, Callable[[], list[int]]], wanted: list[int]) -> dict[str, str]:
    """Of the tables that have not each of these once, how many rows they have, or why they cannot be read."""
    wrong: dict[str, str] = {}
    for name, read in found.items():
        try:
            ids = sorted(read())
            if ids != wanted:
                wrong[name] = f"{len(ids)} rows, {len(set(ids))} of them different, not {len(wanted)}"
        except Exception as error:  # a table that is not there yet
            wrong[name] = str(error)
    return wrong


def complete(url: str, found: dict[str, Callable[[], list[int]]], sender: Sender) -> None:
    without_error(lambda: _complete(url, found, sender), AssertionError)


def _complete(url: str, found: dict[str, Callable[[], list[int]]], sender: Sender) -> None:
    wrong = missing(found, sender.acknowledged)
    assert wrong == {}, waiting(url)


def waiting(url: str) -> dict[str, str]:
    """Why each sink that runs writes nothing."""
    found: dict[str, str] = {}
    for name in NAMES:
        (task,) = httpx.get(f"{url}/connectors/{name}/status", timeout=60).json()["tasks"]
        assert task["state"] == "RUNNING", task
        found[name] = task.get("trace", "")
    return found


def test_nothing_is_lost_and_all_goes_on_once_there_is_room(disks: tuple[SmallDisk, SmallDisk], tmp_path: Path) -> None:
    own, others = disks
    folder = others.data.parent
    found, sender = readers(folder), Sender()
    with contextlib.ExitStack() as running:
        server = running.enter_context(ServerProcess(own.data))
        stream = "CREATE STREAM orders (id INT) WITH (kafka_topic='orders', value_format='JSON', partitions=1);"
        assert httpx.post(f"{server.url}/ksql", json={"ksql": stream}, timeout=60).status_code == 200
        for name, config in configs(folder).items():
            assert httpx.put(f"{server.url}/connectors/{name}/config", json=config, timeout=60).status_code == 201
        sender.send(server.url, 3)
        complete(server.url, found, sender)
        others.fill()
        sender.send(server.url, 3)
        eventually(lambda: all("Make room there" in text for text in waiting(server.url).values()))
        server.stop(signal.SIGKILL)
        server = running.enter_context(ServerProcess(own.data))
        eventually(lambda: all("Make room there" in text for text in waiting(server.url).values()))
        others.free()
        complete(server.url, found, sender)
        own.fill()
        refused = millstream("backup", "create", str(tmp_path / "backup"), "--server", server.url)
        assert "no room to write the snapshot of a backup" in refused.stderr and "Free disk space" in refused.stderr
        sender.send(server.url, 40)
        assert "no room to write" in sender.refused
        own.free()
        complete(server.url, found, sender)
        sender.send(server.url, 1)
        complete(server.url, found, sender)
        assert millstream("backup", "create", str(tmp_path / "backup"), "--server", server.url).returncode == 0
