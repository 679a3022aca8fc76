"""Which worker of pytest-xdist runs which tests: a file at a time, all that start Spark one after the other, and all of
the web console in one place, where they share a server and a browser.

Spark is a Java process and about eight of Python. Four of them beside each other starve on two cores: their batches
then take minutes, and Spark gives workers up that do not call it within ten seconds.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler.loadfile import LoadFileScheduling


class OneSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if runs_spark(file):
            return "spark"
        return "console" if file.startswith("tests/console/") else file


def runs_spark(file: str) -> bool:
    """Whether a file's name says that its tests start Spark."""
    return "spark" in PurePosixPath(file).name
