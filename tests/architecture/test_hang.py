"""A test that hangs in its own clean-up ends its process, and says where it hung."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CONFTEST = """
import pytest
from hang import ended_if_it_hangs, prepare

def pytest_configure(config):
    prepare(config)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with ended_if_it_hangs(item, clean_up_seconds=1):
        return (yield)
"""
TESTS = """
import threading
import pytest

def test_passes():
    pass

@pytest.mark.timeout(1)
def test_hangs():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""


def test_a_test_that_hangs_in_its_clean_up_ends_the_process_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    plugins = ["-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-v", *plugins, "-o", f"pythonpath={SUPPORT}"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert "test_passes PASSED" in ended.stdout
    assert "Timeout" in ended.stderr
    assert "in test_hangs" in ended.stderr
