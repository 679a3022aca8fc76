"""The messages of a client (a closed union of records), and their parser."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from millstream.errors import ServerError

SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102
VERSION_MAJOR: Final = 3
_INT16: Final = struct.Struct("!h")
_UINT16: Final = struct.Struct("!H")
_INT32: Final = struct.Struct("!i")
_UINT32: Final = struct.Struct("!I")


class PgProtocolViolation(ServerError):
    """Bytes that are not a message, or a message that is not allowed in this state. The connection ends."""

    code = "PG_PROTOCOL"


@dataclass(frozen=True, slots=True)
class SslRequest:
    """Has to be answered with one byte before anything else."""


@dataclass(frozen=True, slots=True)
class GssRequest:
    """As `SslRequest`."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Asks to cancel the statement of another connection. There is no answer."""

    process_id: int
    secret: int


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """`minor`: minor version of protocol version 3; `parameters`: `user`, `database`, `options`, settings of the
    session."""

    minor: int
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class PasswordMessage:
    """A password, or a message of SASL, depending on what the server requested."""

    content: bytes


@dataclass(frozen=True, slots=True)
class QueryMessage:
    """The simple protocol: any number of statements."""

    text: str


@dataclass(frozen=True, slots=True)
class ParseMessage:
    """`types`: OIDs of the first parameters; 0: the server chooses the type."""

    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BindMessage:
    """Formats are 0 (text) or 1 (binary): none, one for all values, or one for each. A value of None is NULL."""

    portal: str
    statement: str
    parameter_formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribeMessage:
    kind: Literal["S", "P"]
    name: str


@dataclass(frozen=True, slots=True)
class ExecuteMessage:
    """`rows_max`: 0: all."""

    portal: str
    rows_max: int


@dataclass(frozen=True, slots=True)
class CloseMessage:
    kind: Literal["S", "P"]
    name: str


@dataclass(frozen=True, slots=True)
class FlushMessage:
    pass


@dataclass(frozen=True, slots=True)
class SyncMessage:
    pass


@dataclass(frozen=True, slots=True)
class CopyDataMessage:
    content: bytes


@dataclass(frozen=True, slots=True)
class CopyDoneMessage:
    pass


@dataclass(frozen=True, slots=True)
class CopyFailMessage:
    reason: str


@dataclass(frozen=True, slots=True)
class FunctionCallMessage:
    """An obsolete way to call a function. Clients no longer use it, and the server refuses it."""


@dataclass(frozen=True, slots=True)
class TerminateMessage:
    pass


ExtendedMessage = (
    ParseMessage | BindMessage | DescribeMessage | ExecuteMessage | CloseMessage | FlushMessage | SyncMessage
)
StartupPacket = SslRequest | GssRequest | CancelRequest | StartupMessage
FrontendMessage = (
    StartupPacket
    | PasswordMessage
    | QueryMessage
    | ExtendedMessage
    | CopyDataMessage
    | CopyDoneMessage
    | CopyFailMessage
    | FunctionCallMessage
    | TerminateMessage
)


class _Fields:
    """Splits a message into fields. Raises `PgProtocolViolation` if it is too short."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._body):
            raise PgProtocolViolation("a message is shorter than it says")
        taken, self._at = self._body[self._at : end], end
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._body) - self._at)

    def text(self) -> str:
        """A text that ends with NUL."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise PgProtocolViolation("a text in a message has no end")
        taken, self._at = self._body[self._at : end], end + 1
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise PgProtocolViolation("a text in a message is not UTF-8") from None

    def int16(self) -> int:
        return _INT16.unpack(self.take(2))[0]

    def count(self) -> int:
        return _UINT16.unpack(self.take(2))[0]

    def int32(self) -> int:
        return _INT32.unpack(self.take(4))[0]

    def uint32(self) -> int:
        return _UINT32.unpack(self.take(4))[0]

    def value(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def kind(self) -> Literal["S", "P"]:
        match self.take(1):
            case b"S":
                return "S"
            case b"P":
                return "P"
            case _:
                raise PgProtocolViolation("neither a statement nor a portal is meant")

    def end(self) -> None:
        if self._at != len(self._body):
            raise PgProtocolViolation("a message is longer than it should be")


def startup_packet(body: bytes) -> StartupPacket:
    """The first message of a connection, which has no letter. Raises `PgProtocolViolation`."""
    fields = _Fields(body)
    code = fields.uint32()
    if code == CANCEL_REQUEST:
        request = CancelRequest(fields.uint32(), fields.uint32())
        fields.end()
        return request
    if code in (SSL_REQUEST, GSS_REQUEST):
        fields.end()
        return SslRequest() if code == SSL_REQUEST else GssRequest()
    if code >> 16 != VERSION_MAJOR:
        raise PgProtocolViolation(
            f"version {code >> 16}.{code & 0xFFFF} of the protocol is not spoken here",
            hint="This server speaks version 3 of PostgreSQL's protocol.",
        )
    parameters: dict[str, str] = {}
    while name := fields.text():
        parameters[name] = fields.text()
    fields.end()
    return StartupMessage(code & 0xFFFF, parameters)


def message_of(letter: bytes, body: bytes) -> FrontendMessage:
    """Raises `PgProtocolViolation`."""
    fields = _Fields(body)
    message = _message(letter, fields)
    fields.end()
    return message


def _message(letter: bytes, fields: _Fields) -> FrontendMessage:
    match letter:
        case b"Q":
            return QueryMessage(fields.text())
        case b"P":
            name, text = fields.text(), fields.text()
            return ParseMessage(name, text, tuple(fields.uint32() for _ in range(fields.count())))
        case b"B":
            return _bind(fields)
        case b"D":
            return DescribeMessage(fields.kind(), fields.text())
        case b"E":
            return ExecuteMessage(fields.text(), max(0, fields.int32()))
        case b"C":
            return CloseMessage(fields.kind(), fields.text())
        case b"H":
            return FlushMessage()
        case b"S":
            return SyncMessage()
        case b"X":
            return TerminateMessage()
        case b"p":
            return PasswordMessage(fields.rest())
        case b"d":
            return CopyDataMessage(fields.rest())
        case b"c":
            return CopyDoneMessage()
        case b"f":
            return CopyFailMessage(fields.text())
        case b"F":
            fields.rest()
            return FunctionCallMessage()
        case _:
            raise PgProtocolViolation(f"there is no message of kind {letter!r}")


def _bind(fields: _Fields) -> BindMessage:
    portal, statement = fields.text(), fields.text()
    parameter_formats = tuple(fields.int16() for _ in range(fields.count()))
    values = tuple(fields.value() for _ in range(fields.count()))
    result_formats = tuple(fields.int16() for _ in range(fields.count()))
    if any(format not in (0, 1) for format in (*parameter_formats, *result_formats)):
        raise PgProtocolViolation("a format is neither text (0) nor binary (1)")
    if len(parameter_formats) not in (0, 1, len(values)):
        raise PgProtocolViolation(f"{len(parameter_formats)} formats for {len(values)} parameters")
    return BindMessage(portal, statement, parameter_formats, values, result_formats)
