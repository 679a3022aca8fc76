"""The command `millstream`: a server, a shell, topics and records. Each command imports what it needs when it runs."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from millstream.errors import MillstreamError, ServerError

if TYPE_CHECKING:
    from millstream.logcore.client import LogClient
    from millstream.repl.runner import Runner
    from millstream.server.client import Client

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="SQL over streams: ksqlDB's dialect on DuckDB and PySpark, with a Kafka-compatible log inside.",
)  # fmt: skip


class ExecutorChoice(enum.StrEnum):
    auto = "auto"
    spark = "spark"
    duckdb = "duckdb"


class OutputChoice(enum.StrEnum):
    tabular = "tabular"
    json = "json"


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
    executor: Annotated[ExecutorChoice | None, typer.Option(help="What runs persistent queries.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="MILLSTREAM_CONFIG", help="A TOML file.")] = None,
) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    The file may set data, http, kafka, executor, log_level, body_bytes_max and, below [properties], what SHOW
    PROPERTIES lists. Variables as MILLSTREAM_DATA or MILLSTREAM_HTTP go before the file, and flags before both.
    """
    asked_to_stop = _stop_on_signals()
    with _one_sentence_errors():
        from millstream.server.configuration import load_configuration
        from millstream.server.service import Service

        flags: dict[str, Any] = {"data": data, "http": http, "kafka": kafka, "executor": executor and executor.value}
        configuration = load_configuration(config, flags)
        _log_to_stderr(configuration.log_level)
        with Service(configuration) as service:
            for line in service.announcements():
                print(line, flush=True)
            asked_to_stop.wait()


@app.command()
def sql(
    url: Annotated[
        str | None, typer.Argument(help="A server, as http://127.0.0.1:8088; without: an own engine.")
    ] = None,
    execute: Annotated[list[str] | None, typer.Option("-e", "--execute", metavar="SQL", help="Run and leave.")] = None,
    file: Annotated[
        list[Path] | None, typer.Option("-f", "--file", help="Run the file's statements and leave.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder of the own engine; else a temporary one.")] = None,
    output: Annotated[OutputChoice, typer.Option(help="How results look.")] = OutputChoice.tabular,
    define: Annotated[list[str] | None, typer.Option("-d", "--define", metavar="NAME=VALUE")] = None,
) -> None:
    """Open the shell on a server, or on an engine in this process.

    With -e, -f or statements on standard input it ends at the first error, with exit code 1.
    """
    _log_to_stderr("warning")
    with _one_sentence_errors():
        from millstream.repl.shell import ShellOptions, run_shell

        if url is not None and data is not None:
            raise WrongUsage("a URL and --data cannot both be given: a server has its own data directory")
        options = ShellOptions(execute or (), file or (), output.value, dict(map(_variable, define or ())))
        code = run_shell(_client_opener(url, data), options, _interact)
    raise typer.Exit(code)


KafkaOption = Annotated[
    str, typer.Option("--kafka", envvar="MILLSTREAM_KAFKA", metavar="HOST:PORT", help="A server's Kafka listener.")
]
DEFAULT_KAFKA = "127.0.0.1:9092"

topic_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, create and delete topics of a server.")
app.add_typer(topic_app, name="topic")


@topic_app.command("list")
def list_topics(kafka: KafkaOption = DEFAULT_KAFKA) -> None:
    """Print the topics and how many partitions they have."""
    with _remote_log(kafka) as log:
        from millstream.repl.records import topic_table

        print("\n".join(topic_table(log)))


@topic_app.command("create")
def create_topic(
    name: str, partitions: Annotated[int, typer.Option(min=1)] = 1, kafka: KafkaOption = DEFAULT_KAFKA
) -> None:
    """Create a topic."""
    with _remote_log(kafka) as log:
        log.create_topic(name, partitions)


@topic_app.command("delete")
def delete_topic(name: str, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
    """Delete a topic with all its records."""
    with _remote_log(kafka) as log:
        log.delete_topic(name)


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
    kafka: KafkaOption = DEFAULT_KAFKA,
) -> None:
    """Print a topic's records as they come, a JSON object each, until Ctrl-C."""
    with _remote_log(kafka) as log, contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        from millstream.repl.records import consume_lines

        for line in consume_lines(log, topic, from_beginning=from_beginning, limit=limit):
            print(line, flush=True)


@contextlib.contextmanager
def _remote_log(kafka: str) -> Generator[LogClient]:
    _log_to_stderr("warning")
    with _one_sentence_errors():
        from millstream.logcore.remote import RemoteLog

        with RemoteLog(kafka) as log:
            yield log


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


def _client_opener(url: str | None, data: Path | None) -> Callable[[], Client]:
    if url is None:
        return lambda: _own_engine(data)

    def remote() -> Client:
        from millstream.server.client import connect

        return connect(url)

    return remote


def _own_engine(data: Path | None) -> Client:
    """A client of an engine in this process, which ends with it. Queries run on DuckDB: there is no listener for
    Spark's processes."""
    import tempfile

    from millstream.server.client import LocalClient
    from millstream.server.embedded import open_engine
    from millstream.server.executors import PROPERTY
    from millstream.server.session import Session

    parts = contextlib.ExitStack()
    folder = data or Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="millstream-")))
    try:
        engine = open_engine(folder, {PROPERTY: "duckdb"}, sync="always" if data else "never")
    except BaseException:
        parts.close()
        raise
    parts.callback(engine.close)
    address = f"an engine in this process ({data or 'nothing is kept'})"
    return LocalClient(engine, Session(), address=address, close=parts.close)


def _interact(runner: Runner) -> None:
    from millstream.repl.interactive import run_interactive

    run_interactive(runner)


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise WrongUsage(f'"{text}" is not a variable: write --define NAME=VALUE')
    return name.strip(), value


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


def _log_to_stderr(level: str) -> None:
    import logging

    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@contextlib.contextmanager
def _one_sentence_errors() -> Generator[None]:
    """What keeps a command from working, on one line, and exit code 1."""
    try:
        yield
    except MillstreamError as error:
        hint = f"; {error.hint[0].lower()}{error.hint[1:].rstrip('.')}" if error.hint else ""
        print(f"error: {error.message.rstrip('.')}{hint}", file=sys.stderr)
        raise typer.Exit(1) from None
