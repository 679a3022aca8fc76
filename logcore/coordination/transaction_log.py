"""The entries of the topic `__transaction_state`: JSON, one key per transactional id and one for producer ids."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from ..client import TopicPartition
from ..cores.group_messages import CommittedOffset
from ..cores.transaction_records import (
    Entry,
    Forgotten,
    Identity,
    LastEnded,
    Participant,
    ProducerIdRange,
    TransactionRecord,
    TransactionState,
)
from .state_log import KeyValue

TOPIC: Final = "__transaction_state"
CLOSED: Final = KeyValue(b"closed", b"{}")
"""The last record of a log that was closed properly: producers go on after it, but for those whose epoch was raised."""

NOTES_OPEN: Final = KeyValue(b"notes-open", b"{}")
"""Says that, since it was written, no transaction of a client has begun without an `OpenNote`."""

_OPEN: Final = b"open:"
_PRODUCER_IDS: Final = b"producer-ids"
_TRANSACTION: Final = b"transaction:"


class OpenNote(NamedTuple):
    """A client has begun the transaction behind the one with this number. It holds until the transaction is committed,
    which has a higher number, or the note is taken away."""

    identity: Identity
    number: int


def encode_note(note: OpenNote) -> KeyValue:
    transactional_id, producer_id, epoch = note.identity
    return KeyValue(
        _OPEN + transactional_id.encode(), _json({"producer_id": producer_id, "epoch": epoch, "number": note.number})
    )


def without_note(transactional_id: str) -> KeyValue:
    return KeyValue(_OPEN + transactional_id.encode(), None)


def take_notes(entries: dict[bytes, bytes]) -> dict[str, OpenNote]:
    """Takes the notes out of the entries, by transactional id."""
    notes: dict[str, OpenNote] = {}
    for key in [key for key in entries if key.startswith(_OPEN)]:
        content, transactional_id = json.loads(entries.pop(key)), key.removeprefix(_OPEN).decode()
        identity = Identity(transactional_id, content["producer_id"], content["epoch"])
        notes[transactional_id] = OpenNote(identity, content["number"])
    return notes


def encode_entry(entry: Entry, now_ms: int) -> KeyValue:
    if isinstance(entry, ProducerIdRange):
        return KeyValue(_PRODUCER_IDS, _json({"end": entry.end}))
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
    """When an entry was written; 0 for those of older versions, which did not say."""
    return int(json.loads(value).get("written_ms", 0))


def bytes_of(part: Any) -> int:
    """How much larger, about, an entry becomes by a part of it."""
    return len(_json(part))


def is_producer_ids(key: bytes) -> bool:
    return key == _PRODUCER_IDS


def is_transaction(key: bytes) -> bool:
    return key.startswith(_TRANSACTION)


def _key(transactional_id: str) -> bytes:
    return _TRANSACTION + transactional_id.encode()


def decode_entry(key: bytes, value: bytes | None) -> Entry:
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
    return json.dumps(content, separators=(",", ":")).encode()
