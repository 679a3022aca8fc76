"""The checks of `millstream doctor`: the machine, a data folder, a configuration, a running server. Each check returns
lines of its own, and none changes anything."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import importlib.metadata
import os
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.errors import MillstreamError
from millstream.logcore.cluster.node_folder import replica_folders
from millstream.server.config.configuration import (
    Configuration,
    InvalidConfiguration,
    ListenAddress,
    load_configuration,
)
from millstream.server.config.configuration_check import check_file, check_variables
from millstream.server.engine.executors import why_no_spark

from .line import CheckResult, Level
from .segment import segment

_PACKAGES: Final = ("duckdb", "pyarrow", "numba", "sqlglot", "lark", "hypercorn")
_FREE_WARN, _FREE_FAIL = 10 << 30, 1 << 30
_FILES_WARN = 4096
_SYNCS, _SYNC_WARN_MS, _SYNC_FAIL_MS = 16, 20.0, 250.0
_CLOCK_WARN_S = 2.0
_VERIFY_BYTES = 256 << 20  # how much of the newest segments is verified


def machine() -> Iterator[CheckResult]:
    """Python, packages, Java and Spark, limits."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.maxsize < 1 << 32:
        yield CheckResult("python", "fail", f"Python {version} has 32 bits", "Install one with 64.")
    else:
        yield CheckResult("python", "ok", f"Python {version}, Millstream {importlib.metadata.version('millstream')}")
    yield from _packages()
    reason = why_no_spark()
    if reason is None:
        yield CheckResult("spark", "ok", f"Spark can run (PySpark {importlib.metadata.version('pyspark')})")
    else:
        yield CheckResult(
            "spark", "warn", f"Spark cannot run: {reason}", "DuckDB runs all queries; Spark would add a cluster."
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _FILES_WARN:
        yield CheckResult(
            "files", "warn", f"a process may open {files} files", f"Set ulimit -n to {_FILES_WARN} or more."
        )
    else:
        yield CheckResult(
            "files", "ok", f"a process may open {'any number of' if files == resource.RLIM_INFINITY else files} files"
        )


def _packages() -> Iterator[CheckResult]:
    versions: list[str] = []
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except ImportError as error:  # also where its metadata are missing
            yield CheckResult(
                "packages", "fail", f"{name} cannot be loaded: {error}", "Install Millstream anew, with pip."
            )
    if versions:
        yield CheckResult("packages", "ok", ", ".join(versions))


# ------------------------------------------------------------------ configuration and ports


def configured(file: Path | None) -> Iterator[CheckResult]:
    """The configuration file, and variables of the environment."""
    try:
        findings = check_variables() if file is None else check_file(file)
    except InvalidConfiguration as error:
        yield CheckResult("configuration", "fail", error.message, error.hint or "")
        return
    for finding in findings:
        if finding.level != "note":
            place = f" (line {finding.line})" if finding.line else ""
            level: Level = "fail" if finding.level == "error" else "warn"
            yield CheckResult("configuration", level, f"{finding.message}{place}", finding.hint)
    if all(finding.level == "note" for finding in findings):
        yield CheckResult("configuration", "ok", "no file" if file is None else f"{file} is right")


def configuration_of(file: Path | None, data: Path | None) -> Configuration | None:
    """None if it is invalid."""
    with contextlib.suppress(MillstreamError):
        return load_configuration(file, {"data": data or Path("."), "executor": None})
    return None


def ports(configuration: Configuration) -> Iterator[CheckResult]:
    """Whether a server could use its ports, or is already running on them."""
    listeners = [("http", configuration.http)]
    if configuration.kafka_listener is not None:
        listeners.append(("kafka", configuration.kafka_listener))
    if configuration.schema_registry is not None:
        listeners.append(("schema_registry", configuration.schema_registry))
    running = _answers(configuration.http)
    for name, address in listeners:
        yield _port(name, address, running=running)


def _port(name: str, address: ListenAddress, *, running: bool) -> CheckResult:
    """In: `running`: whether one of our servers answers at the HTTP address."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return CheckResult(
            "ports", "fail", f"{name}: {address} is no address of this machine: {error.strerror or error}"
        )
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(where)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and running:
                return CheckResult("ports", "ok", f"{name}: a running Millstream server has {address}")
            hint = "Stop what listens there, or choose another port."
            return CheckResult("ports", "fail", f"{name}: {address} cannot be listened at: {error.strerror}", hint)
    return CheckResult("ports", "ok", f"{name}: {address} is free")


def _answers(address: ListenAddress) -> bool:
    from millstream.server.client import connect

    with contextlib.suppress(MillstreamError):
        connect(f"http://{address}").close()
        return True
    return False


# ------------------------------------------------------------------ the data directory


def data_directory(data: Path) -> Iterator[CheckResult]:
    """Lock, free space, speed, clock, and the newest segments."""
    if data.exists() and not data.is_dir():
        yield CheckResult("data", "fail", f"{data} is a file", "A data directory is a folder: name another one.")
        return
    if not data.is_dir():
        parent = next(path for path in [data, *data.absolute().parents] if path.is_dir())
        if not os.access(parent, os.W_OK):
            yield CheckResult("data", "fail", f"{data} does not exist, and nothing can be made in {parent}")
            return
        yield CheckResult("data", "ok", f"{data} does not exist yet; it would be made in {parent}")
        yield from _room(parent)
        return
    if not os.access(data, os.W_OK | os.X_OK):
        yield CheckResult("data", "fail", f"{data} cannot be written to", "Who runs the server must own it.")
        return
    log = data / "log" if (data / "log").is_dir() else data
    owner = _owner(log / "lock")
    yield CheckResult("data", "ok", f"{data} is in use by process {owner}" if owner else f"{data} is free")
    yield from _room(data)
    yield from _disk(data)
    yield from _segments(log, in_use=owner is not None)


def _owner(lock: Path) -> str | None:
    """The process that holds the lock of a log; None if it is free."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return None


def _room(folder: Path) -> Iterator[CheckResult]:
    usage = shutil.disk_usage(folder)
    message = f"{usage.free / (1 << 30):.1f} GiB of {usage.total / (1 << 30):.1f} GiB are free"
    if usage.free < _FREE_FAIL:
        yield CheckResult("room", "fail", message, "Make room, or set retention.ms on large topics.")
    elif usage.free < _FREE_WARN and usage.free < usage.total // 5:
        yield CheckResult("room", "warn", message, "Queries wait where the disk is full, and go on once there is room.")
    else:
        yield CheckResult("room", "ok", message)


def _disk(data: Path) -> Iterator[CheckResult]:
    """How long a sync takes, which every commit waits for, and whether the file system's clock is ours."""
    try:
        times_ms, apart_s = _measure(data)
    except OSError as error:
        yield CheckResult(
            "disk", "fail", f"{data} cannot be written to: {error.strerror}", "Look at the disk, and quotas."
        )
        return
    middle = statistics.median(times_ms)
    message = f"a sync of 4 KiB takes {middle:.1f} ms (slowest {max(times_ms):.1f} ms)"
    if middle >= _SYNC_FAIL_MS:
        yield CheckResult("disk", "fail", message, "Each commit waits for one: use a local disk.")
    elif middle >= _SYNC_WARN_MS:
        yield CheckResult("disk", "warn", message, "Each commit waits for one: a faster disk makes queries faster.")
    else:
        yield CheckResult("disk", "ok", message)
    if abs(apart_s) > _CLOCK_WARN_S:
        yield CheckResult("clock", "warn", f"the file system's clock is {apart_s:+.1f} s off this machine's",
                   "Retention goes by file times: set both clocks by NTP.")  # fmt: skip
    else:
        yield CheckResult("clock", "ok", "the file system has this machine's clock")


def _measure(data: Path) -> tuple[list[float], float]:
    times_ms: list[float] = []
    with tempfile.NamedTemporaryFile(dir=data, prefix=".doctor-") as file:
        for _ in range(_SYNCS):
            file.write(b"\0" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            times_ms.append((time.perf_counter() - begun) * 1000)
        return times_ms, os.fstat(file.fileno()).st_mtime - time.time()


def _segments(log: Path, *, in_use: bool) -> Iterator[CheckResult]:
    """The newest segment of each partition, as many as can be read in a few seconds."""
    looked, skipped, left, bad = 0, 0, _VERIFY_BYTES, False
    for folder in replica_folders(log):
        path = max(folder.glob("*.log"), default=None)
        try:
            size = 0 if path is None else path.stat().st_size
            if path is None or size > left:
                skipped += 1
                continue
            lines = list(segment(path, size, in_use=in_use))
        except FileNotFoundError:
            continue  # its server has just deleted it
        except OSError as error:
            lines = [CheckResult("log", "fail", f"{path} cannot be read: {error.strerror or error}")]
            size = 0
        left -= size
        looked += 1
        bad = bad or bool(lines)
        yield from lines
    if not bad and (looked or skipped):
        more = f"; {skipped} were too large to look at" if skipped else ""
        yield CheckResult("log", "ok", f"the newest segments of {looked} partitions are whole{more}")
