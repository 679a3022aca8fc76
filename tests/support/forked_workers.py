"""Workers of pytest-xdist, forked from one process that has collected the tests already (`collected_tests.py`).

Each worker would import all modules and collect all tests by itself: 11 s of CPU and 800 MB, six times.

execnet starts a worker as `python -u -c LINE` and speaks with it over its standard streams. Here this file stands for
that Python: it hands its streams on to a process that is forked, and ends when that ends. Where there is none to
fork from, as after an error in the collection, it becomes an ordinary worker, which says what is wrong.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

STREAMS = 3
_COLLECTED_SECONDS, _ENDED_SECONDS = 600.0, 10.0
_TEMPLATE = "import sys; sys.path.insert(0, {!r}); import collected_tests; collected_tests.main({}, {}, {})"
AWAITED = "MILLSTREAM_TESTS_WAIT_FOR"  # the number of a process that has to end before the workers begin

# In the process that starts the workers


def fork_workers(config: Any, specs: Sequence[Any]) -> None:
    """In: what pytest-xdist tells `pytest_xdist_setupnodes`. Does nothing for a single worker, and elsewhere than on
    Linux."""
    awaited = int(os.environ.pop(AWAITED, 0))
    if len(specs) < 2 or sys.platform != "linux":
        return
    template = _Template([*map(str, config.invocation_params.args)], sys.path, awaited)
    config.add_cleanup(template.end)
    for spec in specs:
        spec.python = template.python()


class _Template:
    """The process that is forked. It ends with this one, or when it is told to."""

    def __init__(self, arguments: Sequence[str], path: Sequence[str], awaited: int) -> None:
        """In: what workers give to pytest, and their sys.path."""
        self.address = f"\0millstream-tests-{os.getpid()}-{id(self)}"  # in no folder: Linux
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self.address)
            listening.listen(100)
            leash, self._leash = os.pipe()
            code = _TEMPLATE.format(os.path.dirname(__file__), listening.fileno(), leash, awaited)
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", code, json.dumps([*arguments]), json.dumps([*path])],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[listening.fileno(), leash],
            )  # fmt: skip
            os.close(leash)

    def python(self) -> str:
        """What execnet starts instead of Python."""
        return f"{sys.executable} -S -E {__file__} {self.address[1:]}"

    def end(self) -> None:
        """Its workers have ended, or end now."""
        os.close(self._leash)
        try:
            self._process.wait(_ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


# In the process that execnet has started, and in the one that is forked


def until_ended(process: int) -> None:
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(process)], [], [])


def _ask(address: str, command: list[str]) -> None:
    worker = 0
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.settimeout(_COLLECTED_SECONDS)
        asking.connect("\0" + address)
        streams = array.array("i", range(STREAMS))
        asking.sendmsg([command[-1].encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        worker = int(asking.recv(100) or 0)
    if not worker:
        os.execv(sys.executable, [sys.executable, *command])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it comes to the worker, too
    for stream in range(STREAMS):
        os.close(stream)
    until_ended(worker)


if __name__ == "__main__":
    _ask(sys.argv[1], sys.argv[2:])
