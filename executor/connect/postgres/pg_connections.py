"""Connections to PostgreSQL: an ordinary one, and one for replication, over libpq's COPY BOTH.

psycopg has no API for replication, so `ReplicationStream` uses its binding of libpq.
"""

from __future__ import annotations

import contextlib
import select
import struct
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from ..connector_errors import ConnectorFailed, SystemUnavailable
from .pg_values import SESSION
from .postgres_refusals import refuses_to_connect

_CONNECT_S: Final = "10"
_EPOCH_US: Final = 946_684_800_000_000
_FEEDBACK_S: Final = 1.0  # sent without request: the server's request for it comes after all data that it sent before
# Errors for which waiting does not help: missing rights, and wrong objects and settings.
_FOR_PEOPLE: Final = ("42", "0A", "22", "23", "55000", "58P01")
_LOST: Final = ("42704", "55000", "58P01")


def lsn_text(lsn: int) -> str:
    """The text of an LSN, as PostgreSQL writes it.

    >>> lsn_text(0x1_6B3748)
    '0/16B3748'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def conninfo(parameters: Mapping[str, str], *, replication: bool) -> str:
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in SESSION.items())
    extra = {"replication": "database"} if replication else {}
    return make_conninfo(
        "", **parameters, **extra, options=options, connect_timeout=_CONNECT_S, application_name="millstream",
        client_encoding="UTF8", keepalives_idle="30", keepalives_interval="10", keepalives_count="3",
        tcp_user_timeout="60000",
    )  # fmt: skip


@contextlib.contextmanager
def explained(doing: str) -> Generator[None]:
    """Converts errors of PostgreSQL to ours: errors that a user has to fix, and errors for which waiting helps."""
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if error.sqlstate is not None and error.sqlstate.startswith(_FOR_PEOPLE):
            hint = None
            if error.sqlstate == "42501":
                hint = (
                    "The user needs REPLICATION, and for a publication must own the tables: ALTER ROLE … REPLICATION."
                )
            raise ConnectorFailed(f"PostgreSQL refused {doing}: {text}", hint=hint) from None
        if error.sqlstate is None and refuses_to_connect(text):
            raise ConnectorFailed(f"PostgreSQL refused {doing}: {text}") from None
        raise SystemUnavailable(f"PostgreSQL does not answer ({doing}): {text}") from None


def connect(parameters: Mapping[str, str]) -> psycopg.Connection[Any]:
    """Opens a connection in autocommit. Raises `SystemUnavailable`, `ConnectorFailed`."""
    with explained("the connection"):
        return psycopg.connect(conninfo(parameters, replication=False), autocommit=True)


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """`snapshot`: the name of the snapshot, valid until the connection that created the slot does something else."""

    consistent_lsn: int
    snapshot: str


@dataclass(frozen=True, slots=True)
class ServerWal:
    """`system`: names the cluster of data. `end_lsn`: up to which the server has flushed, or as a standby replayed."""

    system: str
    timeline: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class WalData:
    """A message of pgoutput, or a keepalive if `payload` is None. `end_lsn`: the place up to which the server has sent
    everything."""

    lsn: int
    end_lsn: int
    payload: bytes | None


class ReplicationStream:
    """State: the connection, and the confirmed LSN. Raises `SystemUnavailable` if the connection breaks."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        with explained("the replication connection"):
            self._connection = psycopg.connect(conninfo(parameters, replication=True), autocommit=True)
        self._pg: Any = self._connection.pgconn
        self._streams = False
        self.confirmed_lsn = 0
        self.server_lsn = 0
        self._next_feedback = 0.0

    def identify(self) -> ServerWal:
        """Call it before `start`."""
        result = self._run("IDENTIFY_SYSTEM", "its identity")
        system, timeline, end = (result.get_value(0, column).decode() for column in range(3))
        return ServerWal(system, int(timeline), lsn_of(end))

    def timeline_history(self, timeline: int) -> str:
        """The server's file about a timeline beyond the first. Call it before `start`."""
        result = self._run(f"TIMELINE_HISTORY {timeline}", "the history of its WAL")
        return result.get_value(0, 1).decode()

    def create_slot(self, name: str) -> CreatedSlot:
        """Creates a slot. It waits for the transactions that are open now."""
        result = self._run(f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput EXPORT_SNAPSHOT", "a slot")
        return CreatedSlot(lsn_of(result.get_value(0, 1).decode()), result.get_value(0, 2).decode())

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Starts the stream at the first transaction that commits at or after `lsn`."""
        literal = quoted(publication).replace("'", "''")
        options = f"proto_version '1', publication_names '{literal}', messages 'true'"
        self._run(f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} ({options})", "the stream", slot=slot)
        self._streams = True
        self.confirmed_lsn = lsn

    def read(self, timeout_s: float) -> WalData | None:
        """The next message; None if none arrived in time."""
        if time.monotonic() >= self._next_feedback:
            self.send_feedback()
        count, data = self._received()
        if count == 0:
            poll = select.poll()  # `select` refuses descriptors above 1,023, which a server with many partitions has
            poll.register(self._pg.socket, select.POLLIN)
            poll.poll(timeout_s * 1000)
            count, data = self._received()
        if count < 0:
            raise self._ended()
        if count == 0:
            return None
        kind = data[0:1]
        if kind == b"w":
            lsn, end_lsn = struct.unpack_from(">QQ", data, 1)
            self.server_lsn = max(self.server_lsn, end_lsn)
            return WalData(lsn, end_lsn, data[25:])
        if kind == b"k":
            (end_lsn,) = struct.unpack_from(">Q", data, 1)
            self.server_lsn = max(self.server_lsn, end_lsn)
            if data[17]:
                self.send_feedback()
            return WalData(end_lsn, end_lsn, None)
        raise ConnectorFailed(f"the replication stream has an unknown message {kind!r}")

    def _received(self) -> tuple[int, bytes]:
        """Reads from the socket only if there is no complete message: libpq reads everything that has arrived, however
        much, and moves all of it each time. With 200,000 waiting changes that took twelve times the CPU."""
        try:
            count, data = self._pg.get_copy_data(1)
            if count == 0:
                self._pg.consume_input()
                count, data = self._pg.get_copy_data(1)
            return count, bytes(data) if count > 0 else b""
        except psycopg.Error as error:
            raise SystemUnavailable(f"the replication stream broke: {' '.join(str(error).split())}") from None

    def _ended(self) -> Exception:
        """The error that explains why the server has ended the stream."""
        result = self._pg.get_result()
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result is not None else ""
        text = " ".join((result.error_message or b"").decode(errors="replace").split()) if result is not None else ""
        if state.startswith(_FOR_PEOPLE):
            return ConnectorFailed(
                f"PostgreSQL ended the replication stream: {text}",
                hint="Where the publication is gone, changes may be missing: RESNAPSHOT CONNECTOR reads all anew.",
            )
        return SystemUnavailable(f"PostgreSQL ended the replication stream: {text or 'without a reason'}")

    def confirm(self, lsn: int) -> None:
        """Tells PostgreSQL that it may remove everything before this LSN."""
        if lsn > self.confirmed_lsn:
            self.confirmed_lsn = lsn
            self.send_feedback()

    def send_feedback(self) -> None:
        if not self._streams:
            return
        now_us = time.time_ns() // 1000 - _EPOCH_US
        lsn = self.confirmed_lsn
        try:
            self._pg.put_copy_data(b"r" + struct.pack(">QQQQB", lsn, lsn, lsn, now_us, 0))
            self._pg.flush()
        except psycopg.Error as error:
            raise SystemUnavailable(f"the replication stream broke: {' '.join(str(error).split())}") from None
        self._next_feedback = time.monotonic() + _FEEDBACK_S

    def close(self) -> None:
        """Closes the connection at once, as in a crash; the server notices that."""
        with contextlib.suppress(Exception):
            self._connection.close()

    def _run(self, command: str, what: str, *, slot: str | None = None) -> Any:
        try:
            result = self._pg.exec_(command.encode())
        except psycopg.Error as error:
            raise SystemUnavailable(f"the replication connection broke: {error}") from None
        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH):
            return result
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = " ".join((result.error_message or b"").decode(errors="replace").split())
        if slot is not None and state in _LOST:
            raise slot_lost(slot, text)
        if state.startswith(_FOR_PEOPLE):
            raise ConnectorFailed(f"PostgreSQL refused {what}: {text}")
        raise SystemUnavailable(f"PostgreSQL refused {what} now: {text}")


def slot_lost(slot: str, reason: str) -> ConnectorFailed:
    return ConnectorFailed(
        f"the replication slot {slot} has not all changes any more: {reason}",
        hint="RESNAPSHOT CONNECTOR makes a new slot, reads all tables anew and deletes rows that are gone; the changes"
        " in between are lost. To avoid it, raise max_slot_wal_keep_size, and let nobody else use the slot.",
    )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
