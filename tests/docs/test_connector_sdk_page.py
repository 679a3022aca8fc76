"""docs/connector-sdk.md is true: its connector passes its tests, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run_module
from repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "connector-sdk.md").read_text(encoding="utf-8")
CONNECTOR, TESTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """By pytest without plugins: Millstream's is tested elsewhere, and importing all takes longer than these tests."""
    options = ("-q", "-x", "--disable-plugin-autoload", "-p", "no:cacheprovider", "test_sqlite_poll.py")
    return run_module("pytest", *options, folder=folder, timeout_s=380)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = TESTS
    if sys.version_info < (3, 12):  # where sqlite3 has no `autocommit` yet
        tests = tests.replace("autocommit=True", "isolation_level=None")
    (tmp_path / "sqlite_poll.py").write_text(CONNECTOR)
    (tmp_path / "test_sqlite_poll.py").write_text(tests)
    return tmp_path


@pytest.mark.timeout(400)
def test_the_connector_of_the_page_passes_its_tests(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 passed" in done.stdout


@pytest.mark.timeout(400)
def test_they_would_fail_if_it_were_wrong(folder: Path) -> None:
    wrong = CONNECTOR.replace('{"last": last}', '{"last": last + 1}')
    assert wrong != CONNECTOR
    (folder / "sqlite_poll.py").write_text(wrong)
    done = run(folder)
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout + done.stderr


def test_the_class_has_about_40_lines() -> None:
    code = CONNECTOR[CONNECTOR.index("@dataclass") :]
    assert len([line for line in code.splitlines() if line.strip()]) <= 45
