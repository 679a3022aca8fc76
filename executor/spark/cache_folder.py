"""Where a host keeps the caches of buckets: a folder that nobody else can write to.

A cache is DuckDB's file, and what is in it is believed. In a folder for all users anybody could put a file there whose
name he knows, so the folder must belong to this process's user, and be closed to the others.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from ..errors import UnsafeFolder


def cache_folder(place: str) -> Path:
    """The folder, made where it is not there. In: `place`: an absolute path, or a name in this host's local folder.

    Raises `UnsafeFolder` where somebody else could write to it.
    """
    path = Path(place)
    if path.is_absolute():  # of the data directory, which is the server's
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
    base = _local_folder() / f"millstream-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(base)
    path = base / place
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _local_folder() -> Path:
    """Where cluster managers want what an executor writes (the first of several disks), else the temporary folder."""
    for variable in ("LOCAL_DIRS", "SPARK_LOCAL_DIRS"):  # of YARN; of Spark's own workers and Kubernetes
        if named := os.environ.get(variable):
            return Path(named.split(",")[0])
    return Path(tempfile.gettempdir())


def _check_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeFolder(
            f"{folder} is not a folder of this user alone, so caches of state are not kept there",
            hint="Remove it, or name another place with spark.local.dir; SET 'millstream.spark.cache'='memory'; "
            "keeps no caches.",
        )
