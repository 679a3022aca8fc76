"""The import contracts in pyproject.toml hold."""

from __future__ import annotations

import subprocess
import sys

import pytest
from repository import REPOSITORY


def test_imports_point_down() -> None:
    pytest.importorskip("importlinter")
    checked = subprocess.run(
        [sys.executable, "-m", "scripts.lint_imports"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
