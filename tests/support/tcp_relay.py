"""A relay of TCP connections, which a test can cut, and which can spoil what it carries."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class TcpRelay:
    """State: the connections that are open, in both directions, and whether the next data of the target loses a bit."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self.spoils = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """All connections, in the middle of whatever they carry."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._open |= {near, far}
                for source, target, answers in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._carry, args=(source, target, answers), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and self.spoils:
                    self.spoils, data = False, data[:-1] + bytes([data[-1] ^ 1])
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            self._open.discard(each)
