"""What the shell's own commands do: one function for each command of `commands`, found by its verb."""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.metadata
import io
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ServerError

from ..server.client import HttpClient, log_in
from ..sql.identifiers import quote_identifier
from .commands import Command, Verb, help_text
from .settings import BadSetting, output_format, whole_number
from .terminal import has_keys
from .text.entity_text import entity_table
from .text.tables import printable
from .typed_history import typed_entries
from .watch import watch_statement

if TYPE_CHECKING:
    from .runner import Runner

_CLEAR: Final = "\033[H\033[2J"

Action = Callable[["Runner", str | None], None]


class CommandFailed(ServerError):
    """A command of the shell failed, for example because of a file, an editor, or a statement to repeat."""

    code = "COMMAND_FAILED"


def act(runner: Runner, command: Command) -> None:
    """Runs the command. Raises `MillstreamError`, `LeaveShell`."""
    _ACTIONS[command.verb](runner, command.argument)


# ------------------------------------------------------------------ commands about the session


def _help(runner: Runner, argument: str | None) -> None:
    del argument
    runner.printer.lines(help_text(runner.printer.width_max).splitlines())


def _exit(runner: Runner, argument: str | None) -> None:
    del argument
    runner.leave()


def _clear(runner: Runner, argument: str | None) -> None:
    del argument
    runner.printer.line(_CLEAR if runner.printer.on_screen else "")


def _version(runner: Runner, argument: str | None) -> None:
    del argument
    runner.printer.line(f"shell:  {importlib.metadata.version('millstream')}")
    runner.printer.line(f"server: {runner.client.info().get('millstreamVersion', 'in this process')}")


def _server(runner: Runner, url: str | None) -> None:
    if url is not None:
        other = log_in(url)
        if isinstance(runner.client, HttpClient):  # the session goes on, at another server
            other.properties.update(runner.client.properties)
            other.variables.update(runner.client.variables)
        runner.client.close()
        runner.client = other
    runner.printer.line(runner.client.address)


def _history(runner: Runner, count: str | None) -> None:
    entries = typed_entries(None if count is None else whole_number(count))
    runner.printer.lines(printable(line) for entry in entries for line in entry.split("\n"))


# ------------------------------------------------------------------ commands about the output


def _output(runner: Runner, format: str | None) -> None:
    if format is None:
        runner.printer.line(runner.settings.format)
    else:
        runner.settings.format = output_format(format)


def _expanded(runner: Runner, value: str | None) -> None:
    runner.settings.set("expanded", value)
    runner.printer.remark(f"Expanded display is {runner.settings.shown('expanded')}.")


def _timing(runner: Runner, value: str | None) -> None:
    runner.settings.set("timing", value)
    runner.printer.remark(f"Timing is {runner.settings.shown('timing')}.")


def _set(runner: Runner, argument: str | None) -> None:
    if argument is None:
        runner.printer.table(["Setting", "Value", "Choices", "Meaning"], runner.settings.as_rows())
        return
    name, _, value = argument.partition(" ")
    if value.strip():
        runner.settings.set(name, value.strip())
    else:
        runner.printer.line(runner.settings.shown(_known(runner, name)))


def _known(runner: Runner, name: str) -> str:
    if name not in [row[0] for row in runner.settings.as_rows()]:
        runner.settings.set(name, None)  # raises an error with a hint
    return name


def _set_cli(runner: Runner, argument: str | None) -> None:
    name, value = (argument or "").lower().split(maxsplit=1)
    if name == "column-width":
        runner.settings.set("width", value)
    elif name == "wrap" and value in ("on", "off"):
        runner.settings.cut = value == "off"
    else:
        hint = "There are wrap, on or off, and column-width, a number; \\set lists all others."
        raise BadSetting(f'there is no setting "{argument}"', hint=hint)


def _request_pipelining(runner: Runner, argument: str | None) -> None:
    if argument != "off":
        runner.printer.remark("Each statement waits for the one before it; there is no pipelining.")


def _redirect(runner: Runner, file: str | None) -> None:
    opened = None if file is None else _opened(file)  # before the other is closed: it may fail
    if runner.printer.redirected is not None:
        runner.printer.redirected.close()
    runner.printer.redirected = opened


def _spool(runner: Runner, file: str | None) -> None:
    opened = None if file is None or file.lower() == "off" else _opened(file)  # before the other is closed: it may fail
    if runner.printer.spool is not None:
        runner.printer.spool.close()
    runner.printer.spool = opened
    if opened is not None:
        runner.printer.remark(f"Output is also written to {file}.")


