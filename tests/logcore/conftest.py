"""What the tests of the log share: a log in a folder of the test, and failpoints that do not outlive it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.log import Log, open_log

_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """For tests that write much and do not care about the disk: in memory, where the system has a place there."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="millstream-test-", dir=_MEMORY) as path:
        yield Path(path)


@pytest.fixture
def only_processes_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the machine does not: what a killed one wrote needs no sync of all disks to be there."""
    monkeypatch.setattr(os, "sync", lambda: None)


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    """A durable log with topic "t" of two partitions."""
    opened = open_log(folder, clock=lambda: 1_700_000_000.0)
    opened.create_topic("t", 2)
    yield opened
    failpoints.arm("")
    opened.close()
