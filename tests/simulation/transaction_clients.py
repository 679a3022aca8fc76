"""Transactional producers of a simulated cluster: each transactional id has one instance after another, which write to
several partitions and commit offsets of a group. Instances crash, are replaced while they run, and come back late.

Half of the ids speak as older clients do: they announce partitions first, and keep their epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.logcore.client import TopicPartition
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.controller.controller_messages import CreateTopic
from millstream.logcore.replication.machine import BROKER, CONTROLLER
from millstream.logcore.replication.replica.replica_messages import PartitionId, Problem, Produce, Produced, Refused
from millstream.logcore.replication.shards.coordination_messages import ForGroup, ForTransaction, place_of
from millstream.logcore.replication.shards.shard_group_requests import AskCommitted, GroupCommits
from millstream.logcore.replication.shards.transaction_messages import (
    AwaitEnd,
    EndTransaction,
    Included,
    IncludeGroup,
    IncludePartitions,
    InitProducer,
    OffsetRow,
    ProducerGiven,
    SendOffsets,
    SentOffsets,
)
from millstream.logcore.topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC

from .cluster_clients import encode
from .kernel import MILLISECOND, InvariantViolated
from .transaction_checks import Transaction, TransactionChecks

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

FIRST_TRANSACTION_REQUEST: Final = 1 << 51
_SHARDS: Final = 2
_REQUEST_MS: Final = 1_500
_AGAIN_MS: Final = 20
_FENCED: Final = (Problem.PRODUCER_FENCED, Problem.INVALID_PRODUCER_ID_MAPPING, Problem.INVALID_TXN_STATE)

OFFSETS_OF: Final = TopicPartition("events", 0)


class TransactionTraffic:
    """The transactional ids of a run, and what they ask. Nothing where the seed has none."""

    counters: ClassVar[tuple[str, ...]] = (
        "committed transactions",
        "aborted transactions",
        "zombies fenced",
        "transactions timed out",
        "prepared transactions taken over",
        "markers asked for again",
        "offsets committed in transactions",
        "offsets decided by the commit itself",
    )

    def __init__(self, world: ClusterWorld, ids: int) -> None:
        self.world = world
        self.kernel = world.kernel
        self.checks = TransactionChecks(world)
        self.random = Random(f"{world.kernel.seed}/transactions")  # no draw of others is shifted
        self._number = FIRST_TRANSACTION_REQUEST
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._ids = [TransactionalId(self, number) for number in range(ids)]

    def begin(self) -> None:
        if self._ids:
            self._create_topics()
        for each in self._ids:
            each.begin()

    def _create_topics(self) -> None:
        """Until the metadata say that they are there."""
        lacking = {GROUPS_TOPIC, TRANSACTIONS_TOPIC} - set(self.world.image().topic_ids)
        node = self.random.choice(list(self.world.simulation.hosts))
        for name in sorted(lacking):
            self._number += 1
            create = CreateTopic(name, _SHARDS, 3, configs=(("min.insync.replicas", "2"),))
            self.world.simulation.hosts[node].ask(CONTROLLER, self._number, create)
        if lacking:
            self.kernel.schedule(300 * MILLISECOND, self._create_topics)

    # Requests

    def send(self, topic: str, key: str, body: Any, answered: Callable[[Any], None]) -> None:
        """To the coordinator, as a node picked by chance knows it; `answered(None)` after the time-out.

        Some come twice, or late; but not the end of a transaction in the protocol of older clients: it does not say of
        which one, so of a late copy nobody could tell that it is not the end of the next one (KIP-890 is about that).
        """
        self._number += 2
        number, random = self._number, self.random
        self._waiting[number] = answered
        node = self._believed_coordinator(topic, key)
        asked = ForGroup(key, body) if topic == GROUPS_TOPIC else ForTransaction(key, body)
        nameless = isinstance(body, EndTransaction) and not body.raises_epoch
        if node is not None:
            for copy in range(2 if random.random() < 0.03 else 1):  # nobody waits for the answer to the second
                if random.random() > 0.02 and not (nameless and copy):
                    late_ms = 500.0 if random.random() < 0.02 and not nameless else 2.0
                    delay = int(random.expovariate(1.0) * late_ms * MILLISECOND)
                    self.kernel.schedule(delay, self.world.simulation.hosts[node].ask, BROKER, number + copy, asked)
        self.kernel.schedule(_REQUEST_MS * MILLISECOND, self._answer, number, None)

    def _believed_coordinator(self, topic: str, key: str) -> int | None:
        broker = self.world.broker(self.random.choice(list(self.world.simulation.hosts)))
        place = place_of(broker.image, topic, key) if broker is not None else None
        state = broker.image.partition(place) if broker is not None and place is not None else None
        return state.leader if state is not None else None

    def replied(self, number: int, response: Any) -> None:
        if number in self._waiting and self.random.random() > 0.02:
            delay = int(self.random.expovariate(1.0) * 2 * MILLISECOND)
            self.kernel.schedule(delay, self._answer, number, response)

    def _answer(self, number: int, response: Any) -> None:
        answered = self._waiting.pop(number, None)
        if answered is not None:
            answered(response)

    # The end

    def missing(self) -> str | None:
        for each in self._ids:
            if each.busy:
                return f"{each.name} goes on"
        return None

    def finish(self) -> None:
        self.checks.finish({each.name: each.found_offset for each in self._ids})


class TransactionalId:
    """State: its instances, of which the last one has the id, and what its group has committed for certain."""

    def __init__(self, traffic: TransactionTraffic, number: int) -> None:
        self.traffic = traffic
        self.name = f"tx{number}"
        self.old_client = number % 2 == 1
        self.timeout_ms = traffic.random.choice([2_000, 5_000])
        self.floor = -1  # its group has committed at least this
        self.found_offset: int | None = None
        self.count = 0
        self._instances: list[Instance] = []
        self._read = False

    def begin(self) -> None:
        self._replace()

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    @property
    def busy(self) -> bool:
        return self._instances[-1].busy or not self._read

    def later(self, mean_ms: float, action: Callable[..., object]) -> None:
        delay = self.traffic.random.expovariate(1.0) * mean_ms
        self.traffic.kernel.schedule(int(delay * MILLISECOND), action)

    def is_current(self, instance: Instance) -> bool:
        return self._instances[-1] is instance

    def _replace(self) -> None:
        """Another instance takes the id. The one before may not know it."""
        if self.traffic.world.quiet and self._instances:
            if not self._instances[-1].busy:
                self._read_at_the_end()
            return
        self._instances.append(Instance(self))
        self._instances[-1].begin()
        if self.traffic.random.random() < 0.3:
            self.later(4_000.0, self._replace)

    def gone(self, instance: Instance) -> None:
        """It ended, or crashed: another one comes, after the time-out of its transactions perhaps."""
        if self.is_current(instance) and self.traffic.world.quiet:
            self._read_at_the_end()
        elif self.is_current(instance):
            self.later(self.traffic.random.choice([20.0, 500.0, 5_000.0]), self._replace)

    def read_offsets(self, then: Callable[[], object]) -> None:
        """What the group has committed; it does not go back (I18), and knows of every transaction that is over."""

        def answered(response: Any) -> None:
            if not isinstance(response, GroupCommits) or OFFSETS_OF in response.unsettled:
                self.later(100.0, lambda: self.read_offsets(then))
                return
            known = response.offsets.get(OFFSETS_OF)
            found = known.offset if known is not None else -1
            if found < floor:
                raise InvariantViolated("I18", f"{self.group} has committed {floor}, and says {found}")
            self.floor = max(self.floor, found)
            self.found_offset = found
            then()

        floor = self.floor
        self.traffic.send(GROUPS_TOPIC, self.group, AskCommitted(), answered)

    def _read_at_the_end(self) -> None:
        def read() -> None:
            self._read = True

        self._read = False
        self.read_offsets(read)


class Instance:
    """A process that runs transactions, one after another, until it crashes or is fenced."""

    def __init__(self, owner: TransactionalId) -> None:
        self._owner = owner
        self._traffic = owner.traffic
        self._random = owner.traffic.random
        self._who: ProducerGiven | None = None
        self._sequences: dict[PartitionId, int] = {}
        self._transaction: Transaction | None = None
        self.busy = True

    def begin(self) -> None:
        self._ask(InitProducer(self._owner.timeout_ms), self._given)

    def _ask(self, body: Any, answered: Callable[[Any], None]) -> None:
        """Asks until there is an answer that counts."""

        def heard(response: Any) -> None:
            if isinstance(response, Refused) and response.problem in _FENCED:
                self._fenced(body)
            elif response is None or isinstance(response, Refused):
                self._owner.later(_AGAIN_MS, lambda: self._ask(body, answered))
            else:
                answered(response)

        self._traffic.send(TRANSACTIONS_TOPIC, self._owner.name, body, heard)

    def _given(self, given: ProducerGiven) -> None:
        self._who, self._sequences = given, {}
        self._owner.read_offsets(self._transact)

    def _fenced(self, body: Any) -> None:
        """Another instance has the id, or the transaction was open for too long. A zombie may ask once more, later."""
        self._traffic.kernel.counters["zombies fenced"] += not self._owner.is_current(self)
        if self._random.random() < 0.3 and isinstance(body, EndTransaction | IncludePartitions):
            self._owner.later(
                1_000.0,
                lambda: self._traffic.send(TRANSACTIONS_TOPIC, self._owner.name, body, lambda _: None),
            )
        self._stop()

    def _stop(self) -> None:
        self.busy = False
        self._owner.gone(self)

    def _crashes(self) -> bool:
        """In the middle of whatever it does, and says nothing."""
        if self._random.random() > 0.02:
            return False
        self._stop()
        return True

    # A transaction

    def _transact(self) -> None:
        if self._traffic.world.quiet or (not self._owner.is_current(self) and self._random.random() < 0.2):
            self._stop()
            return
        assert self._who is not None
        owner, random = self._owner, self._random
        owner.count += 1
        chosen = [each for each in self._traffic.world.partitions() if random.random() < 0.6]
        chosen = chosen or self._traffic.world.partitions()[:1]
        writes = [
            (partition, b"%s.%d.%d" % (owner.name.encode(), owner.count, number))
            for number, partition in enumerate(sorted(chosen * random.randint(1, 2)))
        ]
        offset = owner.count if random.random() < 0.5 else None
        transaction = Transaction(owner.name, owner.count, tuple(writes), random.random() < 0.7, offset)
        self._transaction = transaction
        self._traffic.checks.begins(transaction)
        if owner.old_client:
            self._ask(IncludePartitions(*self._who, tuple(sorted(set(chosen)))), lambda _: self._produce(0))
        else:
            self._produce(0)

    def _produce(self, index: int, *, again: bool = False) -> None:
        """Nobody gives up on a batch that may be stored: its sequence number would be used twice."""
        transaction, who = self._transaction, self._who
        assert transaction is not None and who is not None
        if self._crashes():
            return
        gives_up = not again and not transaction.commits and self._random.random() < 0.2
        if index == len(transaction.writes) or gives_up:
            self._send_offsets()
            return
        partition, value = transaction.writes[index]
        sequence = self._sequences.get(partition, 0)
        batch = encode(value, BatchProducer(*who, sequence, transactional=True))
        produce = Produce([batch], transactional_id=self._owner.name, announces=not self._owner.old_client)

        def answered(response: Any) -> None:
            if isinstance(response, Produced):
                self._sequences[partition] = sequence + 1
                self._traffic.world.acknowledged(partition, response.first_offset, value)
                self._produce(index + 1)
            elif isinstance(response, Refused) and response.problem in _FENCED:
                self._fenced(produce)
            else:
                self._owner.later(_AGAIN_MS, lambda: self._produce(index, again=True))

        world = self._traffic.world
        world.requests.send(partition, produce, answered, world.believed_leader(partition))

    def _send_offsets(self) -> None:
        transaction, who, owner = self._transaction, self._who, self._owner
        assert transaction is not None and who is not None
        if transaction.offset is None or self._keeps_offsets(transaction):
            self._end()
            return
        send = SendOffsets(*who, owner.group, (self._row(transaction),), announces=not owner.old_client)
        if owner.old_client:
            self._ask(IncludeGroup(*who, owner.group), lambda _: self._ask(send, self._sent))
        else:
            self._ask(send, self._sent)

    def _keeps_offsets(self, transaction: Transaction) -> bool:
        """As a client in the coordinator's process does: every other transaction with offsets."""
        kept = transaction.offset is not None and transaction.commits and not self._owner.old_client
        return kept and self._owner.count % 2 == 0

    def _row(self, transaction: Transaction) -> OffsetRow:
        assert transaction.offset is not None
        return OffsetRow(*OFFSETS_OF, transaction.offset)

    def _sent(self, answer: Any) -> None:
        if not isinstance(answer, Included):
            raise InvariantViolated("I18", f"the group takes offsets of anybody, and said {answer}")
        self._end()

    def _end(self) -> None:
        transaction, who = self._transaction, self._who
        assert transaction is not None and who is not None
        if self._crashes():
            return
        if transaction.commits:
            self._traffic.checks.may_commit(transaction)
        if self._keeps_offsets(transaction):
            self._traffic.kernel.counters["offsets decided by the commit itself"] += 1
            sent = (SentOffsets(self._owner.group, (self._row(transaction),)),)
            self._ask(EndTransaction(*who, True, True, sent), lambda given: self._await_end(given))
            return
        raises = not self._owner.old_client
        self._ask(EndTransaction(*who, transaction.commits, raises), self._ended)

    def _await_end(self, given: ProducerGiven) -> None:
        """Until then a reader of the group's offsets may see the old ones."""
        self._ask(AwaitEnd(), lambda _: self._ended(given))

    def _ended(self, given: ProducerGiven) -> None:
        transaction, kernel = self._transaction, self._traffic.kernel
        assert transaction is not None
        self._traffic.checks.ended(transaction)
        kernel.counters["committed transactions" if transaction.commits else "aborted transactions"] += 1
        if transaction.commits and transaction.offset is not None:
            self._owner.floor = max(self._owner.floor, transaction.offset)
            kernel.counters["offsets committed in transactions"] += 1
        if given != self._who:
            self._who, self._sequences = given, {}
        elif not self._owner.old_client:
            raise InvariantViolated("R19", f"{given} ended a transaction and has the same epoch as before")
        self._owner.later(self._traffic.world.produce_ms * 4, lambda: self._owner.read_offsets(self._transact))
