"""A lock that lets only one process at a time open a data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..errors import LogLocked, unusable_directory


def locked(path: Path) -> int:
    """A descriptor that holds the lock until it is closed. Raises `LogLocked`, `UnusableDataDirectory`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_directory(error, path.parent) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        here = owner == str(os.getpid())
        by = "this process" if here else f"process {owner}" if owner else "another process"
        raise LogLocked(
            f"the data directory {path.parent} is already open in {by}",
            hint="Close it there first, or connect to that process as a client, or open another directory.",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
