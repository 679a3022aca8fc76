"""A coordinator, and what it has of the node that it runs on: what `coordination.py` lets live and die."""

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
"""A record that says nothing; no shard ever sees it."""

OUT_OF_TOUCH: Final = "this node is out of touch with the controller: another one may coordinate by now; ask again"


_HISTORY_BYTES: Final = 512 * 1024  # read at a time
_RECORD_BYTES: Final = 32  # at most, besides its key and its value
_CHANGES_BYTES_MAX: Final = 60 * 1024 * 1024  # a batch goes to followers in one frame: see `node_codec.py`


AskedNow = VerifyTransaction | CheckProducer | CheckCommit


class Shard(Protocol):
    """The coordinator of the keys of one partition, as a state machine.

    It writes and answers through the `LedLog` that it is made with. A write that fails raises `ShardLost` through
    whatever method wrote: the shard is not called again.
    """

    def fold(self, records: Sequence[KeyValue]) -> None:
        """Takes in records of the partition, in order, before it begins. Raises nothing."""
        ...

    def begin(self) -> None:
        """All records are there."""
        ...

    def ask(self, request: RequestId, key: str, body: ShardRequest) -> None:
        """A client's request; it is answered with `LedLog.reply`, now or later."""
        ...

    def look(self, body: ShardQuestion) -> ShardView:
        """The answer to a question about all its keys, which changes nothing."""
        ...

    def receive(self, sender: NodeId, message: ShardMessage) -> None:
        """A message of another node's, or this one's, machine `broker` that names this partition."""
        ...

    def answer_now(self, key: str, asked: AskedNow) -> ShardAnswer | None:
        """The answer to what changes nothing in the log; None where it takes time. In: nobody else has this log."""
        ...

    def tick(self) -> None:
        """Time went on: `LedLog.now_ms`. To be quick where nothing is due."""
        ...


class ShardLost(Exception):
    """A shard's record could not be written. What the shard knows is no longer what its log says. `refused`: why its
    log did not take it."""

    def __init__(self, message: str, refused: Refused | None = None) -> None:
        super().__init__(message)
        self.refused = refused


class _Held(NamedTuple):
    end_offset: int
    action: Callable[[], None]


class LedLog:
    """What a shard has of its node: its partition's log, times, and the cluster's metadata.

    Invariant: what is held back is in the order of its offsets, and waits for a high watermark below them.
    """

    def __init__(self, coordinators: Coordinators, partition: PartitionId, replica: Replica) -> None:
        self.partition = partition
        self.waiting: dict[RequestId, None] = {}
        self._coordinators = coordinators
        self._replica = replica
        self._held: deque[_Held] = deque()
        self._owes = False  # something was written that nobody has asked to be made durable

    @property
    def epoch(self) -> int:
        """The leader epoch in which this node coordinates."""
        return self._replica.core.leader_epoch

    @property
    def node(self) -> NodeId:
        return self._replica.core.node

    @property
    def only_here(self) -> bool:
        """Whether, besides, nobody else has a copy of this log: see `ReplicaCore.alone`."""
        return self._replica.core.alone

    @property
    def kept(self) -> dict[str, KeptTransaction]:
        """What a shard of this partition has in mind only, and its successor in the same process goes on with."""
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
        """Whether no other node could do what this one cannot."""
        return self._coordinators.alone

    @property
    def leads_for_certain(self) -> bool:
        """Whether nobody else can coordinate yet: what is answered without a write may be old otherwise (T-L4)."""
        return self.only_here or self._coordinators.leads_for_certain()

    def look(self, topic: str, asked: ShardQuestion) -> tuple[ShardView, ...] | Refused:
        """What the shards of a topic that are on this node answer at once: see `Shard.look`."""
        return self._coordinators.look(topic, asked)

    def history(self) -> Iterator[KeyValue]:
        """All records of the log that compaction has left, in order: more than the shard remembers of them. Raises
        `CorruptLog`, OSError."""
        log = self._replica.core.log
        offset, end = log.log_start_offset, log.end_offset
        while offset < end and (batches := log.read(offset, end, _HISTORY_BYTES)):
            for batch in batches:
                yield from (record for record in decode_key_values(batch) if record != PROOF)
                offset = batch.header.last_offset + 1

    def send(self, to: NodeId, message: Message) -> None:
        """Now: what follows from records that are committed, whatever was written since."""
        self._coordinators.emit(Send(to, message))

    def write(self, changes: Sequence[KeyValue], *, soon: bool = True) -> None:
        """Appends the changes, together and in order. Raises `ShardLost`, also where no follower could be sent them.

        In: `soon`: else they become durable with what is written next, or with the next tick, and nobody waits for it.
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
        """Has what was written become durable."""
        if self._owes:
            self._owes = False
            self._coordinators.appended(self.partition, self._replica)

    def prove(self) -> None:
        """Writes a record that says nothing. When it is committed it is sure that this node led when this was called:
        another one may have been elected, and have answered others, without this one's knowing (T-L4)."""
        self.write([PROOF])

    def say(self, effect: Effect) -> None:
        """Lets the effect go when everything that was written so far is committed; in the order of these calls."""
        self.once_committed(lambda: self._coordinators.emit(effect))

    def reply(self, request: RequestId, response: ShardAnswer) -> None:
        """The answer to the request, when everything that was written so far is committed."""
        self.once_committed(lambda: self._answer(request, response))

    def reply_now(self, request: RequestId, response: ShardAnswer) -> None:
        """The answer to the request, where it says nothing that records of this log could take back."""
        self._answer(request, response)

    def once_committed(self, action: Callable[[], None]) -> None:
        """Calls it, perhaps now, when everything that was written so far is committed; never if the shard ends."""
        core = self._replica.core
        if not self._held and self._is_committed(core.log.end_offset):
            action()
        else:
            self._held.append(_Held(core.log.end_offset, action))
            self.hurry()

    def release(self) -> None:
        """Does what was held back and may go."""
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
