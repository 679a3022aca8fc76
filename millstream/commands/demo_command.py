"""The command `millstream demo`, and the output of `millstream` without a command."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from .command_line import one_sentence_errors

_FAST_S: Final = 2.0

FIRST_STEPS: Final = """\
Millstream: SQL over streams. First steps:

  millstream demo                         one minute: live results, a kill -9 in the middle, a check of every number
  millstream sql                          a shell with an engine of its own; nothing is kept
  millstream server --data ./data         a server; its console is at http://127.0.0.1:8088/console/
  millstream sql http://127.0.0.1:8088    a shell on that server

millstream --help lists all commands."""


def demo(
    flights: Annotated[int, typer.Option(min=100, help="How many departures.")] = 60_000,
    all: Annotated[bool, typer.Option("--all", help="All 336,776 departures of the year.")] = False,
    executor: Annotated[
        Literal["auto", "spark", "duckdb"], typer.Option(help="What runs the queries; auto: Spark where it can run.")
    ] = "auto",
    seconds: Annotated[float, typer.Option(min=_FAST_S, help="Over which the departures come.")] = 30.0,
    fast: Annotated[bool, typer.Option("--fast", help=f"Over {_FAST_S:g} seconds.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server open at the end, and keep its data.")] = False,
) -> None:
    """Show a server at work: a year of departures, live results, a kill -9 in the middle, a check of every number.

    Needs no other server and leaves nothing behind. Exit code 1 if a check fails.
    """
    with one_sentence_errors():
        from millstream.demo.running import DemoOptions, run_demo

        right = run_demo(DemoOptions(None if all else flights, executor, _FAST_S if fast else seconds, keep))
    raise typer.Exit(0 if right else 1)
