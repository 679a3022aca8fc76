"""Runs in Flink's environment: the shared folder's script, but results are written, not thrown away.

    python flink_writing.py SCRIPT RESULTS_FOLDER [the script's arguments]

Each result is a line of JSON in a file. Where a query changes results that it gave before, a line says which change it
is (Flink's format `debezium-json`): plain JSON cannot.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

THROWN_AWAY: Final = "'connector'='blackhole'"
_INTO_FILES: Final = "'connector'='filesystem', 'path'='file://{folder}', 'format'='{format}'"
_CANNOT_CHANGE: Final = "doesn't support consuming update"  # Flink's words


class WrittenResults:
    """Statements on their way to Flink. In: `execute`: the environment's `execute_sql`."""

    def __init__(self, execute: Any, folder: Path) -> None:
        self._execute, self._folder = execute, folder
        self._sink = ""

    def execute_sql(self, environment: Any, statement: str) -> Any:
        if THROWN_AWAY in statement:
            self._sink = statement
            return self._declare(environment, "json")
        if not statement.startswith("INSERT INTO sink"):
            return self._execute(environment, statement)
        try:
            return self._execute(environment, statement)
        except Exception as error:
            if _CANNOT_CHANGE not in str(error):
                raise
        self._execute(environment, "DROP TABLE sink")
        self._declare(environment, "debezium-json")
        return self._execute(environment, statement)

    def _declare(self, environment: Any, written_as: str) -> Any:
        shutil.rmtree(self._folder, ignore_errors=True)
        into = _INTO_FILES.format(folder=self._folder, format=written_as)
        return self._execute(environment, self._sink.replace(THROWN_AWAY, into))


def main(script: str, folder: str, *arguments: str) -> None:
    sys.path.insert(0, str(Path(script).parent))  # as for a script that is run
    table_environment = import_module("pyflink.table").TableEnvironment
    results = WrittenResults(table_environment.execute_sql, Path(folder).absolute())
    table_environment.execute_sql = lambda environment, statement: results.execute_sql(environment, statement)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
