"""`python -m millstream.demo`. Exit code 0: every check passed; 1: a check failed, or an error occurred."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from millstream.errors import MillstreamError

from .screen import Screen

_FLIGHTS = 60_000
_SECONDS = 30.0
_FAST_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and gives the exit code."""
    options = _options(arguments)
    screen = Screen()
    try:
        from .flights import load_flights
    except ModuleNotFoundError as error:
        screen.problem(f"the demo needs the package {error.name}: pip install 'millstream[demo]'")
        return 1
    from .story import Story

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also then the server must not be left behind
    try:
        screen.say("Loading the departures from New York in 2013 …")
        flights = load_flights(None if options.all else options.flights)
        with _folder(screen, keep=options.keep) as folder:
            seconds = _FAST_SECONDS if options.fast else max(_FAST_SECONDS, options.seconds)
            return 0 if Story(screen, flights, folder, options.executor, seconds).run() else 1
    except MillstreamError as error:
        screen.problem(error.message if error.hint is None else f"{error.message} {error.hint}")
    except KeyboardInterrupt:
        screen.problem("stopped")
    return 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m millstream.demo", description=__doc__)
    parser.add_argument("--flights", type=int, default=_FLIGHTS, help=f"how many departures (default {_FLIGHTS:,})")
    parser.add_argument("--all", action="store_true", help="all 336,776 departures")
    parser.add_argument(
        "--executor", choices=("auto", "spark", "duckdb"), default="auto",
        help="what runs the persistent queries (default auto: Spark where it can run)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"over which they come (default {_SECONDS:g})")
    parser.add_argument("--fast", action="store_true", help=f"over {_FAST_SECONDS:g} seconds")
    parser.add_argument("--keep", action="store_true", help="keep the data directory, and say where it is")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _folder(screen: Screen, *, keep: bool) -> Generator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="millstream-demo-") as folder:
            yield Path(folder)
        return
    folder = tempfile.mkdtemp(prefix="millstream-demo-")
    yield Path(folder)
    screen.say(f"The data is kept. Look around:  millstream server --data {folder}/data")
    screen.say("and then in a browser, http://127.0.0.1:8088/console/, or with  millstream sql http://127.0.0.1:8088")


if __name__ == "__main__":
    sys.exit(main())
