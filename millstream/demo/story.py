"""The story of the demo, from start to end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from millstream.errors import MillstreamError, ServerError
from millstream.logcore.client import RowRecords
from millstream.logcore.remote import RemoteLog
from millstream.server.client import Client, connect

from . import statements
from .demo_checks import mistakes
from .feeder import Feeder
from .flights import TABLES_BEGIN_MS, Flights, plane_records
from .screen import Screen
from .server_process import ServerProcess

_KILL_AT: Final = 0.5  # of the departures
_COUNTED_AT: Final = 0.1  # share of the departures: no kill before these are in the results
_LOOK_S: Final = 0.3
_PATIENCE_S: Final = 120.0  # without progress
_SHOWN: Final = 8


class DemoFailed(ServerError):
    """An expected event of the demo did not happen."""

    code = "DEMO_FAILED"


class Story:
    """In: `seconds`: over which the departures are sent."""

    def __init__(self, screen: Screen, flights: Flights, folder: Path, executor: str, seconds: float) -> None:
        self._screen = screen
        self._flights = flights
        self._server = ServerProcess(folder, executor)
        self._seconds = seconds
        self._counted = 0  # departures in the windows, when they were last read
        self._before = 0  # the same, when the current server process started

    def run(self, then: Callable[[str], None] = lambda _: None) -> bool:
        """Whether all checks passed. Raises `MillstreamError` if the demo failed.

        In: `then` is called at the end with the server's URL; the server stops when it returns.
        """
        try:
            return self._tell(then)
        except MillstreamError:
            self._screen.say(f"What the server logged last:\n{self._server.last_log_lines()}")
            raise

    def _tell(self, then: Callable[[str], None]) -> bool:
        with contextlib.ExitStack() as parts:
            parts.callback(self._server.stop)
            self._start_server("A server starts")
            client = connect(self._server.url)
            self._create(client)
            feeder = Feeder(self._server.kafka, statements.DEPARTURES, self._flights.departures, self._seconds)
            feeder.start()
            parts.callback(feeder.stop)
            counts = _COUNTED_AT * len(self._flights)
            self._watch(
                client,
                feeder,
                "Departures arrive, results grow",
                lambda: feeder.share >= _KILL_AT and self._counted >= counts,
            )
            self._crash()
            self._watch(client, feeder, "Everything goes on where it was", lambda: self._counted >= len(self._flights))
            right = self._check(client)
            self._results(client)  # not before: other queries may still be behind the one that is watched
            self._pull(client)
            then(self._server.url)
            return right

    # -------------------------------------------------------------- chapters

    def _start_server(self, headline: str) -> None:
        self._screen.headline(headline)
        began = time.monotonic()
        self._server.start()
        took_s = time.monotonic() - began
        self._screen.say(f"millstream server, process {self._server.pid}, ready after {took_s:.1f} s:")
        self._screen.say(f"  HTTP at {self._server.url}, Kafka protocol at {self._server.kafka}")
        self._screen.say(f"  in a browser: {self._server.url}/console/")
        self._screen.say(f"  {self._server.executor_line}")

    def _create(self, client: Client) -> None:
        self._screen.headline("Streams, tables and persistent queries")
        client.execute("SET 'auto.offset.reset'='earliest';")
        for statement in statements.SOURCES:
            self._screen.statement(statement)
            client.execute(statement)
        rows = self._flights.airlines.to_pylist()
        client.execute("\n".join(statements.insert_airline(TABLES_BEGIN_MS, **row) for row in rows))
        with RemoteLog(self._server.kafka) as log:
            log.append(statements.PLANES, 0, RowRecords(plane_records(self._flights.planes)))
        self._screen.say(f"{len(rows)} airlines inserted, {self._flights.planes.num_rows:,} planes appended")
        for statement in statements.QUERIES:
            self._screen.statement(statement)
            client.execute(statement)

    def _watch(self, client: Client, feeder: Feeder, headline: str, until: Callable[[], bool]) -> None:
        """Raises `DemoFailed` if departures cannot be sent, or counting stops."""
        self._screen.headline(headline)
        self._before = self._counted
        counted_at = time.monotonic()
        with self._screen.moving_line():
            self._show(client, feeder)
            while not until():
                if feeder.error is not None:
                    raise DemoFailed(f"departures cannot be appended: {feeder.error}")
                if time.monotonic() - counted_at > _PATIENCE_S:
                    raise DemoFailed(
                        f"{feeder.sent:,} departures are sent and {self._counted:,} counted, and for "
                        f"{_PATIENCE_S:.0f} seconds the count did not grow"
                    )
                time.sleep(_LOOK_S)
                counted = self._counted
                self._show(client, feeder)
                if self._counted > counted or (not feeder.done and self._counted >= feeder.sent):
                    counted_at = time.monotonic()
                if self._counted:
                    feeder.go_on()

    def _show(self, client: Client, feeder: Feeder) -> None:
        hours = [row.values for row in client.query(statements.HOURS)]
        self._counted = sum(row[2] for row in hours)
        self._screen.progress(feeder.share, self._status(hours, feeder.sent))

    def _status(self, hours: Sequence[Sequence[Any]], sent: int) -> str:
        if self._counted == self._before < sent and self._server.on_spark:
            return f"{sent:,} sent · Spark warms up: its first results take some 10 to 30 seconds"
        status = f"{sent:,} sent · {self._counted:,} counted in {len(hours):,} windows"
        if not hours:
            return status
        origin, begin, flights, _, mean_delay, _ = max(hours, key=lambda row: (row[1], row[0]))
        return f"{status} · {_clock(begin)} {origin}: {flights} flights, {mean_delay or 0:.0f} minutes late"

    def _results(self, client: Client) -> None:
        """Prints the first rows of the current results."""
        self._screen.headline("The results")
        hours = [row.values for row in client.query(statements.HOURS)]
        latest = sorted(hours, key=lambda row: (-row[1], row[0]))[:_SHOWN]
        makers = [row.values for row in client.query(statements.MAKERS)]
        self._screen.rows(
            "delays_per_hour, latest windows",
            ("from", "window", "flights", "mean delay", "worst"),
            [(row[0], _clock(row[1]), row[2], row[4], row[5]) for row in latest],
        )
        self._screen.rows(
            "makers (joined by tail number)",
            ("maker", "flights", "seats"),
            sorted(makers, key=lambda row: -row[1])[:_SHOWN],
        )

    def _crash(self) -> None:
        self._screen.headline(f"kill -9 {self._server.pid}")
        self._server.kill()
        self._screen.say("The server is gone, in the middle of everything.")
        self._start_server("It starts again, on the same data")

    def _check(self, client: Client) -> bool:
        """Waits until the results are correct, or time is up, and prints the outcome."""
        self._screen.headline("Is it right?")
        self._screen.say("The same results are computed from the data frames, with DuckDB, and compared …")
        deadline = time.monotonic() + _PATIENCE_S
        with RemoteLog(self._server.kafka) as log:
            found = mistakes(client, log, self._flights)
            while found and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
                found = mistakes(client, log, self._flights)
        for sentence in found:
            self._screen.problem(sentence)
        if not found:
            self._screen.success(
                f"Nothing lost, nothing twice: all {len(self._flights):,} departures are in the join's topic, each "
                "exactly once, and all windows and counts are what they should be."
            )
        return not found

    def _pull(self, client: Client) -> None:
        self._screen.headline("A pull query answers from the result")
        self._screen.statement(statements.PULL)
        began = time.monotonic()
        with client.query(statements.PULL) as rows:
            names, values = rows.column_names, [row.values for row in rows]
        self._screen.rows(f"{(time.monotonic() - began) * 1000:.0f} ms", names, values)


def _clock(time_ms: Any) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%b %d %H:%M")
