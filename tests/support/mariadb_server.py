"""A MariaDB server for tests: the machine's own programs, a folder and a port of its own. It is skipped, with the
reason, where there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from bench.apache_kafka import free_ports

_SETTINGS = {
    "log_bin": "binlog", "binlog_format": "ROW", "binlog_row_metadata": "FULL", "server_id": "1",
    "innodb_buffer_pool_size": "16M", "innodb_log_file_size": "8M", "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0", "bind_address": "127.0.0.1", "max_connections": "60", "performance_schema": "OFF",
    "skip_name_resolve": "ON", "key_buffer_size": "1M", "aria_pagecache_buffer_size": "1M",
    "innodb_read_io_threads": "1", "innodb_write_io_threads": "1", "innodb_doublewrite": "OFF",
    "innodb_use_native_aio": "OFF",  # the kernel has few of them for all processes of the machine
}  # fmt: skip
_START_S = 90


@dataclass
class MariaDbServer:
    program: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    options: dict[str, str] = field(default_factory=dict)

    def start(self, **options: str) -> None:
        self.options = options
        listed = [f"--{name}={value}" for name, value in {**_SETTINGS, **options}.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--no-defaults", f"--datadir={self.folder / 'data'}", f"--port={self.port}",
                 f"--socket={self.folder / 'socket'}", f"--pid-file={self.folder / 'pid'}",
                 f"--tmpdir={self.folder / 'temporary'}", *_as_user(), *listed],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.connect().close()
                return
            except (pymysql.err.MySQLError, OSError):
                assert time.monotonic() < deadline and self.process.poll() is None, self.said()
                time.sleep(0.05)

    def stop(self, sign: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(sign)
            self.process.wait(30)
            self.process = None

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def parameters(self, database: str | None = None) -> dict[str, str]:
        """Settings of the connector."""
        given = {"database.hostname": "127.0.0.1", "database.port": str(self.port), "database.user": "root"}
        return {**given, **({} if database is None else {"database.include.list": database})}

    def connect(self, database: str | None = None, user: str = "root", **more: Any) -> Sql:
        return Sql(
            pymysql.connect(
                host="127.0.0.1", port=self.port, user=user, database=database, autocommit=True, charset="utf8mb4",
                **more,
            )
        )  # fmt: skip


class Sql:
    """A connection, with less writing."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.rows(statement)

    def rows(self, query: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall())

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Sql:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(pymysql.err.Error):
            self.close()


@contextlib.contextmanager
def mariadb_server(**options: str) -> Generator[MariaDbServer]:
    program = _program("mariadbd") or _program("mysqld")
    install = _program("mariadb-install-db") or _program("mysql_install_db")
    if program is None or install is None:
        pytest.skip("MariaDB is not installed")
    folder = Path(tempfile.mkdtemp(prefix="millstream-mariadb-"))
    temporary = folder / "temporary"  # two that are made in one folder take each other's temporary tables
    temporary.mkdir()
    try:
        done = subprocess.run(
            [install, "--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={temporary}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--skip-name-resolve", "--innodb-log-file-size=8M",
             *_as_user()],
            capture_output=True, text=True, timeout=120, check=False, cwd="/", stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        server = MariaDbServer(program, folder, free_ports(1)[0])
        server.start(**options)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/libexec:/usr/local/sbin")


def _as_user() -> list[str]:
    """MariaDB runs as root only if it is told to."""
    return ["--user=root"] if os.geteuid() == 0 else []
