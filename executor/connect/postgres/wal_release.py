"""Helps PostgreSQL to release WAL that others write while a slot is read.

A slot retains WAL from the place where decoding would have to restart, which is not the confirmed place. PostgreSQL
moves the restart place only at records of the running transactions: to the previous such record when the later one is
confirmed. It writes such a record every 15 seconds, so a database that writes 15 MB per second retains 450 MB. This
module makes it write one whenever the WAL has grown by some MiB.
"""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg
import structlog

from .pg_connections import lsn_of

STRIDE_BYTES: Final = 8 << 20
"""The slot retains two strides of WAL, and the part that is being sent."""
_LOOK_S: Final = 0.1
_SLOT_S: Final = 0.03  # the temporary slot waits for transactions that write now; the record is written before that
_BUSY_S: Final = 0.1  # pause after such a wait; with 0.5 s, 160 MiB were retained at 100 MB per second
_REST_S: Final = 15.0  # as often as PostgreSQL itself writes the record
_log = structlog.get_logger("millstream.connect")


class WalRelease:
    """State: the end of the WAL at the last help, and when to look again."""

    def __init__(self, connection: psycopg.Connection[Any], slot: str) -> None:
        """In: `slot`: the slot of the stream; the name of the temporary slot begins with its name."""
        self._connection = connection
        self._name = f"{slot[:55]}_release"
        self._helped_lsn = 0
        self._next_look = time.monotonic()
        self._has_function = connection.info.server_version >= 160_000
        self._said = False

    def is_due(self) -> bool:
        """Whether the WAL has grown by a stride, so that `help` is due. Raises psycopg.Error."""
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
        """Makes PostgreSQL write the record that lets the slot move. If PostgreSQL refuses, it writes the record at its
        own interval."""
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
        """Writes the record with a function. False if the user may not call it."""
        try:
            self._connection.execute("SELECT pg_log_standby_snapshot()")
        except psycopg.errors.InsufficientPrivilege:
            self._has_function = False
        return self._has_function

    def _make_slot(self) -> None:
        """Writes the record by creating a temporary logical slot: PostgreSQL writes it first, even if creating
        fails."""
        with self._connection.transaction():
            self._connection.execute(f"SET LOCAL statement_timeout = {round(_SLOT_S * 1000)}".encode())
            self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', true)", [self._name])
            self._connection.execute("SELECT pg_drop_replication_slot(%s)", [self._name])
