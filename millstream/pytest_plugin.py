"""Fixtures for tests of pipelines. pytest finds them where Millstream is installed.

def test_clicks_are_counted(sandbox):
    sandbox.create_topic("clicks")
    …

def test_clicks_are_counted_live(engine):
    engine.sql("CREATE STREAM clicks …")
    …
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .connection import Connection
    from .testing import Sandbox


@pytest.fixture
def sandbox() -> Generator[Sandbox]:
    """A `millstream.testing.Sandbox` of the test's own: nothing runs until `drain`, so results are always the same."""
    from .testing import Sandbox

    with Sandbox() as opened:
        yield opened


@pytest.fixture
def engine() -> Generator[Connection]:
    """A `millstream.connect()` of the test's own, whose queries run in the background and read from the beginning.

    `wait` returns when their results are complete.
    """
    from millstream.sql.settings.property_table import EXECUTOR, OFFSET_RESET

    from .connection import connect

    with connect(properties={OFFSET_RESET.name: "earliest", EXECUTOR.name: "duckdb"}) as opened:
        yield opened
