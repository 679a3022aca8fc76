"""A test that ends its worker fails once, and all others run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CONFTEST = """
import pytest
from scheduling import OneSpark

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return OneSpark(config, log)
"""
PASSES = """
import time

def test_passes():
    time.sleep({seconds})
"""
ENDS_ITS_WORKER = """
import os

def test_before():
    pass

def test_ends_its_worker():
    os._exit(1)

def test_after():
    pass
"""


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_worker_that_ends_takes_no_other_test_with_it(tmp_path: Path, place: int) -> None:
    """At the beginning, in the middle and at the end: the other files have one test each."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(7):
        (tmp_path / f"test_{number}a.py").write_text(PASSES.format(seconds=0.05 * (number % 3)))
    (tmp_path / f"test_{place}.py").write_text(ENDS_ITS_WORKER)
    plugins = ["-p", "xdist", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", *plugins, "-o", f"pythonpath={SUPPORT}"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert len(re.findall("^FAILED .*test_ends_its_worker", ended.stdout, re.MULTILINE)) == 1
    assert "1 failed, 9 passed" in ended.stdout