def _opened(file: str) -> io.TextIOWrapper:
    if file.startswith("|"):
        raise CommandFailed(f"{file} is a pipe, and only files can be written",
                            hint="Run `millstream sql -c` in a pipe.")  # fmt: skip
    try:
        return open(Path(file).expanduser(), "w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from None


# ------------------------------------------------------------------ commands about the catalog


def _describe(runner: Runner, name: str | None) -> None:
    if name is not None:
        runner.statement(f"DESCRIBE {_as_name(name)};")
        return
    rows: list[Sequence[Any]] = []
    for kind, word in (("stream", "STREAMS"), ("table", "TABLES")):
        titles, found = _listed(runner, f"SHOW {word};")
        rows += [[row[0], kind, *row[1:]] for row in found]
        if kind == "table":
            runner.printer.table([titles[0], "Kind", *titles[1:]], sorted(rows, key=lambda row: str(row[0])))


def _streams(runner: Runner, pattern: str | None) -> None:
    _list(runner, "SHOW STREAMS;", pattern)


def _tables(runner: Runner, pattern: str | None) -> None:
    _list(runner, "SHOW TABLES;", pattern)


def _queries(runner: Runner, id: str | None) -> None:
    if id is None or _is_pattern(id):
        _list(runner, "SHOW QUERIES;", id)
    else:
        runner.statement(f"EXPLAIN {_as_name(id)};")


def _functions(runner: Runner, name: str | None) -> None:
    if name is None or _is_pattern(name):
        _list(runner, "SHOW FUNCTIONS;", name)
    else:
        runner.statement(f"DESCRIBE FUNCTION {name};")


def _list(runner: Runner, statement: str, pattern: str | None) -> None:
    titles, rows = _listed(runner, statement)
    wanted = (pattern or "*").upper()
    runner.printer.table(titles, [row for row in rows if fnmatch.fnmatchcase(str(row[0]).upper(), wanted)])


def _listed(runner: Runner, statement: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
    table = entity_table(runner.client.execute(statement)[0])
    assert table is not None, statement
    return table


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _as_name(name: str) -> str:
    """The name if SQL can read it as it is; otherwise the name in quotes."""
    plain = name.isascii() and name.isidentifier()
    return name if plain or name[:1] in '`"' else quote_identifier(name)


# ------------------------------------------------------------------ commands about statements


def _run_script(runner: Runner, file: str | None) -> None:
    if file is None:
        raise CommandFailed("\\i needs the name of a file")
    runner.run_file(Path(file))


def _again(runner: Runner, argument: str | None) -> None:
    del argument
    runner.statement(_last(runner))


def _again_expanded(runner: Runner, argument: str | None) -> None:
    del argument
    before = runner.settings.expanded
    runner.settings.expanded = True
    try:
        runner.statement(_last(runner))
    finally:
        runner.settings.expanded = before


def _watch(runner: Runner, argument: str | None) -> None:
    words = (argument or "2").split()
    try:
        seconds, times = float(words[0]), int(words[1]) if len(words) > 1 else None
        if not 0 < seconds < 86_400 or len(words) > 2 or (times is not None and times < 1):
            raise ValueError
    except ValueError:
        raise BadSetting(
            f'"{argument}" is not how often', hint="Write \\watch SECONDS, or \\watch SECONDS TIMES."
        ) from None
    watch_statement(runner, _last(runner), seconds, times)


def _edit(runner: Runner, file: str | None) -> None:
    """Opens an editor; the next prompt begins with the text written there."""
    if not runner.interactive and not has_keys(runner.printer.out):
        raise CommandFailed("an editor needs a terminal")
    with contextlib.ExitStack() as stack:
        if file is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-")))
            path = folder / "statement.sql"
            path.write_text((runner.last or "").strip() + "\n", encoding="utf-8")
        else:
            path = Path(file).expanduser()
        _call_editor(path)
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise CommandFailed(f"what the editor wrote cannot be read: {error}") from None
    if runner.interactive:
        runner.draft = text
    else:
        runner.run(text)


def _call_editor(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.call([*shlex.split(command), str(path)])
    except (OSError, ValueError) as error:
        hint = "Set the variable EDITOR to the editor that you like."
        raise CommandFailed(f"the editor {command} does not start: {error}", hint=hint) from None
    if code != 0:
        raise CommandFailed(f"the editor {command} ended with exit code {code}, and nothing is taken over")


def _last(runner: Runner) -> str:
    if runner.last is None:
        raise CommandFailed("there is no statement yet to run again")
    return runner.last


_ACTIONS: Final[Mapping[Verb, Action]] = {
    "help": _help,
    "exit": _exit,
    "clear": _clear,
    "version": _version,
    "server": _server,
    "history": _history,
    "output": _output,
    "expanded": _expanded,
    "timing": _timing,
    "set": _set,
    "set cli": _set_cli,
    "request pipelining": _request_pipelining,
    "redirect": _redirect,
    "spool": _spool,
    "describe": _describe,
    "streams": _streams,
    "tables": _tables,
    "queries": _queries,
    "functions": _functions,
    "run script": _run_script,
    "run": _again,
    "run expanded": _again_expanded,
    "watch": _watch,
    "edit": _edit,
}
