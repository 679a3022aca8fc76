"""Carries out what the transaction coordinator decides: syncs, entries of its log, markers, committed offsets."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Protocol

import structlog

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.transaction_records import (
    Entry,
    Identity,
    Participant,
    ProducerIdRange,
    TransactionRecord,
    TransactionState,
)
from ..cores.transaction_steps import (
    Abort,
    Aborted,
    Begin,
    Commit,
    Finished,
    Message,
    NewProducer,
    NewProducerId,
    Outcome,
    Ready,
    Unprepared,
    Wrote,
)
from ..cores.transactions import Coordinator, TransactionDescription
from ..errors import LogClosed, UnknownTopic
from ..failpoints import fp
from ..storage.partition import Mark, Partition
from .group_offsets import GroupOffsets
from .state_log import KeyValue, StateLog
from .transaction_log import (
    CLOSED,
    NOTES_OPEN,
    OpenNote,
    decode_entry,
    encode_entry,
    encode_note,
    take_notes,
    without_note,
    written_ms,
)

_COMPLETES: Final = (Wrote, Finished, Aborted, Unprepared)
"""What completes something that was allowed to begin."""

_log = structlog.get_logger("millstream.logcore")


class Partitions(Protocol):
    """Where the coordinator finds partitions."""

    def partition(self, topic: str, partition: int) -> Partition:
        """Raises `UnknownTopic`, or `CorruptLog` for a damaged one."""
        ...

    def writable(self, topic: str, partition: int) -> Partition:
        """The same for writers. Raises `InvalidTopic` for the log's own topics."""
        ...

    def topic_id(self, topic: str) -> str:
        """Raises `UnknownTopic`."""
        ...

    def usable_partitions(self) -> Iterable[Partition]: ...


