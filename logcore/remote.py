"""The log over the network: `RemoteLog` is a `LogClient` that speaks the Kafka protocol to a server of one node."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode

from .client import ColumnarRecords, Fetched, Isolation, Offsets, RowRecords, Topic, TopicPartition
from .errors import LogUnavailable
from .log import Log
from .protocol import fetch as fetch_messages
from .protocol.apis import Api
from .protocol.channel import Address, Channels, understanding
from .protocol.fetch import FetchedPartition, FetchPosition, FetchRequest
from .protocol.received import decode
from .protocol.sasl import Credentials, secret_credentials
from .protocol.sender import Sender
from .records.batch import Producer
from .records.codec import encode
from .remote_admin import RemoteAdmin, check
from .remote_groups import RemoteGroups
from .remote_producer import RemoteTransactionalProducer, offset_topics

_TIMEOUT: Final = timedelta(seconds=30)
_WAIT_S_MAX: Final = 30.0  # at a time: firewalls forget connections on which nothing happens
_TLS: Final = "tls://"
_TOPIC_RESOURCE: Final = 2
_SET_ON_TOPIC: Final = 1
_EARLIEST: Final = -2
_BYTES_MAX: Final = 0x7FFFFFFF
_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)


@dataclass(slots=True)
class _Turn:
    """Who holds the lock appends to the partition. State: the producer's place in it, unless it is in doubt."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    producer: Producer | None = None


