"""The transactional producer of a log in this process."""

from __future__ import annotations

from collections.abc import Mapping

from ..client import ColumnarRecords, RowRecords, TopicPartition
from ..coordination.coordinator import Partitions, TransactionCoordinator
from ..cores.group_messages import NO_NOTE, CommitNote, CommittedOffset
from ..cores.transaction_records import Identity, Participant
from ..cores.transaction_steps import Begin, CheckWrite, OffsetsStep, Wrote
from ..errors import UnknownTopic
from ..failpoints import fp
from ..records.batch import BatchProducer, EncodedBatch
from ..records.codec import encode
from ..storage.partition import Appended, Mark


class LocalTransactionalProducer:
    """State: where its appends of the open transaction ended. All else is known to the coordinator."""

    def __init__(self, coordinator: TransactionCoordinator, partitions: Partitions, identity: Identity) -> None:
        self._go_on_as(identity)
        self._coordinator = coordinator
        self._partitions = partitions
        self._marks: dict[TopicPartition, Mark] = {}

    def _go_on_as(self, identity: Identity) -> None:
        self._identity = identity
        self.producer_id, self.epoch = identity.producer_id, identity.epoch

    def begin(self, *, noted: bool = False) -> None:
        """In: `noted`: of a client, which may go on after a crash unless this transaction was open then."""
        if noted:
            self._coordinator.begin(self._identity)
        else:
            self._coordinator.step(Begin(self._identity))
        self._marks = {}
        fp("txn.begin")

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        with self._coordinator.lock_of(self._identity.transactional_id):
            self._coordinator.step(CheckWrite(self._identity))
            sequence = self._partitions.writable(topic, partition).next_sequence(self.producer_id, self.epoch)
            batches = encode(records, BatchProducer(self.producer_id, self.epoch, sequence, transactional=True))
            if not batches:
                return
            self._append(TopicPartition(topic, partition), batches)
        fp("txn.data_written")

    def append_batches(self, topic: str, partition: int, batches: list[EncodedBatch]) -> Appended:
        """Writes batches that a client of this producer's id and epoch encoded. Raises `OutOfOrderSequence`."""
        with self._coordinator.lock_of(self._identity.transactional_id):
            self._coordinator.step(CheckWrite(self._identity))
            appended = [self._append(TopicPartition(topic, partition), [batch]) for batch in batches]
        fp("txn.data_written")
        return Appended(appended[0].first_offset, appended[-1].mark)

    def _append(self, where: TopicPartition, batches: list[EncodedBatch]) -> Appended:
        topic_id = self._partitions.topic_id(where.topic)
        appended = self._partitions.writable(*where).append(batches, after=self._marks.get(where))
        self._coordinator.step(Wrote(self._identity, Participant(where, topic_id, appended.first_offset)))
        self._marks[where] = max(appended.mark, self._marks.get(where, appended.mark))
        return appended

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, CommitNote] | None = None,
    ) -> None:
        unknown = [partition for partition in offsets if partition[1] < 0]
        if unknown:
            raise UnknownTopic(f"no partition has the number {unknown[0][1]}")
        with_types = {
            TopicPartition(*partition): CommittedOffset(offset, *(notes or {}).get(TopicPartition(*partition), NO_NOTE))
            for partition, offset in offsets.items()
        }
        self._coordinator.step(OffsetsStep(self._identity, group, with_types))

    def has_committed(self) -> bool:
        """Whether its last transaction is committed, and nothing began since."""
        return self._coordinator.has_committed(self._identity)

    def commit(self) -> None:
        self._coordinator.commit(self._identity, self._marks)

    def abort(self) -> None:
        self._coordinator.abort(self._identity)

    def end_and_raise(self, asked_by: tuple[int, int], *, commit: bool) -> None:
        """Ends the transaction of this producer id and epoch, and goes on with the next epoch; asked again, it has
        that already."""
        identity = Identity(self._identity.transactional_id, *asked_by)
        if commit:
            self._go_on_as(self._coordinator.commit(identity, self._marks, raises_epoch=True))
        else:
            self._go_on_as(self._coordinator.abort(identity, raises_epoch=True))
