"""What the tests of the log share: a log in a folder of the test, and failpoints that do not outlive it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.log import Log, open_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    """A durable log with topic "t" of two partitions."""
    opened = open_log(folder, clock=lambda: 1_700_000_000.0)
    opened.create_topic("t", 2)
    yield opened
    failpoints.arm("")
    opened.close()
