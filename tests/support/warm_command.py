"""`python -m millstream …` as a process of its own, forked from one that has imported everything already.

Importing a server takes 1.6 s of CPU, and what its first statement and its first row load takes 1.3 s more; a run of
all tests starts hundreds. The process that is forked has done both: it has one thread, and no file and no connection of
Millstream's. What is forked gets its own arguments, environment, folder and standard streams, is a child of the process
that asked, and ends as the command always does.

A command that this cannot give what it needs starts in the ordinary way: not on Linux, with `preexec_fn`, or with
another value of a variable that only a new process reads. `tests/server/test_service.py` starts some servers so.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_COMMAND: Final = (sys.executable, "-m", "millstream")
_OF_A_NEW_PROCESS: Final = ("PYTHON", "ARROW_", "MALLOC_", "GLIBC_", "NUMBA_", "LD_", "LC_", "LANG")
_IMPORTED: Final = (
    "kio.schema.init_producer_id.v5",  # a query's first message to the log; it loads Hypothesis, where it is installed
    "kio.serial",
    "millstream.executor.queries.query",
    "millstream.executor.spark.alignment",
    "millstream.repl.runner",
    "millstream.server.client",
    "millstream.server.service",
)
_PR_SET_CHILD_SUBREAPER: Final = 36
_MESSAGE_BYTES: Final = 200_000
_FORKED_WELL: Final = {"jemalloc_bg_thd"}  # jemalloc sees to its thread in what is forked


class WarmPopen(subprocess.Popen[str]):
    """`subprocess.Popen` for text, with one difference: `python -m millstream …` is forked."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *rest: Any,
    ) -> None:  # fmt: skip
        pipes = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        environment = os.environ if env is None else env
        if preexec_fn is not None or pass_fds or not _can_fork(args, environment):
            given = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            super()._execute_child(*given, *pipes, *rest)  # pyrefly: ignore[missing-attribute]
            return
        streams = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = _template().fork(args[len(_COMMAND) :], environment, cwd, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # pyrefly: ignore[missing-attribute]


def run(
    command: Sequence[str], *, input: str | None = None, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured text, its exit code not checked."""
    pipe = subprocess.PIPE
    with WarmPopen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def fork(arguments: Sequence[str], environment: Mapping[str, str], folder: Any, streams: list[int]) -> int | None:
    """As `_Template.fork`; None where `millstream` with this environment has to be a new process."""
    if not _can_fork(_COMMAND, environment):
        return None
    return _template().fork(arguments, environment, folder, streams)


def _can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    same = _of_a_new_process(environment) == _of_a_new_process(os.environ)
    return sys.platform == "linux" and tuple(command[: len(_COMMAND)]) == _COMMAND and same


def _of_a_new_process(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_A_NEW_PROCESS)}


class _Template:
    """The process that is forked. It ends with this one."""

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(asked.fileno())], pass_fds=[asked.fileno()], stdin=subprocess.DEVNULL
        )
        asked.close()
        atexit.register(self._end)

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Any, streams: list[int]) -> int:
        """The number of the new process, a child of this one. In: `streams`: the standard ones, and, if there is a
        fourth, one that is at its end when the process is to be killed."""
        names = {"arguments": [*arguments], "environment": {**environment}, "folder": str(folder or Path.cwd())}
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._asking, [json.dumps(names).encode()], streams)
                answer = self._asking.recv(_MESSAGE_BYTES)
            finally:
                _adopt_orphans(False)
        assert answer, "the process that servers are forked from has ended"
        return int(answer)

    def _end(self) -> None:
        self._asking.close()
        self._process.wait()


_templates: list[_Template] = []
_making = threading.Lock()


def _template() -> _Template:
    with _making:
        if not _templates:
            _templates.append(_Template())
        return _templates[0]


def _adopt_orphans(adopted: bool) -> None:
    """Whether the children of a descendant that ends become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopted), 0, 0, 0)


# In the process that is forked


def _main(descriptor: int) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread
    from millstream.cli import end_without_dismantling

    end_without_dismantling()
    from millstream.server.allocators import choose_allocators

    choose_allocators()  # as the command does it, before anybody imports pyarrow
    for module in _IMPORTED:
        importlib.import_module(module)
    _use_once()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends those who ask
    _serve(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.unfreeze()
    runpy.run_module("millstream", run_name="__main__", alter_sys=True)


def _use_once() -> None:
    """What a server loads at its first use: the parser's table, numba's registries and the compiled loops, pandas."""
    from millstream.executor.formats import warm_up
    from millstream.sql.parser import parse

    parse("SHOW STREAMS;")
    warm_up()
    with suppress(ImportError):  # pyarrow imports it, where it is installed, to make its first array
        importlib.import_module("pandas")


def _serve(asked: socket.socket) -> None:
    """Returns in the processes that are asked for."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 4)
        if not message:
            os._exit(0)
        assert _threads() - _FORKED_WELL == {str(os.getpid())}, f"cannot be forked with threads: {_threads()}"
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            # Whose parent ends has the first process for a parent, which adopts it.
            child = os.fork()
            if child == 0:
                asked.close()
                os.close(told)
                os.close(tell)
                _become(streams, **json.loads(message))
                return
            os.write(tell, str(child).encode())
            os._exit(0)
        for descriptor in (*streams, tell):
            os.close(descriptor)
        child = os.read(told, 100)
        os.close(told)
        os.waitpid(between, 0)
        asked.send(child)


def _threads() -> set[str]:
    """The number of the first one, the names of all others."""
    numbers = os.listdir("/proc/self/task")
    names = {number: Path("/proc/self/task", number, "comm").read_text().strip() for number in numbers}
    return {number if number == str(os.getpid()) else name for number, name in names.items()}


def _become(streams: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    if len(streams) > len((0, 1, 2)):
        threading.Thread(target=_die_with, args=(streams.pop(),), daemon=True).start()
    for own, given in enumerate(streams):
        os.dup2(given, own)
        os.close(given)
    for own, (name, mode, errors) in enumerate(
        (("stdin", "r", "strict"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"))
    ):
        opened = open(own, mode, 1 if own == 2 or os.isatty(own) else -1, errors=errors, closefd=False)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv[1:] = arguments
    sys.path[0] = folder
    from millstream.logcore import failpoints

    failpoints.arm(environment.get("MILLSTREAM_FP", ""))


def _die_with(leash: int) -> None:
    os.read(leash, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
