"""The command `millstream`: a server, a shell, topics and records. Each command imports what it needs when it runs."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from millstream.errors import ServerError

from .commands import file_commands, shell_command
from .commands.access_commands import access_app
from .commands.cluster_commands import cluster_app
from .commands.command_line import one_sentence_errors
from .commands.config_commands import config_app
from .commands.doctor_command import doctor
from .commands.graph_commands import graph
from .commands.group_commands import DEFAULT_KAFKA, KafkaOption, group_app
from .commands.log_commands import log_app
from .commands.migrate_commands import migrate_app
from .commands.topic_commands import topic_app

if TYPE_CHECKING:
    from millstream.logcore.remote import RemoteLog

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="SQL over streams: ksqlDB's dialect on DuckDB and PySpark, with a Kafka-compatible log inside.",
)  # fmt: skip


app.command()(file_commands.load)
app.command()(file_commands.test)
app.command()(graph)
app.command()(doctor)


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
    """Flags that do not go together."""

    code = "WRONG_USAGE"


def main() -> None:
    """What the console script and `python -m millstream` run."""
    app(prog_name="millstream")


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
):
    """Options that stand before a command."""
    if version:
        import importlib.metadata

        print(importlib.metadata.version("millstream"))
        raise typer.Exit


@app.command()
def server(
    data: Annotated[Path | None, typer.Option(help="Folder of the log and all state; created if missing.")] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="HTTP API. Default 127.0.0.1:8088.")] = None,
    kafka: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Kafka. Default 127.0.0.1:9092.")] = None,
    schema_registry: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Schema registry, such as 127.0.0.1:8081. Default: none.")
    ] = None,
    pg: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="PostgreSQL's protocol, such as 127.0.0.1:5432.")
    ] = None,
    executor: Annotated[ExecutorChoice | None, typer.Option(help="What runs persistent queries.")] = None,
    node: Annotated[int | None, typer.Option(help="The number of this node in its cluster.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="1@HOST:PORT,…", help="All nodes, and where they speak to each other.")
    ] = None,
    cluster_name: Annotated[str | None, typer.Option(help="Another one for each cluster. Default millstream.")] = None,
    cluster_secret_file: Annotated[Path | None, typer.Option(help="What all nodes know and nobody else.")] = None,
    join: Annotated[bool | None, typer.Option("--join", help="Come to a cluster that there is already.")] = None,
    rack: Annotated[str | None, typer.Option(help="Where the node stands.")] = None,
    paused: Annotated[
        bool | None, typer.Option("--paused", help="Start with all persistent queries paused, to inspect or end them.")
    ] = None,
    session_ms: Annotated[int | None, typer.Option(help="A silent node leads for so long. Default 3000.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="MILLSTREAM_CONFIG", help="A TOML file.")] = None,
) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    The file may set data, http, kafka, schema_registry, pg, executor, log_level, log_format, body_bytes_max, [tls],
    [access] and, below [properties], what SHOW PROPERTIES lists. Variables as MILLSTREAM_DATA or MILLSTREAM_HTTP go
    before it, and flags before both.
    """
    asked_to_stop = _stop_on_signals()
    with one_sentence_errors():
        from millstream.server.allocators import choose_allocators

        choose_allocators()  # first: what comes next imports pyarrow
        from millstream.server.config.configuration import load_configuration
        from millstream.server.service import Service

        flags: dict[str, Any] = {"data": data, "http": http, "kafka": kafka, "schema_registry": schema_registry}
        flags["pg"] = pg
        flags["executor"] = executor and executor.value
        flags |= {"node": node, "cluster": cluster, "cluster_name": cluster_name, "join": join, "rack": rack}
        flags |= {"cluster_secret_file": cluster_secret_file, "session_ms": session_ms, "paused": paused}
        configuration = load_configuration(config, flags)
        _log_to_stderr(configuration.log_level, configuration.log_format)
        with Service(configuration, _end_at_once) as service:
            for line in service.announcements():
                print(line, flush=True)
            asked_to_stop.wait()


@app.command()
def sql(
    url: Annotated[
        str | None, typer.Argument(help="A server, as http://127.0.0.1:8088; without: an own engine.")
    ] = None,
    execute: Annotated[
        list[str] | None, typer.Option("-c", "-e", "--execute", metavar="SQL", help="Run and leave.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", help="Run the file's statements and leave.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder of the own engine; else a temporary one.")] = None,
    output: Annotated[
        OutputChoice, typer.Option("--format", "--output", case_sensitive=False, help="How results look.")
    ] = OutputChoice.table,
    define: Annotated[list[str] | None, typer.Option("-d", "--define", metavar="NAME=VALUE")] = None,
    user: Annotated[str | None, typer.Option("-u", "--user", help="Who asks; a token is in MILLSTREAM_TOKEN.")] = None,
    password: Annotated[
        str | None, typer.Option("-p", "--password", envvar="MILLSTREAM_PASSWORD", help="Asked for, if not given.")
    ] = None,
) -> None:
    """Open the shell on a server, or on an engine in this process.

    With -c, -f or statements on standard input it ends at the first error. Exit codes: 0 all went well, 1 a statement
    failed, 2 wrong usage, 3 no server answers, 130 ended by Ctrl-C.
    """
    _log_to_stderr("warning")
    with one_sentence_errors():
        open_client = shell_command.client_opener(url, data, user, password)
        variables = dict(map(shell_command.variable, define or ()))
        code = shell_command.open_shell(open_client, execute or (), file or (), output.value, variables)
    raise typer.Exit(code)


@app.command()
def produce(
    topic: str,
    file: Annotated[str, typer.Option(help="Lines, one value each; - is standard input.")] = "-",
    key: Annotated[str | None, typer.Option(metavar="MEMBER", help="The member that becomes the key, as text.")] = None,
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
    from_beginning: Annotated[bool, typer.Option("--from-beginning")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Share the topic with this group's members and go on where it committed.")
    ] = None,
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Print a topic's records as they come, a JSON object each, until Ctrl-C."""
    with _remote_log(kafka) as log, contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
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
    """A disk that has failed may let nothing end in peace; what was acknowledged is safe without that."""
    print(f"error: this node cannot go on: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def _stop_on_signals() -> threading.Event:
    """Set by the first SIGTERM or Ctrl-C. The second one does not wait."""
    asked = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if asked.is_set():
            os._exit(128 + number)
        asked.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return asked


def _log_to_stderr(level: str, format: str = "text") -> None:
    import logging

    import structlog

    for_people = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    for_programs = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(for_programs if format == "json" else (for_people,)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
