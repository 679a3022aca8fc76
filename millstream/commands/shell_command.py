"""`millstream sql`: opens a shell on a server, or on an engine in this process, according to the flags."""

from __future__ import annotations

import contextlib
import getpass
import importlib
import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from millstream.sql.collector import importing

from .addresses import with_identity

if TYPE_CHECKING:
    from millstream.repl.runner import Runner
    from millstream.server.client import DataClient


_WAIT_S: Final = 30.0
"""How long a pull query of a script waits at most for the results of the script's inserts."""


def open_shell(
    open_client: Callable[[], DataClient],
    texts: Sequence[str],
    files: Sequence[Path],
    format: str,
    variables: Mapping[str, str],
    properties: Mapping[str, str],
    limit: int,
    timeout_ms: int,
) -> int:
    """Runs the shell to its end; returns the exit code."""
    from millstream.repl.settings import output_format
    from millstream.repl.shell import ShellOptions, run_shell

    options = ShellOptions(texts, files, output_format(format), variables, properties, limit, timeout_ms)
    return run_shell(open_client, options, _interact, _equip, _wait)


def client_opener(
    url: str | None, data: Path | None, user: str | None, password: str | None
) -> Callable[[], DataClient]:
    """A function that opens the client for these flags. Raises `typer.BadParameter` if they exclude each other."""
    if url is not None and not url.strip():
        raise typer.BadParameter("the URL of the server is empty; leave it out for an engine in this process")
    if url is None:
        if user is not None:
            raise typer.BadParameter("--user is for a server, and there is no URL")
        return lambda: _in_process(data)
    if data is not None:
        raise typer.BadParameter("a URL and --data cannot both be given: a server has its own data directory")
    if user is not None and password is None:
        password = getpass.getpass(f"Password of {user}: ") if sys.stdin.isatty() else ""
    whole = url if user is None else with_identity(url, user, password or "")

    def remote() -> DataClient:
        from millstream.server.client import log_in

        return log_in(whole)

    return remote


def variable(text: str) -> tuple[str, str]:
    """The name and the value of --define."""
    from millstream.sql.variables import VARIABLE_NAME

    name, separator, value = text.partition("=")
    if not separator or not VARIABLE_NAME.fullmatch(name.strip()):
        rule = "NAME has letters, digits and underscores, and does not start with a digit"
        raise typer.BadParameter(f'"{text}" is not a variable: write --define NAME=VALUE; {rule}')
    return name.strip(), value


def properties_of(file: Path | None) -> Mapping[str, str]:
    """The properties in --config-file. Raises `typer.BadParameter`."""
    from ..migrations.files import java_properties

    if file is None:
        return {}
    try:
        return java_properties(file.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file} is not UTF-8 text") from None


def _in_process(data: Path | None) -> DataClient:
    with _waiting("Opening the engine"):
        with importing(forever=True):
            from ..connection import own_engine

            importlib.import_module("millstream.server.engine.embedded")  # it would import this when it is called
        return own_engine(data)


@contextlib.contextmanager
def _waiting(what: str) -> Generator[None]:
    """A spinner, if standard error is a terminal: opening may take a while, for example to restore state."""
    from millstream.repl.terminal import is_terminal

    if not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def _interact(runner: Runner) -> None:
    from millstream.repl.interactive import run_interactive

    run_interactive(runner)


def _equip(runner: Runner) -> None:
    from millstream.repl.interactive import equip

    equip(runner)


def _wait(client: DataClient, names: Collection[str]) -> None:
    from ..waiting import wait_for_inserted

    wait_for_inserted(client, names, _WAIT_S)
