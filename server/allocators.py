"""Which allocators a server's process uses. It lives for months, while threads come and go with queries and clients.

Arrow's own choice, mimalloc, gives each thread pages of its own. Those of a thread that has ended are kept for whoever
takes them over, and hardly anybody does: ordinary clients left 5 MB a minute behind, of which Arrow itself used 0.2 MB
(`MemoryPool.release_unused` gave nothing back). jemalloc's arenas are shared by threads, and it gives back what is
unused for a while. With glibc's allocator memory was as flat, but a row cost a fifth more.

Everything else allocates from glibc, which spreads the memory of threads over eight arenas for each core. Few arenas
are filled again by whoever comes next.
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
