"""A wire between a client and a server that can be cut: for clients that die, and answers that are lost."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # which request, its version, its number
_ANSWER = struct.Struct(">i")  # the number of the request

PRODUCE = 0


class Relay:
    """Listens at a port and passes frames on. State: the connections, and the answer that is to be lost."""

    def __init__(self, port: int = 0) -> None:
        """In: `port`: to listen at; 0 for any."""
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._target = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._loses: int | None = None  # this request's answer
        self._doomed: tuple[socket.socket, int] | None = None
        self.lost = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, target_port: int) -> None:
        self._target = target_port
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, request: int) -> None:
        """The answer to the next request of this kind does not arrive: the connection breaks instead."""
        self._loses = request

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
            threading.Thread(target=self._pass_requests, args=(pair,), daemon=True).start()
            threading.Thread(target=self._pass_answers, args=(pair,), daemon=True).start()

    def _pass_requests(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with suppress(OSError):
            for frame in _frames(client):
                kind, _, number = _REQUEST.unpack_from(frame, _LENGTH.size)
                if kind == self._loses:
                    self._loses, self._doomed = None, (server, number)
                server.sendall(frame)
        self._break(pair)

    def _pass_answers(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with suppress(OSError):
            for frame in _frames(server):
                if self._doomed == (server, *_ANSWER.unpack_from(frame, _LENGTH.size)):
                    self.lost.set()
                    break
                client.sendall(frame)
        self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Each with its length in front."""
    with source.makefile("rb") as stream:
        while len(prefix := stream.read(_LENGTH.size)) == _LENGTH.size:
            yield prefix + stream.read(*_LENGTH.unpack(prefix))
