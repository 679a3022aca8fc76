"""A short path to leaders whose log no other node has: callers store records, and report syncs, without messages.

Other leaders take a request, answer with an effect, have their log synced with another effect, and learn of the sync
from an input: followers and syncs take time, and a machine never waits. If a node is alone, the caller can do that work
itself: it has the turn with the machines (`lone_node.py`), and waits only for its own sync. A profile of an append of
one record showed 412 function calls: 105 encoded the record, 60 wrote and synced it. The rest passed it on, twice
through each layer, as named tuples that were matched and discarded.

About 280 calls are left; version 0.1, which had a separate log for a single node, made 195. A transaction over three
partitions makes 3,900; version 0.1 made 1,790. Less than a third of them are its appends. The rest is its end: each
marker is a message, a write, an answer when readers see it and another when it is durable; each synced log is an effect
of its replica, an effect of the broker, and an input to both.

This is not another kind of leader, and contains no rules: `Leader.store` decides what `Leader.ask` would decide, and
`Leader.advance` determines what is committed (R11). Everything special (a coordinator has to be asked, a batch was sent
twice, the replica rests) is left to an ordinary request. A leader with followers is never used here: see
`ReplicaCore.alone`.
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
_NO_CORRELATION: Final = 0  # the answer is returned immediately


class Stored(NamedTuple):
    """A request that waits for a sync of its partition up to `end_offset`, and the answer that it gets then."""

    partition: PartitionId
    leader: Leader
    end_offset: int
    answer: Produced


class SyncedLogs(Protocol):
    def sync_to(self, partition: PartitionId, end_offset: int) -> int:
        """Makes the log durable at least up to this offset; returns the offset up to which it is. Any thread may call
        it. Raises `LogError`."""
        ...

    def sync_each(self, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """The same for several logs, at the same time."""
        ...


class LoneLeaders:
    """State: partitions with records that are not durable yet, because their producers will request that later. Only
    the thread that has the turn with the broker may use it; any thread may call `sync`."""

    def __init__(self, broker: ReplicaBroker, logs: SyncedLogs) -> None:
        self._broker = broker
        self._logs = logs
        self._owing: dict[PartitionId, None] = {}
        self._late: dict[PartitionId, None] = {}

    def store(self, partition: PartitionId, asked: Produce) -> Stored | Produced | Refused | None:
        """Appends the records to the log. `Produced`: nothing else was requested (`Produce.here`). None: nothing was
        done, and the broker has to be asked."""
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
        """Stores a batch that opens a transaction of this process here, after its coordinator has noted that (R19)."""
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
        """The answer of a coordinator that needs to write no record for it. None: the broker has to be asked."""
        key, body = asked
        if not isinstance(body, AskedNow):
            return None
        topic = TRANSACTIONS_TOPIC if isinstance(asked, ForTransaction) else GROUPS_TOPIC
        return self._broker.coordinators.answer_now(topic, key, body)

    def begin_commit(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int] | None:
        """Requests syncs of everything in these logs. Returns the end offset of each log that is not committed yet.
        None: the broker has to be asked."""
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
        """Makes the stored records durable; returns the offset up to which the log is durable. Raises `LogError`."""
        return self._logs.sync_to(stored.partition, stored.end_offset)

    def sync_together(self, stored: Iterable[Stored]) -> dict[PartitionId, int]:
        """The same for several, with one sync per partition."""
        ends = {each.partition: each.end_offset for each in stored}  # the last one stored has the highest end
        if len(ends) == 1:
            return {partition: self._logs.sync_to(partition, end_offset) for partition, end_offset in ends.items()}
        return self._logs.sync_each(ends)

    def synced(self, stored: Stored, durable_to: int, failed: str | None) -> Produced | Refused:
        """The log is durable up to `durable_to`, or never will be (`failed`). Returns the answer."""
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
        """Requests syncs of records that were stored before the previous call and that no caller has synced since:
        `read_uncommitted` readers wait for them. Most transactions are committed before that."""
        late, self._late, self._owing = self._late, self._owing, {}
        for partition in late:
            replica = self._alone(partition)
            if replica is not None:
                self._broker.pass_on(partition, replica.flush())

    def take_effects(self) -> list[Effect]:
        return self._broker.take_effects()
