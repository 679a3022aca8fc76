"""One server and one browser for all tests of the console. They end with the last of these tests, not with the session:
Playwright's event loop runs on this thread, and other tests want to run their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import browser_path

HERE = Path(__file__).parent
_labs: list[object] = []

if browser_path() is None:
    pytest.skip("needs Chromium: the Debian package chromium", allow_module_level=True)
pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from console_lab import Console, ConsoleLab  # noqa: E402


@pytest.fixture
def lab() -> ConsoleLab:
    if not _labs:
        _labs.append(ConsoleLab())
    found = _labs[0]
    assert isinstance(found, ConsoleLab)
    return found


@pytest.fixture
def console(lab: ConsoleLab) -> Iterator[Console]:
    with lab.shared_console() as opened:
        yield opened


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    del item
    if _labs and (nextitem is None or nextitem.path.parent != HERE):
        found = _labs.pop()
        assert isinstance(found, ConsoleLab)
        found.close()
