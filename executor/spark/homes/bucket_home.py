"""The home of buckets in this process, and the way to the homes in other processes."""

from __future__ import annotations

import contextlib
import functools
import pickle
import socket
import threading
import time
import traceback
from dataclasses import dataclass, replace

import structlog

from ..bucket import Report
from ..spec import RunSpec
from .home_connection import HomeConnection, HomeLost, HomeUnreachable
from .known_homes import KnownHomes
from .open_buckets import BucketShare, OpenBuckets

log = structlog.get_logger("millstream.queries")

ACCEPT_AGAIN_S = 1.0
UNREACHABLE_S = 600.0
"""For how long a worker does not try to reach a host to which there was no way. Behind a firewall each try costs
`CONNECT_S`, and a bucket moves to whichever host has its task."""


@dataclass(frozen=True, slots=True)
class _Leave:
    """Asks a home to close a bucket, which moves to the worker that asks."""

    query_id: str
    bucket: int


class ShareFailed(Exception):
    """A home could not do what it was asked for. The text is the error there with its traceback, so `spark_trouble.py`
    finds the cause in it as in any task's error."""


class BucketHome:
    """Lets the other workers of an application apply shares in this process.

    In: `host`: the name or number under which other workers reach this one. `secret`: of the application.
    """

    def __init__(self, buckets: OpenBuckets, host: str, secret: bytes) -> None:
        self._buckets = buckets
        self._secret = secret
        self._closing = threading.Event()
        self._listening = socket.create_server((host, 0), family=_family_of(host))
        self.address = f"{host}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, name="spark-home", daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closing alone does not end `accept` in the other thread
        self._listening.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connected, _ = self._listening.accept()
            except OSError:  # it was closed, or this process has too many open files at the moment
                self._closing.wait(ACCEPT_AGAIN_S)
                continue
            threading.Thread(target=self._serve, args=(connected,), name="spark-home-of", daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        """Answers one worker until that worker ends."""
        with contextlib.suppress(HomeLost):
            connection = HomeConnection.accepted(connected, self.address, self._secret)
            with contextlib.closing(connection):
                while True:
                    connection.send(self._answer(_received(connection)))

    def _answer(self, request: BucketShare | _Leave) -> bytes:
        try:
            if isinstance(request, _Leave):
                return pickle.dumps(self._buckets.leave(request.query_id, request.bucket))
            return pickle.dumps(self._buckets.apply(request))
        except Exception:
            return pickle.dumps(traceback.format_exc())


class Homes:
    """Applies shares, each in the home of its bucket. For the one thread of a worker that runs tasks."""

    def __init__(self) -> None:
        self._buckets = OpenBuckets()
        self._own: dict[str, BucketHome] = {}  # by the secret of the application
        self._others: dict[str, HomeConnection] = {}  # by address
        self._unreachable: dict[str, float] = {}  # by host: when, on the monotonic clock, to try again

    def apply(self, share: BucketShare, known: KnownHomes) -> Report:
        """Out: the report names the home. Raises `ShareFailed`, and the errors of `BucketRuntime.apply`."""
        own = self._address(share)
        home = known.addresses.get(share.bucket, own)
        if home != own:
            stays = known.home_of(share.bucket, share.batch.number, own) == home
            try:
                report = self._ask(home, share.spec, share if stays else _Leave(share.spec.query_id, share.bucket))
            except HomeLost as error:
                why = str(error)
            else:
                if report is not None:
                    return replace(report, home=home)
                why = "it has more buckets than this worker"
            log.info("bucket has a new home", bucket=share.bucket, before=home, after=own, why=why)
        return replace(self._buckets.apply(share), home=own)

    def close(self) -> None:
        """Closes this process's buckets and all connections. Spark ends workers without calling it."""
        for connection in self._others.values():
            connection.close()
        for home in self._own.values():
            home.close()
        self._buckets.close()

    def _address(self, share: BucketShare) -> str:
        """The address of this process as a home. Empty if the bucket has no use for a home."""
        spec = share.spec
        if not spec.home_secret or not spec.stages.subplan_of(share.bucket).stateful:
            return ""
        if spec.home_secret not in self._own:
            host = address_towards(spec.driver_host)
            self._own[spec.home_secret] = BucketHome(self._buckets, host, spec.home_secret.encode())
        return self._own[spec.home_secret].address

    def _ask(self, home: str, spec: RunSpec, request: BucketShare | _Leave) -> Report | None:
        """What a home answers: to `_Leave`, None. Raises `HomeLost` and `ShareFailed`."""
        connection = self._others.pop(home, None) or self._connected(home, spec.home_secret.encode())
        try:
            _send(connection, request)
            answer = pickle.loads(connection.receive())
        except BaseException:
            connection.close()
            raise
        self._others[home] = connection
        if isinstance(answer, str):
            raise ShareFailed(answer)
        return answer

    def _connected(self, home: str, secret: bytes) -> HomeConnection:
        """Raises `HomeLost`; without a try if there was no way to that host a short time ago."""
        host = home.rpartition(":")[0]
        if time.monotonic() < self._unreachable.get(host, 0.0):
            raise HomeUnreachable(f"there was no way to {host}")
        try:
            return HomeConnection.to(home, secret)
        except HomeUnreachable:
            self._unreachable[host] = time.monotonic() + UNREACHABLE_S
            raise


@functools.cache
def address_towards(host: str) -> str:
    """The number of this host in the network through which it reaches `host`. Sends nothing.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as towards:
        towards.connect(address)
        return str(towards.getsockname()[0])


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _send(connection: HomeConnection, request: BucketShare | _Leave) -> None:
    """A request, and behind it the pieces of a share."""
    pieces = request.pieces if isinstance(request, BucketShare) else ()
    head = replace(request, pieces=()) if isinstance(request, BucketShare) and pieces else request
    connection.send(pickle.dumps((head, len(pieces))))
    for piece in pieces:
        connection.send(piece)


def _received(connection: HomeConnection) -> BucketShare | _Leave:
    request, count = pickle.loads(connection.receive())
    pieces = [connection.receive() for _ in range(count)]
    return replace(request, pieces=pieces) if pieces else request
