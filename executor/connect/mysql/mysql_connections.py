"""Connections to MySQL and MariaDB: for queries, and for the binary log.

PyMySQL has no API for replication. So `BinlogStream` sends the command with PyMySQL's private methods, and reads the
packets from the socket itself, so that a read can time out without losing anything.
"""

from __future__ import annotations

import contextlib
import ssl
import struct
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymysql
import pymysql.converters
import structlog

from ..connector_errors import ConnectorFailed, SystemFault, SystemUnavailable, one_line
from .gtids import Flavor, MySqlGtids
from .mysql_settings import MySqlSettings

_CONNECT_S: Final = 10
_READ_S: Final = 3600
_DUMP, _DUMP_GTID = 0x12, 0x1E
_LONG_PACKET: Final = 0xFFFFFF
_SILENCE_S: Final = 30.0
_FOR_PEOPLE: Final = (1044, 1045, 1049, 1064, 1115, 1130, 1142, 1143, 1193, 1227, 1231, 1251, 1698, 2059, 3159)
"""Errors for which waiting does not help: missing rights, wrong names, hosts that may not connect."""
_RIGHTS: Final = (1044, 1142, 1143, 1227)
_READS_BINLOG: Final = 1236
_SQL_MODE: Final = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION"
_log = structlog.get_logger("millstream.connect")

SPOILT: Final = (
    "RESNAPSHOT CONNECTOR reads all tables anew and deletes rows that are gone; the changes in between are lost. To"
    " avoid it, keep binary logs for longer: binlog_expire_logs_seconds, or expire_logs_days."
)


@dataclass(frozen=True, slots=True)
class BinlogPlace:
    """A place in the binary log, at the end of a transaction. `gtids`: the ids of all transactions before it; empty if
    the server has none."""

    file: str
    pos: int
    gtids: str

    @property
    def order(self) -> tuple[int, int]:
        """A key that sorts the places of one server."""
        return file_number(self.file), self.pos


def file_number(file: str) -> int:
    number = file.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


@contextlib.contextmanager
def explained(doing: str) -> Generator[None]:
    """Converts errors of the server to ours: errors that a user has to fix, and errors for which waiting helps."""
    try:
        yield
    except pymysql.err.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = one_line(error.args[1] if len(error.args) > 1 else error)
        if code in _FOR_PEOPLE:
            hint = None
            if code in _RIGHTS:
                hint = "The user needs SELECT, REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."
            raise ConnectorFailed(f"the server refused {doing}: {text} ({code})", hint=hint) from None
        raise SystemUnavailable(f"the server does not answer ({doing}): {text} ({code})") from None
    except RuntimeError as error:  # PyMySQL raises it if a package is missing
        raise ConnectorFailed(f"{doing} failed: {one_line(error)}") from None
    except OSError as error:
        raise SystemUnavailable(f"the server does not answer ({doing}): {one_line(error)}") from None


def connect(settings: MySqlSettings) -> Any:
    """Opens a connection in autocommit with times in UTC. Values are returned as text, those of binary columns as
    bytes. Raises `SystemUnavailable`, `ConnectorFailed`."""
    host = settings.database_hostname
    socket: dict[str, Any] = (
        {"unix_socket": host} if host.startswith("/") else {"host": host, "port": settings.database_port}
    )
    encoders: Any = {
        kind: encode for kind, encode in pymysql.converters.conversions.items() if not isinstance(kind, int)
    }
    with explained("the connection"):
        return pymysql.connect(
            user=settings.database_user, password=settings.database_password or "", charset="utf8mb4",
            autocommit=True, connect_timeout=_CONNECT_S, read_timeout=_READ_S, write_timeout=60, conv=encoders,
            init_command=f"SET time_zone = '+00:00', sql_mode = '{_SQL_MODE}', net_write_timeout = 3600",
            program_name="millstream", **socket, **_tls(settings),
        )  # fmt: skip


