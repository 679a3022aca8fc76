"""Which worker of pytest-xdist runs which tests: a file at a time, all that start Spark one after the other, and in one
place what shares a process: the web console a server and a browser, clients of brokers an Apache Kafka.

Spark is a Java process and about eight of Python. Four of them beside each other starve on two cores: their batches
then take minutes, and Spark gives workers up that do not call it within ten seconds.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

_SHARING: Final = ("tests/console/", "tests/external/", "tests/logcore/clients/")


class OneSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if runs_spark(file):
            return "spark"
        return next((folder for folder in _SHARING if file.startswith(folder)), file)

    def remove_node(self, node: WorkerController) -> str | None:
        """Gives the test that ended its worker, which counts as done, and hands out again what that worker had left.

        xdist's own method hands out all that the worker ever had. A worker that is given a file without a test that is
        left never answers, and nobody asks it again: the run waits for ever. And the test that ended one worker would
        end each that takes its place.
        """
        units = self.assigned_work.pop(node)
        crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
        if crashed is None:
            return None
        for scope, unit in units.items():
            if crashed in unit:
                unit[crashed] = True
            if not all(unit.values()):
                self.workqueue[scope] = unit
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """A worker begins a test when it knows which one comes after it: one test that it was given never ends."""
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """A worker may have ended unheard. What it was given is handed out again as soon as that is known."""
        with suppress(OSError):
            super()._assign_work_unit(node)


def runs_spark(file: str) -> bool:
    """Whether a file's name says that its tests start Spark."""
    return "spark" in PurePosixPath(file).name
