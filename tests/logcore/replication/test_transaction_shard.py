"""Transactions on a replicated log: who is told what when, and what survives the loss of a coordinator or a leader."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.replication.controller.controller_messages import (
    BrokerHeartbeat,
    ProducerIds,
    ReserveProducerIds,
)
from millstream.logcore.replication.machine import Input, NodeId, Received
from millstream.logcore.replication.machine_messages import Message
from millstream.logcore.replication.replica.replica_messages import (
    FetchRequest,
    ForPartition,
    PartitionId,
    Problem,
    Produce,
    Produced,
    Read,
    ReadBatches,
    Refused,
)
from millstream.logcore.replication.shards.coordination_messages import ForEveryShard, ForGroup, ForTransaction
from millstream.logcore.replication.shards.coordinators import default_makers
from millstream.logcore.replication.shards.shard_group_requests import AskCommitted
from millstream.logcore.replication.shards.transaction_messages import (
    ApplyOffsets,
    AskOutcome,
    AskProducerId,
    AwaitEnd,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    GroupRefused,
    HoldOffsets,
    Included,
    IncludeGroup,
    IncludePartitions,
    InitProducer,
    ListTransactions,
    OffsetRow,
    ProducerGiven,
    SendOffsets,
    SentOffsets,
    VerifyTransaction,
    WriteMarker,
)
from millstream.logcore.replication.shards.transaction_shard import TransactionSettings
from millstream.logcore.topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC

from .brokers import Brokers
from .trio import batch, value_of


class Cluster(Brokers):
    """With a topic of transactions led by node 1, `orders` with partitions led by 1, 2, 3, 1, and producer ids."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.next_id = 100
        super().__init__(default_makers(transactions=settings))
        self.create_topic(TRANSACTIONS_TOPIC, 1)
        for number, node in enumerate((1, 2, 3, 1)):
            if node != 1:
                self.elect(node, shard=number, topic="orders")
        self.pass_time(1_000)

    def _control(self, sender: NodeId, message: Any) -> None:
        if isinstance(message, ReserveProducerIds):
            block = ProducerIds(message.cluster, message.epoch, message.number, self.next_id, message.count)
            self.next_id += message.count
            self._give(sender, Received(NodeId(1), block))
        else:
            super()._control(sender, message)

    @property
    def orders(self) -> list[PartitionId]:
        return [PartitionId(self.image.topic_ids["orders"], number) for number in range(4)]

    def leader(self, partition: PartitionId) -> NodeId:
        state = self.image.partition(partition)
        assert state is not None and state.leader is not None
        return state.leader

    def transaction(self, body: Any, *, node: int = 1, key: str = "tx") -> Any:
        return self.replies.get(self.ask(node, ForTransaction(key, body)))

    def init(self, *, timeout_ms: int = 60_000, **options: Any) -> ProducerGiven:
        given = self.transaction(InitProducer(timeout_ms), **options)
        assert isinstance(given, ProducerGiven)
        return given

    def write(self, who: ProducerGiven, number: int, value: bytes, sequence: int = 0, *, announces: bool = True) -> Any:
        """The answer; None where there is none yet."""
        return self.replies.get(self.ask_write(who, number, value, sequence, announces=announces))

    def ask_write(
        self, who: ProducerGiven, number: int, value: bytes, sequence: int = 0, *, announces: bool = True
    ) -> int:
        encoded = batch(value, producer=BatchProducer(*who, sequence, transactional=True))
        body = Produce([encoded], transactional_id="tx", announces=announces)
        return self.ask(self.leader(self.orders[number]), ForPartition(self.orders[number], body))

    def end(self, who: ProducerGiven, *, committed: bool = True, raises: bool = True, node: int = 1) -> Any:
        return self.transaction(EndTransaction(*who, committed, raises), node=node)

    def read(self, number: int) -> list[bytes]:
        """What a reader of committed records sees now."""
        where = self.orders[number]
        found = self.replies[self.ask(self.leader(where), ForPartition(where, Read(0, 1 << 20, True)))]
        assert isinstance(found, ReadBatches)
        data = [each for each in found.batches if not each.header.control and not found.aborted.covers(each.header)]
        return [value_of(each) for each in data]

    def describe(self, node: int = 1) -> DescribedTransaction:
        found = self.transaction(DescribeTransaction(), node=node)
        assert isinstance(found, DescribedTransaction)
        return found

    def end_of_transactions(self) -> int:
        place = PartitionId(self.image.topic_ids[TRANSACTIONS_TOPIC], 0)
        return self.brokers[NodeId(1)].replicas[place].core.log.end_offset

    def committed(self, group: str = "g") -> Any:
        return self.replies[self.ask(1, ForGroup(group, AskCommitted()))]

    def fail_over(self, node: int) -> None:
        """The node that coordinates is gone; this one does so now."""
        self.kill(1)
        for number, leader in enumerate((node, 2, 3, node)):
            self.elect(leader, shard=number, topic="orders")
        self.elect(node, topic=TRANSACTIONS_TOPIC)
        self.elect(node)
        self.pass_time(1_000)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_transaction_over_several_partitions_is_committed_as_one(cluster: Cluster) -> None:
    who = cluster.init()
    for number in range(4):
        assert isinstance(cluster.write(who, number, b"a%d" % number), Produced)
    assert [cluster.read(number) for number in range(4)] == [[]] * 4
    after = cluster.end(who)
    assert after == ProducerGiven(who.producer_id, who.epoch + 1)
    assert [cluster.read(number) for number in range(4)] == [[b"a0"], [b"a1"], [b"a2"], [b"a3"]]
    assert cluster.describe().state == "CompleteCommit"


