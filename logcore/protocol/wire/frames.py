"""Frames (four bytes of length, then a message), and the headers of requests and responses."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ...records.batch import Buffer
from .apis import KNOWN, Api
from .primitives import MalformedMessage, Reader, Writer

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
LENGTH: Final = struct.Struct(">i")
CLIENT_ID: Final = "millstream+arrow"
"""The client id of our own clients. They get columnar batches as they are stored."""


class RequestHeader(NamedTuple):
    """`api` and `version` may be numbers that we do not know."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None


def frame_length(prefix: Buffer, bytes_max: int = FRAME_BYTES_MAX) -> int:
    """The length of the message after these four bytes. Raises `MalformedMessage` before anything is allocated."""
    (length,) = LENGTH.unpack(prefix)
    if not 0 <= length <= bytes_max:
        raise MalformedMessage(f"a frame of {length} bytes; at most {bytes_max} are taken")
    return length


def read_request_header(message: memoryview) -> tuple[RequestHeader, int]:
    """The header, and the position of the body. Raises `MalformedMessage`."""
    reader = Reader(message)
    api, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    client_id = reader.nullable_string()
    if _is_flexible(api, version):
        reader.flexible = True
        reader.tags()
    return RequestHeader(api, version, correlation_id, client_id), reader.position


def write_request_frame(api: Api, version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """The whole frame, length included."""
    writer = Writer()
    writer.int16(api)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(CLIENT_ID)
    writer.flexible = _is_flexible(api, version)
    writer.tags()
    return _framed(writer.buffers() + body)


def write_response_frame(request: RequestHeader, body: list[Buffer]) -> list[Buffer]:
    """The whole frame, length included."""
    writer = Writer(flexible=_has_flexible_answer(request.api, request.version))
    writer.int32(request.correlation_id)
    writer.tags()
    return _framed(writer.buffers() + body)


def read_response_header(api: Api, version: int, message: memoryview) -> tuple[int, int]:
    """The correlation id, and the position of the body. Raises `MalformedMessage`."""
    reader = Reader(message, flexible=_has_flexible_answer(api, version))
    correlation_id = reader.int32()
    reader.tags()
    return correlation_id, reader.position


def _framed(buffers: list[Buffer]) -> list[Buffer]:
    return [LENGTH.pack(sum(map(len, buffers))), *buffers]


def _is_flexible(api: int, version: int) -> bool:
    return api in KNOWN and version >= KNOWN[Api(api)].flexible


def _has_flexible_answer(api: int, version: int) -> bool:
    """A client that asks for our versions does not know yet what we understand, so that answer is never flexible."""
    return api != Api.API_VERSIONS and _is_flexible(api, version)
