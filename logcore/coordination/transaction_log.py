"""The entries of the topic `__transaction_state`: JSON, one key per transactional id. Version 0.1 also kept the range
of producer ids there, and marks of its own, which an upgrade skips."""

from __future__ import annotations

import json
from typing import Any, Final

from ..client import TopicPartition
from ..cores.group_messages import CommittedOffset
from ..cores.transaction_records import (
    Entry,
    Forgotten,
    LastEnded,
    Participant,
    ProducerIdRange,
    TransactionRecord,
    TransactionState,
)
from ..records.key_values import KeyValue

_PRODUCER_IDS: Final = b"producer-ids"
_TRANSACTION: Final = b"transaction:"
_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))


def encode_entry(entry: Entry, now_ms: int) -> KeyValue:
    if isinstance(entry, Forgotten):
        return KeyValue(_key(entry.transactional_id), None)
    content: dict[str, Any] = {
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
            [group, partition.topic, partition.partition, committed.offset, committed.metadata, committed.leader_epoch]
            for group, offsets in entry.offsets.items()
            for partition, committed in offsets.items()
        ],
    }
    if entry.ended is not None:
        content["ended"] = entry.ended
    if entry.successor >= 0:
        content["successor"] = entry.successor
    groups = [group for group, offsets in entry.offsets.items() if not offsets]
    if groups:
        content["groups"] = groups
    if entry.timeout_ms:
        content["timeout_ms"] = entry.timeout_ms
    if entry.follows is not None:
        content["follows"] = entry.follows
    return KeyValue(_key(entry.transactional_id), _json(content))


def written_ms(value: bytes) -> int:
    """When an entry was written; 0 for entries of older versions, which have no time."""
    return int(json.loads(value).get("written_ms", 0))


def bytes_of(part: Any) -> int:
    """About how many bytes a part adds to an entry."""
    return len(_json(part))


def is_producer_ids(key: bytes) -> bool:
    return key == _PRODUCER_IDS


def is_transaction(key: bytes) -> bool:
    return key.startswith(_TRANSACTION)


def _key(transactional_id: str) -> bytes:
    return _TRANSACTION + transactional_id.encode()


def decode_entry(key: bytes, value: bytes | None) -> Entry | ProducerIdRange:
    if value is None:
        return Forgotten(key.removeprefix(_TRANSACTION).decode())
    content = json.loads(value)
    if key == _PRODUCER_IDS:
        return ProducerIdRange(content["end"])
    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {group: {} for group in content.get("groups", ())}
    for group, topic, partition, *committed in content["offsets"]:  # older versions wrote no notes
        offsets.setdefault(group, {})[TopicPartition(topic, partition)] = CommittedOffset(*committed)
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
        LastEnded(*content["ended"]) if "ended" in content else None,
        content.get("successor", -1),
        content.get("timeout_ms", 0),
        tuple(content["follows"]) if "follows" in content else None,
    )


def _json(content: Any) -> bytes:
    return _COMPACT.encode(content).encode()
