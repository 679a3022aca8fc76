"""The entries of the topic `__transaction_state`: JSON, one key per transactional id and one for producer ids."""

from __future__ import annotations

import json
from typing import Any, Final

from .client import TopicPartition
from .state_log import KeyValue
from .transactions import Entry, Participant, ProducerIds, TransactionRecord, TransactionState

TOPIC: Final = "__transaction_state"
_PRODUCER_IDS: Final = b"producer-ids"
_TRANSACTION: Final = b"transaction:"


def encode_entry(entry: Entry, now_ms: int) -> KeyValue:
    if isinstance(entry, ProducerIds):
        return KeyValue(_PRODUCER_IDS, _json({"end": entry.end}))
    content = {
        "producer_id": entry.producer_id,
        "epoch": entry.epoch,
        "written_ms": now_ms,
        "state": entry.state.value,
        "number": entry.number,
        "participants": [
            [
                participant.partition.topic,
                participant.partition.partition,
                participant.topic_id,
                participant.first_offset,
            ]
            for participant in entry.participants
        ],
        "offsets": [
            [group, partition.topic, partition.partition, offset]
            for group, offsets in entry.offsets.items()
            for partition, offset in offsets.items()
        ],
    }
    return KeyValue(_key(entry.transactional_id), _json(content))


def forgotten(transactional_id: str) -> KeyValue:
    """What removes an id from the log."""
    return KeyValue(_key(transactional_id), None)


def written_ms(value: bytes) -> int:
    """When an entry was written; 0 for those of older versions, which did not say."""
    return int(json.loads(value).get("written_ms", 0))


def _key(transactional_id: str) -> bytes:
    return _TRANSACTION + transactional_id.encode()


def decode_entry(key: bytes, value: bytes) -> Entry:
    content = json.loads(value)
    if key == _PRODUCER_IDS:
        return ProducerIds(content["end"])
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for group, topic, partition, offset in content["offsets"]:
        offsets.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    return TransactionRecord(
        key.removeprefix(_TRANSACTION).decode(),
        content["producer_id"],
        content["epoch"],
        TransactionState(content["state"]),
        content["number"],
        tuple(
            Participant(TopicPartition(topic, partition), topic_id, first_offset)
            for topic, partition, topic_id, first_offset in content["participants"]
        ),
        offsets,
    )


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
