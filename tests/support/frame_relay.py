"""A relay between Kafka clients and a broker, which goes away at a chosen request, or at its answer."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final

_HEAD: Final = struct.Struct(">ihhi")  # length, API key, version, correlation id
_ANSWER: Final = struct.Struct(">ii")  # length, correlation id


class FrameRelay:
    """State: whether it is away, and which API's next request or answer makes it go. While it is away, nothing passes
    and nobody is let in."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.gone = threading.Event()
        self._target = ("127.0.0.1", 0)
        self._loses_question_of: int | None = None
        self._arms: tuple[int, int] | None = (
            None  # an answer of the first makes the next question of the second be lost
        )
        self._loses_answer_of: int | None = None
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lead_to(self, port: int) -> None:
        self._target = ("127.0.0.1", port)

    def lose_question_of(self, api_key: int, *, after: int | None = None) -> None:
        """In: `after`: an answer of this API comes before."""
        if after is None:
            self._loses_question_of = api_key
        else:
            self._arms = (after, api_key)

    def lose_answer_of(self, api_key: int) -> None:
        self._loses_answer_of = api_key

    def come_back(self) -> None:
        self.gone.clear()

    def go(self) -> None:
        self._loses_question_of = self._loses_answer_of = None
        self.gone.set()
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def close(self) -> None:
        self.go()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.gone.is_set():
                    _shut(near)
                    continue
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._target)
        except OSError:
            _shut(near)
            return
        self._ends += [near, far]
        asked: dict[int, int] = {}  # API keys by correlation id
        for passing, ends in ((self._ask, (near, far)), (self._answer, (far, near))):
            threading.Thread(target=passing, args=(*ends, asked), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = _exactly(near, _HEAD.size)
                length, api_key, _, correlation = _HEAD.unpack(head)
                body = _exactly(near, length + 4 - _HEAD.size)
                if api_key == self._loses_question_of:
                    self.go()
                    return
                asked[correlation] = api_key
                far.sendall(head + body)
        _shut(far)

    def _answer(self, far: socket.socket, near: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError, EOFError):
            while True:
                head = _exactly(far, _ANSWER.size)
                length, correlation = _ANSWER.unpack(head)
                body = _exactly(far, length + 4 - _ANSWER.size)
                api_key = asked.pop(correlation)
                if api_key == self._loses_answer_of:
                    self.go()
                    return
                if self._arms is not None and api_key == self._arms[0]:
                    self._loses_question_of, self._arms = self._arms[1], None
                near.sendall(head + body)
        _shut(near)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        data = source.recv(count - len(found))
        if not data:
            raise EOFError
        found += data
    return bytes(found)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
