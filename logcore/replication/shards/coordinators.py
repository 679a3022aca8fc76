"""The kinds of coordinators of a node: which topic has which shards."""

from __future__ import annotations

from collections.abc import Mapping

from ...topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from .group_shard import GroupSettings, GroupShard
from .led_log import ShardMaker
from .transaction_shard import TransactionSettings, TransactionShard


def default_makers(
    groups: GroupSettings | None = None, transactions: TransactionSettings | None = None
) -> Mapping[str, ShardMaker]:
    """By topic name, what creates its shards: for `ReplicaBroker`."""
    return {
        GROUPS_TOPIC: lambda log: GroupShard(log, groups),
        TRANSACTIONS_TOPIC: lambda log: TransactionShard(log, transactions),
    }
