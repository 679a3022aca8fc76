"""How listeners accept connections while the process has no file descriptor left for one.

asyncio accepts as many connections at a time as its `backlog` says. If one fails for want of a descriptor, it tries the
others, too, and each of them begins to listen anew a second later: ever more attempts, each with a traceback. So
listeners take one connection at a time, and the kernel keeps the others waiting.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Final

import structlog

AT_A_TIME: Final = 1
"""The `backlog` of all listeners. Call `let_wait` with the server that it has made."""
_WAITING: Final = 128
_TOLD_EVERY_S: Final = 60.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_logger: Final = structlog.get_logger("millstream.logcore")


def let_wait(server: asyncio.Server, listener: str) -> None:
    """Connections wait in the kernel until they are accepted. Tells, at most once a minute, that none can be."""
    for listening in server.sockets:
        with listening.dup() as same:
            same.listen(_WAITING)
    told_s = -_TOLD_EVERY_S

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told_s
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif loop.time() >= told_s + _TOLD_EVERY_S:
            told_s = loop.time()
            hint = "A server needs a descriptor for each connection and each open file: raise the limit, ulimit -n."
            _logger.warning(
                "no connection is accepted: no file descriptor is left", listener=listener, hint=hint,
                error=str(error.strerror).lower(),
            )  # fmt: skip

    server.get_loop().set_exception_handler(tell)
