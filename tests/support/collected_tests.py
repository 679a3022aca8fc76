"""The process that `forked_workers.py` forks: a worker of pytest-xdist up to the moment when it knows all tests.

A worker that is forked runs execnet's and pytest-xdist's own code from its beginning. That asks for a configuration
and a session, and gets the ones that are here.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import _pytest.config
import pytest
from _pytest.main import Session, wrap_session
from _pytest.tmpdir import TempPathFactory
from forked_workers import STREAMS, until_ended

_FORKED_WELL: Final = {"jemalloc_bg_thd"}  # jemalloc sees to its threads in what is forked
_MESSAGE_BYTES: Final = 1000


def main(listening: int, leash: int, awaited: int) -> None:
    """In: the socket where workers are asked for, the pipe that is at its end when there will be no more, and a process
    that has to end before they begin, or 0."""
    arguments, sys.path[:] = (json.loads(given) for given in sys.argv[1:])
    del sys.argv[1:]
    with _one_thread():
        collected = _Collected(arguments)
    if collected.session.testsfailed:
        os._exit(1)
    if awaited:
        until_ended(awaited)
    line = _serve(socket.socket(fileno=listening), leash)
    collected.to_be_found()
    exec(line, {"__name__": "__main__"})
    atexit._run_exitfuncs()
    os._exit(0)  # taking two million objects apart, in pages that are shared until then, takes 4 s


@contextmanager
def _one_thread() -> Generator[None]:
    """What is imported meanwhile starts no thread."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENBLAS_NUM_THREADS", "1")
    yield
    patch.undo()


class _Collected:
    """A configuration and a session whose tests are collected, and what the collection reported."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.reports: list[pytest.CollectReport] = []
        self.config: Any = _pytest.config._prepareconfig([*arguments], [self])
        from xdist.remote import setup_config  # pytest wants to be the first who imports a plugin

        setup_config(self.config, None)
        self.config.workerinput = {"workerid": "template"}  # pyrefly: ignore[missing-attribute]
        self.config._do_configure()
        self.session = Session.from_config(self.config)
        self.config.hook.pytest_sessionstart(session=self.session)
        self.config.hook.pytest_collection(session=self.session)
        self._path, self._stdin, self._stdout = sys.path[:], sys.stdin, sys.stdout

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.reports.append(report)

    def to_be_found(self) -> None:
        """From now on pytest gives these to who asks for a configuration and a session."""
        self.config.pluginmanager.unregister(self)
        self.config._do_configure = lambda: None
        self.config.pluginmanager.register(_Run(self))
        pytest_config: Any = _pytest.config
        pytest_config._prepareconfig = lambda *_: self._taken_up()
        pytest_session: Any = Session
        pytest_session.from_config = lambda _: self.session

    def _taken_up(self) -> pytest.Config:
        """After execnet has taken the standard streams."""
        sys.path[:], sys.stdin, sys.stdout = self._path, self._stdin, self._stdout
        _capture_alone(self.config)
        return self.config


class _Run:
    """pytest's run of a worker, without the steps that are done already."""

    def __init__(self, collected: _Collected) -> None:
        self._collected = collected
        self._worker: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: Any) -> int:
        config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)
        plugins = config.pluginmanager.get_plugins()
        self._worker = next(plugin for plugin in plugins if type(plugin).__name__ == "WorkerInteractor")
        config.hook.pytest_sessionstart = self._worker.pytest_sessionstart
        return wrap_session(config, self._rest)

    def _rest(self, config: pytest.Config, session: Session) -> int | None:
        self._worker.pytest_collection()
        for report in self._collected.reports:
            self._worker.pytest_collectreport(report)
        self._worker.pytest_collection_finish(session)
        config.hook.pytest_runtestloop(session=session)
        return pytest.ExitCode.TESTS_FAILED if session.testsfailed else None


def _capture_alone(config: pytest.Config) -> None:
    """Captured output comes into files of this process, and goes back to its own streams."""
    manager: Any = config.pluginmanager.getplugin("capturemanager")
    streams = manager._global_capturing
    for stream in (streams.out, streams.err) if streams else ():
        if hasattr(stream, "targetfd_save"):
            os.dup2(stream.targetfd, stream.targetfd_save, inheritable=False)
            with TemporaryFile(buffering=0) as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno(), inheritable=False)


def _serve(listening: socket.socket, leash: int) -> str:
    """Returns in the processes that are asked for, with the line that they are to run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it comes to the one that starts the workers, too
    gc.freeze()
    workers: dict[int, int] = {}  # what tells that one has ended, and its number
    while leash not in (ready := select.select([listening, leash, *workers], [], [])[0]):
        for ended in workers.keys() & ready:
            os.waitpid(workers.pop(ended), 0)
            os.close(ended)
        if listening in ready:
            with listening.accept()[0] as asking:
                line, streams, _, _ = socket.recv_fds(asking, _MESSAGE_BYTES, STREAMS)
                assert (threads := _threads()) == {str(os.getpid())}, f"cannot be forked with threads: {threads}"
                worker = os.fork()
                if worker == 0:
                    for unused in (leash, listening.detach(), *workers):
                        os.close(unused)
                    _become(streams)
                    return line.decode()
                asking.send(str(worker).encode())
            for stream in streams:
                os.close(stream)
            workers[os.pidfd_open(worker)] = worker
    for worker in workers.values():
        os.waitpid(worker, 0)
    os._exit(0)


def _become(streams: Sequence[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for own, given in enumerate(streams):
        os.dup2(given, own)
        os.close(given)
    sys.stdin = open(0, closefd=False, encoding="utf-8")


def _threads() -> set[str]:
    """The number of the first one, the names of all others."""
    numbers = os.listdir("/proc/self/task")
    names = {number: Path("/proc/self/task", number, "comm").read_text().strip() for number in numbers}
    return {number if number == str(os.getpid()) else name for number, name in names.items()} - _FORKED_WELL
