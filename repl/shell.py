"""`millstream sql`: runs the statements of -e, of files or of standard input, or an interactive session on a
terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.errors import MillstreamError

from ..server.client import DataClient, ServerUnreachable
from .inserted import WaitForInserted
from .printer import Printer
from .runner import LeaveShell, Runner
from .settings import OutputFormat, Settings
from .terminal import has_keys

FAILED: Final = 1
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """`texts` (-c) and then `files` (-f) run in order, and then the shell ends. Before that, `properties` are SET and
    `variables` are DEFINEd. `limit` and `timeout` are the settings of these names."""

    texts: Sequence[str] = ()
    files: Sequence[Path] = ()
    output: OutputFormat = "table"
    variables: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0
    timeout: int = 0


def run_shell(
    open_client: Callable[[], DataClient],
    options: ShellOptions,
    interact: Callable[[Runner], None],
    equip: Callable[[Runner], None] = lambda runner: None,
    wait_for_inserted: WaitForInserted | None = None,
) -> int:
    """Runs the shell on standard input and output and returns the exit code: 1 after an error in a script, 3 if no
    server answers, 130 after Ctrl-C.

    In: `interact`: the interactive session, for when a person is present (`run_interactive`). `equip`: prepares the
    runner for a screen. `wait_for_inserted`: a script calls it before each pull query.
    """
    settings = Settings(options.output, limit=options.limit, timeout=options.timeout)
    printer = Printer(sys.stdout, sys.stderr, settings)
    try:
        client = open_client()
    except MillstreamError as error:
        printer.error(error)
        return _code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    runner = Runner(client, printer)
    runner.wait_for_inserted = wait_for_inserted
    if has_keys(sys.stdout):
        equip(runner)
    try:
        for name, value in options.properties.items():
            client.execute(f"SET {_literal(name)} = {_literal(value)};")
        for name, value in options.variables.items():
            client.define(name, value)
        return _run(runner, options, interact)
    except LeaveShell:
        return 0
    except MillstreamError as error:
        printer.error(error)
        return _code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        runner.close()


def _run(runner: Runner, options: ShellOptions, interact: Callable[[Runner], None]) -> int:
    for text in options.texts:
        runner.run(text)
    for file in options.files:
        runner.run_file(file)
    if options.texts or options.files:
        return 0
    if sys.stdin.isatty() and sys.stdout.isatty():
        interact(runner)
    else:
        runner.run(sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    return 0


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _code(error: MillstreamError) -> int:
    return UNREACHABLE if isinstance(error, ServerUnreachable) else FAILED
