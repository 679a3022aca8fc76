"""The pure machine of PostgreSQL's protocol."""

from __future__ import annotations

import os
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.server.pg.frontend import (
    BindMessage,
    CancelRequest,
    CopyDataMessage,
    CopyDoneMessage,
    DescribeMessage,
    ExecuteMessage,
    FrontendMessage,
    GssRequest,
    ParseMessage,
    PasswordMessage,
    PgProtocolViolation,
    QueryMessage,
    SslRequest,
    StartupMessage,
    SyncMessage,
    TerminateMessage,
)
from millstream.server.pg.protocol import MESSAGE_BYTES_MAX, STARTUP_BYTES_MAX, PgProtocol, PgState

STARTUP = struct.pack("!I", 4 + 4 + len(b"user\0ana\0\0")) + struct.pack("!I", 196608) + b"user\0ana\0\0"
SSL = struct.pack("!II", 8, 80877103)
GSS = struct.pack("!II", 8, 80877104)
CANCEL = struct.pack("!IIII", 16, 80877102, 7, 2**32 - 1)


def framed(letter: bytes, body: bytes = b"") -> bytes:
    return letter + struct.pack("!i", len(body) + 4) + body


QUERY = framed(b"Q", b"SELECT 1\0")
PARSE = framed(b"P", b"s\0SELECT $1\0" + struct.pack("!HI", 1, 23))
BIND = framed(b"B", b"\0s\0" + struct.pack("!HhHi1si", 1, 1, 2, 1, b"x", -1) + struct.pack("!Hh", 1, 0))
DESCRIBE, EXECUTE = framed(b"D", b"Ss\0"), framed(b"E", b"\0" + struct.pack("!i", 5))
SYNC, FLUSH, TERMINATE = framed(b"S"), framed(b"H"), framed(b"X")
COPY_DATA, COPY_DONE, COPY_FAIL = framed(b"d", b"late"), framed(b"c"), framed(b"f", b"why\0")


def all_of(protocol: PgProtocol, data: bytes = b"") -> list[FrontendMessage]:
    protocol.receive(data)
    return list(iter(protocol.next_message, None))


def logged_in(message_bytes_max: int = MESSAGE_BYTES_MAX) -> PgProtocol:
    protocol = PgProtocol(message_bytes_max)
    assert all_of(protocol, STARTUP) == [StartupMessage(0, {"user": "ana"})]
    protocol.let_in()
    assert protocol.ready("I") == b"Z\0\0\0\5I"
    return protocol


def test_a_session_goes_from_startup_to_its_end() -> None:
    protocol = PgProtocol()
    assert all_of(protocol, GSS) == [GssRequest()]
    assert protocol.refuse_encryption() == b"N"
    assert all_of(protocol, SSL) == [SslRequest()]
    assert protocol.accept_tls() == b"S"
    assert all_of(protocol, STARTUP) == [StartupMessage(0, {"user": "ana"})]
    assert all_of(protocol, framed(b"p", b"sesame\0")) == [PasswordMessage(b"sesame\0")]
    assert protocol.let_in()[:1] == b"R"
    protocol.ready("I")
    assert all_of(protocol, QUERY) == [QueryMessage("SELECT 1")]
    protocol.ready("T")
    assert all_of(protocol, TERMINATE) == [TerminateMessage()]
    assert protocol.state is PgState.ENDED


def test_messages_of_the_extended_protocol_come_in_one_piece_and_byte_by_byte() -> None:
    wanted = [
        ParseMessage("s", "SELECT $1", (23,)),
        BindMessage("", "s", (1,), (b"x", None), (0,)),
        DescribeMessage("S", "s"),
        ExecuteMessage("", 5),
        SyncMessage(),
    ]
    stream = PARSE + BIND + DESCRIBE + EXECUTE + SYNC
    assert all_of(logged_in(), stream) == wanted
    protocol = logged_in()
    assert [message for byte in stream for message in all_of(protocol, bytes([byte]))] == wanted


