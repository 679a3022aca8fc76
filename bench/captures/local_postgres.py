"""A PostgreSQL server for tests and measurements: the machine's own programs, a folder and a port of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from ..apache_kafka import free_ports
from ..maven import Unavailable

_SETTINGS = {
    "wal_level": "logical", "fsync": "off", "max_wal_senders": "10", "max_replication_slots": "10",
    "listen_addresses": "127.0.0.1", "shared_buffers": "16MB", "wal_sender_timeout": "5s", "autovacuum": "off",
    "unix_socket_directories": "", "max_connections": "40",
}  # fmt: skip


@dataclass
class PostgresServer:
    programs: Path
    folder: Path
    port: int
    user: str | None

    def start(self, **settings: str) -> None:
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in {**_SETTINGS, **settings}.items())
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o",
                  f"-p {self.port} {options}", "start")  # fmt: skip

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def parameters(self, database: str = "postgres") -> dict[str, str]:
        """Settings of the connector."""
        return {
            "database.hostname": "127.0.0.1", "database.port": str(self.port), "database.user": "postgres",
            "database.dbname": database, "database.sslmode": "disable",
        }  # fmt: skip

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True, sslmode="disable"
        )

    def protect(self, user: str, password: str) -> None:
        """A user who has to tell a password, as nobody else has."""
        with self.connect() as admin:
            admin.execute(f"CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{password}'")
            lines = self.folder / "data" / "pg_hba.conf"
            wanted = "".join(
                f"host {databases} {user} 127.0.0.1/32 scram-sha-256\n" for databases in ("all", "replication")
            )
            lines.write_text(wanted + lines.read_text())
            admin.execute("SELECT pg_reload_conf()")

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        if self.user is not None:
            command = ["runuser", "-u", self.user, "--", *command]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd="/", stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def running_postgres() -> Generator[PostgresServer]:
    """Raises `Unavailable`."""
    programs = _programs()
    if programs is None:
        raise Unavailable("PostgreSQL is not installed")
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="millstream-pg-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        server = PostgresServer(programs, folder, free_ports(1)[0], user)
        server.run(
            "initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _other_user() -> str:
    """PostgreSQL does not run as root."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)
