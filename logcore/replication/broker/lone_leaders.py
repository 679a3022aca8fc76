"""A leader whose log nobody else has: it stores records, and learns what became durable, without a message.

Every other leader is asked by a request, answers by an effect, has its log synced by another effect, and hears of that
by an input: for followers and syncs take their time, and the machine never waits. Where a node is alone, who asks could
as well carry that out: he has the turn with the machines (`lone_node.py`), and waits for nothing but his own sync. Of
an append of one record, a profile showed 412 calls of functions: 105 encoded it, 60 wrote and synced it, the rest
passed it from hand to hand, twice through each layer, as named tuples that were matched and thrown away.

About 280 are left; version 0.1, which had a log of its own for a single node, made 195. Of a transaction over three
partitions 3,900 are left, of 1,790. Less than a third of them are its appends. The rest is its end: each marker is a
message, a write, an answer when readers see it and another one when it is durable; each log that is synced is an effect
of its replica, one of the broker, and an input to both.

So this is no other leader, and knows no rule: `Leader.store` decides what `Leader.ask` would decide, and what is
committed follows from `Leader.advance` (R11). Whatever is not plain (a coordinator has to be asked, a batch came twice,
the replica rests) is left to the request. A leader with followers never comes here: `ReplicaCore.alone`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ...topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from ..machine import Effect
from ..replica.replica import Replica
from ..replica.replica_leader import Leader
from ..replica.replica_messages import PartitionId, Problem, Produce, Produced, Refused
from ..shards.coordination_messages import ForGroup, ForTransaction, ShardAnswer
from ..shards.led_log import AskedNow
from ..shards.transaction_messages import VerifyTransaction

if TYPE_CHECKING:
    from .broker import ReplicaBroker

_NOBODY: Final = PartitionId("", -1)
_NO_CORRELATION: Final = 0  # nobody else answers


class Stored(NamedTuple):
    """What waits for a sync of its partition up to `end_offset`, and is then answered so."""

    partition: PartitionId
    leader: Leader
    end_offset: int
    answer: Produced


class SyncedLogs(Protocol):
    def sync_to(self, partition: PartitionId, end_offset: int) -> int:
        """Makes its log durable up to this offset at least, and gives up to where it is. Any thread may call it. Raises
        `LogError`."""
        ...

    def sync_each(self, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The same of several logs, at the same time."""
        ...


class LoneLeaders:
    """State: partitions with records that nobody has made durable, as their producers are to ask for that later. All
    of it belongs to whose turn it is with the broker; only `sync` is for any thread."""

    def __init__(self, broker: ReplicaBroker, logs: SyncedLogs) -> None:
        self._broker = broker
        self._logs = logs
        self._owing: dict[PartitionId, None] = {}
        self._late: dict[PartitionId, None] = {}

    def store(self, partition: PartitionId, asked: Produce) -> Stored | Produced | Refused | None:
        """The records are in the log. `Produced` where that was all that was asked for (`Produce.here`); None where
        nothing has happened: the broker is to be asked."""
        replica = self._alone(partition)
        if replica is None or replica.leader is None:
            return None
        leader = replica.leader
        answer = leader.store(asked)
        if answer is None and asked.here:
            answer = self._store_verified(replica, leader, asked)
        if not isinstance(answer, Produced):
            return answer
        if asked.here:
            self._owing[partition] = None
            return answer
        return Stored(partition, leader, leader.end_offset, answer)

    def _store_verified(self, replica: Replica, leader: Leader, asked: Produce) -> Produced | Refused | None:
        """Of a batch that opens a transaction of this process here: its coordinator keeps that in mind (R19)."""
        first, core = asked.batches[0].header, replica.core
        if not first.transactional or asked.transactional_id is None or leader.verification.holds(first.producer_id):
            return None
        question = VerifyTransaction(
            _NOBODY,
            core.partition,
            core.leader_epoch,
            _NO_CORRELATION,
            asked.transactional_id,
            first.producer_id,
            first.producer_epoch,
            includes=True,
            here=True,
        )
        answer = self._broker.coordinators.answer_now(TRANSACTIONS_TOPIC, asked.transactional_id, question)
        if answer is None or isinstance(answer, Refused):
            return answer
        return leader.store(asked._replace(verified=True))

    def answer_now(self, asked: ForTransaction | ForGroup) -> ShardAnswer | None:
        """What a coordinator says of now, and writes nothing down for; None: the broker is to be asked."""
        key, body = asked
        if not isinstance(body, AskedNow):
            return None
        topic = TRANSACTIONS_TOPIC if isinstance(asked, ForTransaction) else GROUPS_TOPIC
        return self._broker.coordinators.answer_now(topic, key, body)

    def begin_commit(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int] | None:
        """All that is in these logs is to become durable, with what waits for that already. Gives where each ends,
        unless it is committed; None: the broker is to be asked."""
        found: dict[PartitionId, Replica] = {}
        for partition in partitions:
            replica = self._alone(partition)
            if replica is None or replica.leader is None:
                return None
            found[partition] = replica
        ends: dict[PartitionId, int] = {}
        for partition, replica in found.items():
            self._owing.pop(partition, None)
            self._late.pop(partition, None)
            if replica.core.high_watermark < replica.core.log.end_offset:
                ends[partition] = replica.core.log.end_offset
                self._broker.pass_on(partition, replica.flush())
        return ends

    def are_committed(self, ends: Mapping[PartitionId, int]) -> bool:
        replicas = self._broker.replicas
        return all(
            partition in replicas and replicas[partition].core.high_watermark >= end for partition, end in ends.items()
        )

    def _alone(self, partition: PartitionId) -> Replica | None:
        replica = self._broker.replicas.get(partition)
        return replica if replica is not None and replica.core.alone and replica.core.stopped is None else None

    def sync(self, stored: Stored) -> int:
        """Makes durable what it waits for; gives up to where its log is. Raises `LogError`."""
        return self._logs.sync_to(stored.partition, stored.end_offset)

    def sync_together(self, stored: Iterable[Stored]) -> dict[PartitionId, int]:
        """The same of several, each partition once."""
        ends = {each.partition: each.end_offset for each in stored}  # what is stored last ends last
        if len(ends) == 1:
            return {partition: self._logs.sync_to(partition, end_offset) for partition, end_offset in ends.items()}
        return self._logs.sync_each(ends)

    def synced(self, stored: Stored, durable_to: int, failed: str | None) -> Produced | Refused:
        """Its log is durable up to there, or never will be (`failed`). Gives the answer."""
        partition, leader, _, answer = stored
        replica = self._broker.replicas.get(partition)
        if replica is None or replica.leader is not leader:
            text = "another leader epoch has begun; whether the records are stored is open"
            return Refused(Problem.NOT_LEADER, text)
        effects = replica.synced(durable_to, failed)
        if effects:
            self._broker.pass_on(partition, effects)
        return answer

    def hurry(self) -> None:
        """Has become durable what nobody has asked for since the call before: readers of uncommitted records wait for
        it. Most transactions are committed before that."""
        late, self._late, self._owing = self._late, self._owing, {}
        for partition in late:
            replica = self._alone(partition)
            if replica is not None:
                self._broker.pass_on(partition, replica.flush())

    def take_effects(self) -> list[Effect]:
        return self._broker.take_effects()
