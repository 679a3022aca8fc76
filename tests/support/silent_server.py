"""A system that takes connections and never answers, as a machine that hangs does."""

from __future__ import annotations

import socket
import threading
from typing import Self


class SilentServer:
    """State: the connections that were taken. `url`: of HTTP; `let_go` breaks all of them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def taken(self) -> int:
        return len(self._open)

    def let_go(self) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()
        for each in self._open:
            each.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.let_go()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                self._open.append(self._listener.accept()[0])
            except TimeoutError:
                continue
