"""Which worker of pytest-xdist runs which tests: a file at a time, all that start Spark one after the other, and in one
place what shares a process: the web console a server and a browser, clients of brokers an Apache Kafka.

Spark is a Java process and about eight of Python. Four of them beside each other starve on two cores: their batches
then take minutes, and Spark gives workers up that do not call it within ten seconds.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from xdist.scheduler.loadfile import LoadFileScheduling

_SHARING: Final = ("tests/console/", "tests/external/", "tests/logcore/clients/")


class OneSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if runs_spark(file):
            return "spark"
        return next((folder for folder in _SHARING if file.startswith(folder)), file)


def runs_spark(file: str) -> bool:
    """Whether a file's name says that its tests start Spark."""
    return "spark" in PurePosixPath(file).name
