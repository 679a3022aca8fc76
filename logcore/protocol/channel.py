"""A client's connections: blocking, one request at a time on each, one connection per thread that asks concurrently."""

from __future__ import annotations

import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millstream.errors import LogError

from ..errors import LogClosed, LogUnavailable
from ..records.batch import Buffer
from .security.sasl import Login
from .wire import messages
from .wire.apis import KNOWN, NAMING_TOPICS, Api
from .wire.frames import FRAME_BYTES_MAX, LENGTH, frame_length, read_response_header, write_request_frame
from .wire.messages import Fields
from .wire.primitives import MalformedMessage

_BUFFERS_PER_CALL: Final = 512
_OWING_MAX: Final = 16
_LARGE: Final = 64 * 1024  # bytes of an answer
_OF_A_LOGIN: Final = 0.8  # the share of a login's lifetime for which it is used
_ANSWER_BYTES_MAX: Final = 0x7FFFFFFF  # one batch may be larger than what a server takes from unknown clients
_OLDEST_API_VERSIONS: Final = 0  # every server understands this version; its other versions are not known yet


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Timeouts(NamedTuple):
    """How long a node may take to accept a connection, and to answer, in addition to the requested wait."""

    connect_s: float = 10.0
    answer_s: float = 60.0


class Response(NamedTuple):
    """The body begins at `position` of `message`."""

    version: int
    message: memoryview
    position: int


class AuthenticationFailed(LogError):
    """The given secret is not the log's, or the password is not the user's."""

    code = "AUTHENTICATION_FAILED"


