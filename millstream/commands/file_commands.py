"""The commands for files: `load` inserts records, `test` runs SQL with assertions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.errors import MillstreamError

from .addresses import DEFAULT_SERVER, VARIABLE
from .command_line import one_sentence_errors

if TYPE_CHECKING:
    from .junit import JUnitFile
    from .sql_tests import SqlTest

Tell = Callable[[int, int | None], None]


def load(
    file: Annotated[Path, typer.Argument(help="A CSV, JSON lines, Parquet or Arrow file; the extension decides.")],
    into: Annotated[str | None, typer.Option(metavar="NAME", help="Stream or table. Default: the file's name.")] = None,
    server: Annotated[
        str, typer.Option("--server", "--url", envvar=[VARIABLE, "MILLSTREAM_URL"], metavar="URL", help="The server.")
    ] = DEFAULT_SERVER,
    data: Annotated[
        Path | None, typer.Option(help="A data folder that no server has open, instead of --server.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The key column.")] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column with the rows' time.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Create a table with primary key --key.")] = False,
    format: Annotated[str, typer.Option(help="Value format of a new stream.")] = "JSON",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic.")] = 1,
) -> None:
    """Append a file's rows to a stream or table. If it does not exist, it is created with inferred columns."""
    with one_sentence_errors():
        from ..connection import connect
        from .loading import CannotLoad, LoadTarget, load

        if table and key is None:
            raise CannotLoad("a table needs a primary key", hint="Name its column with --key.")
        target = LoadTarget(into or _name_of(file), key, time, table, format, partitions)
        with connect(data or server) as connection, _progress(f"{target.name}") as tell:
            count = load(file, target, connection, tell)
        print(f"{count} rows in {target.name}", file=sys.stderr)


def run_tests(
    files: Annotated[list[Path], typer.Argument(help="SQL files with --@test: lines, or folders of them.")],
    name: Annotated[
        str | None, typer.Option("-k", "--name", metavar="TEXT", help="Run only tests with this text in their names.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
) -> None:
    """Run SQL files with assertions, each test on its own engine. Exit code 1 if a test fails."""
    passed = failed = 0
    files_run: list[JUnitFile] = []
    with one_sentence_errors():
        from .junit import JUnitFile
        from .sql_tests import MalformedTests, SqlTestResult, report, results_of

        for path in _sql_files(files):
            results: list[SqlTestResult] = []
            try:
                for result in results_of(_tests_of(path, name)):
                    print(report(str(path), result), flush=True)
                    results.append(result)
                files_run.append(JUnitFile(str(path), results))
            except MalformedTests as error:
                print(f"FAILED  {path}  {error.message}" + (f". {error.hint}" if error.hint else ""), flush=True)
                files_run.append(JUnitFile(str(path), results, error.message))
        passed = sum(result.failure is None for file in files_run for result in file.results)
        failed = sum(len(file.results) + (file.error is not None) for file in files_run) - passed
        if junit is not None:
            _write_junit(junit, files_run)
    print(f"{passed} passed, {failed} failed", file=sys.stderr)
    if not files_run:
        print("there are no .sql files", file=sys.stderr)
    elif name is not None and not passed + failed:
        print(f"no test has {name!r} in its name", file=sys.stderr)
    raise typer.Exit(0 if passed and not failed else 1)


def _tests_of(path: Path, name: str | None) -> list[SqlTest]:
    """Raises `MalformedTests`."""
    from .sql_tests import MalformedTests, read_tests

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MalformedTests(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeError:
        raise MalformedTests("cannot be read: it is not UTF-8 text") from None
    try:
        found = read_tests(text, path.parent)
    except MalformedTests:
        raise
    except MillstreamError as error:  # a string without an end
        raise MalformedTests(error.message, hint=error.hint) from None
    return [test for test in found if name is None or name.casefold() in test.name.casefold()]


def _write_junit(path: Path, files: list[JUnitFile]) -> None:
    """Raises `CannotWriteResults`."""
    from .junit import CannotWriteResults, junit_xml

    try:
        path.write_bytes(junit_xml(files))
    except OSError as error:
        raise CannotWriteResults(f"{path} cannot be written: {error.strerror}") from None


def _sql_files(paths: list[Path]) -> list[Path]:
    return [found for path in paths for found in (sorted(path.glob("**/*.sql")) if path.is_dir() else [path])]


def _name_of(file: Path) -> str:
    """
    >>> _name_of(Path("all flights.csv")), _name_of(Path("2020-flights.csv"))
    ('all_flights', 'rows_2020_flights')
    """
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in file.stem)
    return name if name[:1].isalpha() else f"rows_{name}"


@contextlib.contextmanager
def _progress(what: str) -> Generator[Tell]:
    """A progress bar, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
