"""The S3 clients of this process.

Arrow has one lock for all S3 clients: it cannot make a client while a request of another client is running. So a store
that does not respond delays the first request to every new store. Three rules limit this delay:

| rule | reason |
| --- | --- |
| clients are kept, one for equal settings | a restarted task makes no client |
| a task waits only some seconds for a new client, then reports why | the task can end, and shows the reason |
| a store that has not answered is not asked while a client is made | several such stores would never leave a gap |
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Final

from pyarrow import fs

from ..connector_errors import SystemUnavailable
from ..leaving import TASK_THREADS
from .file_store import StoreSettings

CONNECT_S: Final = 5
SILENCE_S: Final = 20
"""A request without any data for this time is aborted, and repeated once."""
_KEPT: Final = 64
_WAITS_S: Final = 3.0
_GAP_S: Final = 2.0 * SILENCE_S


class S3Client:
    """`files`: the library's object. State: whether the store answered the last request."""

    def __init__(self, files: fs.S3FileSystem, clients: S3Clients) -> None:
        self.files = files
        self._clients = clients
        self._silent = False

    @contextlib.contextmanager
    def request(self) -> Generator[fs.S3FileSystem]:
        """Wraps each request."""
        if self._silent:
            self._clients.wait_while_making()
        try:
            yield self.files
        except FileNotFoundError:
            raise
        except OSError:
            self._silent = True
            raise
        self._silent = False


class S3Clients:
    """Any thread may call any method. In: `make`: makes a client of the library. State: the clients by their settings,
    including those that are being made, and the number of the latter."""

    def __init__(self, make: Callable[[StoreSettings], fs.S3FileSystem]) -> None:
        self._make = make
        self._clients: dict[tuple[object, ...], Future[S3Client]] = {}
        self._making = 0
        self._changed = threading.Condition()

    def client(self, settings: StoreSettings) -> S3Client:
        """The client for these settings. Raises `SystemUnavailable` if it cannot be made now, and the errors of the
        library."""
        made = self._found(settings)
        try:
            return made.result(_WAITS_S)
        except TimeoutError:
            raise SystemUnavailable(
                "no connection to the object store can be made while another object store does not answer",
                hint="PAUSE the connector of that store, or wait until it answers.",
            ) from None

    @property
    def is_making(self) -> bool:
        return self._making > 0

    def wait_while_making(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.is_making, _GAP_S)

    def _found(self, settings: StoreSettings) -> Future[S3Client]:
        key = (
            settings.s3_endpoint, settings.s3_region, settings.aws_access_key_id, settings.aws_secret_access_key,
            settings.aws_session_token,
        )  # fmt: skip
        with self._changed:
            known = self._clients.pop(key, None)
            if known is None or (known.done() and known.exception() is not None):
                known = Future[S3Client]()
                self._making += 1
                threading.Thread(
                    target=self._fill, args=(known, settings), name=f"{TASK_THREADS}s3-client", daemon=True
                ).start()
            self._clients[key] = known  # the most recently used client is last
            if len(self._clients) > _KEPT:
                del self._clients[next(iter(self._clients))]
            return known

    def _fill(self, made: Future[S3Client], settings: StoreSettings) -> None:
        try:
            made.set_result(S3Client(self._make(settings), self))
        except BaseException as error:
            made.set_exception(error)
        finally:
            with self._changed:
                self._making -= 1
                self._changed.notify_all()


def _made(settings: StoreSettings) -> fs.S3FileSystem:
    scheme, _, host = (settings.s3_endpoint or "https://").rstrip("/").partition("://")
    return fs.S3FileSystem(
        access_key=settings.aws_access_key_id,
        secret_key=settings.aws_secret_access_key,
        session_token=settings.aws_session_token,
        region=settings.s3_region or ("us-east-1" if host else None),
        scheme=scheme,
        endpoint_override=host or None,
        connect_timeout=CONNECT_S,
        request_timeout=SILENCE_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=2),
        background_writes=False,
    )


S3_CLIENTS: Final = S3Clients(_made)