class Channel:
    """One connection. Every failure closes it and raises `LogUnavailable`. Only one thread at a time may use it."""

    def __init__(
        self,
        address: Address,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 (a constant)
    ) -> None:
        self._address = address
        self._timeouts = timeouts
        self._correlation_id = 0
        self._begun: tuple[Api, int] | None = None
        self._bytes_max = FRAME_BYTES_MAX
        self._ends_at = math.inf  # when the server requires a new login
        try:
            self._socket = socket.create_connection(address, timeout=timeouts.connect_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
        except OSError as error:
            raise LogUnavailable(
                f"no log answers at {address}: {_reason(error)}",
                hint="Check the address, and that the server runs and listens there.",
            ) from error
        try:
            self._versions = self._ask_versions()
            if login is not None:
                self._authenticate(login)
        except BaseException:
            self.close()
            raise

    def _ask_versions(self) -> dict[Api, int]:
        response = self._exchange(
            Api.API_VERSIONS, _OLDEST_API_VERSIONS, [messages.write_request(Api.API_VERSIONS, _OLDEST_API_VERSIONS, {})]
        )
        with understanding(self._address):
            answer = messages.read_response(Api.API_VERSIONS, *response)
        self._bytes_max = _ANSWER_BYTES_MAX
        served = {entry.api_key: entry for entry in answer.api_keys}
        versions: dict[Api, int] = {}
        fetch = served.get(Api.FETCH)
        self.fetches_by_id = fetch is not None and fetch.max_version > NAMING_TOPICS[Api.FETCH]
        for api, known in KNOWN.items():
            entry = served.get(api)
            if entry is not None and entry.max_version >= known.oldest and entry.min_version <= known.newest:
                versions[api] = min(known.newest, entry.max_version, NAMING_TOPICS.get(api, known.newest))
        return versions

    def _authenticate(self, login: Login) -> None:
        """Raises `AuthenticationFailed`, `LogError`."""
        handshake = self._ask_message(Api.SASL_HANDSHAKE, {"mechanism": login.mechanism})
        if handshake.error_code:
            raise AuthenticationFailed(
                f"the log at {self._address} takes no login by {login.mechanism}, only by"
                f" {', '.join(handshake.mechanisms) or 'none'}",
                hint="Set sasl.mechanism to one of them.",
            )
        conversation = login.conversation()
        message = next(conversation)
        with suppress(StopIteration):
            while True:
                answer = self._ask_message(Api.SASL_AUTHENTICATE, {"auth_bytes": message})
                if answer.error_code:
                    raise self._not_known(login, answer.error_message)
                self._end_with_the_login(answer)
                message = conversation.send(bytes(answer.auth_bytes))

    def _not_known(self, login: Login, reason: str | None) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"the log at {self._address} does not know {login.description} that was given"
            + (f": {reason}" if reason else ""),
            hint="The secret is in the file `secret` of the log's data directory; users are named in the server's"
            " configuration.",
        )

    def _end_with_the_login(self, answer: Any) -> None:
        """The server closes a connection whose login has expired (KIP-368), so this end stops using it before that."""
        lifetime = getattr(answer, "session_lifetime", None)
        if lifetime is not None and lifetime.total_seconds() > 0:
            self._ends_at = time.monotonic() + lifetime.total_seconds() * _OF_A_LOGIN

    def _ask_message(self, api: Api, fields: Fields) -> Any:
        response = self.ask(api, lambda version: [messages.write_request(api, version, fields)])
        with understanding(self._address):
            return messages.read_response(api, *response)

    def ask(self, api: Api, body: Callable[[int], list[Buffer]], *, wait_s: float = 0) -> Response:
        """Sends a request in the newest version that both sides know, and returns the response.

        In: `wait_s`: how long the request asks the server to wait with its answer.
        """
        self.begin(api, body)
        return self.finish(wait_s)

    def begin(self, api: Api, body: Callable[[int], list[Buffer]], *, by_id: bool = False) -> None:
        """Sends a request; `finish` returns its response. No other request may be sent meanwhile. In: `by_id`: topics
        are named by their ids, which the server understands."""
        version = NAMING_TOPICS[api] + 1 if by_id else self._versions.get(api)
        if version is None:
            raise LogUnavailable(
                f"the server at {self._address} does not understand {api.name.lower()} requests as this client sends"
                " them",
                hint="Use a server of Kafka 2.4 or newer, or of this version of Millstream.",
            )
        self._begin(api, version, body(version))

    def finish(self, wait_s: float = 0) -> Response:
        """Waits for the response to the request of `begin`."""
        assert self._begun is not None
        (api, version), self._begun = self._begun, None
        with self._closed_by_failure():
            self._socket.settimeout(self._timeouts.answer_s + wait_s)
            with understanding(self._address):
                message = self._receive(frame_length(self._receive(LENGTH.size), self._bytes_max))
                correlation_id, position = read_response_header(api, version, message)
                if correlation_id != self._correlation_id:
                    raise MalformedMessage("an answer to another request")
        return Response(version, message, position)

    def _begin(self, api: Api, version: int, body: list[Buffer]) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        with self._closed_by_failure():
            self._socket.settimeout(self._timeouts.answer_s)
            self._send(write_request_frame(api, version, self._correlation_id, body))
        self._begun = (api, version)

    def _exchange(self, api: Api, version: int, body: list[Buffer]) -> Response:
        self._begin(api, version, body)
        return self.finish()

    @contextmanager
    def _closed_by_failure(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise LogUnavailable(
                f"the connection to the log at {self._address} broke: {_reason(error)}",
                hint="What was under way may have happened or not. Try again when the server is back.",
            ) from error
        except BaseException:
            self.close()
            raise

    def _send(self, buffers: list[Buffer]) -> None:
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.sendall(b"".join(buffers))
            return
        left = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while left:
            sent = self._socket.sendmsg(left[:_BUFFERS_PER_CALL])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _receive(self, size: int) -> memoryview:
        buffer = _room(size)
        filled = 0
        while filled < size:
            count = self._socket.recv_into(buffer[filled:])
            if not count:
                raise ConnectionResetError("the server closed it")
            filled += count
        return buffer

    @property
    def usable(self) -> bool:
        """Whether it can take another request. An idle connection with something to read was closed by the server."""
        return self._socket.fileno() >= 0 and not self.readable and time.monotonic() < self._ends_at

    @property
    def readable(self) -> bool:
        """Whether an answer has begun to arrive, or the connection has ended."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def understanding(address: Address) -> Generator[None]:
    """Turns an answer that violates the protocol into `LogUnavailable`."""
    try:
        yield
    except MalformedMessage as error:
        raise LogUnavailable(
            f"what answers at {address} does not speak the Kafka protocol: {error}",
            hint="Check that the address is the log's and not, say, the HTTP port.",
        ) from error


def _room(size: int) -> memoryview:
    """Takes large buffers from a pool: a bytearray is first filled with zeros, a third of the time of receiving."""
    if size < _LARGE:
        return memoryview(bytearray(size))
    return memoryview(pa.allocate_buffer(size)).cast("B")


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()


class Channels:
    """Connections to one server: each call takes an idle one, or a new one. Any number of threads may use it.

    State: the idle connections of this process, and those that owe an answer which no caller waits for. A child process
    that inherits them by `fork` does not use them.
    """

    def __init__(
        self,
        address: Address,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 (a constant)
    ) -> None:
        self.address = address
        self._login, self._tls, self._timeouts = login, tls, timeouts
        self._idle: list[Channel] = []
        self._owing: list[Channel] = []
        self._owner = os.getpid()
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, api: Api, fields: Fields, *, repeat: bool = True) -> Any:
        """Sends a request without records; returns the response's object."""

        def body(version: int) -> list[Buffer]:
            return [messages.write_request(api, version, fields)]

        response = self.exchange(api, body, repeat=repeat)
        with understanding(self.address):
            return messages.read_response(api, *response)

    def exchange(
        self, api: Api, body: Callable[[int], list[Buffer]], *, wait_s: float = 0, repeat: bool = True
    ) -> Response:
        """Raises `LogUnavailable`. In: `repeat`: asking twice is harmless, so it replaces a broken connection once."""
        try:
            with self.channel() as channel:
                return channel.ask(api, body, wait_s=wait_s)
        except LogUnavailable:
            if not repeat:
                raise
        with self.channel() as channel:
            return channel.ask(api, body, wait_s=wait_s)

    @contextmanager
    def channel(self) -> Generator[Channel]:
        """A connection for one exchange. Raises `LogUnavailable` if it cannot connect; then nothing was sent."""
        channel = self.take()
        yield channel  # after a failure it is closed, and is not given back
        self.give_back(channel)

    def give_back(self, channel: Channel, *, owing: bool = False) -> None:
        """Gives back a connection that has not failed. `owing`: no caller waits for the request begun on it."""
        with self._lock:
            if not self._closed:
                (self._owing if owing else self._idle).append(channel)
                if len(self._owing) <= _OWING_MAX:
                    return
                channel = self._owing.pop(0)
        channel.close()

    def take(self) -> Channel:
        if self._owner != os.getpid():  # a new lock, too: a thread that the child lacks may hold it
            self._idle, self._owing, self._owner, self._lock = [], [], os.getpid(), threading.Lock()
        with self._lock:
            if self._closed:
                raise LogClosed(
                    "the log is closed", hint="The server stops, or its engine moves to another node: ask again soon."
                )
            while self._idle:
                channel = self._idle.pop()
                if channel.usable:
                    return channel
                channel.close()
            answered = [channel for channel in self._owing if channel.readable]
            self._owing = [channel for channel in self._owing if channel not in answered]
        for index, channel in enumerate(answered):
            try:
                channel.finish()
            except LogUnavailable:
                continue
            for other in answered[index + 1 :]:
                self.give_back(other, owing=True)
            return channel
        return Channel(self.address, self._login, self._tls, self._timeouts)

    def close(self) -> None:
        with self._lock:
            for channel in (*self._idle, *self._owing):
                channel.close()
            self._idle, self._owing, self._closed = [], [], True
