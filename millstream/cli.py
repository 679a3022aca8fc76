"""The command `millstream`: server, shell, topics, records. Each command imports its modules when it runs."""

from __future__ import annotations

import atexit
import contextlib
import enum
import faulthandler
import functools
import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from millstream.errors import ServerError
from millstream.sql.collector import importing

from .commands import file_commands, shell_command
from .commands.access_commands import access_app
from .commands.addresses import VARIABLE
from .commands.backup_commands import backup_app
from .commands.cluster_commands import cluster_app
from .commands.command_line import RootGroup, one_sentence_errors, path_of
from .commands.config_commands import config_app
from .commands.demo_command import FIRST_STEPS, demo
from .commands.doctor_command import doctor
from .commands.graph_commands import graph
from .commands.group_commands import DEFAULT_KAFKA, KafkaOption, group_app
from .commands.log_commands import log_app
from .commands.migrate_commands import migrate_app
from .commands.standard_streams import exit_code_of
from .commands.top_command import top
from .commands.topic_commands import topic_app

if TYPE_CHECKING:
    from millstream.logcore.remote import RemoteLog

_OBJECTS_PER_COLLECTION = 20_000
"""Python's default of 700 is too low for a command, because most of its objects stay in use."""

_STOPS_S = 20.0

app = typer.Typer(
    cls=RootGroup, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="SQL over streams: ksqlDB's dialect on DuckDB and PySpark, with a Kafka-compatible log inside.",
    epilog="First steps: `millstream demo` shows a server at work. `millstream sql` opens a shell with an engine of its"
    " own. `millstream server --data ./data` runs a server, and `millstream sql http://127.0.0.1:8088` a shell on it.",
)  # fmt: skip


app.command()(file_commands.load)
app.command("test")(file_commands.run_tests)
app.command()(graph)
app.command()(doctor)
app.command()(top)
app.command()(demo)


class ExecutorChoice(enum.StrEnum):
    auto = "auto"
    spark = "spark"
    duckdb = "duckdb"


class OutputChoice(enum.StrEnum):
    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"
    arrow = "arrow"
    markdown = "markdown"
    vertical = "vertical"
    tabular = "tabular"  # as ksqlDB's shell calls a table


class WrongUsage(ServerError):
    """Flags exclude each other, or a file cannot be read."""

    code = "WRONG_USAGE"


def command() -> None:
    """The process of a command: the console script, and `python -m millstream`."""
    end_without_dismantling()
    code = exit_code_of(main)
    if isinstance(code, int):
        _exit_codes.append(code)
    sys.exit(code)


def main() -> None:
    """One command. Raises SystemExit."""
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    app(prog_name="millstream")


_exit_codes: list[int] = []


@functools.cache
def end_without_dismantling() -> None:
    """Ends the process of a command as soon as the `atexit` functions registered from now on have run.

    Otherwise Python would destroy each module and object of a server: 0.4 s of CPU for memory that the system frees
    anyway. Call it before other imports, because `atexit` runs the last registered function first.
    """
    atexit.register(_end)


