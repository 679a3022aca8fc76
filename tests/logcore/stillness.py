"""A moment at which a log's files do not change, for tests that copy them as a crash would leave them.

After a commit its markers become durable in the background. A process that is killed stops all of its threads at once;
a copy that takes a while would have some files of before a sync and some of after it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from millstream.logcore.log import Log
from millstream.logcore.replication.node.lone_node import LoneNode


@contextmanager
def still(log: Log) -> Generator[None]:
    node = log.node._node
    assert isinstance(node, LoneNode)
    while True:
        with node._turn:  # nothing is appended, and no sync begins
            if not any(syncing.under_way for syncing in node._syncing.values()):
                yield
                return
        time.sleep(0.001)
