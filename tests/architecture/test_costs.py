"""What each test costs is measured in CPU seconds, child processes included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import costs
import pytest
from costs import Cost, by_file, measured


def test_a_file_gets_the_cpu_seconds_of_a_test_and_of_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    monkeypatch.setenv(costs.VARIABLE, str(tmp_path / "costs"))
    with measured("tests/test_a.py::test_own"):
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    with measured("tests/test_a.py::test_child"):
        subprocess.run([sys.executable, "-c", busy], check=True)
    own, child = (Cost(*json.loads(line)) for line in (tmp_path / "costs").read_text().splitlines())
    assert own.test == "tests/test_a.py::test_own"
    assert own.own >= 0.15 and own.children == 0
    assert child.children >= 0.25 > child.own
    assert child.wall > 0


def test_a_child_that_outlives_its_test_costs_each_test_what_it_does_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(costs.VARIABLE, str(tmp_path / "costs"))
    busy = (
        "import subprocess, sys, time\n"
        "grandchild = 'import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ntime.sleep(60)'\n"
        "subprocess.run([sys.executable, '-c', grandchild])"
    )
    with measured("tests/test_a.py::test_first"):
        child = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout is not None and child.stdout.readline() == b"\n"
    with measured("tests/test_a.py::test_last"):
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    first, last = (Cost(*json.loads(line)) for line in (tmp_path / "costs").read_text().splitlines())
    assert first.children >= 0.25
    assert 0.0 <= last.children < 0.25


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(costs.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with measured("tests/test_a.py::test_own"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_costs_are_added_up_by_file() -> None:
    tests = [Cost("a.py::x", 1, 2, 9), Cost("b.py::x", 2, 2, 1), Cost("a.py::y", 0.5, 1, 1)]
    assert by_file(tests) == [Cost("a.py", 1.5, 3, 10), Cost("b.py", 2, 2, 1)]
