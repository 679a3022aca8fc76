"""The folder in which a host keeps the caches of buckets. No other user can write to it.

A cache is a DuckDB file, and the bucket trusts its content. In a shared folder any user could place a file under a
known name. So the folder must belong to this process's user, and other users must have no access.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from ..errors import UnsafeFolder


def cache_folder(place: str) -> Path:
    """The folder; creates it if necessary. In: `place`: an absolute path, or a name in this host's local folder.

    Raises `UnsafeFolder` if another user could write to it.
    """
    path = Path(place)
    if path.is_absolute():  # in the data directory, which belongs to the server
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
    base = _local_folder() / f"millstream-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(base)
    path = base / place
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _local_folder() -> Path:
    """The folder that the cluster manager gives to executors (the first of several), else the temporary folder."""
    for variable in ("LOCAL_DIRS", "SPARK_LOCAL_DIRS"):  # set by YARN; by Spark's own workers and Kubernetes
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
