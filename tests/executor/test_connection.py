"""What DuckDB connections leave behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millstream.executor import connection
from millstream.executor.connection import open_connection


def test_the_folder_of_a_killed_process_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_and_die = (
        "import os, signal, tempfile, sys\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from millstream.executor.connection import open_connection\n"
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
