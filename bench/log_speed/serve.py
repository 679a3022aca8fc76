"""Our log behind its Kafka listener, in a process of its own: `python -m bench.log_speed.serve FOLDER always|never`.

Prints the address, and ends when its input does.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import structlog

from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer

Sync = Literal["always", "never"]


@contextmanager
def serving(folder: str | os.PathLike[str], sync: Sync) -> Generator[tuple[Log, str]]:
    """The log, and the address that clients reach it at."""
    with open_log(folder, sync=sync) as log, LogServer(log, port=0) as server:
        yield log, server.address


def main(folder: str, sync: Sync) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with serving(folder, sync) as (_, address):
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], "never" if sys.argv[2] == "never" else "always")