def test_after_an_error_nothing_counts_until_sync() -> None:
    protocol = logged_in()
    assert len(all_of(protocol, PARSE)) == 1
    protocol.failed()
    garbled = framed(b"B", b"not a bind at all")
    assert all_of(protocol, garbled + EXECUTE + QUERY + SYNC + PARSE) == [SyncMessage()]
    protocol.ready("I")
    assert all_of(protocol) == [ParseMessage("s", "SELECT $1", (23,))]


def test_what_comes_while_an_answer_is_due_waits() -> None:
    protocol = logged_in()
    assert all_of(protocol, QUERY + QUERY) == [QueryMessage("SELECT 1")]
    assert all_of(protocol) == []
    protocol.ready("I")
    assert all_of(protocol) == [QueryMessage("SELECT 1")]


def test_bytes_of_a_copy_that_is_over_are_dropped() -> None:
    assert all_of(logged_in(), COPY_DATA + framed(b"f", b"why\0") + framed(b"c") + SYNC) == [SyncMessage()]


@pytest.mark.parametrize("asked", [QUERY, PARSE + BIND + EXECUTE], ids=["simple", "extended"])
def test_rows_are_copied_in_until_the_client_is_done(asked: bytes) -> None:
    protocol = logged_in()
    all_of(protocol, asked)
    before = protocol.state
    assert protocol.copy_in(2, 0) == framed(b"G", bytes([0, 0, 2, 0, 0, 0, 0]))
    assert all_of(protocol, SYNC + COPY_DATA + FLUSH + COPY_DONE + SYNC)[:2] == [
        CopyDataMessage(b"late"), CopyDoneMessage(),
    ]  # fmt: skip
    assert before is PgState.BUSY or protocol.state is PgState.BUSY  # after the Sync that follows


def test_rows_for_a_copy_that_has_failed_are_dropped() -> None:
    protocol = logged_in()
    all_of(protocol, QUERY)
    protocol.copy_in(1, 0)
    assert all_of(protocol, COPY_DATA) == [CopyDataMessage(b"late")]
    protocol.failed()
    protocol.ready("I")
    assert all_of(protocol, COPY_DATA + COPY_DONE + QUERY) == [QueryMessage("SELECT 1")]


def test_a_query_among_copied_rows_ends_the_connection() -> None:
    protocol = logged_in()
    all_of(protocol, QUERY)
    protocol.copy_in(1, 0)
    with pytest.raises(PgProtocolViolation):
        all_of(protocol, COPY_DATA + QUERY)
    assert protocol.state is PgState.ENDED


def test_a_cancel_request_is_all_that_its_connection_is_for() -> None:
    protocol = PgProtocol()
    assert all_of(protocol, CANCEL + STARTUP) == [CancelRequest(7, 2**32 - 1)]
    assert protocol.state is PgState.ENDED


def test_bytes_in_plain_text_after_the_request_for_tls_are_refused() -> None:
    protocol = PgProtocol()
    all_of(protocol, SSL + QUERY)
    with pytest.raises(PgProtocolViolation, match="plain text"):
        protocol.accept_tls()
    assert protocol.state is PgState.ENDED


def after_tls() -> PgProtocol:
    protocol = PgProtocol()
    all_of(protocol, SSL)
    protocol.accept_tls()
    return protocol


