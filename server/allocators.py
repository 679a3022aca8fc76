"""The memory allocators of a server process, which lives for months while threads of queries and clients come and go.

Arrow's default, mimalloc, gives each thread its own pages. Pages of ended threads are kept until another thread reuses
them, which rarely happens: ordinary clients leaked 5 MB a minute, of which Arrow itself used 0.2 MB
(`MemoryPool.release_unused` released nothing). jemalloc's arenas are shared by threads, and it releases memory that is
unused for a while. With glibc's allocator memory was as flat, but a row cost a fifth more.

Everything else is allocated from glibc, which spreads threads over eight arenas per core. With fewer arenas, freed
memory is reused by other threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

_ARROW: Final = "ARROW_DEFAULT_MEMORY_POOL"
_GLIBC: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
_M_ARENA_MAX: Final = -8  # of malloc.h
_ARENAS_MIN, _ARENAS_PER_CORE = 4, 2


def choose_allocators() -> None:
    """For the whole process, before anybody imports pyarrow or starts a thread. What the environment says goes first,
    and where there is no glibc nothing is changed: not every build of Arrow has jemalloc."""
    if platform.libc_ver()[0] != "glibc":
        return
    os.environ.setdefault(_ARROW, "jemalloc")
    if not any(name in os.environ for name in _GLIBC):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, arenas_max())


def arenas_max() -> int:
    return max(_ARENAS_MIN, _ARENAS_PER_CORE * (os.cpu_count() or 1))
