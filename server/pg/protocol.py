"""The server's side of PostgreSQL's protocol as a pure state machine: bytes in, messages out, as in h11. No sockets.

    protocol.receive(data)
    while (message := protocol.next_message()) is not None: ...

`backend.py` creates the bytes of answers; the few answers that change the state are methods of this machine.

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

Any other message is a violation; nothing is read after it. While the machine is BUSY, or waits for the answer about
encryption, it returns no message: what a client sends ahead stays in the buffer.

If bytes arrive together with the request for TLS, before TLS has begun, an attacker may have sent them
(CVE-2021-23222): such a connection is refused. Invariant: the buffer contains less than one message of the size that
the state allows, plus the data of one call of `receive`.
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
"""The limit of a message before the login; PostgreSQL has the same limit for the first message."""
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
    """One connection. In: `message_bytes_max`: limit of one message, without its letter and its length."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.state = PgState.STARTUP
        self.encrypted = False
        self._message_bytes_max = message_bytes_max
        self._buffer = bytearray()
        self._asked: set[type[StartupPacket]] = set()  # SslRequest and GssRequest may each come once
        self._copied_for = PgState.BUSY  # the state after COPYING

    @property
    def buffered(self) -> int:
        """Received bytes of incomplete messages."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Adds received bytes. Call it when `next_message` has returned all messages."""
        if self.state is not PgState.ENDED:
            self._buffer += data

    def next_message(self) -> FrontendMessage | None:
        """None if a message is incomplete, or an answer has to be sent first. Raises `PgProtocolViolation`."""
        try:
            while True:
                message = self._take()
                if message is None or self._admit(message):
                    return message
        except PgProtocolViolation:
            self._end()
            raise

    # Answers that change the state

    def accept_tls(self) -> bytes:
        """TLS begins with the next byte. Raises `PgProtocolViolation` if bytes have already arrived."""
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
        """From now on, the rows of COPY … FROM STDIN arrive. In: `format`: 0 text, 1 binary."""
        assert self.state in (PgState.BUSY, PgState.EXTENDED)
        self._copied_for, self.state = self.state, PgState.COPYING
        return backend.copy_in(column_count, format)

    def failed(self) -> None:
        """An error answered a message of the extended protocol: all messages until Sync are dropped. Data that a client
        still sends for a failed COPY is dropped, in the simple protocol, too."""
        if self.state is PgState.COPYING:
            self.state = self._copied_for
        if self.state is PgState.EXTENDED:
            self.state = PgState.SKIPPING

    # Received messages

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
                    return FlushMessage()  # its content is irrelevant: `_admit` drops it
                return message_of(letter, body)
            case _:
                assert_never(self.state)

    def _body(self, at: int, most: int) -> bytes | None:
        """Removes a message from the buffer. In: `at`: the position of its length."""
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
        """Changes the state. False if the message is dropped."""
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
