"""What DuckDB connections leave behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
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
    connection.spill_directory.cache_clear()
    try:
        open_connection().close()
        (own,) = tmp_path.iterdir()
        assert own != left
    finally:
        connection.spill_directory.cache_clear()


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


@pytest.mark.parametrize("operator", ["=", "<", "<>"])
def test_a_text_is_compared_with_a_case_that_no_stored_row_meets(operator: str) -> None:
    with open_connection() as opened:
        opened.execute("CREATE TABLE t AS SELECT i AS k, 'a' || i AS text FROM range(3) rows(i)")
        found = opened.execute(f"SELECT text {operator} CASE WHEN k > 5 THEN 'x' END FROM t").fetchall()
    assert found == [(None,)] * 3


_TEXT_COMPRESSIONS = {"FSST", "DICT_FSST", "DICTIONARY", "ZSTD"}


def _compressions(connection: duckdb.DuckDBPyConnection) -> set[str]:
    connection.execute("CHECKPOINT")
    found = connection.execute("SELECT compression FROM pragma_storage_info('t') WHERE column_name = 'text'")
    return {name.upper() for (name,) in found.fetchall()}


def test_texts_are_stored_as_they_are_and_a_file_with_compressed_ones_is_read(tmp_path: Path) -> None:
    rows = "SELECT 'https://example.org/item?number=' || i AS text FROM range(200000) rows(i)"
    with duckdb.connect(tmp_path / "old.duckdb") as old:
        old.execute(f"CREATE TABLE t AS {rows}")
        assert _compressions(old) & _TEXT_COMPRESSIONS
    connection = open_connection(str(tmp_path / "old.duckdb"))
    count, last = 200_000, "https://example.org/item?number=99999"
    assert connection.execute("SELECT count(DISTINCT text), max(text) FROM t").fetchall() == [(count, last)]
    connection.execute(f"INSERT INTO t {rows}")
    connection.close()
    connection = open_connection(str(tmp_path / "new.duckdb"))
    connection.execute(f"CREATE TABLE t AS {rows}")
    assert not _compressions(connection) & _TEXT_COMPRESSIONS
    connection.close()
