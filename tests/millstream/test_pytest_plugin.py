"""The fixtures of the package, in a pytest of their own that knows nothing of this repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from forked import run_module
from repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
def test_the_tests_of_the_page_pass_and_fixtures_are_each_tests_own(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(def test_.*?)```", PAGE, re.DOTALL)
    again = example.replace("def test_", "def test_again_")  # would find streams of the first two
    (tmp_path / "test_page.py").write_text(f"{example}\n\n{again}\n\ndef test_wrong(sandbox):\n    assert 0\n")
    said = pytest_in(tmp_path)
    assert re.search(r"1 failed, 4 passed", said), said


def test_a_projects_own_fixtures_win(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef engine():\n    return 7\n")
    (tmp_path / "test_own.py").write_text("def test_own(engine):\n    assert engine == 7\n")
    assert "1 passed" in pytest_in(tmp_path)


def test_the_package_says_so_to_pytest() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"millstream": "millstream.pytest_plugin"}


def pytest_in(folder: Path) -> str:
    """What a pytest prints that has no other plugins than this."""
    plugins = ("--disable-plugin-autoload", "-p", "millstream.pytest_plugin", "-p", "no:cacheprovider")
    done = run_module("pytest", "-q", *plugins, "--rootdir", str(folder), str(folder), folder=folder, timeout_s=280)
    return done.stdout + done.stderr
