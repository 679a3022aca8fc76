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


@pytest.mark.parametrize("expression", ["(a % b) BETWEEN 0 AND 1", "(a % b) + (a % b)", "(a % b) IN (0, 1)"])
def test_an_expression_that_fails_is_null_also_where_a_part_of_it_occurs_twice(expression: str) -> None:
    with open_connection() as opened:
        found = opened.execute(f"SELECT TRY({expression}) FROM (VALUES (3, 0), (3, 2)) t(a, b)").fetchall()
    assert found[0] == (None,) and found[1] != (None,)
