"""The snippets of docs/python.md run as they are printed, one after the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from repository import REPOSITORY
from running_server import service_in

import millstream

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
SNIPPETS = [
    snippet
    for snippet in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    if not snippet.startswith("def test_")  # tests/millstream/test_pytest_plugin.py runs those
]
SERVER = "127.0.0.1:8088"  # as it is printed


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server with what the page's first snippets make, for those that connect to one."""
    with service_in(tmp_path) as service, millstream.connect(f"http://{service.http_address}") as ms:
        ms.set("auto.offset.reset", "earliest")
        for snippet in SNIPPETS:
            for statement in re.findall(r'"(CREATE [^"]*)"', snippet):
                ms.sql(statement)
        yield str(service.http_address)


def test_every_snippet_runs_as_it_is_printed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(SNIPPETS) >= 6
    names: dict[str, Any] = {}
    try:
        for number, snippet in enumerate(SNIPPETS):
            exec(compile(snippet.replace(SERVER, address), f"snippet {number} of docs/python.md", "exec"), names)
        asyncio.run(names["watch"]())
        assert capsys.readouterr().out.count("pyarrow.Table") == 2
        assert sorted(names["ms"].table("totals").fetchall()) == [("ada", 2), ("bo", 1)]
    finally:
        names["ms"].close()
