"""Runs the demo in a temporary folder, and leaves its server running on request."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import MillstreamError

from .flights import load_flights
from .screen import Screen
from .story import Story


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`flights`: how many departures, None for all. `seconds`: over which they are sent. `keep`: leave the server
    open."""

    flights: int | None
    executor: str
    seconds: float
    keep: bool


def run_demo(options: DemoOptions, screen: Screen | None = None) -> bool:
    """Whether every check passed; failures are printed on the screen."""
    screen = screen or Screen()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, the server must be stopped
    try:
        flights = load_flights(options.flights)
        screen.say(f"{len(flights):,} departures: {flights.title}")
        with _folder(screen, keep=options.keep) as folder:
            story = Story(screen, flights, folder, options.executor, options.seconds)
            return story.run(_leave_open(screen) if options.keep else _say_how_to_look_around(screen))
    except MillstreamError as error:
        screen.problem(error.message if error.hint is None else f"{error.message} {error.hint}")
    except KeyboardInterrupt:
        screen.problem("stopped")
    return False


def _leave_open(screen: Screen) -> Callable[[str], None]:
    def wait(url: str) -> None:
        screen.headline("Look around")
        screen.say(f"In a browser:   {url}/console/")
        screen.say(f"In a terminal:  millstream sql {url}")
        with _interrupted() as interrupted:
            screen.say("Ctrl-C stops the server.")
            interrupted()

    return wait


@contextlib.contextmanager
def _interrupted() -> Generator[Callable[[], None]]:
    """Yields a function that waits for Ctrl-C or SIGTERM, including one that arrives before the wait. As an exception,
    the signal could arrive too early, or be lost where Python cannot raise one."""
    heard, said = os.pipe()

    def note(number: int, frame: object) -> None:
        os.write(said, b".")

    def wait() -> None:
        os.read(heard, 1)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(heard)
        os.close(said)


def _say_how_to_look_around(screen: Screen) -> Callable[[str], None]:
    def say(url: str) -> None:
        del url  # the server stops now
        screen.headline("Look around")
        screen.say("`millstream demo --keep` leaves the server open at the end, with its console for the browser.")

    return say


@contextlib.contextmanager
def _folder(screen: Screen, *, keep: bool) -> Generator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="millstream-demo-") as folder:
            yield Path(folder)
        return
    folder = tempfile.mkdtemp(prefix="millstream-demo-")
    yield Path(folder)
    screen.say(f"The data is kept:  millstream server --data {folder}/data")
