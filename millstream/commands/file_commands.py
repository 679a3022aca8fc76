"""The commands for files: `load` inserts records, `test` runs SQL with assertions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Annotated

import typer

from millstream.errors import MillstreamError

from .addresses import DEFAULT_SERVER, VARIABLE
from .command_line import one_sentence_errors

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


def test(
    files: Annotated[list[Path], typer.Argument(help="SQL files with --@test: lines, or folders of them.")],
) -> None:
    """Run SQL files with assertions, each test on its own engine. Exit code 1 if a test fails."""
    passed = failed = 0
    with one_sentence_errors():
        from .sql_tests import MalformedTests, report

        for path in _sql_files(files):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise MalformedTests(f"{path} cannot be read: {error}") from None
            try:
                for line, fine in report(str(path), text):
                    print(line, flush=True)
                    passed, failed = passed + fine, failed + (not fine)
            except MillstreamError as error:
                raise MalformedTests(f"{path}: {error.message}", hint=error.hint) from None
    print(f"{passed} passed, {failed} failed", file=sys.stderr)
    raise typer.Exit(0 if passed and not failed else 1)


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