def _end() -> None:
    if not _exit_codes:
        return  # an unexpected exception ends the process; Python reports it
    try:
        _flush()
    except (OSError, ValueError):
        return  # nobody reads the output; Python sets the exit code
    os._exit(_exit_codes[-1])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None if it was closed before the process began
            stream.flush()


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Options before a command."""
    if version:
        import importlib.metadata

        print(importlib.metadata.version("millstream"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(FIRST_STEPS)


@app.command()
def server(
    data: Annotated[
        Path | None,
        typer.Option(parser=path_of, metavar="DIR", help="Data folder (log and state); created if missing."),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="HTTP listener. Default 127.0.0.1:8088.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Kafka listener. Default 127.0.0.1:9092.")
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Schema registry listener, as 127.0.0.1:8081. Default: none."),
    ] = None,
    pg: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="PostgreSQL listener, as 127.0.0.1:5432. Default: none.")
    ] = None,
    executor: Annotated[ExecutorChoice | None, typer.Option(help="Executor of persistent queries.")] = None,
    node: Annotated[int | None, typer.Option(help="Number of this node in its cluster.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="1@HOST:PORT,…", help="All nodes, with their addresses for each other.")
    ] = None,
    cluster_name: Annotated[str | None, typer.Option(help="Name of the cluster. Default millstream.")] = None,
    cluster_secret_file: Annotated[Path | None, typer.Option(help="File with the secret that all nodes share.")] = None,
    join: Annotated[bool | None, typer.Option("--join", help="Join an existing cluster.")] = None,
    rack: Annotated[str | None, typer.Option(help="Rack (failure domain) of this node.")] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused", help="Start with all persistent queries paused, to inspect or end them.")
    ] = None,
    session_ms: Annotated[
        int | None, typer.Option(help="A node that is silent for this long loses its leadership. Default 3000.")
    ] = None,
    config: Annotated[Path | None, typer.Option(envvar="MILLSTREAM_CONFIG", help="Configuration file (TOML).")] = None,
) -> None:
    """Run a server until SIGTERM, Ctrl-C or the end of its terminal.

    The configuration file has more settings: see `millstream config reference`. Environment variables such as
    MILLSTREAM_DATA or MILLSTREAM_HTTP override the file, flags override both.
    """
    asked_to_stop = _stop_on_signals()
    with one_sentence_errors():
        from millstream.server.allocators import choose_allocators

        choose_allocators()  # first: the following imports need pyarrow
        with importing(forever=True):
            from millstream.server.config.configuration import load_configuration

        flags: dict[str, Any] = {"data": data, "http": http, "kafka": kafka, "schema_registry": schema_registry}
        flags["pg"] = pg
        flags["executor"] = executor and executor.value
        flags |= {"node": node, "cluster": cluster, "cluster_name": cluster_name, "join": join, "rack": rack}
        flags |= {"cluster_secret_file": cluster_secret_file, "session_ms": session_ms, "paused": paused}
        configuration = load_configuration(config, flags)
        with importing(forever=True):  # a wrong configuration is refused before
            from millstream.server.insight.log_levels import LOG_LEVELS
            from millstream.server.service import Service, has_left_threads

        LOG_LEVELS.configure(configuration.log_level, configuration.log_format)
        with Service(configuration, _end_at_once) as service:
            gc.freeze()  # these objects live as long as the process
            for line in service.announcements():
                print(line, flush=True)
            asked_to_stop.get()
            faulthandler.dump_traceback_later(_STOPS_S)  # shows what a stop that hangs is waiting for
    if has_left_threads():
        with contextlib.suppress(OSError, ValueError):
            _flush()
        os._exit(0)  # Python, and libraries such as pyarrow, would wait for external systems that do not answer


@app.command()
def sql(
    url: Annotated[
        str | None, typer.Argument(help="Server, as http://127.0.0.1:8088; without it, an engine in this process.")
    ] = None,
    server_url: Annotated[
        str | None, typer.Option("--server", envvar=VARIABLE, metavar="URL", help="The same as the argument.")
    ] = None,
    execute: Annotated[
        list[str] | None, typer.Option("-c", "-e", "--execute", metavar="SQL", help="Run the statements and exit.")
    ] = None,
    file: Annotated[list[Path] | None, typer.Option("-f", "--file", help="Run the file's statements and exit.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="DIR", help="Data folder of the engine in this process. Default: a temporary one."
        ),
    ] = None,
    output: Annotated[
        OutputChoice, typer.Option("--format", "--output", case_sensitive=False, help="Output format.")
    ] = OutputChoice.table,
    define: Annotated[
        list[str] | None, typer.Option("-d", "--define", metavar="NAME=VALUE", help="Define a variable. Repeatable.")
    ] = None,
    user: Annotated[str | None, typer.Option("-u", "--user", help="User name; or set MILLSTREAM_TOKEN.")] = None,
    password: Annotated[
        str | None, typer.Option("-p", "--password", envvar="MILLSTREAM_PASSWORD", help="Default: prompt.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Properties (NAME=VALUE lines) that hold for the session.")
    ] = None,
    query_row_limit: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Push queries and PRINT end after so many rows. Default: none.")
    ] = 0,
    query_timeout: Annotated[
        int,
        typer.Option(
            min=0, max=2**31 - 1, metavar="MS", help="Push queries and PRINT end after so long. Default: none."
        ),
    ] = 0,
) -> None:
    """Open the shell on a server, or on an engine in this process.

    With -c, -f or statements on standard input it exits at the first error. Exit codes: 0 success, 1 a statement
    failed, 2 wrong usage, 3 the server does not answer, 130 ended by Ctrl-C.
    """
    _log_to_stderr("warning")
    with one_sentence_errors():
        if data is not None and server_url == os.environ.get(VARIABLE):
            server_url = None  # the flag overrides the environment
        open_client = shell_command.client_opener(server_url if url is None else url, data, user, password)
        variables = dict(map(shell_command.variable, define or ()))
        properties = shell_command.properties_of(config_file)
        code = shell_command.open_shell(
            open_client, execute or (), file or (), output.value, variables, properties, query_row_limit, query_timeout
        )
    raise typer.Exit(code)


@app.command()
def produce(
    topic: str,
    file: Annotated[str, typer.Option(help="File with one value per line; - is standard input.")] = "-",
    key: Annotated[str | None, typer.Option(metavar="MEMBER", help="JSON member to use as the key, as text.")] = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Append each line of a file to a topic of a server."""
    with _remote_log(kafka) as log, _lines_of(file) as lines:
        from millstream.repl.records import produce_lines

        count = produce_lines(log, topic, lines, key)
        print(f"{count} records", file=sys.stderr)


