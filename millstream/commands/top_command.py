"""The command `millstream top`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from millstream.errors import ServerError

from .addresses import DEFAULT_SERVER, ServerOption
from .command_line import one_sentence_errors


class NotMillstream(ServerError):
    """The server's metrics cannot be read."""

    code = "NOT_MILLSTREAM"


def top(
    server: ServerOption = DEFAULT_SERVER,
    interval: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Time between two readings.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Print so many readings, one below the other, and exit.")
    ] = None,
) -> None:
    """Watch a server: state, lag and rates of its queries, topics and consumer groups, until Ctrl-C.

    Queries that have stopped come first, then those with the largest lag.
    """
    with one_sentence_errors(), contextlib.suppress(KeyboardInterrupt):
        if count is not None:
            for lines in _readings(server, interval, count):
                typer.echo("\n".join(lines))
            return
        from rich.live import Live
        from rich.text import Text

        with Live(Text(f"reading {server.rpartition('@')[2]} …"), screen=True, auto_refresh=False) as screen:
            for lines in _readings(server, interval, None):
                screen.update(Text("\n".join(lines)), refresh=True)


def _readings(server: str, interval_s: float, count: int | None) -> Iterator[list[str]]:
    """Raises `NotMillstream`, `ServerUnreachable`, `RemoteError`."""
    from millstream.repl.text.top_text import ServerFigures, read_figures, top_lines
    from millstream.server.client import HttpClient

    client = HttpClient(server)

    def read() -> tuple[ServerFigures, float]:
        try:
            return read_figures(client.get("/metrics").decode()), time.monotonic()
        except ValueError as error:
            raise NotMillstream(f"what answers at {client.address} is not a Millstream server") from error

    before, at = read()
    number = 0
    while count is None or number < count:
        time.sleep(interval_s)
        now, now_at = read()
        yield list(top_lines(before, now, now_at - at))
        before, at, number = now, now_at, number + 1