class RemoteLog:
    """The log at `bootstrap`, which is HOST:PORT, or USER:PASSWORD@HOST:PORT where there are users, or SECRET@HOST:PORT
    for who may write to Millstream's own topics (`trusted_address`). `tls://` before it speaks TLS.
    Any thread may call any method; connections are made as needed.

    Where the server cannot be reached, or a connection breaks twice, a method raises `LogUnavailable`. Appends carry
    sequence numbers, so that one whose answer was lost is stored once. Pickled, only the address travels.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._channels = _channels(bootstrap)
        self._sender = Sender(self._channels)
        self._admin = RemoteAdmin(self._channels)
        self.groups = RemoteGroups(self._channels)
        self._turns: dict[TopicPartition, _Turn] = {}
        self._turns_lock = threading.Lock()
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[type[RemoteLog], tuple[str]]:
        return RemoteLog, (self.bootstrap,)

    # Topics

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str] | None = None) -> None:
        configs = [{"name": key, "value": value} for key, value in (config or {}).items()]
        topic = {"name": name, "num_partitions": partition_count, "replication_factor": 1, "configs": configs}
        answer = self._channels.ask(Api.CREATE_TOPICS, {"topics": [topic], "timeout": _TIMEOUT}, repeat=False)
        check(answer.topics[0].error_code, answer.topics[0].error_message, f'create topic "{name}"')

    def delete_topic(self, name: str) -> None:
        asked = {"topic_names": [name], "topics": [{"name": name}], "timeout": _TIMEOUT}
        answer = self._channels.ask(Api.DELETE_TOPICS, asked, repeat=False)
        result = answer.responses[0]
        check(result.error_code, getattr(result, "error_message", None), f'delete topic "{name}"')

    def topics(self) -> Mapping[str, Topic]:
        described = self._channels.ask(Api.METADATA, {"topics": None, "allow_auto_topic_creation": False}).topics
        configs = self._configs([topic.name for topic in described])
        return {topic.name: Topic(topic.name, len(topic.partitions), configs[topic.name]) for topic in described}

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        resources = [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None} for name in names
        ]
        answer = self._channels.ask(Api.DESCRIBE_CONFIGS, {"resources": resources})
        configs: dict[str, dict[str, str]] = {name: {} for name in names}
        for result in answer.results:
            for entry in result.configs:
                if entry.config_source == _SET_ON_TOPIC and entry.value is not None:
                    configs[result.resource_name][entry.name] = entry.value
        return configs

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        self._admin.alter_topic(name, config, only_check=only_check)

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        self._admin.add_partitions(name, partition_count, only_check=only_check)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self._admin.delete_records(topic, partition, offset)

    # Records

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        where = TopicPartition(topic, partition)
        turn = self._turn(where)
        with turn.lock:
            producer = turn.producer or self._new_producer()
            batches = encode(records, producer)
            if not batches:
                return self.offsets(topic, partition).log_end_offset
            turn.producer = None
            sent = self._sender.send(where, batches, None)
            turn.producer = producer._replace(base_sequence=sent.next_sequence)
            return sent.first_offset

    def _turn(self, where: TopicPartition) -> _Turn:
        """A child that inherited this object by `fork` must not number its batches as its parent does."""
        if self._owner != os.getpid():
            self._turns, self._owner, self._turns_lock = {}, os.getpid(), threading.Lock()
        with self._turns_lock:
            return self._turns.setdefault(where, _Turn())

    def _new_producer(self) -> Producer:
        answer = self._channels.ask(Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": _TIMEOUT})
        check(answer.error_code, None, "append")
        return Producer(answer.producer_id, answer.producer_epoch, 0)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        where = TopicPartition(topic, partition)
        max_bytes = max(1, min(max_bytes, _BYTES_MAX))
        [fetched] = self._fetch(FetchRequest(0, 0, max_bytes, isolation, [FetchPosition(where, offset, max_bytes)]))
        check(fetched.error_code, None, f'fetch offset {offset} of partition {partition} of topic "{topic}"')
        return decode(fetched, offset)

    def offsets(self, topic: str, partition: int) -> Offsets:
        """The log end offset is what readers can know of it: the high watermark."""
        where = TopicPartition(topic, partition)
        fetched = self._offsets_at(where, 0)
        if fetched.error_code == _OUT_OF_RANGE and fetched.high_watermark < 0:
            fetched = self._offsets_at(where, self._admin.offset_at(topic, partition, _EARLIEST) or 0)
        if fetched.error_code != _OUT_OF_RANGE:
            check(fetched.error_code, None, f'read the offsets of partition {partition} of topic "{topic}"')
        return Offsets(
            fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark, fetched.high_watermark
        )

    def _offsets_at(self, where: TopicPartition, offset: int) -> FetchedPartition:
        request = FetchRequest(0, 0, _BYTES_MAX, "read_uncommitted", [FetchPosition(where, offset, 0)])
        return self._fetch(request)[0]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Of the first visible record with this time or a later one; None where there is none."""
        return self._admin.offset_at(topic, partition, max(0, timestamp_ms))

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """As the contract says; records of an aborted transaction may also end the wait."""
        deadline = time.monotonic() + timeout_s
        asked = {TopicPartition(*where): offset for where, offset in positions.items()}
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            wait_ms = int(min(left_s, _WAIT_S_MAX) * 1000)
            places = [FetchPosition(where, offset, 0) for where, offset in asked.items()]
            for fetched in self._fetch(FetchRequest(wait_ms, 1, _BYTES_MAX, "read_committed", places)):
                where = fetched.partition
                if fetched.error_code != _OUT_OF_RANGE:
                    check(fetched.error_code, None, f'wait for partition {where.partition} of topic "{where.topic}"')
                elif fetched.high_watermark >= 0:
                    asked[where] = fetched.last_stable_offset  # the log has to come to the position first
                if fetched.last_stable_offset > positions[where]:
                    return True
            if left_s <= 0 or not places:
                return False

    def _fetch(self, request: FetchRequest) -> list[FetchedPartition]:
        response = self._channels.exchange(
            Api.FETCH,
            lambda version: fetch_messages.write_request(request, version),
            wait_s=request.wait_ms_max / 1000,
        )
        with understanding(self._channels.address):
            error_code, fetched = fetch_messages.read_response(response.message, response.position, response.version)
        check(error_code, None, "fetch")
        if [entry.partition for entry in fetched] != [position.partition for position in request.positions]:
            raise LogUnavailable(f"the server at {self._channels.address} did not answer for all partitions")
        return fetched

    # Groups and transactions

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        return {where: found.offset for where, found in self.groups.committed(group).items()}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics = offset_topics(offsets)
        answer = self._channels.ask(Api.OFFSET_COMMIT, {"group_id": group, "topics": topics})
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, None, f'commit the offsets of group "{group}"')

    def transactional_producer(self, transactional_id: str) -> RemoteTransactionalProducer:
        return RemoteTransactionalProducer(self._channels, transactional_id)

    # Life

    def close(self) -> None:
        """Ends the connections; the log itself stays open. Twice is fine."""
        self._channels.close()

    def __enter__(self) -> RemoteLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def trusted_address(log: Log, address: str) -> str:
    """For another process of ours that reaches `log` at `address`, HOST:PORT. Raises `LogError`."""
    return f"{log.secret}@{address}"


def _channels(bootstrap: str) -> Channels:
    plain = bootstrap.removeprefix(_TLS)
    login, _, address = plain.rpartition("@")
    name, separator, password = login.partition(":")
    credentials = Credentials(name, password) if separator else secret_credentials(login)
    tls = ssl.create_default_context() if plain != bootstrap else None
    return Channels(_address(address), credentials if login else None, tls)


def _address(bootstrap: str) -> Address:
    host, separator, port = bootstrap.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise LogUnavailable(
            f'"{bootstrap}" is not the address of a log', hint="Give host and port, as in 127.0.0.1:9092."
        )
    return Address(host.strip("[]"), int(port))
