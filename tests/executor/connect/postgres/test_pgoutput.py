"""The decoder of pgoutput: messages as the documentation lays them out, and bytes that are none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.connect.connector_errors import ConnectorFailed
from millstream.executor.connect.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    LogicalMessage,
    RelationColumn,
    RowChange,
    TableRelation,
    TruncateMessage,
    decode_message,
)


def values(*given: object) -> bytes:
    out = struct.pack(">H", len(given))
    for value in given:
        if isinstance(value, str):
            out += b"t" + struct.pack(">I", len(value.encode())) + value.encode()
        else:
            out += b"n" if value is None else b"u"
    return out


RELATION = (
    b"R" + struct.pack(">I", 16384) + b"public\0orders\0d" + struct.pack(">H", 2)
    + b"\x01id\0" + struct.pack(">Ii", 23, -1) + b"\x00item\0" + struct.pack(">Ii", 1043, 14)
)  # fmt: skip
MESSAGES = {
    b"B" + struct.pack(">QQI", 0x16B3748, 1_000_000, 700): BeginMessage(0x16B3748, 946_684_801_000_000, 700),
    b"C\0" + struct.pack(">QQQ", 10, 20, 0): CommitMessage(10, 20),
    RELATION: TableRelation(
        16384, "public", "orders", "d", (RelationColumn("id", 23, -1, True), RelationColumn("item", 1043, 14, False))
    ),
    b"I" + struct.pack(">I", 1) + b"N" + values("1", None): RowChange("c", 1, ("1", None)),
    b"U" + struct.pack(">I", 1) + b"N" + values("1", UNCHANGED): RowChange("u", 1, ("1", UNCHANGED)),
    b"U" + struct.pack(">I", 1) + b"K" + values("1", None) + b"N" + values("2", "ü"): RowChange(
        "u", 1, ("2", "ü"), ("1", None), old_is_key=True
    ),
    b"D" + struct.pack(">I", 1) + b"O" + values("1", "x"): RowChange("d", 1, None, ("1", "x")),
    b"T" + struct.pack(">IBII", 2, 0, 7, 8): TruncateMessage((7, 8)),
    b"M\0" + struct.pack(">Q", 99) + b"beat\0" + struct.pack(">I", 0): LogicalMessage(99, "beat"),
    b"O" + struct.pack(">Q", 1) + b"origin\0": None,
    b"Y" + struct.pack(">I", 1) + b"public\0mood\0": None,
}


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: data[:1].decode())
def test_a_message_is_decoded(data: bytes) -> None:
    assert decode_message(data) == MESSAGES[data]


@pytest.mark.parametrize("data", [b"", b"Z", RELATION[:-3], b"I\0\0\0\1K\0\0", b"I\0\0\0\1N\0\1t\xff\xff\xff\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConnectorFailed, match="a message that is not of pgoutput"):
        decode_message(data)


@given(st.binary(max_size=60), st.sampled_from(sorted(MESSAGES)))
def test_no_bytes_crash_it(data: bytes, good: bytes) -> None:
    for hostile in (data, good[: len(data)] + data, good[:1] + data):
        try:
            decode_message(hostile)
        except ConnectorFailed:
            pass
