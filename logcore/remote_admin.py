"""What an administrator does with the topics of a log over the network: `LogAdmin`, by the Kafka protocol."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from .protocol.apis import Api
from .protocol.channel import Channels
from .protocol.faults import error_of

_TIMEOUT: Final = timedelta(seconds=30)
_TOPIC_RESOURCE: Final = 2


class RemoteAdmin:
    """Any thread may call any method."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        configs = [{"name": key, "value": value} for key, value in config.items()]
        resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configs": configs}
        answer = self._channels.ask(Api.ALTER_CONFIGS, {"resources": [resource], "validate_only": only_check})
        check(answer.responses[0].error_code, answer.responses[0].error_message, f'change topic "{name}"')

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        topic = {"name": name, "count": partition_count, "assignments": None}
        fields = {"topics": [topic], "timeout": _TIMEOUT, "validate_only": only_check}
        result = self._channels.ask(Api.CREATE_PARTITIONS, fields, repeat=False).results[0]
        check(result.error_code, result.error_message, f'add partitions to topic "{name}"')

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": before_offset}]}
        answer = self._channels.ask(Api.DELETE_RECORDS, {"topics": [asked], "timeout": _TIMEOUT})
        result = answer.topics[0].partitions[0]
        check(result.error_code, None, f'delete records of partition {partition} of topic "{topic}"')
        return result.low_watermark

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """As `LogClient.offset_at`; a negative time asks as the protocol has it (-1 end, -2 start)."""
        asked = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp_ms}]}
        answer = self._channels.ask(Api.LIST_OFFSETS, {"replica_id": -1, "isolation_level": 1, "topics": [asked]})
        found = answer.topics[0].partitions[0]
        check(found.error_code, None, f'read the offsets of partition {partition} of topic "{topic}"')
        return None if found.offset < 0 else found.offset


def check(code: int, message: str | None, what: str) -> None:
    """Raises what an answer's error code stands for."""
    if code:
        raise error_of(code, message, what)
