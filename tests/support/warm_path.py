"""A folder for PATH in which `millstream` is forked from a process that has imported everything (`warm_command.py`).

What a shell starts is a small program, which asks for the fork, hands on SIGTERM and SIGINT, and ends as the fork ends.
A killed one takes the fork with it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import warm_command

_MESSAGE_BYTES: Final = 200_000
_PROGRAM: Final = """#!{python} -IS
import _signal, json, os, socket, sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
    asking.connect({address!r})
    leash, held = os.pipe()
    names = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
    socket.send_fds(asking, [json.dumps(names).encode()], [0, 1, 2, leash])
    os.close(leash)
    number = int(asking.recv(100))
    if number:
        for signal in (_signal.SIGTERM, _signal.SIGINT):
            _signal.signal(signal, lambda signal, frame: os.kill(number, signal))
        code = int(asking.recv(100))
        if code < 0:
            _signal.signal(-code, _signal.SIG_DFL) if code != -9 else None
            os.kill(os.getpid(), -code)
        os._exit(code)
os.execv({python!r}, [{python!r}, "-m", "millstream", *sys.argv[1:]])
"""


class WarmPath:
    """In: an empty folder, which gets the program. A context manager; what runs at its end goes on, unasked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        address = str(folder / "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen(100)
        program = folder / "millstream"
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._listener.accept()
            except OSError:
                return  # it is closed
            threading.Thread(target=self._fork, args=(asked,), daemon=True).start()

    def _fork(self, asked: socket.socket) -> None:
        with asked:
            message, streams, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES, 4)
            if not message:
                return  # it was killed at once
            number = warm_command.fork(**json.loads(message), streams=streams)
            for stream in streams:
                os.close(stream)
            asked.send(b"%d" % (number or 0))
            if number is not None:
                code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
                with suppress(BrokenPipeError):  # the program was killed
                    asked.send(b"%d" % code)
