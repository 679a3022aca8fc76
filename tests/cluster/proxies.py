"""Wires between nodes where namespaces are not allowed: each ordered pair of nodes has a port of its own.

A wire that is cut takes connections and bytes, and passes nothing on until it is mended: like a network that drops
packets, while both ends still send them again. Clients reach the nodes directly.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_CHUNK: Final = 1 << 16


class Wire:
    """From one node to another. State: which of the two directions are cut."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._flows = {forward: threading.Event() for forward in (True, False)}
        for flows in self._flows.values():
            flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, forward: bool) -> None:
        self._flows[forward].clear()

    def mend(self, *, forward: bool) -> None:
        self._flows[forward].set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        for flows in self._flows.values():
            flows.wait()  # a connection needs both directions
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for source, target, forward in ((near, far, True), (far, near, False)):
            threading.Thread(target=self._pass, args=(source, target, forward), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, forward: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flows[forward].wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxies:
    """The wires of a cluster. Who connects is known by the port: nodes are told different addresses of each other."""

    def __init__(self, targets: Mapping[int, tuple[str, int]]) -> None:
        self._wires = {
            (source, target): Wire(address)
            for source in targets
            for target, address in targets.items()
            if source != target
        }

    def port(self, source: int, target: int) -> int:
        """Where `source` finds `target`."""
        return self._wires[source, target].port

    def cut(self, source: int, target: int) -> None:
        """What `source` sends to `target` does not arrive; the other way it does."""
        self._wires[source, target].cut(forward=True)
        self._wires[target, source].cut(forward=False)

    def mend(self, source: int, target: int) -> None:
        self._wires[source, target].mend(forward=True)
        self._wires[target, source].mend(forward=False)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
