"""Snapshots of all nodes of a server's log, at one moment, read over HTTP."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.logcore.backup.capture import SnapshotFile
    from millstream.server.client import HttpClient

_PATH: Final = "/v1/snapshots"
_HOLD_S: Final = 10.0
_TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class RemoteSnapshot:
    """A `NodeSnapshot`. `held_ms`: how long writes to the node were blocked."""

    client: HttpClient
    id: str
    held_ms: int
    taken: tuple[SnapshotFile, ...]

    def files(self) -> Sequence[SnapshotFile]:
        return self.taken

    def hashes(self, path: str) -> Sequence[str]:
        return json.loads(self.client.get(f"{_PATH}/{self.id}/hashes?{_query(path=path)}"))["hashes"]

    def chunk(self, path: str, number: int) -> bytes:
        return self.client.get(f"{_PATH}/{self.id}/chunk?{_query(path=path, number=number)}")

    def release(self) -> bool:
        return bool(self.client.post(f"{_PATH}/{self.id}/release", {})["held"])

    def remove(self) -> None:
        self.client.post(f"{_PATH}/{self.id}/remove", {})


@contextlib.contextmanager
def snapshots_of(url: str) -> Generator[dict[int, RemoteSnapshot]]:
    """The snapshots by node; removed at the end. In: `url`: of any node, with user and password.

    Raises `BackupFailed` if the nodes could not be held at the same moment, `RemoteError`, `ServerUnreachable`.
    """
    clients = _clients(url)
    taken = _at_one_moment(clients)
    try:
        yield taken
    finally:
        for snapshot in taken.values():
            with contextlib.suppress(MillstreamError):  # it expires by itself
                snapshot.remove()


def _clients(url: str) -> dict[int, HttpClient]:
    """Clients of all nodes: the first node has the addresses of the others; all use the same user."""
    from millstream.logcore.backup.store import BackupFailed
    from millstream.server.client import HttpClient

    first = HttpClient(url)
    found = json.loads(first.get(_PATH))
    clients = {int(found["node"]): first}
    for node, address in found["nodes"].items():
        if int(node) not in clients:
            if address is None:
                raise BackupFailed(f"node {node} says no address for HTTP", hint="Is it running?")
            clients[int(node)] = HttpClient(_with_address(url, address))
    return clients


def _at_one_moment(clients: Mapping[int, HttpClient]) -> dict[int, RemoteSnapshot]:
    """Holds all nodes until the last one has its snapshot. That takes milliseconds, so a second attempt is rarely
    needed."""
    from millstream.logcore.backup.store import BackupFailed

    alone = len(clients) == 1
    for _ in range(_TRIES_MAX):
        with ThreadPoolExecutor(len(clients)) as pool:
            asked = {node: pool.submit(_take, client, 0.0 if alone else _HOLD_S) for node, client in clients.items()}
            failures = [each.exception() for each in asked.values()]
            taken = {node: each.result() for node, each in asked.items() if each.exception() is None}
            held = [alone or each for each in pool.map(_release, taken.values())]
        if all(held) and not any(failures):
            return taken
        for snapshot in taken.values():
            snapshot.remove()
        for failure in failures:
            if failure is not None:
                raise failure
    raise BackupFailed(
        f"the nodes could not all be held within {_HOLD_S:.0f} s", hint="They may be busy: run the backup again."
    )


def _take(client: HttpClient, hold_s: float) -> RemoteSnapshot:
    from millstream.logcore.backup.capture import SnapshotFile

    found: dict[str, Any] = client.post(_PATH, {"holdSeconds": hold_s})
    return RemoteSnapshot(client, found["id"], found["heldMs"], tuple(SnapshotFile(*file) for file in found["files"]))


def _release(snapshot: RemoteSnapshot) -> bool:
    return snapshot.release()


def _query(**fields: object) -> str:
    return urllib.parse.urlencode(fields)


def _with_address(url: str, address: str) -> str:
    """
    >>> _with_address("https://ada:secret@one:8088", "two:8089")
    'https://ada:secret@two:8089'
    """
    parsed = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    identity, at, _ = parsed.netloc.rpartition("@")
    return urllib.parse.urlunsplit(parsed._replace(netloc=f"{identity}{at}{address}"))
