"""Helps PostgreSQL to let go of WAL that others write while a slot is read.

A slot holds WAL from where decoding would have to begin anew, which is not where it was confirmed: PostgreSQL moves
that place only at a record of the running transactions, to the record before, once the later one is confirmed. It
writes such a record every 15 seconds, so a database that writes 15 MB a second holds 450 MB. Here one is written
whenever the WAL has grown by some MiB.
"""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg
import structlog

from .pg_connections import lsn_of

STRIDE_BYTES: Final = 8 << 20
"""Two strides and what is on its way are held."""
_LOOK_S: Final = 0.1
_SLOT_S: Final = 0.03  # the temporary slot waits for the transactions that write now; the record is before that
_BUSY_S: Final = 0.1  # before the next one then: with half a second, 160 MiB were held at 100 MB a second
_REST_S: Final = 15.0  # as often as PostgreSQL does it itself
_log = structlog.get_logger("millstream.connect")


class WalRelease:
    """State: where the WAL was when it was helped last, and when to look again."""

    def __init__(self, connection: psycopg.Connection[Any], slot: str) -> None:
        """In: `slot`: of the stream; the name of the temporary one begins so."""
        self._connection = connection
        self._name = f"{slot[:55]}_release"
        self._helped_lsn = 0
        self._next_look = time.monotonic()
        self._has_function = connection.info.server_version >= 160_000
        self._said = False

    def is_due(self) -> bool:
        """Whether the WAL has grown by a stride; then `help` is. Raises psycopg.Error."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_S
        row = self._connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        lsn = lsn_of(row[0])
        if lsn < self._helped_lsn + STRIDE_BYTES:
            return False
        self._helped_lsn = lsn
        return True

    def help(self) -> None:
        """Writes what lets the slot move. Where that is refused, PostgreSQL does it in its own time."""
        try:
            if not (self._has_function and self._log_snapshot()):
                self._make_slot()
        except psycopg.errors.QueryCanceled:
            self._next_look = time.monotonic() + _BUSY_S
        except psycopg.Error as error:
            if self._connection.closed:
                raise
            self._next_look = time.monotonic() + _REST_S
            if not self._said:
                _log.info("WAL is let go of in PostgreSQL's own time", slot=self._name, reason=str(error))
                self._said = True

    def _log_snapshot(self) -> bool:
        """False where the user may not."""
        try:
            self._connection.execute("SELECT pg_log_standby_snapshot()")
        except psycopg.errors.InsufficientPrivilege:
            self._has_function = False
        return self._has_function

    def _make_slot(self) -> None:
        """A logical slot begins with such a record, whether it comes to be or not."""
        with self._connection.transaction():
            self._connection.execute(f"SET LOCAL statement_timeout = {round(_SLOT_S * 1000)}".encode())
            self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", [self._name])
            self._connection.execute("SELECT pg_drop_replication_slot(%s)", [self._name])
