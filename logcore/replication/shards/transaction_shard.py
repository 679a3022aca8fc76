"""The coordinator of the transactions of one partition of `__transaction_state`, as a shard.

It is `logcore/cores/transactions.py` with replicated records. A transaction is decided when its PREPARE record is
committed: only then are producers answered and markers sent (`transaction_ends.py`). Requests for an id whose last
transaction has not ended everywhere wait for that, for a limited time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, assert_never

from ...client import TopicPartition
from ...coordination.transaction_log import bytes_of, decode_entry
from ...cores.group_messages import CheckCommit, CommittedOffset
from ...cores.transaction_records import Identity, ProducerIdRange, TransactionRecord, TransactionState
from ...cores.transaction_steps import Abort, Aborted, Commit, Finished, Include, NewProducer, Outcome, Ready
from ...cores.transaction_steps import OffsetsStep as NoteOffsets
from ...cores.transactions import EPOCH_MAX, Coordinator, Standing
from ...errors import InvalidTransactionState, ProducerFenced
from ...records.key_values import KeyValue
from ...topic_rules import GROUPS_TOPIC
from ..machine import NodeId, RequestId
from ..replica.replica_messages import EndOrphan, PartitionId, Problem, Refused
from ..time_of_day import TimeOfDay
from .coordination_messages import ShardQuestion, ShardRequest, place_of
from .kept_transactions import KeptTransactions
from .led_log import OUT_OF_TOUCH, AskedNow, LedLog
from .shard_group_requests import ListGroups
from .transaction_answers import (
    Answer,
    TransactionSettings,
    Waiting,
    concurrent,
    ended_otherwise,
    fenced,
    for_certain,
    offsets_in,
    participants,
)
from .transaction_description import described, with_kept
from .transaction_ends import TransactionEnds
from .transaction_entries import TransactionEntries
from .transaction_messages import (
    AskOutcome,
    AskUnapplied,
    AwaitEnd,
    CheckProducer,
    DescribedTransaction,
    DescribeTransaction,
    EndRefused,
    EndTransaction,
    ForgetProducer,
    GroupMessage,
    Included,
    IncludeGroup,
    IncludePartitions,
    InitProducer,
    ListTransactions,
    MarkerWritten,
    OffsetsApplied,
    OffsetsHeld,
    ProducerGiven,
    SendOffsets,
    ShardMessage,
    TakenRequest,
    TransactionAnswer,
    TransactionRequest,
    VerifyTransaction,
)
from .transaction_offsets import TransactionOffsets
from .transaction_outcomes import ends_as_asked, has_had, is_about, lost_end, may_need_id, what_is_known

_NEVER_MS: Final = 1 << 62


class TransactionShard:
    """State: the fold of the partition's records, the ends that are under way, and waiting requests.

    Invariant: nothing begins under an id whose last transaction has not ended everywhere.
    """

    def __init__(self, log: LedLog, settings: TransactionSettings | None = None) -> None:
        self._log = log
        self._settings = settings or TransactionSettings()
        self._core = Coordinator()
        self._ends = TransactionEnds(log, self._ended, self._settings.again_ms, self._seen)
        self._kept = KeptTransactions(log.kept)
        self._entries = TransactionEntries(log, self._settings.bytes_max)
        again_ms, wait_ms = self._settings.again_ms, self._settings.group_wait_ms
        self._offsets = TransactionOffsets(log, self._note_offsets, again_ms=again_ms, wait_ms=wait_ms)
        self._waiting: dict[str, deque[Waiting]] = {}
        self._opened_ms: dict[str, int] = {}  # monotonic: when the open transaction began, or this shard if later
        self._due_ms = _NEVER_MS  # no open transaction times out before
        self._time_of_day = TimeOfDay(log.now_ms, log.wall_ms)
        self._looks_at_ms = 0

    # The log

    def fold(self, records: Sequence[KeyValue]) -> None:
        for key, value in records:
            entry = decode_entry(key, value)
            if isinstance(entry, ProducerIdRange):
                continue  # of version 0.1; now the controller assigns producer ids
            self._core.apply(entry)
            self._entries.note_read(entry, KeyValue(key, value))

    def begin(self) -> None:
        """Continues where the previous coordinator was interrupted."""
        for standing in self._core.standings():
            if standing.state is TransactionState.ONGOING:
                self._opened(standing)
        for outcome in (*self._core.unfinished(), *self._core.given_up()):
            self._log.once_committed(lambda outcome=outcome: self._begin_end(outcome))
        self._looks_at_ms = self._log.now_ms + self._settings.look_for_expired_ms
        if self._kept.ids():
            self._due_ms = self._log.now_ms  # check their owners again

    # Requests

    def ask(self, request: RequestId, key: str, body: ShardRequest) -> None:
        assert isinstance(body, TransactionRequest), f"not a request to transactions: {body!r}"
        only_asks = isinstance(body, DescribeTransaction | CheckProducer)
        if isinstance(body, AwaitEnd) or (only_asks and self._log.only_here):
            # All participants have confirmed the end, so the answer need not wait for this shard's record of it. And
            # a node that is alone need not prove that no other node has a newer state.
            self._take(key, body, lambda response: self._log.reply_now(request, response))
        elif isinstance(body, InitProducer) and self._log.only_here:
            self._take(
                key, body, lambda given: self._log.once_committed(lambda: self._reply_when_seen(request, key, given))
            )
        elif isinstance(body, EndTransaction) and body.offsets is not None:
            self._take(key, body, lambda response: self._reply_when_seen(request, key, response))
        else:
            self._take(key, body, lambda response: self._log.reply(request, for_certain(self._log, response)))

    def _reply_when_seen(self, request: RequestId, key: str, given: TransactionAnswer) -> None:
        """Answers when the end is visible, for clients that would send `AwaitEnd` next, or read committed records."""
        if not isinstance(given, ProducerGiven):
            self._log.reply(request, for_certain(self._log, given))
            return

        def seen(waited: TransactionAnswer) -> None:
            self._log.reply_now(request, waited if isinstance(waited, Refused) else given)

        self._take(key, AwaitEnd(), seen)

    def look(self, body: ShardQuestion) -> tuple[DescribedTransaction, ...] | Refused | None:
        match body:
            case AskUnapplied(group):
                return self._ends.why_unapplied(group)
            case ListTransactions():
                return tuple(self._described(standing) for standing in self._core.standings())
            case ListGroups():
                raise AssertionError("groups are asked for of their own coordinators")

    def _take(self, key: str, body: TakenRequest, answer: Answer) -> None:
        if self._has_to_wait(key, body):
            if self._ends.lack_room:
                self._try_end_again(key)
            self._queue(key, Waiting(body, answer, self._log.now_ms + self._settings.wait_ms))
            return
        self._act_or_refuse(key, body, answer)

    def _act_or_refuse(self, key: str, body: TakenRequest, answer: Answer) -> None:
        try:
            self._act(key, body, answer)
        except ProducerFenced as error:
            answer(Refused(Problem.PRODUCER_FENCED, error.message))
        except InvalidTransactionState as error:
            answer(Refused(Problem.INVALID_TXN_STATE, error.message))

    def _act(self, key: str, body: TakenRequest, answer: Answer) -> None:
        match body:
            case InitProducer():
                self._init(key, body, answer)
            case DescribeTransaction() | CheckProducer() if not self._log.leads_for_certain:
                answer(Refused(Problem.NOT_COORDINATOR, OUT_OF_TOUCH))
            case DescribeTransaction():
                standing = self._core.standing(key)
                unknown = Refused(Problem.TRANSACTIONAL_ID_NOT_FOUND, f'nobody has the transactional id "{key}"')
                answer(self._described(standing) if standing is not None else unknown)
            case AwaitEnd():
                answer(Included())  # `_has_to_wait` has delayed it until the end
            case ForgetProducer(producer_id, epoch):
                if self._core.standing(key) is not None:
                    self._current(Identity(key, producer_id, epoch))
                    self._entries.write(self._core.forget(key))
                answer(Included())
            case _ if not self._core.knows(key):
                text = f'nobody has the transactional id "{key}", or it was not used for long: start a new producer'
                answer(Refused(Problem.INVALID_PRODUCER_ID_MAPPING, text))
            case CheckProducer(producer_id, epoch):
                self._check_current(Identity(key, producer_id, epoch))
                answer(Included())
            case IncludePartitions(producer_id, epoch, partitions):
                answer(self._include(Identity(key, producer_id, epoch), partitions, ()))
            case IncludeGroup(producer_id, epoch, group):
                answer(self._include(Identity(key, producer_id, epoch), (), (group,)))
            case SendOffsets():
                self._send_offsets(key, body, answer)
            case EndTransaction():
                self._end(key, body, answer)
            case VerifyTransaction():
                answer(self._verify(key, body))
            case _:
                assert_never(body)

    # Waiting requests

    def _has_to_wait(self, key: str, body: TakenRequest) -> bool:
        """Whether the request cannot be decided yet. `_go_on` retries it when the reason may have passed.

        | request                       | while the id's last transaction ends | no producer id is available     |
        | ----------------------------- | ------------------------------------ | ------------------------------- |
        | DescribeTransaction,          | proceeds: it changes nothing         | proceeds                        |
        | CheckProducer                 |                                      |                                 |
        | EndTransaction, of that end   | proceeds: its response was lost      | waits, if the epoch may run out |
        | InitProducer                  | waits                                | waits, if it may need one       |
        | all others                    | wait                                 | proceed                         |

        A transaction is decided long before all partitions have its marker. If the next transaction began in between,
        its first records could be in a partition before the previous transaction's marker: the marker would end both,
        and commit or abort an undecided transaction (T-L17; R19 guards the partition's side). Therefore all requests
        of the id wait until every partition has confirmed the marker. A retried EndTransaction must proceed, or a
        client whose response was lost would wait for its own retry. A client that raises its epoch with each end
        retries with the ended epoch or an older one; a newer epoch belongs to the next transaction.

        Where this node is alone, a partition that has appended the marker has it before all later records, durable or
        not (`TransactionEnds.is_seen`). Then `AwaitEnd` is answered, and the next transaction may write to partitions.
        Its EndTransaction still waits: its record replaces the one that says which markers a crash may have taken.
        """
        if isinstance(body, DescribeTransaction | CheckProducer):
            return False
        ending = self._core.ending_of(key)
        waits = ending is not None and self._waits_for(key, ending, body)
        return waits or (may_need_id(self._core, key, body) and not self._has_id())

    def _waits_for(self, key: str, ending: TransactionRecord, body: TakenRequest) -> bool:
        if isinstance(body, AwaitEnd) or (isinstance(body, VerifyTransaction) and body.here):
            return not self._ends.is_seen(ending)
        standing = self._core.standing(key)
        return standing is None or not (isinstance(body, EndTransaction) and is_about(body, standing, ending))

    def _has_id(self) -> bool:
        """Whether there is a producer id; takes one from the node if none is left here."""
        if self._core.lacks_ids:
            producer_id = self._log.producer_ids.take()
            if producer_id is None:
                return False
            self._core.take_ids(producer_id, producer_id + 1)
        return True

    def _queue(self, key: str, waiting: Waiting) -> None:
        full = self._without_room(key) if self._ends.lack_room else None
        if full is not None:
            waiting.answer(full)
            return
        queue = self._waiting.setdefault(key, deque())
        if len(queue) < self._settings.waiting_per_id:
            queue.append(waiting)
        else:
            waiting.answer(concurrent())

    def _try_end_again(self, key: str) -> None:
        if (ending := self._core.ending_of(key)) is not None and self._log.alone:
            self._ends.try_again(ending)

    def _without_room(self, key: str) -> Refused | None:
        """On a node that is alone: why the id's last end is not written everywhere, if that is for lack of space; it is
        unknown for how long. The end is decided nevertheless, and is written once there is space."""
        ending = self._core.ending_of(key)
        text = self._ends.why_refused(ending) if ending is not None and self._log.alone else None
        return Refused(Problem.STORAGE_ERROR, text) if text is not None else None

    def _go_on(self, key: str) -> None:
        """Tries the waiting requests of this id again, in order; some may have to wait longer."""
        for body, answer, until_ms in self._waiting.pop(key, ()):
            if self._has_to_wait(key, body):
                self._queue(key, Waiting(body, answer, until_ms))
            else:
                self._take(key, body, answer)

    def _let_go(self) -> None:
        """Refuses requests that have waited too long; tries the others again, as there may be producer ids now."""
        for key in list(self._waiting):
            self._go_on(key)
            queue = self._waiting.get(key, deque())
            while queue and queue[0].until_ms <= self._log.now_ms:
                queue.popleft().answer(concurrent())
            if not queue:
                self._waiting.pop(key, None)

    # Producers

    def _init(self, key: str, asked: InitProducer, answer: Answer) -> None:
        if not 0 < asked.timeout_ms <= self._settings.timeout_ms_max:
            text = f"transactions may be open for 1 to {self._settings.timeout_ms_max} ms, not {asked.timeout_ms}"
            answer(Refused(Problem.INVALID_TRANSACTION_TIMEOUT, text))
            return
        standing = self._core.standing(key)
        follows = (asked.producer_id, asked.epoch) if asked.producer_id >= 0 else None
        if follows is not None:
            record = standing.record if standing is not None else None
            if record is not None and record.follows == follows:
                answer(ProducerGiven(record.producer_id, record.epoch))  # a retry: the first answer was lost
                return
            if record is None or (record.producer_id, record.epoch) != follows:
                answer(Refused(Problem.PRODUCER_FENCED, f'another producer has the transactional id "{key}"'))
                return
        self._bring_in(key)
        ready = self._core.step(NewProducer(key, asked.timeout_ms, follows))
        assert ready.identity is not None
        self._carry_out(key, ready)
        answer(ProducerGiven(ready.identity.producer_id, ready.identity.epoch))

    def _include(
        self, identity: Identity, partitions: Sequence[PartitionId], groups: tuple[str, ...]
    ) -> Included | Refused:
        unknown = [partition for partition in partitions if self._log.image.partition(partition) is None]
        if unknown:
            return Refused(Problem.UNKNOWN_PARTITION, f"the coordinator does not know {unknown} (yet)")
        self._entries.check_room(identity.transactional_id, bytes_of((partitions, groups)))
        self._entries.write(self._core.step(Include(identity, participants(partitions), groups)).append)
        standing = self._core.standing(identity.transactional_id)
        assert standing is not None
        if identity.transactional_id not in self._opened_ms:
            self._opened(standing)
        return Included()

    def _verify(self, key: str, asked: VerifyTransaction) -> Included | Refused:
        identity = Identity(key, asked.producer_id, asked.epoch)
        if asked.here:
            return self._keep(identity, asked.sender)
        if asked.includes:
            return self._include(identity, (asked.sender,), ())
        standing = self._current(identity)
        if standing.state is not TransactionState.ONGOING or TopicPartition(*asked.sender) not in standing.partitions:
            return Refused(Problem.INVALID_TXN_STATE, "the partition is not part of an open transaction: add it first")
        return Included()

    def _keep(self, identity: Identity, partition: PartitionId) -> Included:
        """Raises `ProducerFenced`."""
        self._check_current(identity)
        begins = self._kept.add(identity, partition, self._log.now_ms)
        if begins and (standing := self._core.standing(identity.transactional_id)) is not None:
            self._due_ms = min(self._due_ms, self._log.now_ms + standing.record.timeout_ms)
        return Included()

    def _bring_in(self, key: str) -> None:
        """Adds the partitions that are only kept in memory to the id's transaction, before its record is written. In:
        no transaction of the id is ending."""
        kept = self._kept.of(key)
        if kept is not None and self._core.is_current(kept.who):
            self._core.step(Include(kept.who, participants(sorted(kept.partitions))))

    def _check_current(self, identity: Identity) -> None:
        """Raises `ProducerFenced`."""
        if not self._core.is_current(identity):
            raise fenced(identity)

    def _current(self, identity: Identity) -> Standing:
        """Raises `ProducerFenced`."""
        standing = self._core.standing(identity.transactional_id)
        if standing is None or (standing.record.producer_id, standing.record.epoch) != identity[1:]:
            raise fenced(identity)
        return standing

    # Ends

    def _end(self, key: str, asked: EndTransaction, answer: Answer) -> None:
        identity = Identity(key, asked.producer_id, asked.epoch)
        if not asked.raises_epoch:
            ends = ends_as_asked(self._current(identity), asked.committed)
            if ends is not None:
                self._prove()
                answer(ProducerGiven(asked.producer_id, asked.epoch) if ends else ended_otherwise())
                return
        offsets = self._sent_offsets(key, asked)
        if self._core.is_current(identity):  # otherwise it is a retry, or will be refused
            self._bring_in(key)
        raises = asked.raises_epoch
        ready = self._core.step(Commit(identity, raises, offsets) if asked.committed else Abort(identity, raises))
        self._carry_out(key, ready)
        if not ready.append:
            self._prove()
        answer(ProducerGiven(*(ready.identity or identity)[1:]))

    def _prove(self) -> None:
        """For the answer to an end that changes nothing. A client that keeps its epoch may have begun another
        transaction at a newer coordinator; that one is not over because the one before is, of which this one knows."""
        self._log.prove()

    def _sent_offsets(self, key: str, asked: EndTransaction) -> dict[str, dict[TopicPartition, CommittedOffset]] | None:
        """By group. Raises `InvalidTransactionState` if a group has no coordinator: its offsets would be dropped."""
        if asked.offsets is None:
            return None
        for group, _ in asked.offsets:
            if place_of(self._log.image, GROUPS_TOPIC, group) is None:
                raise InvalidTransactionState(f'no node coordinates group "{group[:100]}" yet', hint="Ask again.")
        if asked.offsets:
            self._entries.check_room(key, bytes_of([(group, *row) for group, rows in asked.offsets for row in rows]))
        return {group: offsets_in(rows) for group, rows in asked.offsets}

    def _carry_out(self, key: str, ready: Ready) -> None:
        """Writes the decision; once it is committed, begins to end the transaction everywhere."""
        self._entries.write(ready.append)
        self._kept.forget(key)
        outcome = ready.outcome
        if outcome is not None:
            self._log.once_committed(lambda: self._begin_end(outcome))
        standing = self._core.standing(key)
        if standing is None or standing.state is not TransactionState.ONGOING:
            self._opened_ms.pop(key, None)

    def _begin_end(self, outcome: Outcome) -> None:
        """Begins the end, unless it was requested twice and has ended since."""
        ending = self._core.ending_of(outcome.record.transactional_id)
        if ending is not None and ending.number == outcome.record.number:
            self._ends.begin(outcome)

    def _seen(self, outcome: Outcome) -> None:
        """All participants show the outcome: some waiting requests can continue."""
        self._go_on(outcome.record.transactional_id)

    def _ended(self, outcome: Outcome) -> None:
        """The transaction has ended everywhere: waiting requests can continue."""
        key = outcome.record.transactional_id
        ready = self._core.step(Finished(key) if outcome.committed else Aborted(key))
        self._entries.owe(ready.append)
        self._go_on(key)

    # Offsets

    def _send_offsets(self, key: str, asked: SendOffsets, answer: Answer) -> None:
        """Asks the group first whether it accepts offsets of this member. From then on it holds them as unsettled."""
        identity = Identity(key, asked.producer_id, asked.epoch)
        standing = self._current(identity)
        if not asked.announces:
            standing.check_open_with(asked.group)
        self._entries.check_room(key, bytes_of([(asked.group, *row) for row in asked.offsets]))
        self._include(identity, (), (asked.group,))
        self._offsets.send(key, asked, standing.record.number + 1, answer)

    def _note_offsets(self, key: str, asked: SendOffsets, number: int, held: bool) -> Included | Refused | None:
        """The answer; None if the transaction is still open, and the group refused to hold the offsets."""
        identity = Identity(key, asked.producer_id, asked.epoch)
        offsets = offsets_in(asked.offsets)
        try:
            if self._current(identity).record.number + 1 != number:
                raise InvalidTransactionState("the transaction has ended")
            if not held:
                return None
            self._entries.check_room(key, bytes_of([(asked.group, *row) for row in asked.offsets]))
            self._entries.write(self._core.step(NoteOffsets(identity, asked.group, offsets)).append)
        except ProducerFenced as error:
            return Refused(Problem.PRODUCER_FENCED, error.message)
        except InvalidTransactionState as error:
            return Refused(Problem.INVALID_TXN_STATE, error.message)
        return Included()

    # Other nodes

    def receive(self, sender: NodeId, message: ShardMessage) -> None:
        match message:
            case MarkerWritten():
                self._ends.marked(message)
            case OffsetsApplied():
                self._ends.applied(message)
            case OffsetsHeld():
                self._offsets.held(message)
            case AskOutcome() | VerifyTransaction() if not self._log.leads_for_certain:
                pass  # the successor may have ended the transaction; the sender asks it later
            case VerifyTransaction():
                self._take(message.transactional_id, message, lambda given: self._verified(sender, message, given))
            case EndRefused():
                self._ends.refused(message)
                self._let_go()
            case AskOutcome():
                self._tell_outcome(sender, message)
            case _:
                foreign: GroupMessage = message
                raise AssertionError(f"not for transactions: {foreign!r}")

    def answer_now(self, key: str, asked: AskedNow) -> TransactionAnswer | None:
        assert not isinstance(asked, CheckCommit), "groups are asked for of their own coordinators"
        answers: list[TransactionAnswer] = []
        if not self._has_to_wait(key, asked):
            self._act_or_refuse(key, asked, answers.append)
        return answers[0] if answers else None

    def _tell_outcome(self, sender: NodeId, asked: AskOutcome) -> None:
        """Does not answer if this shard does not know the producer, or the outcome is unknown. Then the partition asks
        again, and an operator may decide (`kafka-transactions.sh abort`)."""
        standing = next((each for each in self._core.standings() if has_had(each, asked.producer_id)), None)
        if standing is None:
            return
        kept, now_ms = self._kept.of(standing.record.transactional_id), self._log.wall_ms
        answer = what_is_known(standing, kept, asked, now_ms) or lost_end(self._log, standing, asked)
        if isinstance(answer, EndOrphan):
            self._log.send(sender, answer)  # it does not depend on a record that a crash could lose
        elif answer is not None:
            self._log.once_committed(lambda: self._log.send(sender, answer))

    def _verified(self, sender: NodeId, asked: VerifyTransaction, given: TransactionAnswer) -> None:
        problem, text = (given.problem, given.message) if isinstance(given, Refused) else (None, "")
        answer = asked.answered(self._log.partition, self._log.epoch, problem, text)
        if asked.here:  # it does not depend on a record that a crash could lose
            self._log.send(sender, answer)
        else:
            self._log.once_committed(lambda: self._log.send(sender, answer))

    # Time

    def tick(self) -> None:
        self._entries.write_owed()
        self._ends.tick()
        if self._waiting:
            self._let_go()
        self._offsets.tick()
        if self._log.now_ms >= self._due_ms:
            self._end_overdue()
        if self._log.now_ms >= self._looks_at_ms:
            self._looks_at_ms = self._log.now_ms + self._settings.look_for_expired_ms
            self._forget_unused()

    def _opened(self, standing: Standing) -> None:
        record = standing.record
        self._opened_ms[record.transactional_id] = self._log.now_ms
        self._due_ms = min(self._due_ms, self._log.now_ms + record.timeout_ms)

    def _end_overdue(self) -> None:
        """Aborts transactions that are open longer than their producer's timeout, and fences the producer."""
        now_ms, self._due_ms = self._log.now_ms, _NEVER_MS
        self._note_kept_overdue()
        for key, opened_ms in list(self._opened_ms.items()):
            standing = self._core.standing(key)
            assert standing is not None and standing.state is TransactionState.ONGOING
            record = standing.record
            due_ms = opened_ms + record.timeout_ms
            if now_ms < due_ms or (record.epoch >= EPOCH_MAX and not self._has_id()):
                self._due_ms = min(self._due_ms, due_ms)
                continue
            identity = Identity(key, record.producer_id, record.epoch)
            self._carry_out(key, self._core.step(Abort(identity, raises_epoch=True)))

    def _note_kept_overdue(self) -> None:
        """Moves overdue kept transactions to the open ones: producers of this process may be gone, too. One whose id's
        last transaction has not ended everywhere is looked at again."""
        for key in self._kept.ids():
            kept, standing = self._kept.of(key), self._core.standing(key)
            if kept is None or standing is None:
                continue
            if standing.ending is None and self._core.current(key) != kept.who:
                self._kept.forget(key)
                continue
            due_ms = kept.opened_ms + standing.record.timeout_ms
            if standing.ending is None and due_ms <= self._log.now_ms:
                self._bring_in(key)
                self._opened_ms[key] = kept.opened_ms
            else:
                self._due_ms = min(self._due_ms, due_ms)

    def _forget_unused(self) -> None:
        if self._time_of_day.was_set(self._log.now_ms, self._log.wall_ms):
            self._looks_at_ms = self._log.now_ms + self._settings.expire_ms  # the ages of ids are unknown now
            return
        before_ms = self._log.wall_ms - self._settings.expire_ms
        unused = [key for key in self._entries.ids_unused_since(before_ms) if self._kept.of(key) is None]
        self._entries.write([entry for key in unused for entry in self._core.forget(key)])

    # For administrators

    def _described(self, standing: Standing) -> DescribedTransaction:
        key, ending, now_ms = standing.record.transactional_id, standing.ending, self._log.now_ms
        opened_ms, seen = self._opened_ms.get(key), ending is not None and self._ends.is_seen(ending)
        found = described(standing, now_ms - opened_ms if opened_ms is not None else -1, seen=seen)
        return with_kept(found, self._core.current(key), self._kept.of(key) if ending is None or seen else None, now_ms)