def test_an_old_client_that_gives_up_what_was_committed_is_told_so(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 0, b"one")
    assert cluster.end(who, raises=False) == who
    cluster.pass_time(1_000)
    assert cluster.read(0) == [b"one"]
    given = cluster.end(who, committed=False, raises=False)
    assert isinstance(given, Refused) and given.problem is Problem.INVALID_TXN_STATE, "it would do it all once more"


def test_an_aborted_transaction_is_seen_by_nobody(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 0, b"no")
    cluster.write(who, 1, b"no")
    who = cluster.end(who, committed=False)
    cluster.write(who, 1, b"yes")
    cluster.end(who)
    assert (cluster.read(0), cluster.read(1)) == ([], [b"yes"])


def test_older_clients_announce_partitions_and_keep_their_epoch(cluster: Cluster) -> None:
    who = cluster.init()
    for turn in range(3):
        assert cluster.transaction(IncludePartitions(*who, (cluster.orders[1], cluster.orders[2]))) == Included()
        assert isinstance(cluster.write(who, 1, b"%d" % turn, turn, announces=False), Produced)
        assert cluster.end(who, committed=turn != 1, raises=False) == who
        assert cluster.end(who, committed=turn != 1, raises=False) == who, "the answer was lost"
    assert cluster.read(1) == [b"0", b"2"]
    refused = cluster.write(who, 1, b"late", 3, announces=False)
    assert refused.problem is Problem.INVALID_TXN_STATE
    assert cluster.end(who, raises=False) == who


