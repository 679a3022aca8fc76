"""Requests that are framed as they should be, and ask for what nobody should ask of a cluster.

Most of their fields are as a client would fill them: producers, members and generations are those that answers told of,
so that requests get past the first look. The others are at the limits of what a field can say.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import crc32c
from readiness import is_readable

from millstream.logcore.client import TopicPartition
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import KNOWN, NAMING_TOPICS, Api
from millstream.logcore.protocol.wire.frames import read_response_header, write_request_frame
from millstream.logcore.protocol.wire.messages import Fields
from millstream.logcore.protocol.wire.primitives import MalformedMessage
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.batch import CHECKED_FROM, CONTROL, HEADER, TRANSACTIONAL, read_header

from ..protocol.hostile import Hostile

LONGEST: Final = 0x7FFF
"""Bytes of a text in a message."""

_INT16: Final = (0, 1, -1, -2, 2**15 - 1, -(2**15))
_INT32: Final = (0, 1, -1, -2, 6_000, 2**31 - 1, -(2**31))
_INT64: Final = (0, 1, -1, -2, -3, 2**31, 2**63 - 1, -(2**63))
_FEW_OR_FAR_TOO_MANY: Final = (0, 3, -1, 10_001, 2**31 - 1)  # what is allowed should not fill the disk
_TEXTS: Final = (
    "",
    "\0",
    "ä b",
    "\U0001f9a9\ud7ff\ufffd",
    "x" * 250,
    "y" * LONGEST,
    "..",
    "_millstream-g",
    "h",
    "t",
    "0",
)
_TOPICS: Final = ("other", "gone", "__consumer_offsets", "__transaction_state", "_millstream-t", "", "z" * LONGEST)
_SETTINGS: Final = ("min.insync.replicas", "segment.bytes", "retention.ms", "cleanup.policy", "segment.ms", "nonsense")
_VALUES: Final = (
    "",
    "0",
    "1",
    "-1",
    "2147483647",
    "9223372036854775807",
    "9" * 5000,
    "1e9",
    "\u0663",
    "compact",
    "delete",
)
_OTHERS: Final = (Api.SASL_AUTHENTICATE, Api.SASL_HANDSHAKE)  # they end the connection
_ENDING: Final = (Api.LEAVE_GROUP, Api.INIT_PRODUCER_ID, Api.DELETE_GROUPS, Api.DELETE_TOPICS, Api.END_TXN)
_GROUPS: Final = {
    Api.CONSUMER_GROUP_HEARTBEAT: "kip",
    Api.CONSUMER_GROUP_DESCRIBE: "kip",
    Api.SHARE_GROUP_HEARTBEAT: "shares",
}
_COMMON_SHARE: Final = 0.85
_REMEMBERED: Final = 6
_WAIT_S: Final = 0.15


class _Member(NamedTuple):
    group: str
    member_id: str
    epoch: int


class _Producer(NamedTuple):
    transactional_id: str | None
    producer_id: int
    epoch: int


_Known = TypeVar("_Known")


class HostileRequests(Hostile):
    """State: besides the randomness, producers and members that answers told of."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._members: deque[_Member] = deque(maxlen=_REMEMBERED)
        self._producers: deque[_Producer] = deque(maxlen=_REMEMBERED)
        self._member = _Member("g", "", 0)
        self._producer = _Producer("tx", -1, -1)
        self._session_epoch = 0
        self._topic_id = uuid.UUID(int=0)
        self._apis = [api for api in KNOWN if api not in _OTHERS]

    def attack(self, port: int, count: int) -> None:
        """Sends so many, and learns from the answers that come soon. Who is hung up on comes again."""
        peer = socket.create_connection(("127.0.0.1", port), timeout=60)
        for number in range(count):
            api = self._choose_api()
            version = self.random.randint(KNOWN[api].oldest, KNOWN[api].newest)
            client_id = self.random.choice([None, "c", "c", "n" * LONGEST])
            frame = request_frame(api, version, number, client_id, self._body(api, version))
            with suppress(OSError):
                peer.sendall(frame)
                content = _answer(peer, _WAIT_S)
                if content is not None:
                    self._learn(content, api, version)
                    continue
            peer.close()
            peer = socket.create_connection(("127.0.0.1", port), timeout=60)
        peer.close()

    def _choose_api(self) -> Api:
        """Those that end what others have begun come seldom."""
        api = self.random.choice(self._apis)
        return self.random.choice(self._apis) if api in _ENDING else api

    # What is learned

    def _learn(self, content: memoryview, api: Api, version: int) -> None:
        if api not in (*_GROUPS, Api.JOIN_GROUP, Api.INIT_PRODUCER_ID, Api.END_TXN, Api.METADATA):
            return
        with suppress(MalformedMessage, ValueError):
            _, position = read_response_header(api, version, content)
            found = messages.read_response(api, version, content, position)
            if api is Api.METADATA:
                ids = (getattr(topic, "topic_id", None) for topic in found.topics if topic.name == "t")
                self._topic_id = next(ids, None) or self._topic_id
            elif getattr(found, "member_id", ""):
                group = _GROUPS.get(api, "g")
                epoch = found.generation_id if group == "g" else found.member_epoch
                self._members.append(_Member(group, found.member_id, epoch))
            elif getattr(found, "producer_id", -1) >= 0:
                self._producers.append(
                    _Producer(self._producer.transactional_id, found.producer_id, found.producer_epoch)
                )

    # What is asked

    def _body(self, api: Api, version: int) -> bytes:
        group = "shares" if "SHARE" in api.name else _GROUPS.get(api, "g")
        self._member = _Member(group, "m" if group == "shares" else "", -1 if group == "g" else 0)
        self._producer = _Producer(self.random.choice(["tx", "tx", "ty", None]), -1, -1)
        if self.random.random() < 0.7:
            self._member = self._newest([each for each in self._members if each.group == group], self._member)
        self._session_epoch = self._session_epoch + 1 if self.random.random() < 0.9 else 0
        if api is not Api.INIT_PRODUCER_ID and self.random.random() < 0.9:
            self._producer = self._newest(list(self._producers), self._producer)
        return (
            self._produce(version)
            if api is Api.PRODUCE and version <= NAMING_TOPICS[api]
            else super()._body(api, version)
        )

    def _newest(self, known: Sequence[_Known], otherwise: _Known) -> _Known:
        """Mostly."""
        if not known:
            return otherwise
        return known[-1] if self.random.random() < 0.7 else self.random.choice(known)

    def _one(self, kind: Any, field: dataclasses.Field[Any], api: Api) -> Any:
        if dataclasses.is_dataclass(kind):
            return super()._one(kind, field, api)
        if self.random.random() < _COMMON_SHARE:
            common = self._common(field.name, api)
            if common is not None:
                return common
        return self._extreme(field, api)

    def _common(self, name: str, api: Api) -> Any:
        """What a client would say; None where anything does."""
        member, producer = self._member, self._producer
        values = {
            "group_id": member.group,
            "member_id": member.member_id,
            "generation_id": member.epoch,
            "member_epoch": member.epoch,
            "instance_id": "s",
            "topic_id": self._topic_id,
            "share_session_epoch": self._session_epoch,
            "max_wait": timedelta(milliseconds=5),
            "max_bytes": 1 << 20,
            "max_records": 10,
            "acknowledge_types": 1,
            "topic_name": "t",
            "start_offset": 1,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(milliseconds=50),
            "protocol_type": "consumer",
            "transactional_id": producer.transactional_id or "tx",
            "transaction_timeout": timedelta(seconds=1),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "partition": 0,
            "partitions": 0,
            "partition_index": 0,
            "partition_indexes": 0,
            "resource_type": 2,
            "resource_name": "t",
            "server_assignor": "",
            "subscribed_topic_names": "t",
            "topic_names": "gone",
            "num_partitions": 1,
            "count": 3,
            "replication_factor": 1,
        }
        if name == "name":
            return self._name(api)
        if name in ("topic", "topics") and api not in (Api.METADATA,):
            return "t"
        for known, value in values.items():
            if name == known or name.endswith(f"_{known}"):
                return value
        return None

    def _name(self, api: Api) -> str:
        if api is Api.JOIN_GROUP:
            return "range"
        if api in (Api.CREATE_TOPICS, Api.DELETE_TOPICS):
            return self.random.choice(["gone", "gone", *_SETTINGS])
        if api in (Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS):
            return self.random.choice(_SETTINGS)
        return "t"

    def _extreme(self, field: dataclasses.Field[Any], api: Api) -> Any:
        choice = self.random.choice
        match field.metadata["kafka_type"]:
            case "string" if field.name == "value":
                return choice(_VALUES)
            case "string" if api is Api.DELETE_TOPICS:
                return choice(_TOPICS)
            case "string":
                return choice((*_TEXTS, *_TOPICS))
            case "int16":
                return choice(_INT16)
            case "int32" if field.name in ("num_partitions", "count"):
                return choice(_FEW_OR_FAR_TOO_MANY)
            case "int32":
                return choice(_INT32)
            case "int64":
                return choice(_INT64)
            case "bytes":
                return self.random.randbytes(choice([0, 3, 40, 5_000]))
            case _:
                return super()._one(None, field, api)

    # Records

    def _produce(self, version: int) -> bytes:
        choice = self.random.choice
        places = [
            TopicPartition(choice(["t", "t", "t", *_TOPICS]), choice([0, 0, 0, -1])) for _ in range(choice([1, 1, 2]))
        ]
        data = [ProduceData(where, [self._records()]) for where in places]
        transactional_id = self._producer.transactional_id if self.random.random() < 0.8 else choice([None, *_TEXTS])
        request = ProduceRequest(transactional_id, choice([0, 1, -1, -1, 9]), choice(_INT32), data)
        return b"".join(produce.write_request(request, version))

    def _records(self) -> bytes:
        """One batch or several; of most of them the header lies, and the checksum is right all the same."""
        batches = [self._lying(Hostile._records(self)) for _ in range(self.random.choice([1, 1, 1, 2]))]
        return b"".join(batches)

    def _lying(self, content: bytes) -> bytes:
        if len(content) < HEADER.size:
            return content
        header = read_header(content)
        if self._producer.producer_id >= 0 and self.random.random() < 0.7:
            who = {
                "producer_id": self._producer.producer_id,
                "producer_epoch": self._producer.epoch,
                "base_sequence": 0,
            }
            attributes = header.attributes | (TRANSACTIONAL if self._producer.transactional_id else 0)
            header = header._replace(**who, attributes=attributes)
        for _ in range(self.random.choice([0, 1, 2])):
            header = header._replace(**self._lie())
        batch = bytearray(content)
        HEADER.pack_into(batch, 0, *header)
        struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[CHECKED_FROM:])))
        return bytes(batch)

    def _lie(self) -> dict[str, int]:
        choice = self.random.choice
        return choice(
            [
                {"producer_id": choice(_INT64), "producer_epoch": choice(_INT16), "base_sequence": choice(_INT32)},
                {"base_timestamp_ms": choice(_INT64), "max_timestamp_ms": choice(_INT64)},
                {"base_offset": choice(_INT64), "leader_epoch": choice(_INT32)},
                {"base_sequence": choice(_INT32)},
                {choice(["record_count", "last_offset_delta"]): choice(_INT32)},
                {"attributes": choice([CONTROL, TRANSACTIONAL, CONTROL | TRANSACTIONAL, 0x100, 0x7FFF, 5, -1])},
            ]
        )