@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        (PgProtocol(), struct.pack("!II", STARTUP_BYTES_MAX + 5, 196608)),
        (PgProtocol(), struct.pack("!II", 3, 196608)),
        (PgProtocol(), struct.pack("!iI", -1, 196608)),
        (PgProtocol(), struct.pack("!II", 8, 2 << 16)),
        (PgProtocol(), struct.pack("!II", 12, 196608) + b"user"),
        (PgProtocol(), b"GET / HTTP/1.1\r\n\r\n"),
        (after_tls(), SSL),
        (logged_in(), framed(b"p", b"x")),
        (logged_in(), framed(b"?", b"x")),
        (logged_in(), framed(b"Q", b"no end")),
        (logged_in(), framed(b"Q", b"\xff\0")),
        (logged_in(), framed(b"Q", b"one\0two\0")),
        (logged_in(), framed(b"D", b"Xs\0")),
        (logged_in(), framed(b"P", b"\0\0" + struct.pack("!H", 65535))),
        (logged_in(), framed(b"B", b"\0\0" + struct.pack("!HhH", 1, 7, 0) + struct.pack("!H", 0))),
        (logged_in(), framed(b"B", b"\0\0" + struct.pack("!HHi", 0, 1, 2**31 - 1))),
        (logged_in(), framed(b"B", b"\0\0" + struct.pack("!HHi", 0, 1, -2))),
        (logged_in(100), b"Q" + struct.pack("!i", 105)),
    ],
)
def test_what_is_no_message_ends_the_connection(protocol: PgProtocol, data: bytes) -> None:
    with pytest.raises(PgProtocolViolation):
        all_of(protocol, data)
    assert protocol.state is PgState.ENDED
    assert all_of(protocol, QUERY) == []
    assert protocol.buffered == 0


@given(st.integers(0, 2**64))
@settings(max_examples=300, deadline=None)
def test_hostile_bytes_give_messages_or_a_violation(seed: int) -> None:
    be_hostile(seed, frames=20)


@pytest.mark.soak
def test_a_million_hostile_frames() -> None:
    """None of them at a session that has ended: each is one more that is read."""
    seed = int(os.environ.get("MILLSTREAM_PG_SEED", "1"))
    violations = sum(be_hostile(seed * 50_000 + number, frames=20) for number in range(50_000))
    assert 100_000 < violations < 900_000


PIECES = [STARTUP, SSL, GSS, CANCEL, QUERY, PARSE, BIND, DESCRIBE, EXECUTE, SYNC, FLUSH, TERMINATE, COPY_DATA,
          COPY_DONE, COPY_FAIL]  # fmt: skip


def be_hostile(seed: int, frames: int) -> int:
    """Good and damaged messages, cut anywhere, at machines that answer like a server; when one has ended the next takes
    over. Gives how many ended in a violation."""
    chance = random.Random(seed)
    violations = 0
    protocol = _machine(chance)
    for _ in range(frames):
        data = bytearray(chance.choice(PIECES))
        for _ in range(chance.choice([0, 0, 0, 1, 3])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.1:
            del data[chance.randrange(len(data)) :]
        try:
            for message in all_of(protocol, bytes(data)):
                answer(protocol, message, chance)
        except PgProtocolViolation:
            violations += 1
            assert protocol.state is PgState.ENDED
        assert protocol.buffered < STARTUP_BYTES_MAX
        if protocol.state is PgState.ENDED:
            assert all_of(protocol, bytes(data)) == []
            protocol = _machine(chance)
    return violations


def _machine(chance: random.Random) -> PgProtocol:
    return logged_in(1000) if chance.random() < 0.8 else PgProtocol(1000)


def answer(protocol: PgProtocol, message: FrontendMessage, chance: random.Random) -> None:
    match protocol.state:
        case PgState.ENCRYPTION:
            protocol.refuse_encryption()
        case PgState.LOGIN if isinstance(message, PasswordMessage) and chance.random() < 0.5:
            protocol.let_in()
            protocol.ready("I")
        case PgState.BUSY | PgState.EXTENDED if (
            type(message) in (QueryMessage, ExecuteMessage) and chance.random() < 0.1
        ):
            protocol.copy_in(2, 0)
        case PgState.BUSY:
            protocol.ready("I")
        case PgState.EXTENDED if chance.random() < 0.3:
            protocol.failed()
        case _:
            pass
