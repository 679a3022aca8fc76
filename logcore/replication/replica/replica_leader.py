"""A replica that leads: it appends what producers send, and determines what is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeVar, assert_never

from millstream.errors import LogError

from ...errors import InvalidTransactionState, LogFull, OutOfOrderSequence, ProducerFenced
from ...records.batch import BatchHeader, EncodedBatch, place
from ...records.control import encode_marker
from ...storage.epoch_cache import EpochBoundary
from ...storage.producer_state import SequencedBatch
from ..controller.metadata_records import PartitionState
from ..machine import CONTROLLER, NodeId, Reply, RequestId, Send
from ..shards.transaction_messages import EndRefused, MarkerWritten, TransactionVerified, WriteMarker
from .in_sync import InSyncReplicas
from .replica_core import NEVER_MS, ReplicaCore
from .replica_messages import (
    ACTIVE_CONTROLLER,
    AlterPartition,
    AlterRefused,
    AskEpochEnd,
    AskOffsets,
    AwaitCommitted,
    CommittedTo,
    Deleted,
    DeleteRecords,
    Diverging,
    Ended,
    EndHanging,
    EndMarker,
    FetchedBatches,
    FetchRefused,
    FetchRequest,
    InSync,
    PartitionOffsets,
    Problem,
    Produce,
    Produced,
    Read,
    Refused,
    ReplicaRequest,
)
from .replica_reading import epoch_problem, read_committed_log
from .replica_settling import Settling
from .replica_verification import Verification

_UNKNOWN_EPOCH = -1
_Answer = TypeVar("_Answer", Produced, Ended, CommittedTo)


class _Waiting(NamedTuple):
    end_offset: int
    answer: Reply | Send


class _Parked(NamedTuple):
    """A follower's fetch that waits for news."""

    request: FetchRequest
    until_ms: int


