"""What DuckDB connections leave behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millstream.executor.state import connection
from millstream.executor.state.connection import open_connection


def test_the_folder_of_a_killed_process_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_and_die = (
        "import os, signal, tempfile, sys\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from millstream.executor.state.connection import open_connection\n"
        "open_connection()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", open_and_die, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    connection._spill_directory.cache_clear()
    try:
        open_connection().close()
        (own,) = tmp_path.iterdir()
        assert own != left
    finally:
        connection._spill_directory.cache_clear()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not list threads")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_database_has_the_threads_that_it_is_given_and_no_others(threads: int) -> None:
    count = (
        "import os, sys\n"
        "from millstream.executor.state.connection import EngineSettings, open_connection\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "opened = [open_connection(settings=EngineSettings(threads=int(sys.argv[1]))) for _ in range(5)]\n"
        "[each.execute('SELECT sum(i) FROM range(1000000) t(i)').fetchall() for each in opened]\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", count, str(threads)], check=True, capture_output=True, text=True)
    assert int(done.stdout) == 5 * (threads - 1)


@pytest.mark.parametrize("expression", ["(a % b) BETWEEN 0 AND 1", "(a % b) + (a % b)", "(a % b) IN (0, 1)"])
def test_an_expression_that_fails_is_null_also_where_a_part_of_it_occurs_twice(expression: str) -> None:
    with open_connection() as opened:
        found = opened.execute(f"SELECT TRY({expression}) FROM (VALUES (3, 0), (3, 2)) t(a, b)").fetchall()
    assert found[0] == (None,) and found[1] != (None,)
