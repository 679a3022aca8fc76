"""A wire between a client and a server that can be cut: for clients that die, and answers that are lost."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Relay:
    """Listens at a port of its own and passes bytes on. State: the connections, and whether answers still come."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._target = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._loses_answers = False
        self.lost = threading.Event()

    def start(self, target_port: int) -> None:
        self._target = target_port
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self) -> None:
        """The next bytes from the server do not arrive: the connection breaks instead."""
        self.lost.clear()
        self._loses_answers = True

    def cut(self) -> None:
        """For good: the client seems dead to the server, and the server to the client."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in list(self._pairs):
            self._break(pair)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            pair = (client, server)
            self._pairs.append(pair)
            threading.Thread(target=self._pass, args=(client, server, pair, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, pair, True), daemon=True).start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket], answers: bool
    ) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                if answers and self._loses_answers:
                    self._loses_answers = False
                    self.lost.set()
                    break
                sink.sendall(content)
        self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