class Leader:
    """State of one leader epoch: followers, and requests that wait for durability or for the high watermark."""

    def __init__(self, core: ReplicaCore, view: PartitionState) -> None:
        self._core = core
        self.epoch_start = core.log.end_offset
        self.in_sync = InSyncReplicas.of(view)
        self._began_ms = core.now_ms
        self._for_commit: deque[_Waiting] = deque()
        self._for_disk: deque[_Waiting] = deque()
        self._for_start: deque[_Waiting] = deque()  # until the log's start is durable
        self._parked: dict[NodeId, _Parked] = {}
        self._marking: set[Reply | Send] = set()  # answers in `_for_commit` that coordinators request repeatedly
        self.verification = Verification(core)
        self.settling = Settling(core, view)
        self._told: dict[NodeId, int] = {}  # the high watermark in the last answer to each follower
        self.advance()

    @property
    def _view(self) -> PartitionState:
        view = self._core.view
        assert view is not None
        return view

    @property
    def end_offset(self) -> int:
        return self._core.log.end_offset

    def adopt(self, view: PartitionState) -> None:
        """Takes newer metadata of the same epoch."""
        self.in_sync.adopt(view)
        self._parked = {node: parked for node, parked in self._parked.items() if node in view.replicas}
        self.advance()

    def resign(self) -> None:
        """Another epoch begins. Refuses waiting requests, whose records may be committed in that epoch, or not."""
        refused = Refused(Problem.NOT_LEADER, "another leader epoch has begun; whether the records are stored is open")
        answers = [waiting.answer for waiting in (*self._for_disk, *self._for_start, *self._for_commit)]
        asked = [answer.request for answer in answers if isinstance(answer, Reply)]
        for request in (*asked, *(parked.request for parked in self.verification.resign())):
            self._core.emit(Reply(request, refused))
        for node, parked in self._parked.items():
            self._refuse(node, parked.request, Problem.NOT_LEADER)

    # Clients

    def ask(self, request: RequestId, body: ReplicaRequest) -> None:
        match body:
            case Produce():
                answer = self._produce(request, body)
            case AwaitCommitted():
                answer = self._await_committed(request)
            case EndMarker():
                answer = self._end_transaction(request, body)
            case EndHanging():
                answer = self._end_hanging(request, body)
            case Read():
                answer = read_committed_log(self._core, body)
            case AskOffsets(leader_epoch):
                answer = self._offsets(leader_epoch)
            case DeleteRecords(offset):
                answer = self._delete(request, offset)
            case AskEpochEnd(epoch, leader_epoch):
                log = self._core.log
                answer = epoch_problem(self._core.leader_epoch, leader_epoch) or log.epochs.end_of(
                    epoch, log.end_offset, log.log_start_offset
                )
            case _:
                assert_never(body)
        if answer is not None:
            self._core.emit(Reply(request, answer))

    def _produce(self, request: RequestId, asked: Produce) -> Produced | Refused | None:
        """None if the answer comes later, or never (acks=0)."""
        core, first = self._core, asked.batches[0].header
        refused = self._why_not(asked)
        if refused is not None:
            return refused
        if first.transactional and not asked.verified and self.verification.holds(first.producer_id):
            return self.verification.park(request, asked)
        repeated = self._repeated(first)
        if isinstance(repeated, Refused):
            return repeated
        if repeated is not None:
            # The batch is stored, but it may not be committed yet.
            stored = Produced(repeated.base_offset, core.leader_epoch)
            return stored if asked.here else self._answer_later(request, repeated.last_offset + 1, stored, asked.acks)
        if first.transactional and not asked.verified and not self._is_open_here(first):
            return self.verification.park(request, asked)
        stored = self._store(first, asked)
        if isinstance(stored, Refused) or asked.here:
            return stored
        return self._answer_later(request, core.log.end_offset, stored, asked.acks)

    def store(self, asked: Produce) -> Produced | Refused | None:
        """Like `ask`, but the answer only says that the records are in the log; nothing reports when they are
        committed. None if the answer is not known immediately: then call `ask`."""
        first = asked.batches[0].header
        if first.transactional and not asked.verified:
            if self.verification.holds(first.producer_id) or not self._is_open_here(first):
                return None
        refused = self._why_not(asked)
        if refused is not None:
            return refused
        repeated = self._repeated(first)
        if repeated is None:
            return self._store(first, asked)
        return repeated if isinstance(repeated, Refused) else None

    def _repeated(self, first: BatchHeader) -> SequencedBatch | Refused | None:
        """The stored batch that this one repeats; None if it is new."""
        try:
            return self._core.log.state.check(first)
        except ProducerFenced as error:
            return Refused(Problem.PRODUCER_FENCED, error.message)
        except OutOfOrderSequence as error:
            return Refused(Problem.OUT_OF_ORDER_SEQUENCE, error.message)
        except InvalidTransactionState as error:
            return Refused(Problem.INVALID_TXN_STATE, error.message)

    def _store(self, first: BatchHeader, asked: Produce) -> Produced | Refused:
        if self.settling.holds(first.producer_id):
            text = "how an earlier transaction of the producer ended was lost here, and is asked of its coordinator"
            return Refused(Problem.CONCURRENT_TRANSACTIONS, text)
        owes = self.settling.owes
        if owes is not None:
            return Refused(Problem.STORAGE_ERROR, owes)
        return self._append(asked.batches)

    def _await_committed(self, request: RequestId) -> CommittedTo | None:
        """None if the answer comes later."""
        end_offset = self._core.log.end_offset
        return self._answer_later(request, end_offset, CommittedTo(end_offset), -1)

    def _is_open_here(self, first: BatchHeader) -> bool:
        """Whether the batch's transaction is open here. The producer's previous one, with another epoch, may also be
        open."""
        transaction = self._core.log.state.transactions.open_of(first.producer_id)
        if self.settling.holds(first.producer_id):
            return False
        return transaction is not None and transaction.epoch == first.producer_epoch

    def _why_not(self, asked: Produce) -> Refused | None:
        if asked.acks == -1 and not self._enough_in_sync():
            return Refused(
                Problem.NOT_ENOUGH_REPLICAS,
                f"{len(self.in_sync.committed)} replicas are in sync, min.insync.replicas is {self._view.min_isr}",
            )
        if asked.base_offset not in (None, self._core.log.end_offset):
            text = f"the records belong to offset {asked.base_offset}, and the log ends at {self._core.log.end_offset}"
            return Refused(Problem.OFFSET_OUT_OF_RANGE, text)
        if len(self._for_commit) + len(self._for_disk) >= self._core.settings.waiting_max:
            return Refused(Problem.NOT_ENOUGH_REPLICAS, "too many requests wait for the followers")
        return None

    def _end_transaction(self, request: RequestId, asked: EndMarker) -> Ended | Refused | None:
        # An existing marker may not be committed yet.
        ended = Ended(self._core.leader_epoch)
        return self._mark(asked) or self._answer_later(request, self._core.log.end_offset, ended, -1)

    def _end_hanging(self, request: RequestId, asked: EndHanging) -> Ended | Refused | None:
        """Gives the marker the next end number of the producer here, so that a later marker of the coordinator ends
        nothing twice."""
        state = self._core.log.state
        if state.transactions.open_of(asked.producer_id) is not None:
            return self._end_transaction(request, EndMarker(*asked, state.producers.next_end(asked.producer_id)))
        try:
            state.producers.check_epoch(asked.producer_id, asked.epoch)
        except ProducerFenced as error:
            return Refused(Problem.PRODUCER_FENCED, error.message)
        return Ended(self._core.leader_epoch)

    def _mark(self, asked: EndMarker, *, decided: bool = False) -> Refused | None:
        """In: `decided`: as in `ReplicaCore.append`."""
        if self._has_marker(asked):
            return None
        try:
            self._core.log.state.producers.check_epoch(asked.producer_id, asked.epoch)
        except ProducerFenced as error:
            return Refused(Problem.PRODUCER_FENCED, error.message)
        return self._append_marker(asked, decided=decided)

    def _append_marker(self, asked: EndMarker, *, decided: bool) -> Refused | None:
        marker = encode_marker(
            asked.producer_id,
            asked.epoch,
            committed=asked.committed,
            timestamp_ms=asked.timestamp_ms,
            number=asked.number,
        )
        stored = self._append([marker], decided=decided)
        if isinstance(stored, Refused):
            return stored
        self.verification.ended(asked.producer_id)
        self.settling.settled(asked.producer_id)
        return None

    def end_orphan(self, asked: EndMarker) -> None:
        """Ends a transaction that nobody knows of. If there is no space for the marker, `Settling` asks again."""
        if self.settling.holds(asked.producer_id) and self._append_marker(asked, decided=True) is None:
            self._core.publish()

    def _has_marker(self, asked: EndMarker) -> bool:
        """Whether this end is marked already. A marker is written even if nothing is open here: a record that is still
        under way must not open the transaction."""
        return self._core.log.state.producers.has_ended(asked.producer_id, asked.epoch, asked.number)

    # Coordinators of transactions

    def write_marker(self, sender: NodeId, asked: WriteMarker) -> None:
        """Answers when the marker is committed; repeated requests for it wait only once (I24). If this node is alone,
        the coordinator is also told immediately that readers see the outcome."""
        core, marker = self._core, asked.marker
        self.verification.heard(asked.sender, asked.sender_epoch)
        end_offset, refused = core.log.end_offset, self._mark(marker, decided=True)
        if refused is not None and refused.problem is not Problem.PRODUCER_FENCED:
            self.settling.refused(marker.producer_id, refused.message)
            core.emit(Send(sender, EndRefused(asked.sender, marker.producer_id, marker.number, refused.message)))
            return  # the coordinator asks again
        written = MarkerWritten(asked.sender, asked.transactional_id, marker.producer_id, marker.number, core.partition)
        answer = Send(sender, written)
        if core.high_watermark >= core.log.end_offset:
            core.emit(answer)
            return
        if core.alone:
            if core.log.end_offset > end_offset and core.log.whole:
                core.show_marker(end_offset)
            else:  # it was there already, or a crash would have it found by damaged records only
                core.publish()
            core.emit(Send(sender, written._replace(durable=False)))
        if answer not in self._marking:
            self._marking.add(answer)
            self._for_commit.append(_Waiting(core.log.end_offset, answer))

    def verified(self, answer: TransactionVerified) -> None:
        """Continues the requests that waited for the coordinator, in order of arrival."""
        parked, refused = self.verification.take(answer)
        for request, asked in parked:
            given = refused or self._produce(request, asked._replace(verified=True))
            if given is not None:
                self._core.emit(Reply(request, given))

    def append_own(self, batches: Sequence[EncodedBatch]) -> Produced | Refused:
        """Appends batches of this node itself, in order, all or none. It emits no answer."""
        return self._append(batches)

    def _append(self, batches: Sequence[EncodedBatch], *, decided: bool = False) -> Produced | Refused:
        core, epoch = self._core, self._core.leader_epoch
        first = offset = core.log.end_offset
        placed: list[EncodedBatch] = []
        for batch in batches:
            placed.append(place(batch, offset, epoch))
            offset += batch.header.last_offset_delta + 1
        try:
            core.append(placed, decided=decided)
        except LogError as error:
            if isinstance(error, LogFull):
                self._give_up()
            return Refused(Problem.STORAGE_ERROR, f"{error.code}: {error.message}")  # the code shows a full disk
        return Produced(first, epoch)

    def _answer_later(self, request: RequestId, end_offset: int, answer: _Answer, acks: int) -> _Answer | None:
        if acks == -1 and self._core.high_watermark < end_offset:
            self._for_commit.append(_Waiting(end_offset, Reply(request, answer)))
            return None
        if acks == 1 and self._core.durable_offset < end_offset:
            self._for_disk.append(_Waiting(end_offset, Reply(request, answer)))
            return None
        return answer if acks else None

    def _offsets(self, leader_epoch: int) -> PartitionOffsets | Refused:
        core = self._core
        refused = epoch_problem(core.leader_epoch, leader_epoch)
        if refused is not None:
            return refused
        if core.high_watermark < self.epoch_start:
            # R16: the previous leader may have exposed more to clients.
            return Refused(Problem.OFFSET_NOT_AVAILABLE, "the new leader does not know yet what is committed")
        return PartitionOffsets(core.log.log_start_offset, core.last_stable_offset, core.visible_offset)

    def _delete(self, request: RequestId, offset: int) -> Deleted | Refused | None:
        """None if the answer comes later."""
        core = self._core
        visible = core.visible_offset
        wanted = visible if offset == -1 else offset
        if not 0 <= wanted <= visible:
            text = f"the records before offset {offset} cannot be deleted: {visible} is committed"
            return Refused(Problem.OFFSET_OUT_OF_RANGE, text)
        core.move_start(wanted)
        deleted = Deleted(core.log.log_start_offset)
        if core.durable_start >= deleted.log_start_offset:
            return deleted
        self._for_start.append(_Waiting(deleted.log_start_offset, Reply(request, deleted)))
        return None

    # Followers

    def fetch(self, node: NodeId, request: FetchRequest) -> None:
        core, log = self._core, self._core.log
        problem = self._fetch_problem(node, request)
        if problem is not None:
            self._refuse(node, request, problem)
            return
        parted = self._parted_at(request)
        if parted is not None:
            core.emit(Send(node, Diverging(core.partition, core.leader_epoch, request.correlation, *parted)))
            return
        if not self.in_sync.note_fetch(node, request.offset, request.broker_epoch, log.end_offset, core.now_ms):
            return
        self._parked[node] = _Parked(request, core.now_ms + core.settings.fetch_wait_ms)
        self.advance()
        self._maybe_expand(node, request)

    def _parted_at(self, request: FetchRequest) -> EpochBoundary | None:
        """R10: where the logs diverge; None if the follower's log is a prefix of this one."""
        if request.last_epoch < 0:
            return None
        log = self._core.log
        end = log.epochs.end_of(request.last_epoch, log.end_offset, log.log_start_offset)
        return end if end.epoch < request.last_epoch or end.end_offset < request.offset else None

    def _fetch_problem(self, node: NodeId, request: FetchRequest) -> Problem | None:
        core, log = self._core, self._core.log
        refused = epoch_problem(core.leader_epoch, request.leader_epoch)
        if refused is not None:
            return refused.problem
        if node not in self._view.replicas:
            return Problem.UNKNOWN_PARTITION
        if request.offset < log.log_start_offset or (request.last_epoch < 0 and request.offset > log.end_offset):
            return Problem.OFFSET_OUT_OF_RANGE
        return None

    def _refuse(self, node: NodeId, request: FetchRequest, problem: Problem) -> None:
        core = self._core
        start = core.log.log_start_offset
        core.emit(Send(node, FetchRefused(core.partition, request.leader_epoch, request.correlation, problem, start)))

    def answer_fetches(self) -> None:
        """Answers the fetches for which there is news, or that have waited long enough."""
        core, log = self._core, self._core.log
        for node, (request, until_ms) in list(self._parked.items()):
            behind = request.offset < log.end_offset
            waits = behind and self._has_to_wait(node)
            news = behind or self._told.get(node) != core.high_watermark
            if (waits or not news) and core.now_ms < until_ms:
                continue
            del self._parked[node]
            batches = () if waits else tuple(log.read(request.offset, log.end_offset, request.max_bytes))
            if self._is_throttled(node):
                core.throttle.leading.take(sum(batch.header.size for batch in batches), core.now_ms)
            self._told[node] = core.high_watermark
            answer = FetchedBatches(
                core.partition,
                core.leader_epoch,
                request.correlation,
                request.offset,
                batches,
                core.high_watermark,
                log.log_start_offset,
            )
            core.emit(Send(node, answer))

    def _has_to_wait(self, node: NodeId) -> bool:
        core = self._core
        return self._is_throttled(node) and not core.throttle.leading.allows(core.partition, core.now_ms)

    def _is_throttled(self, node: NodeId) -> bool:
        """Whether the follower is throttled. Members of the maximal ISR are not: the high watermark waits for them."""
        return self._core.throttle.leading.rate is not None and node not in self.in_sync.maximal

    # Commits

    def advance(self) -> None:
        """R11: raises the high watermark to what is durable on all of the maximal ISR, if enough are in sync. Then it
        answers the requests that waited for durability or for the high watermark."""
        core = self._core
        while self._for_disk and self._for_disk[0].end_offset <= core.durable_offset:
            core.emit(self._for_disk.popleft().answer)
        while self._for_start and self._for_start[0].end_offset <= core.durable_start:
            core.emit(self._for_start.popleft().answer)
        if self._enough_in_sync() and core.raise_high_watermark(self._held_by_all()):
            while self._for_commit and self._for_commit[0].end_offset <= core.high_watermark:
                answer = self._for_commit.popleft().answer
                core.emit(answer)
                if self._marking:
                    self._marking.discard(answer)

    @property
    def has_enough_in_sync(self) -> bool:
        """If False, nothing new is committed."""
        return self._enough_in_sync()

    def _enough_in_sync(self) -> bool:
        return len(self.in_sync.committed) >= self._view.min_isr

    def _held_by_all(self) -> int:
        """The offset below which everything is durable on every node that may be in sync."""
        core, in_sync = self._core, self.in_sync
        held = core.durable_offset
        for node in in_sync.maximal:
            if node != core.node:
                held = min(held, in_sync.acknowledged(node))
        return held

    # In-sync replicas

    def tick(self) -> None:
        core, in_sync = self._core, self.in_sync
        for parked in self.verification.tick():
            text = "the coordinator of the transaction does not answer; ask again"
            core.emit(Reply(parked.request, Refused(Problem.NOT_ENOUGH_REPLICAS, text)))
        self.settling.tick()
        late = core.now_ms - core.settings.lag_ms
        if in_sync.pending is None:
            kept = frozenset(node for node in in_sync.committed if node == core.node or self.caught_up_ms(node) >= late)
            if kept != in_sync.committed or in_sync.unsettled:
                self._propose(kept)
        elif core.now_ms - in_sync.asked_ms >= core.settings.ask_again_ms:
            self._propose(in_sync.pending)

    @property
    def due_ms(self) -> int:
        """Like `Replica.due_ms`: the first time at which `tick` or `answer_fetches` may have something to do."""
        in_sync = self.in_sync
        if not self._parked and not self.verification.waits and in_sync.is_only(self._core.node):
            return self.settling.due_ms
        waiting = self._fetches_due_ms(), self.verification.due_ms, self.settling.due_ms
        return min(self._in_sync_due_ms(), *waiting)

    def _in_sync_due_ms(self) -> int:
        core, in_sync = self._core, self.in_sync
        if in_sync.pending is not None:
            return in_sync.asked_ms + core.settings.ask_again_ms
        if in_sync.unsettled:
            return core.now_ms
        others = (self.caught_up_ms(node) for node in in_sync.committed if node != core.node)
        return min((caught_up_ms + core.settings.lag_ms + 1 for caught_up_ms in others), default=NEVER_MS)

    def _fetches_due_ms(self) -> int:
        """If a waiting follower is throttled: now, because only an attempt shows whether the rate allows it."""
        if any(map(self._is_throttled, self._parked)):
            return self._core.now_ms
        return min((until_ms for _, until_ms in self._parked.values()), default=NEVER_MS)

    def caught_up_ms(self, node: NodeId) -> int:
        """When the follower last had the whole log of that time; if it has not fetched yet, when this epoch began."""
        known = self.in_sync.followers.get(node)
        return known.caught_up_ms if known is not None else self._began_ms

    def _maybe_expand(self, node: NodeId, request: FetchRequest) -> None:
        in_sync = self.in_sync
        if node not in in_sync.committed and in_sync.pending is None and self._has_all_committed(request.offset):
            self._propose(in_sync.committed | {node})

    def _has_all_committed(self, offset: int) -> bool:
        """R13: a follower joins with everything that previous leaders and this one have committed.

        What previous leaders committed is in this log, below the start of this epoch. The follower must not have to
        wait until the high watermark gets there: with too few in sync, it does not move until a follower joins.
        """
        return offset >= max(self._core.high_watermark, self.epoch_start)

    def _give_up(self) -> None:
        """The disk is full: asks that one in sync leads instead, if enough remain. The next failure repeats it."""
        others = self.in_sync.committed - {self._core.node}
        if self.in_sync.pending is None and len(others) >= self._view.min_isr:
            self._propose(others)

    def _propose(self, members: frozenset[NodeId]) -> None:
        core, in_sync = self._core, self.in_sync
        in_sync.propose(members, core.now_ms)
        request = AlterPartition(
            core.partition,
            core.node,
            core.broker_epoch,
            core.leader_epoch,
            in_sync.partition_epoch,
            tuple(InSync(node, self._broker_epoch(node)) for node in sorted(members)),
        )
        core.emit(Send(ACTIVE_CONTROLLER, request, CONTROLLER))

    def _broker_epoch(self, node: NodeId) -> int:
        if node == self._core.node:
            return self._core.broker_epoch
        known = self.in_sync.followers.get(node)
        return known.broker_epoch if known is not None else _UNKNOWN_EPOCH

    def alter_refused(self, refusal: AlterRefused) -> None:
        if (refusal.leader_epoch, refusal.partition_epoch) == (self._core.leader_epoch, self.in_sync.partition_epoch):
            self.in_sync.refused()
