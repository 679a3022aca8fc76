"""Requests asked by hand, of whoever serves: one node of ours, a cluster of ours, Apache Kafka."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.frames import read_response_header, write_request_frame
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest, ProduceResult
from millstream.logcore.records.codec import encode

from ..log_records import rows
from .driver import TIMEOUT_S
from .outside import unique

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kinds of resources that have settings."""


T = TypeVar("T")

_NO_LEADER_YET = (3, 5, 6)
_NO_COORDINATOR_YET = (14, 15, 16)


class Asking:
    """State: the connections to one broker, whose number is `node`."""

    def __init__(self, address: str, node: int) -> None:
        host, _, port = address.rpartition(":")
        self.address, self.node = address, node
        self._channels = Channels(Address(host, int(port)))

    def ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        return self._channels.ask(api, fields)

    def ask_in(self, api: Api, version: int, fields: Mapping[str, Any]) -> Any:
        """In a version that our own clients do not send."""
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as answers:
            body: list[Any] = [messages.write_request(api, version, fields)]
            connection.sendall(b"".join(map(bytes, write_request_frame(api, version, 1, body))))
            answer = memoryview(answers.read(int.from_bytes(answers.read(4), "big")))
        _, position = read_response_header(api, version, answer)
        return messages.read_response(api, version, answer, position)

    def close(self) -> None:
        self._channels.close()

    def create_topic(
        self, name: str | None = None, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        made = self.try_to_create(name or unique("t"), partitions, config)
        assert made.error_code == 0, made
        # Kafka's controller answers; the broker that is asked next hears of the topic a moment later.
        eventually(lambda: self._described(TOPIC, made.name, synonyms=False).error_code == 0)
        return made.name

    def try_to_create(self, name: str, partitions: int = 1, config: Mapping[str, str | None] | None = None) -> Any:
        configs = [{"name": key, "value": value} for key, value in (config or {}).items()]
        asked = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
        (made,) = self.ask(Api.CREATE_TOPICS, {"topics": [asked], "timeout": timedelta(seconds=TIMEOUT_S)}).topics
        return made

    def delete_topic(self, name: str) -> None:
        asked = {"topics": [{"name": name, "topic_id": None}], "timeout": timedelta(seconds=TIMEOUT_S)}
        (answer,) = self.ask(Api.DELETE_TOPICS, asked).responses
        assert answer.error_code == 0, answer

    def topic_id(self, name: str) -> Any:
        (found,) = self.ask(Api.METADATA, {"topics": [{"name": name}]}).topics
        return found.topic_id

    def produce(self, topic: str, *values: bytes | None, key: bytes | None = b"k") -> ProduceResult:
        return self.append(topic, [buffer for batch in encode(rows(*values, key=key)) for buffer in batch.buffers])

    def append(self, topic: str, records: Sequence[Any], *, transactional_id: str | None = None) -> ProduceResult:
        data = ProduceData(TopicPartition(topic, 0), [b"".join(map(bytes, records))])
        request = ProduceRequest(transactional_id, -1, round(TIMEOUT_S * 1000), [data])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._channels.exchange(Api.PRODUCE, lambda version: produce.write_request(request, version))
            (result,) = produce.read_response(answer.message, answer.position, answer.version)
            if result.error_code not in _NO_LEADER_YET or time.monotonic() > deadline:
                return result
            time.sleep(0.05)

    def settings(self, kind: int, name: str, *, synonyms: bool = False) -> dict[str, Any]:
        found = self._described(kind, name, synonyms=synonyms)
        assert found.error_code == 0, found
        return {entry.name: entry for entry in found.configs}

    def _described(self, kind: int, name: str, *, synonyms: bool) -> Any:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        (found,) = self.ask(Api.DESCRIBE_CONFIGS, {"resources": [asked], "include_synonyms": synonyms}).results
        return found

    def change(self, kind: int, name: str, changes: Mapping[str, str | None]) -> Any:
        """None takes a setting back."""
        configs = [
            {"name": key, "value": value, "config_operation": 1 if value is None else 0}
            for key, value in changes.items()
        ]
        asked = {"resource_type": kind, "resource_name": name, "configs": configs}
        (answer,) = self.ask(Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]}).responses
        return answer

    def beat(self, group: str, member: str, epoch: int, *topics: str) -> Any:
        """Of a member of a group whose coordinator assigns: 0 joins, -1 leaves."""
        asked = {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "rebalance_timeout": timedelta(seconds=TIMEOUT_S),
            "subscribed_topic_names": list(topics) or None,
            "topic_partitions": [] if epoch == 0 else None,
        }
        return self.once_ready(lambda: self.ask(Api.CONSUMER_GROUP_HEARTBEAT, asked))

    def once_ready(self, ask: Callable[[], Any]) -> Any:
        """The first answer that is not that the coordinator is on its way."""
        deadline = time.monotonic() + TIMEOUT_S
        while (answer := ask()).error_code in _NO_COORDINATOR_YET and time.monotonic() < deadline:
            for kind in (0, 1):
                self.ask(Api.FIND_COORDINATOR, {"key_type": kind, "coordinator_keys": ["any"]})
            time.sleep(0.05)
        return answer
