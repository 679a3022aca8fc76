"""An engine with a stream of clicks, and IPython's shell in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream
from millstream.connection import Connection

CLICKS = (
    "CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
)


@pytest.fixture(scope="module")
def ms() -> Iterator[Connection]:
    """With three clicks: of ada, bo and ada again."""
    with millstream.connect(properties={"auto.offset.reset": "earliest"}) as connection:
        connection.sql(CLICKS)
        connection.insert("clicks", {"user": ["ada", "bo", "ada"], "size": [3, 4, 5]})
        yield connection


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell with the extension, connected to nothing yet."""
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "millstream")
    yield shell
    shell.run_line_magic("unload_ext", "millstream")
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()
