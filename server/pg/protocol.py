"""A server's side of PostgreSQL's protocol as a pure machine: bytes in, messages out, in the manner of h11. No sockets.

    protocol.receive(data)
    while (message := protocol.next_message()) is not None: ...

Answers are bytes that `backend.py` makes; the few that move the machine are its methods.

| state | what comes | next |
| --- | --- | --- |
| STARTUP | SslRequest, GssRequest | ENCRYPTION: `refuse_encryption` → STARTUP, `accept_tls` → STARTUP, once |
| STARTUP | StartupMessage | LOGIN |
| STARTUP | CancelRequest | ENDED |
| LOGIN | PasswordMessage | LOGIN; `let_in` → BUSY, whose `ready` → IDLE |
| IDLE | QueryMessage | BUSY; `ready` → IDLE |
| IDLE, EXTENDED | Parse, Bind, Describe, Execute, Close, Flush | EXTENDED; `failed` → SKIPPING |
| IDLE, EXTENDED | Sync | BUSY; `ready` → IDLE |
| SKIPPING | Sync | BUSY; `ready` → IDLE |
| SKIPPING | anything else but Terminate | SKIPPING: it is dropped |
| BUSY, EXTENDED | nothing: `copy_in` | COPYING |
| COPYING | CopyData | COPYING |
| COPYING | CopyDone, CopyFail | what it was before `copy_in` |
| COPYING | Flush, Sync | COPYING: it is dropped; libpq sends a Sync ahead |
| IDLE, EXTENDED, SKIPPING | CopyData, CopyDone, CopyFail | the same: it is dropped, for it came too late |
| IDLE, EXTENDED, SKIPPING, COPYING | Terminate | ENDED |

Whatever else comes is a violation, after which nothing is read any more. While the machine is BUSY, or waits for the
answer about encryption, it gives no message: what a client sends ahead stays in the buffer.

What came before TLS began, in one piece with the request for it, was written by nobody knows whom (CVE-2021-23222):
such a connection is refused. Invariant: the buffer holds less than one message of the size that the state allows, plus
what one call of `receive` brought.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, assert_never

from . import backend
from .backend import TransactionStatus
from .frontend import (
    BindMessage,
    CancelRequest,
    CloseMessage,
    CopyDataMessage,
    CopyDoneMessage,
    CopyFailMessage,
    DescribeMessage,
    ExecuteMessage,
    FlushMessage,
    FrontendMessage,
    FunctionCallMessage,
    GssRequest,
    ParseMessage,
    PasswordMessage,
    PgProtocolViolation,
    QueryMessage,
    SslRequest,
    StartupMessage,
    StartupPacket,
    SyncMessage,
    TerminateMessage,
    message_of,
    startup_packet,
)

STARTUP_BYTES_MAX: Final = 10_000
"""Of a message from somebody who is not logged in; PostgreSQL has the same limit for the first one."""
MESSAGE_BYTES_MAX: Final = 1 << 20
_LENGTH: Final = struct.Struct("!i")


class PgState(enum.Enum):
    """See the table above."""

    STARTUP = enum.auto()
    ENCRYPTION = enum.auto()
    LOGIN = enum.auto()
    IDLE = enum.auto()
    BUSY = enum.auto()
    EXTENDED = enum.auto()
    SKIPPING = enum.auto()
    COPYING = enum.auto()
    ENDED = enum.auto()


class PgProtocol:
    """One connection. In: `message_bytes_max`: of one message, its letter and its length not counted."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.state = PgState.STARTUP
        self.encrypted = False
        self._message_bytes_max = message_bytes_max
        self._buffer = bytearray()
        self._asked: set[type[StartupPacket]] = set()  # of SslRequest and GssRequest, each may come once
        self._copied_for = PgState.BUSY  # where COPYING leads back to

    @property
    def buffered(self) -> int:
        """Bytes that came and are no message yet."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Takes what came. To be called when `next_message` has given all."""
        if self.state is not PgState.ENDED:
            self._buffer += data

    def next_message(self) -> FrontendMessage | None:
        """None where more has to come, or an answer is due first. Raises `PgProtocolViolation`."""
        try:
            while True:
                message = self._take()
                if message is None or self._admit(message):
                    return message
        except PgProtocolViolation:
            self._end()
            raise

    # What we answer

    def accept_tls(self) -> bytes:
        """TLS begins with the next byte. Raises `PgProtocolViolation` for one that is here already."""
        assert self.state is PgState.ENCRYPTION
        if self._buffer:
            self._end()
            raise PgProtocolViolation("bytes came in plain text after the request for TLS")
        self.state, self.encrypted = PgState.STARTUP, True
        return b"S"

    def refuse_encryption(self) -> bytes:
        assert self.state is PgState.ENCRYPTION
        self.state = PgState.STARTUP
        return b"N"

    def let_in(self) -> bytes:
        assert self.state is PgState.LOGIN
        self.state = PgState.BUSY
        return backend.AUTHENTICATION_OK

    def ready(self, status: TransactionStatus) -> bytes:
        assert self.state is PgState.BUSY
        self.state = PgState.IDLE
        return backend.ready_for_query(status)

    def copy_in(self, column_count: int, format: int) -> bytes:
        """What comes now are the rows of COPY … FROM STDIN. In: `format`: 0 text, 1 binary."""
        assert self.state in (PgState.BUSY, PgState.EXTENDED)
        self._copied_for, self.state = self.state, PgState.COPYING
        return backend.copy_in(column_count, format)

    def failed(self) -> None:
        """A message of the extended protocol had an error as its answer: nothing counts until Sync. What a client still
        sends for a COPY that has failed is dropped, in the simple protocol too."""
        if self.state is PgState.COPYING:
            self.state = self._copied_for
        if self.state is PgState.EXTENDED:
            self.state = PgState.SKIPPING

    # What comes

    def _take(self) -> FrontendMessage | None:
        match self.state:
            case PgState.ENDED | PgState.BUSY | PgState.ENCRYPTION:
                return None
            case PgState.STARTUP:
                body = self._body(at=0, most=STARTUP_BYTES_MAX)
                return None if body is None else startup_packet(body)
            case PgState.LOGIN | PgState.IDLE | PgState.EXTENDED | PgState.SKIPPING | PgState.COPYING:
                most = STARTUP_BYTES_MAX if self.state is PgState.LOGIN else self._message_bytes_max
                letter = bytes(self._buffer[:1])
                body = self._body(at=1, most=most)
                if body is None:
                    return None
                if self.state is PgState.SKIPPING and letter in b"PBDECHQF":
                    return FlushMessage()  # its content does not count: `_admit` drops it
                return message_of(letter, body)
            case _:
                assert_never(self.state)

    def _body(self, at: int, most: int) -> bytes | None:
        """Takes a message off the buffer. In: `at`: where its length begins."""
        head = at + _LENGTH.size
        if len(self._buffer) < head:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, at)
        size = length - _LENGTH.size
        if size < 0:
            raise PgProtocolViolation("a message has a length below its own")
        if size > most:
            raise PgProtocolViolation(
                f"a message has {size} bytes; the limit is {most}",
                hint="The setting body_bytes_max of the server is the limit of one message.",
            )
        if len(self._buffer) < head + size:
            return None
        body = bytes(self._buffer[head : head + size])
        del self._buffer[: head + size]
        return body

    def _admit(self, message: FrontendMessage) -> bool:
        """Moves the machine. False for what is dropped."""
        match self.state:
            case PgState.STARTUP:
                self._admit_startup(message)
            case PgState.LOGIN:
                if not isinstance(message, PasswordMessage):
                    raise _out_of_place(message)
            case PgState.IDLE | PgState.EXTENDED | PgState.SKIPPING:
                return self._admit_command(message)
            case PgState.COPYING:
                return self._admit_copied(message)
            case PgState.ENDED | PgState.BUSY | PgState.ENCRYPTION:
                raise AssertionError("no message is read here")
            case _:
                assert_never(self.state)
        return True

    def _admit_startup(self, message: FrontendMessage) -> None:
        match message:
            case SslRequest() | GssRequest():
                if type(message) in self._asked or self.encrypted:
                    raise PgProtocolViolation("encryption is asked for again")
                self._asked.add(type(message))
                self.state = PgState.ENCRYPTION
            case StartupMessage():
                self.state = PgState.LOGIN
            case CancelRequest():
                self._end()
            case _:
                raise _out_of_place(message)

    def _admit_command(self, message: FrontendMessage) -> bool:
        skipping = self.state is PgState.SKIPPING
        match message:
            case TerminateMessage():
                self._end()
            case SyncMessage():
                self.state = PgState.BUSY
            case CopyDataMessage() | CopyDoneMessage() | CopyFailMessage():
                return False
            case (
                ParseMessage() | BindMessage() | DescribeMessage() | ExecuteMessage() | CloseMessage() | FlushMessage()
            ):
                if skipping:
                    return False
                self.state = PgState.EXTENDED
            case QueryMessage() | FunctionCallMessage():
                if skipping:
                    return False
                self.state = PgState.BUSY
            case _:
                raise _out_of_place(message)
        return True

    def _admit_copied(self, message: FrontendMessage) -> bool:
        match message:
            case TerminateMessage():
                self._end()
            case CopyDataMessage():
                pass
            case CopyDoneMessage() | CopyFailMessage():
                self.state = self._copied_for
            case FlushMessage() | SyncMessage():
                return False
            case _:
                raise _out_of_place(message)
        return True

    def _end(self) -> None:
        self.state = PgState.ENDED
        self._buffer.clear()


def _out_of_place(message: FrontendMessage) -> PgProtocolViolation:
    return PgProtocolViolation(f"a {type(message).__name__} may not come here")