def ask(port: int, api: Api, version: int, fields: Fields, client_id: str | None = "c") -> Any:
    """The answer to a request. Raises OSError where there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(request_frame(api, version, 7, client_id, messages.write_request(api, version, fields)))
        return read_answer(peer, api, version)


def read_answer(peer: socket.socket, api: Api, version: int) -> Any:
    """Raises OSError where the connection is closed instead."""
    content = _answer(peer, 30)
    if content is None:
        raise ConnectionResetError("no answer")
    _, position = read_response_header(api, version, content)
    return messages.read_response(api, version, content, position)


def request_frame(api: Api, version: int, number: int, client_id: str | None, body: bytes) -> bytes:
    """As `write_request_frame`, of a client with this id."""
    ours = b"".join(write_request_frame(api, version, number, []))
    name_at = 4 + 8  # behind the length of the frame, two numbers of the request and its own
    (length,) = struct.unpack_from(">h", ours, name_at)
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    message = ours[4:name_at] + name + ours[name_at + 2 + length :] + body
    return struct.pack(">i", len(message)) + message


def _answer(peer: socket.socket, wait_s: float) -> memoryview | None:
    """None where none comes soon."""
    came = bytearray()
    while is_readable(peer, wait_s):
        more = peer.recv(1 << 20)
        if not more:
            return None
        came += more
        if len(came) >= 4 and len(came) >= 4 + struct.unpack_from(">i", came)[0]:
            return memoryview(bytes(came[4:]))
    return None