def _tls(settings: MySqlSettings) -> dict[str, Any]:
    mode = settings.database_ssl_mode
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred":
        return {}
    try:
        context = ssl.create_default_context(cafile=settings.database_ssl_ca)
    except OSError as error:
        raise ConnectorFailed(f"database.ssl.ca cannot be read: {one_line(error)}") from None
    context.check_hostname = mode == "verify_identity"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def rows_of(connection: Any, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        return list(cursor.fetchall())


def variables(connection: Any, *names: str) -> dict[str, str]:
    """Global settings of the server, without those that it does not have."""
    listed = ", ".join(f"'{name}'" for name in names)
    with explained("the server's settings"):
        return {
            name.lower(): value
            for name, value in rows_of(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        }


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class BinlogStream:
    """The binary log after a place. State: the connection, received bytes that were not read yet, and the time of the
    last receipt. Raises `SystemUnavailable` if the connection breaks."""

    def __init__(self, settings: MySqlSettings, flavor: Flavor, server_id: int, place: BinlogPlace) -> None:
        self._connection = connect(settings)
        try:
            with explained("the binary log"):
                self.checksums = self._begin(settings, flavor, server_id, place)
        except BaseException:
            self.close()
            raise
        self._socket = self._connection._sock
        self._received = bytearray()
        self._heard = time.monotonic()
        self._silence_s = max(_SILENCE_S, 3 * (settings.heartbeat_interval_ms or 10_000) / 1000)

    def _begin(self, settings: MySqlSettings, flavor: Flavor, server_id: int, place: BinlogPlace) -> bool:
        connection = self._connection
        ((checksum,),) = rows_of(connection, "SELECT @@global.binlog_checksum")
        period_ns = (settings.heartbeat_interval_ms or 10_000) * 1_000_000
        options = ["@master_binlog_checksum = @@global.binlog_checksum", f"@master_heartbeat_period = {period_ns}"]
        if flavor == "mariadb":
            options += [
                "@mariadb_slave_capability = 4", "@slave_gtid_strict_mode = 0", "@slave_gtid_ignore_duplicates = 0",
                f"@slave_connect_state = {connection.escape(place.gtids)}",
            ]  # fmt: skip
        else:
            options += ["@source_binlog_checksum = @@global.binlog_checksum", f"@source_heartbeat_period = {period_ns}"]
        rows_of(connection, "SET " + ", ".join(options))
        if flavor == "mysql" and place.gtids:
            gtids = MySqlGtids(place.gtids).encoded()
            command = struct.pack("<BHIIQI", _DUMP_GTID, 4, server_id, 0, 4, len(gtids)) + gtids
        else:
            file, pos = ("", 4) if flavor == "mariadb" else (place.file, place.pos)
            command = struct.pack("<BIHI", _DUMP, pos, 0, server_id) + file.encode()
        connection._write_bytes(struct.pack("<I", len(command)) + command)
        return checksum.upper() == "CRC32"

    def read(self, timeout_s: float) -> bytes | None:
        """The next event; None if none arrived in time."""
        deadline = time.monotonic() + timeout_s
        while (packet := self._packet()) is None:
            if not self._receive(max(0.0, deadline - time.monotonic())):
                return None
        if packet[:1] == b"\0":
            return packet[1:]
        raise self._ended(packet)

    def _packet(self) -> bytes | None:
        """The next complete packet, if there is one. Long packets consist of several parts."""
        buffer, at, parts = self._received, 0, list[bytes]()
        while len(buffer) >= at + 4:
            size = int.from_bytes(buffer[at : at + 3], "little")
            if len(buffer) < at + 4 + size:
                return None
            parts.append(bytes(buffer[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < _LONG_PACKET:
                del buffer[:at]
                return parts[0] if len(parts) == 1 else b"".join(parts)
        return None

    def _receive(self, timeout_s: float) -> bool:
        try:
            self._socket.settimeout(max(timeout_s, 0.001))
            data = self._socket.recv(1 << 18)
        except (TimeoutError, ssl.SSLWantReadError):
            if time.monotonic() - self._heard > self._silence_s:
                raise SystemUnavailable("the binary log is silent, without even signs of life") from None
            return False
        except OSError as error:
            raise SystemUnavailable(f"the binary log broke off: {one_line(error)}") from None
        if not data:
            raise SystemUnavailable("the server closed the connection of the binary log")
        self._received += data
        self._heard = time.monotonic()
        return True

    def _ended(self, packet: bytes) -> Exception:
        """The error that explains why the server has ended the stream."""
        if packet[:1] == b"\xfe":
            return SystemUnavailable("the server ended the binary log")
        if packet[:1] != b"\xff":
            return SystemFault(f"the server sent a packet that is no event: {packet[:8].hex()}")
        (code,) = struct.unpack_from("<H", packet, 1)
        text = one_line(packet[3:].decode(errors="replace"))
        text = text[6:] if text.startswith("#") else text
        if code != _READS_BINLOG:
            if code in _FOR_PEOPLE:
                return ConnectorFailed(
                    f"the server refused the binary log: {text} ({code})", hint="The user needs REPLICATION SLAVE."
                )
            return SystemUnavailable(f"the server ended the binary log: {text} ({code})")
        if "server_uuid" in text or "server_id" in text:
            return ConnectorFailed(
                f"another replica took the place of this connector: {text}",
                hint="Set database.server.id to a number of its own.",
            )
        return ConnectorFailed(f"the binary log cannot be read from where the connector stopped: {text}", hint=SPOILT)

    def close(self) -> None:
        """Closes the connection at once, as in a crash; the server notices that."""
        with contextlib.suppress(Exception):
            self._connection._force_close()
