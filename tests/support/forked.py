"""Processes that tests kill, forked from one that has imported and compiled what they need: two seconds less each.

All tests of this process fork from the same one, which `multiprocessing` starts for the first of them.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import tempfile
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest


@cache
def forking() -> ForkServerContext:
    """Where processes are made."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["before_forks"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # it imports before it is told sys.path
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context


_MODULE = """
import os, runpy, sys
for stream, name in ((1, out), (2, errors)):
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", 1, closefd=False)
os.environ.update(environment)
os.chdir(folder)
sys.argv[1:], sys.path[:0] = arguments, [folder]
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    sys.stdout.flush()
"""


def run_module(
    module: str, *arguments: str, folder: Path, timeout_s: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As `python -m module` does it in this folder. Its output comes when it has ended."""
    with tempfile.TemporaryDirectory() as written:
        out, errors = Path(written, "out"), Path(written, "errors")
        names = {"out": str(out), "errors": str(errors), "environment": environment, "folder": str(folder)}
        program = {**names, "module": module, "arguments": arguments}
        process = forking().Process(target=exec, args=(_MODULE, program))
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), errors.read_text())


def run_forked(program: str, **names: str) -> int:
    """Runs the text of a program, which finds these names. Gives its exit code, below zero the signal that ended it."""
    process = forking().Process(target=exec, args=(program, names), daemon=True)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode
