"""`make test` runs a few failed tests once more, alone, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from scripts import run_tests

_FAILS_AT_FIRST: Final = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_at_first(number):
    seen = Path(f"seen-{{number}}")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""
_PASSES: Final = "\ndef test_passes():\n    Path('passed').open('a').write('x')\n"
_FAILS_ALWAYS: Final = "\ndef test_fails_always():\n    assert False\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis\n")  # it takes a second
    return tmp_path


def run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(tests)
    return subprocess.run(
        [sys.executable, run_tests.__file__], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_fails_beside_others_and_passes_alone_is_named(folder: Path) -> None:
    ended = run(folder, _FAILS_AT_FIRST.format(count=3) + _PASSES)
    assert ended.returncode == 0, ended.stdout
    last = ended.stdout.rpartition("===")[2]
    assert last == " " + "\n    ".join(
        ["3 failed beside others and passed alone; look for the reason:"]
        + [f"test_some.py::test_fails_at_first[{number}]" for number in range(3)]
    ) + "\n"  # fmt: skip
    assert (folder / "passed").read_text() == "x", "what passed is not repeated"


def test_what_fails_twice_has_failed(folder: Path) -> None:
    ended = run(folder, _FAILS_AT_FIRST.format(count=1) + _FAILS_ALWAYS)
    assert ended.returncode == run_tests.FAILED
    assert "1 failed, 1 passed" in ended.stdout


def test_many_failures_are_no_accident(folder: Path) -> None:
    ended = run(folder, _FAILS_AT_FIRST.format(count=run_tests.REPEATED_MAX + 1))
    assert ended.returncode == run_tests.FAILED
    assert "once more" not in ended.stdout


def test_a_file_that_cannot_be_read_is_not_repeated(folder: Path) -> None:
    ended = run(folder, "import nothing_of_this_name\n")
    assert ended.returncode not in (0, run_tests.FAILED)
    assert "once more" not in ended.stdout
