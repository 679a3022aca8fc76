"""The interface of a coordinator (`Shard`), and what it uses of its node (`LedLog`); `coordination.py` runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ...cores.group_messages import CheckCommit
from ...records.key_values import KeyValue, decode_key_values, encode_key_values
from ..broker.producer_ids import ProducerIdPool
from ..controller.metadata_image import MetadataImage
from ..machine import Effect, NodeId, Reply, RequestId, Send
from ..replica.replica import Replica
from ..replica.replica_messages import PartitionId, Refused
from .coordination_messages import ShardAnswer, ShardQuestion, ShardRequest, ShardView
from .kept_transactions import KeptTransaction
from .transaction_messages import CheckProducer, ShardMessage, VerifyTransaction

if TYPE_CHECKING:
    from ..machine_messages import Message
    from .coordination import Coordinators

PROOF: Final = KeyValue(b"MV", None)
"""A no-op record; shards never see it."""

OUT_OF_TOUCH: Final = "this node is out of touch with the controller: another one may coordinate by now; ask again"


_HISTORY_BYTES: Final = 512 * 1024  # read at a time
_RECORD_BYTES: Final = 32  # at most, besides its key and its value
_CHANGES_BYTES_MAX: Final = 60 * 1024 * 1024  # a batch goes to followers in one frame: see `node_codec.py`


AskedNow = VerifyTransaction | CheckProducer | CheckCommit


class Shard(Protocol):
    """The coordinator of the keys of one partition, as a state machine.

    It writes and answers through the `LedLog` that it is created with. A failed write raises `ShardLost` out of the
    method that wrote; the shard is not called again.
    """

    def fold(self, records: Sequence[KeyValue]) -> None:
        """Applies records of the partition, in order, before `begin`. Raises nothing."""
        ...

    def begin(self) -> None:
        """Called after the last record."""
        ...

    def ask(self, request: RequestId, key: str, body: ShardRequest) -> None:
        """Takes a client's request; answers it with `LedLog.reply`, now or later."""
        ...

    def look(self, body: ShardQuestion) -> ShardView:
        """The answer to a question about all its keys, which changes nothing."""
        ...

    def receive(self, sender: NodeId, message: ShardMessage) -> None:
        """Takes a message from the machine `broker` of another node, or of this one, for this partition."""
        ...

    def answer_now(self, key: str, asked: AskedNow) -> ShardAnswer | None:
        """The answer to a question that changes nothing in the log; None if it takes time. In: no other node has this
        log."""
        ...

    def tick(self) -> None:
        """Time has passed: `LedLog.now_ms`. It must be fast if nothing is due."""
        ...


class ShardLost(Exception):
    """A shard's record could not be written, so the shard's state no longer equals its log. `refused`: why the log did
    not take it."""

    def __init__(self, message: str, refused: Refused | None = None) -> None:
        super().__init__(message)
        self.refused = refused


class _Held(NamedTuple):
    end_offset: int
    action: Callable[[], None]


