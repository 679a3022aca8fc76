"""Workers of pytest-xdist that are forked do what those do that begin by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from forked_workers import AWAITED
from repository import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each worker begins by itself")

CONFTEST = """
import os
from forked_workers import fork_workers

IMPORTED_BY = os.getpid()

def pytest_xdist_setupnodes(config, specs):
    fork_workers(config, specs)
"""
TESTS = """
import os, sys
from pathlib import Path
import pytest

IMPORTED_BY = os.getpid()
Path(os.environ["IMPORTS"]).open("a").write(f"{IMPORTED_BY}\\n")

@pytest.fixture(scope="session")
def number(tmp_path_factory):
    return tmp_path_factory.mktemp("folder")

def test_it_was_imported_before_and_has_a_folder_of_its_own(number, request):
    assert IMPORTED_BY == os.getppid()
    assert os.environ["PYTEST_XDIST_WORKER"] in str(number)
    assert request.config.workerinput["workerid"] == os.environ["PYTEST_XDIST_WORKER"]

def test_what_it_prints_is_shown():
    print("said by", Path(__file__).stem)
    assert False

@pytest.mark.skipif(True, reason="no time")
def test_skipped():
    pass
"""


def run(folder: Path, *arguments: str, awaited: int = 0, **files: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-p", "xdist", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(REPOSITORY / "tests" / "support"), "IMPORTS": str(folder / "imports.txt")}
    environment |= {AWAITED: str(awaited)} if awaited else {}
    said = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return said.stdout + said.stderr


def test_all_tests_are_collected_once_and_each_worker_has_its_own_output_and_folder(tmp_path: Path) -> None:
    said = run(tmp_path, "-n", "2", "--dist", "loadfile", one=TESTS, two=TESTS)
    assert "2 failed, 2 passed, 2 skipped" in said
    assert len((tmp_path / "imports.txt").read_text().split()) == 2
    one, two = said.index("said by test_one"), said.index("said by test_two")
    assert said.count("said by test_") == 2 and "test_what_it_prints_is_shown" in said[min(one, two) : max(one, two)]


def test_a_worker_that_ends_is_replaced(tmp_path: Path) -> None:
    ends = "import os\ndef test_one():\n    os._exit(3)\ndef test_two():\n    pass\n"
    said = run(tmp_path, "-n", "2", ends=ends, other="def test_three():\n    pass\n")
    assert "crashed while running 'test_ends.py::test_one'" in said
    assert "1 failed, 2 passed" in said


def test_a_mistake_in_a_module_is_shown(tmp_path: Path) -> None:
    said = run(tmp_path, "-n", "2", wrong="import nothing_of_this_name", right="def test_one():\n    pass\n")
    assert "No module named 'nothing_of_this_name'" in said and "1 error" in said


def test_workers_begin_when_the_process_that_they_need_has_ended(tmp_path: Path) -> None:
    done = tmp_path / "done"
    makes = f"import time, pathlib; time.sleep(2.5); pathlib.Path({str(done)!r}).touch()"
    needs = f"import os, pathlib\ndef test_one():\n    assert pathlib.Path({str(done)!r}).exists()\n"
    needs += f"    assert {AWAITED!r} not in os.environ\n"
    with subprocess.Popen([sys.executable, "-c", makes]) as process:
        assert "2 passed" in run(tmp_path, "-n", "2", awaited=process.pid, one=needs, two=needs)
