"""Watches that the data folder stays where it is while a server runs.

The operating system lets a process go on writing to files that were deleted. Without this watch a server whose folder
was removed, moved or replaced would acknowledge records that no start can find.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_EVERY_S: Final = 1.0


class FolderWatch:
    """Looks at the log's lock file every second until it is closed. State: a thread, once started."""

    def __init__(self, log_folder: Path, lost: Callable[[str], None], *, every_s: float = _EVERY_S) -> None:
        """In: `log_folder`: of a log that is open; `lost`: called once, on another thread, with the reason if the
        folder is not there any more, or is another one."""
        self._file = log_folder / "lock"
        self._lost = lost
        self._every_s = every_s
        self._own = os.stat(self._file)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millstream-folder-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """May be called from `lost`."""
        self._closed.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            if self._is_lost():
                self._lost(
                    f"the data folder {self._file.parent.parent} was deleted, moved or replaced while this process "
                    "used it; put it back, or restore a backup, and start again"
                )
                return

    def _is_lost(self) -> bool:
        """False if this cannot be known now, such as on a network file system that does not answer."""
        try:
            return not os.path.samestat(os.stat(self._file), self._own)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
