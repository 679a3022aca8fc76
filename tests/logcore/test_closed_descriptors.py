"""A log that is closed has no file open any more, whenever Python's garbage collector comes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.logcore.log import open_log
from millstream.testing import Sandbox

from .log_records import rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@contextmanager
def _nothing_left_open(folder: str) -> Generator[None]:
    """In: what the names of files begin with that have to be closed at the end."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert [name for name in _open_files() if name.startswith(folder)] == []
    finally:
        gc.enable()


def _open_files() -> list[str]:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.islink(link)]


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_log(tmp_path: Path, partitions: int) -> None:
    with _nothing_left_open(str(tmp_path)):
        with open_log(tmp_path) as log:
            log.create_topic("t", partitions)
            producer = log.transactional_producer("x")
            producer.begin()
            for partition in range(partitions):
                producer.append("t", partition, rows(b"v"))
            producer.commit()
            assert [name for name in _open_files() if name.startswith(str(tmp_path))] != []


def test_a_sandbox_with_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers_a_query()  # opens the instances of DuckDB that a process keeps
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with _nothing_left_open(str(tmp_path)):
        _answers_a_query()


def _answers_a_query() -> None:
    with Sandbox() as sandbox:
        sandbox.execute("""
            CREATE STREAM s (k STRING KEY, x INT) WITH (kafka_topic='s', format='JSON', partitions=4);
            CREATE TABLE sums AS SELECT x, COUNT(*) AS n FROM s GROUP BY x;""")
        sandbox.produce("s", "a", {"X": 1})
        sandbox.drain()
        assert [row for row in sandbox.query("SELECT * FROM sums;") if "row" in row] != []