class TransactionCoordinator:
    """State: the pure coordinator, behind a lock, and one lock per transactional id.

    Whoever holds an id's lock is the only one to act for that id: between the check that a producer may write and the
    write itself nobody can replace the producer.
    """

    def __init__(
        self, partitions: Partitions, log: StateLog, group_offsets: GroupOffsets, now_ms: Callable[[], int]
    ) -> None:
        self._partitions = partitions
        self._log = log
        self._group_offsets = group_offsets
        self._now_ms = now_ms
        self._core = Coordinator()
        self._used_ms: dict[str, int] = {}  # by transactional id: when something about it was written last
        self._begun_ms: dict[str, int] = {}  # likewise, when its last transaction began in this life
        self._held: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._refuses = False
        self._ids_lock = threading.Lock()
        self._id_locks = weakref.WeakValueDictionary[str, Any]()  # each lives as long as somebody holds it
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="millstream-log-sync")
        entries = dict(log.entries())
        self._was_closed = entries.pop(CLOSED.key, None) is not None
        self._had_notes = entries.pop(NOTES_OPEN.key, None) is not None
        self._found_notes = take_notes(entries)
        self._noted: set[str] = set()  # whose open transactions have a note now
        for key, value in entries.items():
            entry = decode_entry(key, value)
            self._core.apply(entry)
            if isinstance(entry, TransactionRecord):
                self._used_ms[entry.transactional_id] = written_ms(value) or now_ms()

    def recover(self) -> None:
        """Completes the transactions that were prepared when the log was closed; `settle` aborts the other open ones.

        Where the transaction log is damaged nothing is decided: what is open stays open.
        """
        if not self._log.usable:
            return
        if self._was_closed:  # and is open now: nobody goes on after the next end, unless that is a proper one, too
            self._log.sync(self._log.append([KeyValue(CLOSED.key, None)]).mark)
        if not self._had_notes:
            self._log.sync(self._log.append([NOTES_OPEN]).mark)
        found = self._core.unfinished()
        for outcome in found:
            self._complete(outcome)
        if found:
            self._complete_all()

    def settle(self, where: TopicPartition, partition: Partition) -> None:
        """Aborts what is open in a partition that was just opened, where it is not going to be committed: its producer
        is gone. Nobody else may use the partition yet. Raises `LogError`."""
        transactions = partition.open_transactions()
        if not transactions or not self._log.usable:
            return
        with self._lock:
            unfinished = [outcome.record for outcome in self._core.unfinished()]
        decided = {
            (record.producer_id, participant.first_offset)
            for record in unfinished
            for participant in record.participants
            if participant.partition == where
        }
        for transaction in transactions:
            if (transaction.producer_id, transaction.first_offset) not in decided:
                partition.abort_orphan(transaction, self._now_ms())

    def lock_of(self, transactional_id: str) -> threading.RLock:
        with self._lock:
            return self._id_locks.setdefault(transactional_id, threading.RLock())

    def step(self, message: Message) -> Ready:
        with self._lock:
            if self._refuses and not isinstance(message, _COMPLETES):
                raise LogClosed("the log is closing, and no transaction begins, goes on or ends any more")
            ready = self._core.step(message)
            if isinstance(message, Begin):
                self._begun_ms[message.identity.transactional_id] = self._now_ms()
            return ready

    def new_producer(self, transactional_id: str, timeout_ms: int = 0) -> Identity:
        with self.lock_of(transactional_id):
            self._log.check_usable()  # a transaction log that takes no more entries decides nothing
            asked = NewProducer(transactional_id, timeout_ms)
            ready = self._step_with_ids(asked)
            while ready.identity is None:
                assert ready.outcome is not None
                self._end(ready.outcome)
                self.step(Finished(transactional_id))
                ready = self._step_with_ids(asked)
            self._sync(ready, {})
            self._append(ready.append)
            self._carry_out_abort(ready)
            return ready.identity

    def begin(self, identity: Identity) -> None:
        """For a client, which may not notice that the log was closed, or died: that its transaction was open is known
        then. Raises `LogError`; then it is not."""
        with self.lock_of(identity.transactional_id):
            self.step(Begin(identity))
            try:
                with self._lock:
                    note = OpenNote(identity, self._core.number_of(identity.transactional_id))
                self._noted.add(identity.transactional_id)
                self._log.sync(self._log.append([encode_note(note)]).mark)
            except BaseException:
                self._carry_out_abort(self.step(Abort(identity)))
                raise

    def may_go_on(self, identity: Identity) -> bool:
        """Whether a producer of before the log was closed, or died, has its id still, and has missed nothing.

        What was open then is aborted, and half a transaction must not be committed as a whole one.
        """
        with self._lock:
            if not self._core.has(identity):
                return False
            return self._was_closed or (self._had_notes and not self._was_open(identity))

    def _was_open(self, identity: Identity) -> bool:
        """An abort counts on without a record, so the note may have a higher number than what is known now."""
        note = self._found_notes.get(identity.transactional_id)
        if note is None or note.identity != identity:
            return False
        return note.number >= self._core.number_of(identity.transactional_id)

    def goes_on_as(self, identity: Identity) -> Identity:
        """What the producer has now that ended its last transaction as this one: it may not have heard so."""
        with self._lock:
            return self._core.goes_on_as(identity)

    def has_committed(self, identity: Identity) -> bool:
        """Whether the producer's last transaction is committed: it may ask again."""
        with self._lock:
            return self._core.has_committed(identity)

    def new_producer_id(self) -> int:
        self._log.check_usable()
        ready = self._step_with_ids(NewProducerId())
        assert ready.identity is not None
        return ready.identity.producer_id

    def _step_with_ids(self, message: NewProducer | NewProducerId) -> Ready:
        """Nobody gets a producer id of a block that is not durable yet: after a crash it would be given once more."""
        with self._ids_lock:
            ready = self.step(message)
            blocks = tuple(entry for entry in ready.append if isinstance(entry, ProducerIdRange))
            try:
                self._append(blocks)
            except BaseException:
                with self._lock:
                    self._core.give_back_ids()
                raise
        return replace(ready, append=tuple(entry for entry in ready.append if entry not in blocks))

    def commit(
        self, identity: Identity, marks: Mapping[TopicPartition, Mark], *, raises_epoch: bool = False
    ) -> Identity:
        """Returns when it is decided, durable and visible; gives what the producer goes on with.

        Raises `LogError` where it was aborted instead.
        """
        with self.lock_of(identity.transactional_id):
            ready = self.step(Commit(identity, raises_epoch))
            if ready.outcome is None:
                self._take_note_away(identity.transactional_id)
                return ready.identity or identity
            try:
                self._sync(ready, marks)
                fp("txn.before_prepare")
                self._append(ready.append)
            except BaseException:
                if self._log.usable and ready.append:  # so the entry is not in it
                    self._carry_out_abort(self.step(Unprepared(identity.transactional_id)))
                raise
            fp("txn.after_prepare")
            self._end(ready.outcome)
            self.step(Finished(identity.transactional_id))
            self._noted.discard(identity.transactional_id)  # its number is over
            fp("txn.committed")
            return ready.identity or identity

    def abort(self, identity: Identity, *, raises_epoch: bool = False) -> Identity:
        """Gives what the producer goes on with."""
        with self.lock_of(identity.transactional_id):
            ready = self.step(Abort(identity, raises_epoch))
            self._sync(ready, {})
            self._append(ready.append)
            self._carry_out_abort(ready)
            return ready.identity or identity

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        with self._lock:
            return self._core.unsettled_offsets(group)

    def transactions(self) -> list[TransactionDescription]:
        with self._lock:
            now_ms = self._now_ms()
            return [self._with_age(found, now_ms) for found in self._core.describe()]

    def _with_age(self, found: TransactionDescription, now_ms: int) -> TransactionDescription:
        begun_ms = self._begun_ms.get(found.identity.transactional_id)
        if found.state is not TransactionState.ONGOING or begun_ms is None:
            return found
        return replace(found, open_ms=max(0, now_ms - begun_ms))

    def hold(self, transactional_id: str, producer: object) -> None:
        """As long as this producer is there, its id is not forgotten, however long it is idle."""
        self._held[transactional_id] = producer

    def expire(self, age_ms_max: int) -> list[str]:
        """Forgets the transactional ids that nobody holds and that were not used for so long; returns them.

        Raises `LogError`.
        """
        before_ms = self._now_ms() - age_ms_max
        old = [id for id, used_ms in list(self._used_ms.items()) if used_ms < before_ms and id not in self._held]
        if not old or not self._log.usable:
            return []
        self._complete_all()
        gone: list[str] = []
        for transactional_id in old:
            with self.lock_of(transactional_id):
                unused = self._used_ms.get(transactional_id, before_ms) < before_ms
                if unused and self._forget(transactional_id):
                    gone.append(transactional_id)
        self._log.sync()
        return gone

    def forget(self, transactional_id: str) -> None:
        """For an id that nobody is going to use again: what is open of it is aborted, and nothing of it is left.

        Raises `LogError`; then it may be left, and expires.
        """
        with self.lock_of(transactional_id):
            if transactional_id not in self._used_ms:
                return
            self.new_producer(transactional_id)  # ends what is open, and fences whoever had it
            self._complete_all()
            self._forget(transactional_id)
            self._held.pop(transactional_id, None)
            self._log.sync()

    def _forget(self, transactional_id: str) -> bool:
        """False where a transaction of it is not over. The caller has the id's lock.

        The number of the last commit that was applied goes first, and durably: the id's next owner begins to count at
        1, and what it commits would be taken for something that was applied long ago.
        """
        with self._lock:
            if not self._core.is_over(transactional_id):
                return False
        self._group_offsets.forget_applied(transactional_id)
        with self._lock:
            entries = self._core.forget(transactional_id)
        now_ms = self._now_ms()
        self._log.append([*(encode_entry(entry, now_ms) for entry in entries), without_note(transactional_id)])
        self._noted.discard(transactional_id)
        self._found_notes.pop(transactional_id, None)
        self._used_ms.pop(transactional_id, None)
        self._begun_ms.pop(transactional_id, None)
        return True

    def refuse(self) -> None:
        """From now on every request of a producer is refused. Returns when those under way are done, so that what
        `close` writes about transactions stays true. The caller holds no lock that they might need."""
        with self._lock:
            self._refuses = True
            locks = list(self._id_locks.values())
        for lock in locks:
            with lock:
                pass

    def close(self) -> None:
        """Leaves nothing for recovery to do, if the disk lets it. In: `refuse` has returned."""
        try:
            self._complete_all()
            self._note_closed()
        except LogError as error:
            _log.warning("transactions not completed on close", error=error.message)
        self._pool.shutdown()

    def _note_closed(self) -> None:
        with self._lock:
            entries = self._core.interrupted()
            noteworthy = self._core.knows_somebody
        if noteworthy and self._log.usable:
            now_ms = self._now_ms()
            self._log.append([*(encode_entry(entry, now_ms) for entry in entries), CLOSED])
            self._log.sync()

    def _complete(self, outcome: Outcome) -> None:
        try:
            self._end(outcome)
        except LogError as error:  # a damaged partition must not keep the others from being used
            _log.error("transaction not completed", id=outcome.record.transactional_id, error=error.message)
            return
        self.step(Finished(outcome.record.transactional_id))

    def _complete_all(self) -> None:
        self._group_offsets.sync()
        for partition in self._partitions.usable_partitions():
            partition.sync_all()
        with self._lock:
            entries = self._core.completed()
        if entries:  # this is no use of the ids: they expire by when their producers did something
            now_ms = self._now_ms()
            used = [(entry, self._used_ms.get(entry.transactional_id, now_ms)) for entry in entries]
            self._log.sync(self._log.append([encode_entry(entry, used_ms) for entry, used_ms in used]).mark)

    def _carry_out_abort(self, ready: Ready) -> None:
        """Where that fails the coordinator asks for it again, before anything new begins under this id."""
        if ready.outcome is not None:
            self._end(ready.outcome)
            self.step(Aborted(ready.outcome.record.transactional_id))
            self._take_note_away(ready.outcome.record.transactional_id)
            self._sync_quietly(ready.outcome.record.participants)

    def _take_note_away(self, transactional_id: str) -> None:
        """Not before the disk: a note that is there again after a crash fences a producer that could have gone on."""
        if transactional_id not in self._noted:
            return
        try:
            self._log.append([without_note(transactional_id)])
        except LogError as error:
            _log.warning("the note of a transaction stays", id=transactional_id, error=error.message)
        else:
            self._noted.discard(transactional_id)

    def _append(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            now_ms = self._now_ms()
            self._log.sync(self._log.append([encode_entry(entry, now_ms) for entry in entries]).mark)
            for entry in entries:
                if isinstance(entry, TransactionRecord):
                    self._used_ms[entry.transactional_id] = now_ms

    def _end(self, outcome: Outcome) -> None:
        """Writes the markers that are missing, and the offsets if they are not applied yet."""
        record = outcome.record
        for participant in record.participants:
            partition = self._partition_of(participant)
            if partition is not None:
                fp("txn.marker")
                partition.end_transaction(
                    record.producer_id,
                    record.epoch,
                    participant.first_offset,
                    committed=outcome.committed,
                    timestamp_ms=self._now_ms(),
                )
        if outcome.committed:
            self._group_offsets.apply_transaction(
                record.transactional_id, record.number, record.offsets, self._now_ms()
            )

    def _partition_of(self, participant: Participant) -> Partition | None:
        """None where the topic was deleted since, even if there is a new one of that name."""
        topic, number = participant.partition
        try:
            same = self._partitions.topic_id(topic) == participant.topic_id
            return self._partitions.partition(topic, number) if same else None
        except UnknownTopic:
            return None

    def _sync(self, ready: Ready, marks: Mapping[TopicPartition, Mark]) -> None:
        """All at the same time: file systems join syncs that run together."""
        work: list[Callable[[], None]] = []
        for participant in ready.sync:
            partition = self._partition_of(participant)
            mark = marks.get(participant.partition)
            if partition is not None and mark is not None:
                work.append(lambda partition=partition, mark=mark: partition.sync(mark))
            elif partition is not None:
                work.append(partition.sync_all)
            elif mark is not None:
                raise UnknownTopic(f'topic "{participant.partition.topic}" was deleted during the transaction')
        if ready.sync_offsets:
            work.append(self._group_offsets.sync)
        self._run_together(work)

    def _run_together(self, work: list[Callable[[], None]]) -> None:
        """Waits for all of it, then raises what the first that failed has raised."""
        if not self._log.waits_for_disk:
            for task in work:
                task()
            return
        others = [self._pool.submit(task) for task in work[1:]]
        try:
            for task in work[:1]:
                task()
        finally:
            failures = [future.exception() for future in others]
        for failure in failures:
            if failure is not None:
                raise failure

    def _sync_quietly(self, participants: Iterable[Participant]) -> None:
        """Moves the high watermark behind what was aborted; nothing depends on it."""
        try:
            self._sync(Ready(sync=tuple(participants)), {})
        except LogError as error:
            _log.warning("aborted records not synced", error=error.message)
