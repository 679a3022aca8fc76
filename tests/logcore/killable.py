"""Processes that tests kill and that run a program of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from forked import forking

_PROGRAM: Final = """
import os, runpy, sys
from millstream.logcore import failpoints
for number, path in ((1, output), (2, output + ".errors")):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
os.sync = lambda: None  # the disks of the whole machine are not the point
failpoints.arm(failpoint)
sys.argv[:] = arguments
runpy.run_path(arguments[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Killable:
    """A process that runs a program of Python, and the file that takes what it prints."""

    process: BaseProcess
    output: Path

    def printed(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def errors(self) -> str:
        errors = self.output.with_name(self.output.name + ".errors")
        return errors.read_text() if errors.exists() else ""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.join()

    def terminate(self) -> int:
        """SIGTERM; the exit code once it is gone."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code: below zero the signal that has ended it."""
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        return code


def start(program: Path, arguments: Sequence[str], output: Path, failpoint: str = "") -> Killable:
    """In: `output`: a file that is not there yet, or may go."""
    output.unlink(missing_ok=True)
    names = {"arguments": [str(program), *arguments], "output": str(output), "failpoint": failpoint}
    process = forking().Process(target=exec, args=(_PROGRAM, names), daemon=True)
    process.start()
    return Killable(process, output)
