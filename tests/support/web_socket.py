"""A client of web sockets (RFC 6455), as small as tests need: texts from the server, and how it said goodbye."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator, Mapping


class WebSocketClient:
    """Raises `ConnectionError` with the status where the server does not want it."""

    def __init__(self, host: str, port: int, target: str, headers: Mapping[str, str], named: str | None = None) -> None:
        """In: `named`: how the request calls the server, if not by its address."""
        self._socket = socket.create_connection((host, port), timeout=60)
        lines = [
            f"GET {target} HTTP/1.1",
            f"host: {named or f'{host}:{port}'}",
            "upgrade: websocket",
            "connection: upgrade",
        ]
        lines += [f"sec-websocket-key: {base64.b64encode(os.urandom(16)).decode()}", "sec-websocket-version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._file = self._socket.makefile("rb")
        self.reason = ""
        status = self._file.readline().decode()
        while self._file.readline().strip():
            pass
        if " 101 " not in status:
            self._close()
            raise ConnectionError(status)

    def send(self, frame: bytes) -> None:
        """As it is: well formed or not."""
        self._socket.sendall(frame)

    def messages(self) -> Iterator[str | int]:
        """Texts, and at the end the code of the closing frame, whose text is `reason` then."""
        while True:
            first, length = self._file.read(2)
            if length == 126:
                (length,) = struct.unpack("!H", self._file.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._file.read(8))
            data = self._file.read(length)
            if first & 15 == 8:
                self.reason = data[2:].decode()
                yield struct.unpack("!H", data[:2])[0]
                return
            yield data.decode()

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._file.close()
        self._socket.close()
