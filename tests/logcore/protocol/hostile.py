"""Requests that nobody should send: valid ones of random content, and what becomes of them when bytes change."""

from __future__ import annotations

import dataclasses
import io
import random
import struct
import typing
import uuid
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import crc32c
from kio.serial import entity_writer

from millstream.logcore.client import TopicPartition
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import KNOWN, NAMING_TOPICS, Api
from millstream.logcore.protocol.wire.fetch_messages import ClientFetch, FetchPosition
from millstream.logcore.protocol.wire.frames import write_request_frame
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.batch import CHECKED_FROM, HEADER, HEADER_SIZE
from millstream.logcore.records.codec import encode

from ..log_records import columnar, rows

_CUT_MIN = 8
NAMES = ("t", "t", "t", "other", "_millstream-command", "__consumer_offsets", "", "ä b", "x" * 300, "g", "m")
NUMBERS = (0, 0, 0, 1, 1, 2, -1, -2, 7, 100, 30_000, 2**31 - 1, -(2**31))
EXTREMES = (b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\0\0\0", bytes(4), b"\xff\xff\xff\xff\x0f", b"\xff" * 10)


class Hostile:
    """State: a source of randomness; the same seed gives the same frames."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def frame(self) -> bytes:
        api = self.random.choice(list(KNOWN))
        version = self.random.randint(KNOWN[api].oldest, KNOWN[api].newest)
        if self.random.random() < 0.02:
            return self._garbage()
        body = self._body(api, version)
        if self.random.random() < 0.7:
            body = self._damaged(body)
        whole = bytearray(b"".join(write_request_frame(api, version, self.random.getrandbits(31), [body])))
        if self.random.random() < 0.05:
            place = self.random.randrange(4, len(whole))
            whole[place] ^= 1 << self.random.randrange(8)
        return bytes(whole)

    def _garbage(self) -> bytes:
        content = self.random.randbytes(self.random.choice([0, 1, 10, 100]))
        length = self.random.choice([len(content), 0, -1, 2**31 - 1, 101 * 1024 * 1024])
        return struct.pack(">i", length) + content

    def _body(self, api: Api, version: int) -> bytes:
        match api:
            case Api.PRODUCE if version <= NAMING_TOPICS[api]:
                where = TopicPartition(self.random.choice(NAMES), self.random.choice([0, 0, 1, -1]))
                transactional_id = self.random.choice([None, None, None, "tx"])
                acks = self.random.choice([0, 1, -1, 9])
                request = ProduceRequest(transactional_id, acks, 100, [ProduceData(where, [self._records()])])
                return b"".join(produce.write_request(request, version))
            case Api.FETCH if version <= NAMING_TOPICS[api]:
                where = TopicPartition(self.random.choice(NAMES), self.random.choice([0, 0, 1, -1]))
                position = FetchPosition(where, self.random.choice(NUMBERS), self.random.choice(NUMBERS))
                wait = self.random.choice([0, 1, -5])
                request = ClientFetch(wait, self.random.choice(NUMBERS), 2**31 - 1, "read_committed", [position])
                return b"".join(fetch.write_request(request, version))
            case _:
                return self._message(api, version)

    def _message(self, api: Api, version: int) -> bytes:
        entity = messages.request_class(api, version)
        out = io.BytesIO()
        entity_writer(entity)(out, self._entity(entity, api))
        return out.getvalue()

    def _entity(self, entity: type[Any], api: Api) -> Any:
        return entity(**{field.name: self._value(field, api) for field in dataclasses.fields(entity)})

    def _value(self, field: dataclasses.Field[Any], api: Api) -> Any:
        kind: Any = field.type
        if type(None) in typing.get_args(kind) and typing.get_origin(kind) is not tuple:
            if self.random.random() < 0.3 and field.metadata.get("tag") is None:
                return None
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return tuple(self._one(element, field, api) for _ in range(self.random.choice([0, 1, 1, 2])))
        return self._one(kind, field, api)

    def _one(self, kind: Any, field: dataclasses.Field[Any], api: Api) -> Any:
        if dataclasses.is_dataclass(kind):
            return self._entity(typing.cast("type[Any]", kind), api)
        number = self.random.choice(NUMBERS)
        if field.name in ("num_partitions", "count"):  # what is allowed should not fill the disk
            number = self.random.choice([-1, 0, 1, 3])
        values: dict[str, Callable[[], Any]] = {
            "string": lambda: self.random.choice(NAMES),
            "bytes": lambda: self.random.randbytes(self.random.choice([0, 3, 40])),
            "records": lambda: b"",
            "bool": lambda: self.random.random() < 0.5,
            "int8": lambda: max(-128, min(127, number)),
            "int16": lambda: max(-(2**15), min(2**15 - 1, number)),
            "uint16": lambda: max(0, min(2**16 - 1, number)),
            "uuid": lambda: uuid.UUID(int=0),
            "error_code": lambda: ErrorCode.none,
            "timedelta_i32": lambda: timedelta(milliseconds=self.random.choice([0, 1, 1500, 100])),
            "timedelta_i64": lambda: timedelta(milliseconds=number),
            "datetime_i64": lambda: datetime.fromtimestamp(0, UTC),
            "float64": lambda: 0.5,
        }
        return values.get(field.metadata["kafka_type"], lambda: number)()

    def _records(self) -> bytes:
        kind = self.random.random()
        if kind < 0.2:
            content = b"".join(encode(columnar(*range(self.random.choice([1, 50]))))[0].buffers)
        elif kind < 0.3:
            return self._bomb()
        else:
            content = b"".join(encode(rows(*[b"value"] * self.random.choice([1, 5, 30])))[0].buffers)
        batch = bytearray(content)
        if self.random.random() < 0.7:
            for _ in range(self.random.choice([1, 1, 3])):
                self._spoil(batch)
            if self.random.random() < 0.8 and len(batch) > HEADER_SIZE:  # damage that the checksum does not show
                struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[CHECKED_FROM:])))
        return bytes(batch)

    def _spoil(self, batch: bytearray) -> None:
        if len(batch) <= _CUT_MIN:
            return
        place = self.random.randrange(_CUT_MIN, len(batch))
        choice = self.random.random()
        if choice < 0.5:
            batch[place] = self.random.randrange(256)
        elif choice < 0.8:
            extreme = self.random.choice(EXTREMES)
            batch[place : place + len(extreme)] = extreme
        else:
            del batch[place:]

    def _bomb(self) -> bytes:
        """Gzip of many zeros, with all that a header says made to fit."""
        content = zlib.compress(bytes(self.random.choice([100_000, 20_000_000])), 9, 31)
        out = bytearray(HEADER_SIZE) + content
        HEADER.pack_into(out, 0, 0, len(out) - 12, 0, 2, 0, 1, 99, 0, 0, -1, -1, -1, 100)
        struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[CHECKED_FROM:])))
        return bytes(out)

    def _damaged(self, body: bytes) -> bytes:
        out = bytearray(body)
        for _ in range(self.random.choice([1, 1, 2, 4])):
            if not out:
                break
            place = self.random.randrange(len(out))
            choice = self.random.random()
            if choice < 0.3:
                out[place] = self.random.randrange(256)
            elif choice < 0.6:
                extreme = self.random.choice(EXTREMES)
                out[place : place + len(extreme)] = extreme
            elif choice < 0.75:
                del out[place:]
            elif choice < 0.9:
                out[place:place] = self.random.randbytes(self.random.choice([1, 4, 50]))
            else:
                del out[place : place + self.random.choice([1, 4])]
        return bytes(out)
