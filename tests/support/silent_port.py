"""A port whose connections are taken, and never answered: what a frozen process, or a network that loses all, is."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class SilentPort:
    """State: the connections that are open. `called`: whether somebody has connected."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.called = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                self.called.set()
