"""The transactional producer of a log over the network."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from ..client import ColumnarRecords, RowRecords, TopicPartition
from ..cores.group_messages import NO_NOTE, CommitNote
from ..cores.transaction_records import Identity
from ..errors import InvalidTransactionState
from ..failpoints import fp
from ..protocol.own import EndedHere
from ..protocol.routing import CoordinatorKey, Router
from ..protocol.sender import Sender
from ..protocol.wire.apis import Api
from ..protocol.wire.messages import Fields
from ..records.batch import NO_PRODUCER, BatchProducer, EncodedBatch, in_the_name_of
from ..records.codec import encode

TRANSACTION_TIMEOUT: Final = timedelta(minutes=15)
"""After this time the server aborts an open transaction. It is Kafka's maximum."""


class RemoteTransactionalProducer:
    """State: whether a transaction is open, its partitions and groups on the server, the sequence in each partition.

    After `LogUnavailable` from `commit` the outcome is unknown, until a new producer of the id completes it.
    """

    def __init__(self, router: Router, transactional_id: str, timeout: timedelta = TRANSACTION_TIMEOUT) -> None:
        self._router = router
        self._sender = Sender(router)
        self._id = transactional_id
        self._timeout = timeout
        self._coordinator = CoordinatorKey("transaction", transactional_id)
        self.producer_id = NO_PRODUCER
        self.epoch = -1
        self._open = False
        self._undecided = False  # a commit or abort failed: the transaction may still be open, or decided
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._sequences: dict[TopicPartition, int] = {}
        self._in_doubt = False  # an append failed: the server may have stored a part of it
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # by group; sent with the commit if the node is alone
        self._take_id()

    def _take_id(self) -> None:
        fields = {
            "transactional_id": self._id,
            "transaction_timeout": self._timeout,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        again = self.producer_id == NO_PRODUCER
        answer = self._router.ask(Api.INIT_PRODUCER_ID, fields, to=self._coordinator, repeat=again)
        self._check(answer.error_code, f'take the transactional id "{self._id}"')
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences, self._in_doubt = {}, False

    def renew(self) -> None:
        """Call it after any failure: continues with the id unless another producer has acquired it (KIP-360). An open
        transaction is completed. Raises `ProducerFenced`; `LogUnavailable`: then it may be called again."""
        self._take_id()
        self._open = self._undecided = False

    def begin(self) -> None:
        if self._open or self._undecided:
            self._open_there()
            what = "a transaction is open already" if self._open else "the last transaction may not have ended"
            raise InvalidTransactionState(what, hint="Commit or abort it first." if self._open else "Abort it first.")
        if self._in_doubt:
            self._take_id()
        self._partitions, self._groups, self._offsets = set(), set(), {}
        self._open_there()
        self._open = True
        fp("txn.begin")

    def _open_there(self) -> None:
        """Opens the transaction on the server. If the coordinator is in this process, it only checks whether we are
        fenced: there the first append, or the commit, opens the transaction."""
        if self._has_coordinator_here:
            who = self._identity
            code = self._router.put_here(lambda here: here.is_fenced(who), lambda code: [code], to=self._coordinator)
            self._check(code, "open a transaction")
        else:
            self._announce_group(self._id)

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        self._check_open()
        where = TopicPartition(topic, partition)
        self._announce(where)
        batches = encode(records, self._place(where))
        if batches:
            self._send(where, batches)

    def append_batch(self, topic: str, partition: int, batch: EncodedBatch) -> int:
        """Writes a batch that the caller has encoded, with this producer's identity. Returns its first offset."""
        self._check_open()
        where = TopicPartition(topic, partition)
        self._announce(where)
        return self._send(where, [in_the_name_of(self._place(where), batch)])

    def _place(self, where: TopicPartition) -> BatchProducer:
        return BatchProducer(self.producer_id, self.epoch, self._sequences.get(where, 0), transactional=True)

    def _send(self, where: TopicPartition, batches: list[EncodedBatch]) -> int:
        """Returns the first offset."""
        in_doubt, self._in_doubt = self._in_doubt, True
        if self._has_coordinator_here:
            self._partitions.add(where)
            sent = self._sender.send_here(where, batches, self._identity)
        else:
            sent = self._sender.send(where, batches, self._id)
        self._sequences[where] = sent.next_sequence
        self._in_doubt = in_doubt
        fp("txn.data_written")
        return sent.first_offset

    def _announce(self, where: TopicPartition) -> None:
        """Adds the partition to the transaction. If this process has the only node, the write itself does that."""
        if where in self._partitions or self._has_coordinator_here:
            return
        fields = {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": where.topic, "partitions": [where.partition]}],
        }
        answer = self._router.ask(Api.ADD_PARTITIONS_TO_TXN, fields, to=self._coordinator)
        for topic in answer.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                what = f'write to partition {where.partition} of topic "{where.topic}"'
                self._check(result.partition_error_code, what)
        self._partitions.add(where)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_open()
        if self._has_coordinator_here:
            self._keep_offsets(group, offsets)
            return
        if group not in self._groups:
            self._announce_group(group)
        fields = {"group_id": group, "topics": offset_topics(offsets)}
        answer = self._ask(Api.TXN_OFFSET_COMMIT, fields, CoordinatorKey("group", group))
        for topic in answer.topics:
            for partition in topic.partitions:
                self._check(partition.error_code, f'commit the offsets of group "{group}"')

    def _keep_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        who = self._identity
        code = self._router.put_here(
            lambda here: here.why_not(who, group, offsets), lambda code: [code], to=CoordinatorKey("group", group)
        )
        self._check(code, f'commit the offsets of group "{group}"')
        self._offsets.setdefault(group, {}).update(offsets)

    def _announce_group(self, group: str) -> None:
        """Opens a transaction on the server, if none is open, and checks whether we are fenced."""
        self._check(self._ask(Api.ADD_OFFSETS_TO_TXN, {"group_id": group}).error_code, "open a transaction")
        self._groups.add(group)

    def commit(self) -> None:
        self._check_open()
        self._end(committed=True, what="commit the transaction")

    def abort(self) -> None:
        self._end(committed=False, what="abort the transaction")

    def _end(self, *, committed: bool, what: str) -> None:
        """Newer servers return a new epoch, in which sequences start again."""
        self._undecided, self._open = self._open or self._undecided, False
        if committed and self._has_coordinator_here:
            answer = self._commit_here()
        else:
            self._flush_here()
            answer = self._ask(Api.END_TXN, {"committed": committed})
        self._check(answer.error_code, what)
        self._undecided = False
        raised = getattr(answer, "producer_id", NO_PRODUCER), getattr(answer, "producer_epoch", -1)
        if raised[0] != NO_PRODUCER and raised != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = raised
            self._sequences, self._in_doubt = {}, False

    def _commit_here(self) -> EndedHere:
        who, written, offsets = self._identity, self._partitions, self._offsets
        return self._router.put_here(
            lambda here: here.commit(who, written, offsets), lambda ended: [ended.error_code], to=self._coordinator
        )

    def _flush_here(self) -> None:
        """Makes this process's records durable before the end of the transaction; otherwise they would hide how it
        ends. If this fails, the abort may still succeed."""
        written = self._partitions
        if written and self._has_coordinator_here:
            self._router.put_here(lambda here: here.flush(written), lambda code: [], to=self._coordinator)

    @property
    def _has_coordinator_here(self) -> bool:
        """Whether the coordinator is in this process and has no other nodes. It ends together with this producer, so it
        need not know about a transaction before the commit."""
        return self._router.alone

    @property
    def _identity(self) -> Identity:
        return Identity(self._id, self.producer_id, self.epoch)

    def _ask(self, api: Api, fields: Fields, to: CoordinatorKey | None = None) -> Any:
        identity = {
            "transactional_id": self._id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        return self._router.ask(api, {**identity, **fields}, to=to or self._coordinator)

    def _check_open(self) -> None:
        if not self._open:
            self.abort()  # nothing is open, but this raises the error if we are fenced
            raise InvalidTransactionState("no transaction is open", hint="Call begin() first.")

    def _check(self, code: int, what: str) -> None:
        if code:
            raise self._router.error(code, what)


def offset_topics(
    offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, CommitNote] | None = None
) -> list[Fields]:
    """The offsets in the form of requests: per topic."""
    by_topic: dict[str, list[Fields]] = {}
    for (topic, partition), offset in offsets.items():
        note = (notes or {}).get(TopicPartition(topic, partition), NO_NOTE)
        entry = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": note.metadata,
            "committed_leader_epoch": note.leader_epoch,
        }
        by_topic.setdefault(topic, []).append(entry)
    return [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
