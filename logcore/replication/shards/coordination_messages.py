"""Requests to the coordinators of groups and transactions, and which coordinator a key has.

A coordinator is a partition of an internal topic: the node that leads the partition coordinates all of its keys. Its
state is the fold of the partition's records.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ...cores.group_messages import GroupDescription
from ..controller.metadata_image import MetadataImage
from ..replica.replica_messages import PartitionId, Refused
from .shard_group_requests import GroupRequest, GroupShardAnswer, ListGroups
from .transaction_messages import (
    DescribedTransaction,
    TransactionAnswer,
    TransactionQuestion,
    TransactionRequest,
)

ShardRequest = GroupRequest | TransactionRequest
ShardAnswer = GroupShardAnswer | TransactionAnswer
ShardQuestion = TransactionQuestion | ListGroups
ShardView = tuple[GroupDescription, ...] | tuple[DescribedTransaction, ...] | Refused | None
"""The answer of a shard to a question."""


class ForGroup(NamedTuple):
    """A request to a broker about a group; see `shard_group_requests.py` for the bodies and their answers."""

    group: str
    body: GroupRequest


class ForTransaction(NamedTuple):
    """A request to a broker about a transactional id."""

    transactional_id: str
    body: TransactionRequest


class ForEveryShard(NamedTuple):
    """A question to all shards of a coordinators' topic on a broker, which changes nothing. The answer is a tuple with
    the answer of each."""

    topic: str
    body: ShardQuestion


def place_of(image: MetadataImage, topic: str, key: str) -> PartitionId | None:
    """The partition that coordinates the key; None while the coordinators' topic does not exist."""
    topic_id = image.topic_ids.get(topic)
    if topic_id is None:
        return None
    return PartitionId(topic_id, partition_of(key, image.topics[topic_id].partitions.size))


@lru_cache(maxsize=4096)
def partition_of(key: str, count: int) -> int:
    """As in Kafka, because tools print it, though clients do not see it: Java's hash of the text, without its sign."""
    hashed = 0
    content = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(content), 2):
        unit = content[position] << 8 | content[position + 1]
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return 0 if signed == -(1 << 31) else abs(signed) % count
