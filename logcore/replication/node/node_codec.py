"""Messages between nodes as bytes: a frame is a JSON text and the record batches that it refers to, unchanged.

    4 bytes  length of the rest
    4 bytes  length of the JSON text
    JSON     [machine, value, [size of each batch …]]
    bytes    the batches, one after another

A value is null, a boolean, a number, a text, or a list that begins with its kind: `["", …]` is a tuple, `["Batch", 3]`
the fourth batch, `["Image", …]` a metadata image, anything else a message with its fields: `["replica.Read", 0, …]`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, get_args

from ...records.batch import HEADER_SIZE, Buffer, EncodedBatch, checksum_of, read_header
from ..cluster_version import VERSIONS
from ..controller import controller_messages, metadata_records, operations_messages
from ..controller.metadata_image import ImageCodec, MetadataImage
from ..machine_messages import Message
from ..raft import quorum_messages
from ..replica import replica_messages
from ..shards import coordination_messages, share_messages, transaction_messages
from ..shards.transaction_messages import ForCoordinators
from . import node_messages
from .node_messages import NodeMessage
from .spoken_versions import fields_spoken

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

_LENGTHS: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_BATCH: Final = "Batch"
_IMAGE: Final = "Image"
_TUPLE: Final = ""


_MODULES: Final = (
    quorum_messages,
    controller_messages,
    coordination_messages,
    metadata_records,
    replica_messages,
    node_messages,
    operations_messages,
    share_messages,
    transaction_messages,
)


def _named_kinds() -> Iterator[tuple[str, type[Any]]]:
    for module in _MODULES:
        family = module.__name__.rpartition(".")[2].partition("_")[0]
        for name, kind in vars(module).items():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, (tuple, Enum)):
                yield f"{family}.{name}", kind


_KINDS: Final[Mapping[str, type[Any]]] = dict(_named_kinds())
_NAMES: Final[Mapping[type, str]] = {kind: name for name, kind in _KINDS.items()}
_SENT: Final = frozenset(get_args(Message)) - frozenset(get_args(ForCoordinators)) | frozenset(get_args(NodeMessage))
_IMAGES: Final = ImageCodec()
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)


class InvalidFrame(ValueError):
    """Bytes that no node of this version sends. Their connection cannot be used any longer."""


class FrameTooLarge(ValueError):
    """A message that no node would accept. Sending it would cost the connection, and all other messages on it."""


class Frame(NamedTuple):
    machine: str  # the receiver of the message
    message: Message | NodeMessage


def encode_frame(frame: Frame, version: int = VERSIONS.newest) -> list[Buffer]:
    """In: `version`: the version of this connection. Raises TypeError for a kind of message that nodes do not send,
    `Unspoken` for one that a later version introduced, `FrameTooLarge`."""
    batches: list[EncodedBatch] = []
    value = _plain(frame.message, batches, version)
    sizes = [batch.header.size for batch in batches]
    text = _ENCODER.encode([frame.machine, value, sizes]).encode()
    size = _LENGTH.size + len(text) + sum(sizes)
    if size > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"a {frame.message.__class__.__name__} of {size} bytes; frames have {FRAME_BYTES_MAX}")
    lengths = _LENGTHS.pack(size, len(text))
    return [lengths + text, *(buffer for batch in batches for buffer in batch.buffers)]


def decode_frame(content: memoryview) -> Frame:
    """In: a frame without its length. Out: batches are views of `content`; their checksums are verified. Raises
    `InvalidFrame`."""
    try:
        (text_size,) = _LENGTH.unpack_from(content)
        end = _LENGTH.size + text_size
        machine, value, sizes = json.loads(bytes(content[_LENGTH.size : end]))
        batches: list[EncodedBatch] = []
        for size in sizes:
            batches.append(_batch(content[end : end + size], size))
            end += size
        if end != len(content):
            raise InvalidFrame(f"a frame of {len(content)} bytes says that it has {end}")
        message = _value(value, batches)
        if message.__class__ not in _SENT:
            raise InvalidFrame(f"a {message.__class__.__name__} is no message")
        return Frame(str(machine), message)
    except InvalidFrame:
        raise
    except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as error:
        raise InvalidFrame(f"a frame that cannot be read: {error}") from error


def _plain(value: Any, batches: list[EncodedBatch], version: int) -> Any:
    if value is None or value.__class__ in (bool, int, str):
        return value
    if isinstance(value, EncodedBatch):
        batches.append(value)
        return [_BATCH, len(batches) - 1]
    if isinstance(value, MetadataImage):
        return [_IMAGE, _IMAGES.encode(value).decode()]
    name = _TUPLE if value.__class__ in (tuple, list) else _NAMES.get(value.__class__)
    if name is None:
        raise TypeError(f"not part of a message: {value!r}")
    if isinstance(value, Enum):
        return [name, value.value]
    parts = value if version == VERSIONS.newest else fields_spoken(value, version)
    return [name, *(_plain(part, batches, version) for part in parts)]


def _value(plain: Any, batches: list[EncodedBatch]) -> Any:
    if not isinstance(plain, list):
        return plain
    name, *fields = plain
    if name == _BATCH:
        return batches[fields[0]]
    if name == _IMAGE:
        return _IMAGES.decode(fields[0].encode())
    values = [_value(field, batches) for field in fields]
    return tuple(values) if name == _TUPLE else _KINDS[name](*values)


def _batch(content: memoryview, size: int) -> EncodedBatch:
    if size < HEADER_SIZE or len(content) < size:
        raise InvalidFrame(f"a record batch of {size} bytes in {len(content)}")
    header = read_header(content)
    if not header.plausible or header.size != size or checksum_of(content) != header.crc:
        raise InvalidFrame("a record batch whose bytes are not what was sent")
    return EncodedBatch([content], header)