@app.command()
def consume(
    topic: str,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the first record, not at the end.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this number of records.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Read as a member of this group, from its committed offsets.")
    ] = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Print a topic's records as they arrive, a JSON object each, until Ctrl-C."""
    with _remote_log(kafka) as log, contextlib.suppress(KeyboardInterrupt):
        from millstream.repl.records import consume_as_member, consume_lines

        if group is None:
            lines = consume_lines(log, topic, from_beginning=from_beginning, limit=limit)
        else:
            lines = consume_as_member(log, topic, group, from_beginning=from_beginning, limit=limit)
        for line in lines:
            print(line, flush=True)


@contextlib.contextmanager
def _remote_log(kafka: str) -> Generator[RemoteLog]:
    _log_to_stderr("warning")
    with one_sentence_errors():
        from millstream.logcore.remote import RemoteLog

        with RemoteLog(kafka) as log:
            yield log


app.add_typer(access_app(), name="access")
app.add_typer(cluster_app(), name="cluster")
app.add_typer(group_app(_remote_log), name="group")
app.add_typer(topic_app(_remote_log), name="topic")
app.add_typer(backup_app(), name="backup")
app.add_typer(log_app(), name="log")
app.add_typer(migrate_app(), name="migrate")
app.add_typer(config_app(), name="config")


@contextlib.contextmanager
def _lines_of(file: str) -> Generator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        opened = open(file, "rb")
    except OSError as error:
        raise WrongUsage(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    with opened:
        yield opened


def _end_at_once(reason: str) -> None:
    """Ends without cleanup, which may hang on a failed disk; acknowledged records are safe without it."""
    print(f"error: this node cannot continue: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def _stop_on_signals() -> SimpleQueue[int]:
    """A queue that gets the first SIGTERM, Ctrl-C or SIGHUP, which a terminal sends when it is closed, unless it is
    ignored (`nohup`). The second one ends the process at once."""
    asked, numbers = SimpleQueue[int](), list[int]()

    def stop(number: int, frame: FrameType | None) -> None:
        """May interrupt the waiting code at any point. Only this kind of queue allows that: an event has a lock, which
        the interrupted code may hold."""
        del frame
        if numbers:
            os._exit(128 + number)
        numbers.append(number)
        asked.put(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
    return asked


def _log_to_stderr(level: str) -> None:
    from millstream.server.insight.log_levels import LOG_LEVELS

    LOG_LEVELS.configure(level, "text")
