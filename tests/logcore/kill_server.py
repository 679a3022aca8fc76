"""A program that tests kill: a log that other processes write to over TCP.

Run with a folder and a port. It prints a line once clients can connect, and ends by being killed. On SIGTERM it closes
the log while clients still use it, which is the hardest way.
"""

from __future__ import annotations

import random
import signal
import sys
import threading

from millstream.logcore import failpoints
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer

TOPIC = "t"
PARTITIONS = 3


def run(folder: str, port: int) -> None:
    log = open_log(folder)
    if log.topic(TOPIC) is None:
        log.create_topic(TOPIC, PARTITIONS, {"segment.bytes": "100000"})
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    LogServer(log, port=port).start()
    sys.stdout.write("can connect\n")
    sys.stdout.flush()
    terminated.wait()
    slow = f"1:sleep({random.randint(20, 300)})"
    failpoints.arm(f"replica.before_sync:{slow},replica.before_checkpoint:{slow}")
    log.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