class LedLog:
    """What a shard uses of its node: its partition's log, the time, and the cluster's metadata.

    Invariant: held actions are in the order of their offsets, all above the high watermark.
    """

    def __init__(self, coordinators: Coordinators, partition: PartitionId, replica: Replica) -> None:
        self.partition = partition
        self.waiting: dict[RequestId, None] = {}
        self._coordinators = coordinators
        self._replica = replica
        self._held: deque[_Held] = deque()
        self._owes = False  # records were written for which no sync was requested

    @property
    def epoch(self) -> int:
        """The leader epoch in which this node coordinates."""
        return self._replica.core.leader_epoch

    @property
    def node(self) -> NodeId:
        return self._replica.core.node

    @property
    def only_here(self) -> bool:
        """Whether this node is alone, and no other node has a copy of this log: see `ReplicaCore.alone`."""
        return self._replica.core.alone

    @property
    def kept(self) -> dict[str, KeptTransaction]:
        """State of this partition's shard that is only in memory; its successor in this process continues with it."""
        return self._coordinators.kept.setdefault(self.partition, {})

    @property
    def now_ms(self) -> int:
        return self._coordinators.now_ms

    @property
    def wall_ms(self) -> int:
        return self._coordinators.wall_ms

    @property
    def image(self) -> MetadataImage:
        return self._coordinators.image

    @property
    def producer_ids(self) -> ProducerIdPool:
        return self._coordinators.producer_ids

    @property
    def alone(self) -> bool:
        """Whether there is no other node that could coordinate in place of this one."""
        return self._coordinators.alone

    @property
    def leads_for_certain(self) -> bool:
        """Whether no other node can coordinate yet. If not, an answer without a write may be old (T-L4)."""
        return self.only_here or self._coordinators.leads_for_certain()

    def look(self, topic: str, asked: ShardQuestion) -> tuple[ShardView, ...] | Refused:
        """The immediate answers of a topic's shards on this node: see `Shard.look`."""
        return self._coordinators.look(topic, asked)

    def history(self) -> Iterator[KeyValue]:
        """All records of the log that compaction has left, in order: more than the shard keeps in memory. Raises
        `CorruptLog`, OSError."""
        log = self._replica.core.log
        offset, end = log.log_start_offset, log.end_offset
        while offset < end and (batches := log.read(offset, end, _HISTORY_BYTES)):
            for batch in batches:
                yield from (record for record in decode_key_values(batch) if record != PROOF)
                offset = batch.header.last_offset + 1

    def send(self, to: NodeId, message: Message) -> None:
        """Sends immediately. Only for messages that follow from committed records, whatever was written since."""
        self._coordinators.emit(Send(to, message))

    def write(self, changes: Sequence[KeyValue], *, soon: bool = True) -> None:
        """Appends the changes, together and in order. Raises `ShardLost`, also if they are too large for followers.

        In: `soon`: False if no caller waits: then they become durable with the next write, or with the next tick.
        """
        if not changes:
            return
        size = sum(len(key) + len(value or b"") + _RECORD_BYTES for key, value in changes)
        if size > _CHANGES_BYTES_MAX:
            raise ShardLost(f"{len(changes)} changes of {size} bytes are too large to be replicated")
        stored = self._replica.append_own([encode_key_values(changes, self.wall_ms)])
        if isinstance(stored, Refused):
            raise ShardLost(stored.message, stored)
        self._owes = not soon
        if soon:
            self._coordinators.appended(self.partition, self._replica)

    def hurry(self) -> None:
        """Requests a sync of what was written."""
        if self._owes:
            self._owes = False
            self._coordinators.appended(self.partition, self._replica)

    def prove(self) -> None:
        """Writes a no-op record, unless no other node has this log. Once it is committed, it is certain that this node
        led when this was called. Without this, another node may have been elected, and have answered clients, without
        this node knowing it (T-L4)."""
        if not self.only_here:
            self.write([PROOF])

    def say(self, effect: Effect) -> None:
        """Emits the effect once everything written so far is committed, in the order of these calls."""
        self.once_committed(lambda: self._coordinators.emit(effect))

    def reply(self, request: RequestId, response: ShardAnswer) -> None:
        """Answers the request once everything written so far is committed."""
        self.once_committed(lambda: self._answer(request, response))

    def reply_now(self, request: RequestId, response: ShardAnswer) -> None:
        """Answers the request immediately. Only for answers that do not depend on uncommitted records of this log."""
        self._answer(request, response)

    def once_committed(self, action: Callable[[], None]) -> None:
        """Calls `action`, perhaps now, once everything written so far is committed; never if the shard ends."""
        core = self._replica.core
        if not self._held and self._is_committed(core.log.end_offset):
            action()
        else:
            self._held.append(_Held(core.log.end_offset, action))
            self.hurry()

    def release(self) -> None:
        """Runs the held actions whose records are now committed."""
        while self._held and self._is_committed(self._held[0].end_offset):
            self._held.popleft().action()

    def _is_committed(self, end_offset: int) -> bool:
        return end_offset <= self._replica.core.high_watermark

    def _answer(self, request: RequestId, response: ShardAnswer) -> None:
        del self.waiting[request]
        self._coordinators.emit(Reply(request, response))

    def refuse_waiting(self, refused: Refused) -> None:
        for request in self.waiting:
            self._coordinators.emit(Reply(request, refused))
        self.waiting.clear()
        self._held.clear()


ShardMaker = Callable[[LedLog], Shard]