def test_a_partition_that_was_not_announced_takes_nothing_of_an_older_client(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.transaction(IncludePartitions(*who, (cluster.orders[1],)))
    assert cluster.write(who, 2, b"a", announces=False).problem is Problem.INVALID_TXN_STATE
    unknown = PartitionId("nobody knows it", 0)
    assert cluster.transaction(IncludePartitions(*who, (unknown,))).problem is Problem.UNKNOWN_PARTITION


def test_nothing_is_marked_before_the_decision_is_committed(cluster: Cluster) -> None:
    """The coordinator must not say what its successor may not know."""
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.cut = {3}
    marked: list[Any] = []
    cluster.held = lambda sender, message: (
        _is_fetch_of_transactions(cluster, message) or (isinstance(message, WriteMarker) and not marked.append(message))
    )
    request = cluster.ask(1, ForTransaction("tx", EndTransaction(*who, True, True)))
    cluster.pass_time(1_000)
    assert request not in cluster.replies
    assert marked == []
    cluster.held = lambda sender, message: False
    cluster.cut = set()
    cluster.pass_time(3_000)
    assert isinstance(cluster.replies[request], ProducerGiven)
    assert cluster.read(1) == [b"a"]


def _is_fetch_of_transactions(cluster: Cluster, message: Any) -> bool:
    partition = getattr(message, "partition", None)
    return partition is not None and partition.topic == cluster.image.topic_ids[TRANSACTIONS_TOPIC]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("raises", [True, False])
def test_a_transaction_that_is_just_ending_ends_in_no_partition_otherwise(
    cluster: Cluster, *, committed: bool, raises: bool
) -> None:
    """A leader that may lack markers asks while the decision is not committed: the answer is that decision."""
    who = cluster.init()
    announced = cluster.transaction(IncludePartitions(*who, (cluster.orders[1], cluster.orders[2])))
    assert announced == Included()
    cluster.write(who, 1, b"a", announces=False)
    marked: list[WriteMarker] = []
    cluster.held = lambda sender, message: (
        _is_fetch_of_transactions(cluster, message) or (isinstance(message, WriteMarker) and not marked.append(message))
    )
    cluster.cut = {3}
    request = cluster.ask(1, ForTransaction("tx", EndTransaction(*who, committed, raises)))
    cluster.send(2, 1, _asks_for_outcome(cluster, who, 1))
    cluster.pass_time(500)
    assert request not in cluster.replies and marked == []
    cluster.held = lambda sender, message: isinstance(message, WriteMarker) and not marked.append(message)
    cluster.cut = set()
    cluster.pass_time(2_000)
    assert {message.marker.committed for message in marked} == {committed}
    cluster.held = lambda sender, message: False
    cluster.pass_time(3_000)
    assert cluster.read(1) == ([b"a"] if committed else [])


def test_what_no_transaction_of_its_producer_can_be_is_ended(cluster: Cluster) -> None:
    """The coordinator knows all transactions of the producer, and none has had the partition."""
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.end(who, raises=False)
    marked: list[WriteMarker] = []
    cluster.held = lambda sender, message: isinstance(message, WriteMarker) and not marked.append(message)
    cluster.send(3, 1, _asks_for_outcome(cluster, who, 2))
    cluster.pass_time(500)
    [message] = marked
    assert message.partition == cluster.orders[2] and not message.marker.committed


def _asks_for_outcome(cluster: Cluster, who: ProducerGiven, number: int) -> AskOutcome:
    """Of a partition that has had no end of this producer."""
    place = PartitionId(cluster.image.topic_ids[TRANSACTIONS_TOPIC], 0)
    state = cluster.image.partition(cluster.orders[number])
    assert state is not None
    return AskOutcome(place, cluster.orders[number], state.leader_epoch, *who, -1)


def test_an_end_that_is_asked_for_again_ends_nothing_twice(cluster: Cluster) -> None:
    """The second request waits for a record of somebody else, and goes on when the transaction has ended long since."""
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    after = cluster.end(who)
    cluster.held = lambda sender, message: _is_fetch_of_transactions(cluster, message)
    cluster.pass_time(100)
    other = cluster.ask(1, ForTransaction("other", InitProducer(1_000)))
    again = cluster.ask(1, ForTransaction("tx", EndTransaction(*who, True, True)))
    cluster.pass_time(1_000)
    assert other not in cluster.replies and again not in cluster.replies
    assert cluster.read(1) == [b"a"]
    cluster.held = lambda sender, message: False
    cluster.pass_time(3_000)
    assert cluster.replies[again] == after
    assert cluster.describe().state == "CompleteCommit"


def test_a_new_coordinator_ends_what_was_decided_before(cluster: Cluster) -> None:
    """T-L20."""
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.write(who, 2, b"b")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    after = cluster.end(who)
    assert isinstance(after, ProducerGiven)
    cluster.pass_time(100)  # what it owes its log is written
    cluster.held = lambda sender, message: False
    cluster.fail_over(2)
    assert (cluster.read(1), cluster.read(2)) == ([b"a"], [b"b"])
    assert cluster.end(who, node=2) == after, "asked again, it has the same answer"


def test_a_new_coordinator_ends_what_was_aborted_before(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    after = cluster.end(who, committed=False)
    cluster.held = lambda sender, message: False
    cluster.fail_over(2)
    assert cluster.read(1) == []
    assert cluster.brokers[NodeId(2)].replicas[cluster.orders[1]].core.log.state.transactions.open == []
    assert cluster.end(who, committed=False, node=2) == after


def test_an_open_transaction_goes_on_at_a_new_coordinator(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.fail_over(2)
    cluster.write(who, 2, b"b")
    assert isinstance(cluster.end(who, node=2), ProducerGiven)
    cluster.pass_time(1_000)
    assert (cluster.read(1), cluster.read(2)) == ([b"a"], [b"b"])


def test_markers_reach_a_leader_that_was_away(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.write(who, 2, b"b")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker) and message.partition == cluster.orders[1]
    after = cluster.end(who)
    cluster.pass_time(1_000)
    assert cluster.describe().state == "PrepareCommit"
    cluster.held = lambda sender, message: False
    cluster.elect(3, shard=1, topic="orders")
    cluster.pass_time(1_000)
    assert cluster.describe().state == "CompleteCommit"
    assert (cluster.read(1), cluster.read(2)) == ([b"a"], [b"b"])
    assert isinstance(cluster.write(after, 1, b"c"), Produced)


def test_a_deleted_topic_keeps_no_transaction_open(cluster: Cluster) -> None:
    cluster.create_topic("gone", 1)
    cluster.pass_time(100)
    who = cluster.init()
    gone = PartitionId(cluster.image.topic_ids["gone"], 0)
    cluster.transaction(IncludePartitions(*who, (gone, cluster.orders[1])))
    cluster.delete_topic("gone")
    cluster.end(who)
    assert cluster.describe().state == "CompleteCommit"


def test_a_transaction_that_names_a_group_ends_where_no_group_ever_was(cluster: Cluster) -> None:
    cluster.delete_topic(GROUPS_TOPIC)  # nobody made it, in a cluster that is new
    who = cluster.init()
    cluster.transaction(IncludeGroup(who.producer_id, who.epoch, "g"))
    cluster.end(who, committed=False)
    assert cluster.describe().state == "Empty"


def test_who_waits_for_the_end_of_a_transaction_is_answered_when_it_is_visible(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    cluster.end(who)
    awaited = cluster.ask(1, ForTransaction("tx", AwaitEnd()))
    cluster.pass_time(300)
    assert awaited not in cluster.replies and cluster.read(1) == []
    cluster.held = lambda sender, message: False
    cluster.pass_time(1_000)
    assert cluster.replies[awaited] == Included() and cluster.read(1) == [b"a"]
    assert cluster.transaction(AwaitEnd()) == Included()


def test_what_comes_before_the_last_transaction_has_ended_waits_for_that(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    after = cluster.end(who)
    early = cluster.ask_write(after, 2, b"b")
    started = cluster.ask(1, ForTransaction("tx", IncludeGroup(after.producer_id, after.epoch, "g")))
    cluster.pass_time(300)
    assert early not in cluster.replies and started not in cluster.replies
    cluster.held = lambda sender, message: False
    cluster.pass_time(1_000)
    assert isinstance(cluster.replies[early], Produced)
    assert cluster.replies[started] == Included()


def test_who_waits_too_long_for_the_end_of_the_last_transaction_is_told_to_ask_again(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.held = lambda sender, message: isinstance(message, WriteMarker)
    after = cluster.end(who)
    requests = [
        cluster.ask(1, ForTransaction("tx", IncludeGroup(after.producer_id, after.epoch, "g"))) for _ in range(30)
    ]
    cluster.pass_time(1_500)
    assert {cluster.replies[request].problem for request in requests} == {Problem.CONCURRENT_TRANSACTIONS}


def test_a_new_instance_fences_the_old_one_and_aborts_what_that_has_open(cluster: Cluster) -> None:
    """T-L17."""
    old = cluster.init()
    cluster.write(old, 1, b"zombie")
    new = cluster.init()
    assert new == ProducerGiven(old.producer_id, old.epoch + 1)
    for refused in (
        cluster.write(old, 1, b"zombie", 1),
        cluster.write(old, 2, b"zombie"),
        cluster.end(old),
        cluster.end(old, raises=False),
        cluster.transaction(IncludePartitions(*old, (cluster.orders[2],))),
    ):
        assert refused.problem is Problem.PRODUCER_FENCED
    cluster.write(new, 1, b"new")
    assert cluster.end(old).problem is Problem.PRODUCER_FENCED
    cluster.end(new)
    assert (cluster.read(1), cluster.read(2)) == ([b"new"], [])


def test_a_late_end_of_a_transaction_does_not_end_the_next_one(cluster: Cluster) -> None:
    """T-L17: a copy of the request comes when the next one is open; it has the answer of then."""
    who = cluster.init()
    cluster.write(who, 1, b"a")
    after = cluster.end(who)
    cluster.write(after, 1, b"b")
    assert cluster.end(who).problem is Problem.PRODUCER_FENCED
    assert cluster.read(1) == [b"a"]
    assert cluster.describe().state == "Ongoing"


def test_a_producer_that_goes_on_after_a_mishap_must_still_have_the_id(cluster: Cluster) -> None:
    """KIP-360. The answer may be lost, and is then the same."""
    first = cluster.init()
    second = cluster.transaction(InitProducer(60_000, *first))
    assert second == ProducerGiven(first.producer_id, first.epoch + 1)
    assert cluster.transaction(InitProducer(60_000, *first)) == second
    cluster.write(second, 1, b"a")
    assert cluster.transaction(InitProducer(60_000, *first)).problem is Problem.PRODUCER_FENCED
    assert cluster.transaction(InitProducer(0)).problem is Problem.INVALID_TRANSACTION_TIMEOUT


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(cluster: Cluster) -> None:
    """T-L18: nothing holds up its readers for longer."""
    who = cluster.init(timeout_ms=2_000)
    cluster.write(who, 1, b"a")
    cluster.pass_time(1_500)
    assert cluster.describe().state == "Ongoing"
    cluster.pass_time(1_500)
    assert cluster.describe().state == "Empty"
    assert cluster.end(who).problem is Problem.PRODUCER_FENCED
    log = cluster.brokers[NodeId(2)].replicas[cluster.orders[1]].core
    assert log.last_stable_offset == log.log.end_offset
    assert cluster.read(1) == []


def test_a_new_coordinator_ends_what_is_open_for_too_long(cluster: Cluster) -> None:
    who = cluster.init(timeout_ms=2_000)
    cluster.write(who, 1, b"a")
    cluster.fail_over(2)
    cluster.pass_time(2_500)
    assert cluster.end(who, node=2).problem is Problem.PRODUCER_FENCED


def test_offsets_of_a_group_are_committed_with_the_transaction(cluster: Cluster) -> None:
    who = cluster.init()
    rows = (OffsetRow("orders", 0, 7, "note"),)
    cluster.write(who, 1, b"a")
    assert cluster.transaction(SendOffsets(who.producer_id, who.epoch, "g", rows, announces=True)) == Included()
    assert not _offsets(cluster)
    assert cluster.committed().unsettled == {TopicPartition("orders", 0)}
    after = cluster.end(who)
    assert _offsets(cluster) == {TopicPartition("orders", 0): 7}
    cluster.transaction(SendOffsets(after.producer_id, after.epoch, "g", (OffsetRow("orders", 0, 9),), announces=True))
    cluster.end(after, committed=False)
    assert cluster.committed().unsettled == frozenset()
    assert _offsets(cluster) == {TopicPartition("orders", 0): 7}


def test_offsets_are_committed_once_however_often_their_group_is_told(cluster: Cluster) -> None:
    who = cluster.init()
    told: list[Any] = []
    cluster.held = lambda sender, message: isinstance(message, ApplyOffsets) and bool(told.append(message))
    cluster.transaction(SendOffsets(who.producer_id, who.epoch, "g", (OffsetRow("orders", 0, 7),), announces=True))
    who = cluster.end(who)
    cluster.transaction(SendOffsets(who.producer_id, who.epoch, "g", (OffsetRow("orders", 0, 9),), announces=True))
    cluster.end(who)
    cluster.send(1, 1, told[0])
    cluster.pass_time(500)
    assert _offsets(cluster) == {TopicPartition("orders", 0): 9}


def test_offsets_of_a_generation_that_is_over_are_refused_by_the_group(cluster: Cluster) -> None:
    who = cluster.init()
    refused = cluster.transaction(
        SendOffsets(
            who.producer_id,
            who.epoch,
            "g",
            (OffsetRow("orders", 0, 7),),
            generation=3,
            member_id="gone",
            announces=True,
        )
    )
    assert isinstance(refused, GroupRefused) and refused.code == 22  # ILLEGAL_GENERATION
    cluster.end(who)
    assert not _offsets(cluster)


def test_offsets_that_their_group_takes_too_late_are_refused_because_the_transaction_is_over(cluster: Cluster) -> None:
    who = cluster.init(timeout_ms=1_000)
    cluster.held = lambda sender, message: isinstance(message, HoldOffsets)
    rows = (OffsetRow("orders", 0, 7),)
    request = cluster.ask(1, ForTransaction("tx", SendOffsets(who.producer_id, who.epoch, "g", rows, announces=True)))
    cluster.pass_time(2_000)
    assert request not in cluster.replies
    cluster.held = lambda sender, message: False
    cluster.pass_time(1_000)
    assert cluster.replies[request].problem is Problem.PRODUCER_FENCED
    assert not _offsets(cluster)
    assert cluster.committed().unsettled == frozenset()


def test_a_group_is_not_asked_to_hold_offsets_before_it_is_committed_that_it_takes_part(cluster: Cluster) -> None:
    """A coordinator whose record of that is lost with it would leave them unsettled for ever."""
    who = cluster.init()
    states = cluster.image.topic_ids[TRANSACTIONS_TOPIC]
    cluster.held = lambda sender, message: isinstance(message, FetchRequest) and message.partition.topic == states
    holds: list[HoldOffsets] = []

    def note_holds(to: NodeId, given: Input) -> None:
        if isinstance(given, Received) and isinstance(given.message, HoldOffsets):
            holds.append(given.message)

    cluster.watched = note_holds
    rows = (OffsetRow("orders", 0, 7),)
    cluster.ask(1, ForTransaction("tx", SendOffsets(who.producer_id, who.epoch, "g", rows, announces=True)))
    cluster.pass_time(2_000)
    assert not holds
    cluster.held = lambda sender, message: False
    cluster.pass_time(2_000)
    assert holds and cluster.committed().unsettled == {TopicPartition("orders", 0)}


def commit_at_once(cluster: Cluster, who: ProducerGiven, *sent: SentOffsets) -> Any:
    return cluster.transaction(EndTransaction(*who, True, True, sent))


def test_a_commit_brings_the_offsets_that_its_client_has_kept(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    sent = SentOffsets("g", (OffsetRow("orders", 0, 7),)), SentOffsets("h", (OffsetRow("orders", 1, 8),))
    after = commit_at_once(cluster, who, *sent)
    assert (after.producer_id, after.epoch) == (who.producer_id, who.epoch + 1)
    assert cluster.read(1) == [b"a"]
    assert _offsets(cluster) == {TopicPartition("orders", 0): 7}
    assert _offsets(cluster, "h") == {TopicPartition("orders", 1): 8}


def test_a_commit_with_offsets_is_decided_by_one_record(cluster: Cluster) -> None:
    who = cluster.init()
    ends = [cluster.end_of_transactions()]
    cluster.held = lambda sender, message: isinstance(message, ApplyOffsets)
    commit_at_once(cluster, who, SentOffsets("g", (OffsetRow("orders", 0, 7),)))
    ends.append(cluster.end_of_transactions())
    assert ends[1] - ends[0] == 1
    cluster.held = lambda sender, message: False
    cluster.pass_time(1_000)
    assert _offsets(cluster) == {TopicPartition("orders", 0): 7}


def test_the_decision_of_the_next_transaction_also_says_that_the_last_one_is_complete(cluster: Cluster) -> None:
    who = cluster.init()
    begin = cluster.end_of_transactions()
    for _ in range(3):
        who = commit_at_once(cluster, who, SentOffsets("g", (OffsetRow("orders", 0, 7),)))
    assert cluster.end_of_transactions() == begin + 3
    cluster.pass_time(100)
    assert cluster.end_of_transactions() == begin + 4  # nothing followed the last one
    cluster.pass_time(1_000)
    assert cluster.end_of_transactions() == begin + 4
    cluster.fail_over(2)
    assert cluster.describe(node=2).state == "CompleteCommit"


def test_what_a_complete_transaction_held_takes_no_room_of_the_next_one() -> None:
    cluster = Cluster(TransactionSettings(bytes_max=2_000))
    who = cluster.init()
    for offset in range(3):  # each takes more than half of the room
        rows = tuple(OffsetRow("orders", number % 4, offset, "x" * 300) for number in range(4))
        who = commit_at_once(cluster, who, SentOffsets("g", rows))
        assert isinstance(who, ProducerGiven)


def test_a_commit_that_is_asked_for_again_takes_its_offsets_once(cluster: Cluster) -> None:
    who = cluster.init()
    after = commit_at_once(cluster, who, SentOffsets("g", (OffsetRow("orders", 0, 7),)))
    commit_at_once(cluster, after, SentOffsets("g", (OffsetRow("orders", 0, 9),)))
    again = commit_at_once(cluster, after, SentOffsets("g", (OffsetRow("orders", 0, 9),)))
    assert again.epoch == after.epoch + 1
    fenced = commit_at_once(cluster, who, SentOffsets("g", (OffsetRow("orders", 0, 7),)))
    assert isinstance(fenced, Refused) and fenced.problem is Problem.PRODUCER_FENCED
    assert _offsets(cluster) == {TopicPartition("orders", 0): 9}


def test_a_commit_by_a_client_that_keeps_offsets_may_be_all_there_is_of_a_transaction(cluster: Cluster) -> None:
    who = cluster.init()
    after = commit_at_once(cluster, who)
    assert after.epoch == who.epoch + 1
    assert isinstance(cluster.end(after), Refused), "others have to open one"


def test_offsets_for_a_group_that_nobody_coordinates_are_not_lost(cluster: Cluster) -> None:
    cluster.delete_topic(GROUPS_TOPIC)
    refused = commit_at_once(cluster, cluster.init(), SentOffsets("g", (OffsetRow("orders", 0, 7),)))
    assert isinstance(refused, Refused) and "coordinates" in refused.message


def test_offsets_belong_to_an_open_transaction(cluster: Cluster) -> None:
    who = cluster.init()
    refused = cluster.transaction(SendOffsets(who.producer_id, who.epoch, "g", (OffsetRow("orders", 0, 7),)))
    assert refused.problem is Problem.INVALID_TXN_STATE
    assert cluster.transaction(IncludeGroup(who.producer_id, who.epoch, "g")) == Included()
    assert cluster.transaction(SendOffsets(who.producer_id, who.epoch, "g", (OffsetRow("orders", 0, 7),))) == Included()


def test_late_offsets_of_an_older_client_are_no_part_of_its_next_transaction(cluster: Cluster) -> None:
    """Both transactions have one epoch: only whether the group was added tells them apart."""
    who = cluster.init()
    offsets = SendOffsets(who.producer_id, who.epoch, "g", (OffsetRow("orders", 0, 7),))
    cluster.transaction(IncludeGroup(*who, "g"))
    assert cluster.transaction(offsets) == Included()
    assert cluster.end(who, committed=False, raises=False) == who
    cluster.pass_time(1_000)
    cluster.transaction(IncludePartitions(*who, (cluster.orders[1],)))
    refused = cluster.transaction(offsets)
    assert refused.problem is Problem.INVALID_TXN_STATE
    assert cluster.end(who, raises=False) == who
    cluster.pass_time(1_000)
    assert _offsets(cluster) == {}


def _offsets(cluster: Cluster, group: str = "g") -> dict[TopicPartition, int]:
    return {where: known.offset for where, known in cluster.committed(group).offsets.items()}


def test_nobody_gets_a_producer_id_twice(cluster: Cluster) -> None:
    given = [cluster.init(key=f"tx{number}").producer_id for number in range(50)]
    given += [cluster.replies[cluster.ask(node, AskProducerId())].producer_id for node in (1, 2, 3) for _ in range(50)]
    assert len(set(given)) == 200


def test_a_copy_of_a_block_of_producer_ids_is_not_taken_again(cluster: Cluster) -> None:
    """R19: the network repeats what the controller has answered."""
    copies: list[tuple[NodeId, Received[Message]]] = []

    def keep_copy(to: NodeId, given: Input) -> None:
        if isinstance(given, Received) and isinstance(given.message, ProducerIds) and (to, given) not in copies:
            copies.append((to, given))

    cluster.watched = keep_copy
    ids: list[int] = []
    for _ in range(1_500):
        request = cluster.ask(1, AskProducerId())
        if request not in cluster.replies:
            cluster.pass_time(50)
        ids.append(cluster.replies[request].producer_id)
        for node, copy in copies:
            cluster.send(copy.sender, node, copy.message)
    assert copies and len(set(ids)) == len(ids)


def test_an_unused_id_is_forgotten_and_its_producer_told() -> None:
    cluster = Cluster(TransactionSettings(expire_ms=100_000, look_for_expired_ms=1_000))
    who = cluster.init()
    cluster.write(who, 1, b"a")
    who = cluster.end(who)
    cluster.pass_time(99_000, 500)
    assert cluster.describe().state == "CompleteCommit"
    cluster.pass_time(3_000)
    assert cluster.transaction(DescribeTransaction()).problem is Problem.TRANSACTIONAL_ID_NOT_FOUND
    gone = cluster.transaction(IncludeGroup(who.producer_id, who.epoch, "g"))
    assert isinstance(gone, Refused) and gone.problem is Problem.INVALID_PRODUCER_ID_MAPPING
    assert cluster.init().producer_id != who.producer_id


def test_an_id_is_not_forgotten_because_somebody_set_the_clock() -> None:
    cluster = Cluster(TransactionSettings(expire_ms=100_000, look_for_expired_ms=1_000))
    who = cluster.init()
    cluster.wall_ms += 30 * 24 * 60 * 60 * 1_000
    cluster.pass_time(5_000)
    assert cluster.transaction(IncludeGroup(who.producer_id, who.epoch, "g")) == Included()
    cluster.transaction(EndTransaction(*who, True, False))
    cluster.pass_time(99_000, 500)
    assert cluster.init().producer_id == who.producer_id
    cluster.pass_time(110_000, 500)
    assert cluster.transaction(DescribeTransaction()).problem is Problem.TRANSACTIONAL_ID_NOT_FOUND, "later it is"


def test_a_coordinator_lists_what_it_knows(cluster: Cluster) -> None:
    who = cluster.init()
    cluster.write(who, 1, b"a")
    cluster.pass_time(200)
    ((found,),) = cluster.replies[cluster.ask(1, ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions()))]
    assert found == cluster.describe()
    assert (found.producer_id, found.state, found.partitions) == (who.producer_id, "Ongoing", (cluster.orders[1],))
    assert (found.timeout_ms, found.open_ms) == (60_000, 200)
    assert cluster.replies[cluster.ask(2, ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions()))] == ()


def test_a_late_question_of_a_leader_opens_nothing(cluster: Cluster) -> None:
    """T-L18: a copy of it comes when the transaction is over."""
    asked: list[Any] = []
    cluster.held = lambda sender, message: isinstance(message, VerifyTransaction) and bool(asked.append(message))
    who = cluster.init()
    cluster.write(who, 1, b"a")
    after = cluster.end(who)
    cluster.send(2, 1, asked[0])
    cluster.pass_time(100)
    assert cluster.describe().state == "CompleteCommit"
    assert cluster.write(after, 1, b"b").leader_epoch > 0


def test_a_node_that_does_not_coordinate_says_so(cluster: Cluster) -> None:
    refused = cluster.transaction(InitProducer(1_000), node=2)
    assert refused.problem is Problem.NOT_COORDINATOR


def test_a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_is_open(cluster: Cluster) -> None:
    """Its successor may have ended it; the partition's new leader, which has not heard of that, would open it again."""
    who = cluster.init()
    cluster.transaction(IncludePartitions(*who, (cluster.orders[1],)))
    cluster.held = lambda sender, message: sender == 1 and isinstance(message, BrokerHeartbeat)
    cluster.pass_time(4_000)
    waiting = cluster.ask_write(who, 1, b"late", announces=False)
    cluster.pass_time(1_000)
    assert waiting not in cluster.replies
    described = cluster.transaction(DescribeTransaction())
    assert isinstance(described, Refused) and described.problem is Problem.NOT_COORDINATOR
    listed = cluster.replies[cluster.ask(1, ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions()))]
    assert isinstance(listed, Refused)
    cluster.held = lambda sender, message: False
    cluster.pass_time(2_000)
    assert isinstance(cluster.replies[waiting], Produced)


@pytest.mark.parametrize("committed", [True, False])
def test_a_coordinator_that_may_have_been_replaced_does_not_say_that_a_transaction_has_ended(
    cluster: Cluster, committed: bool
) -> None:
    """A client that keeps its epoch may have begun another one at the successor, and would take that for over."""
    who = cluster.init()
    cluster.transaction(IncludePartitions(*who, (cluster.orders[1],)))
    cluster.write(who, 1, b"a", announces=False)
    assert cluster.end(who, committed=committed, raises=False) == who
    cluster.pass_time(1_000)
    cluster.held = lambda sender, message: _is_fetch_of_transactions(cluster, message)
    again = cluster.ask(1, ForTransaction("tx", EndTransaction(*who, committed, False)))
    cluster.pass_time(1_000)
    assert again not in cluster.replies
    cluster.held = lambda sender, message: False
    cluster.pass_time(2_000)
    assert cluster.replies[again] == who


def test_a_coordinator_that_may_have_been_replaced_fences_nobody(cluster: Cluster) -> None:
    """The successor may have given the id to the one that asks."""
    first = cluster.init()
    who = cluster.init()
    refused = [(first, Problem.PRODUCER_FENCED), (who, Problem.INVALID_TXN_STATE)]
    for asking, problem in refused:
        assert cluster.end(asking, raises=False).problem is problem
    unknown = EndTransaction(who.producer_id, who.epoch, True, True)
    assert cluster.transaction(unknown, key="nobody").problem is Problem.INVALID_PRODUCER_ID_MAPPING
    cluster.held = lambda sender, message: sender == 1 and isinstance(message, BrokerHeartbeat)
    cluster.pass_time(4_000)
    for asking, _ in refused:
        assert cluster.end(asking, raises=False).problem is Problem.NOT_COORDINATOR
    assert cluster.transaction(unknown, key="nobody").problem is Problem.NOT_COORDINATOR
    cluster.held = lambda sender, message: False
    cluster.pass_time(2_000)
    for asking, problem in refused:
        assert cluster.end(asking, raises=False).problem is problem


def test_who_waits_for_a_producer_id_is_refused_where_too_many_do(cluster: Cluster) -> None:
    cluster.held = lambda sender, message: isinstance(message, ReserveProducerIds)
    asked = [cluster.ask(1, AskProducerId()) for _ in range(4_000)]
    given = [cluster.replies.get(request) for request in asked]
    assert given.count(None) == 1_000
    assert isinstance(given[-1], Refused)
    cluster.held = lambda sender, message: False
    cluster.pass_time(2_000)
    ids = [each.producer_id for each in map(cluster.replies.get, asked) if isinstance(each, ProducerGiven)]
    assert len(ids) == len(set(ids)) == sum(not isinstance(each, Refused) for each in given)


def test_a_transaction_that_named_nothing_is_over_for_the_next_coordinator_too(cluster: Cluster) -> None:
    """Else it would be aborted for being open too long, and its producer fenced."""
    who = cluster.init(timeout_ms=5_000)
    assert cluster.transaction(IncludePartitions(*who, ())) == Included()
    assert cluster.end(who, raises=False) == who
    cluster.pass_time(1_000)
    cluster.kill(1)
    cluster.elect(2, topic=TRANSACTIONS_TOPIC)
    cluster.pass_time(8_000)
    assert cluster.transaction(IncludePartitions(*who, (cluster.orders[1],)), node=2) == Included()


def test_what_is_no_part_of_the_open_transaction_of_its_producer_is_refused(cluster: Cluster) -> None:
    """With a newer epoch it would have the transaction's marker refused as one of old, and nobody would end it."""
    who = cluster.init()
    assert isinstance(cluster.write(who, 1, b"a"), Produced)
    outside = Produce([batch(b"outside", producer=BatchProducer(who.producer_id, who.epoch + 5, 0))])
    given = cluster.replies[cluster.ask(2, ForPartition(cluster.orders[1], outside))]
    assert isinstance(given, Refused) and given.problem is Problem.INVALID_TXN_STATE
    assert isinstance(cluster.end(who), ProducerGiven)
    cluster.pass_time(1_000)
    assert cluster.read(1) == [b"a"]


def test_a_transaction_that_grows_too_large_to_be_ended_is_not_let_grow() -> None:
    """Each end writes all of it once more, and goes to its groups in one message."""
    cluster = Cluster(TransactionSettings(bytes_max=2_000))
    who = cluster.init()
    fine = OffsetRow("orders", 0, 7, "n" * 500)
    assert cluster.transaction(SendOffsets(*who, "g", (fine,), announces=True)) == Included()
    rows = tuple(OffsetRow("orders", number, 7, "n" * 500) for number in range(4))
    for too_much in (
        SendOffsets(*who, "g", rows, announces=True),
        IncludeGroup(*who, "g" * 2_000),
        IncludePartitions(*who, tuple(cluster.orders) * 100),
    ):
        refused = cluster.transaction(too_much)
        assert isinstance(refused, Refused) and refused.problem is Problem.INVALID_TXN_STATE
        assert refused.message.endswith("would take more than 2000 bytes")
    kept = commit_at_once(cluster, who, SentOffsets("g", rows))
    assert isinstance(kept, Refused) and kept.message.endswith("would take more than 2000 bytes")
    assert isinstance(cluster.end(who), ProducerGiven)
    assert _offsets(cluster) == {TopicPartition("orders", 0): 7}
