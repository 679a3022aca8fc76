"""Access to a node for clients in its own process, without a connection: the same handlers, but no encoding."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, TypeVar

from millstream.errors import LogError

from ..client import Isolation, TopicPartition
from ..errors import CorruptLog, LogClosed, LogFull, LogUnavailable, NotNow, UnknownTopic
from ..protocol.dispatch import HANDLERS, WAITING_HANDLERS
from ..protocol.kafka_service import Desk, KafkaServiceSettings, Serving
from ..protocol.layout import KeyKind
from ..protocol.lines import Line, Look, ReadAnswer, TopicIds
from ..protocol.requests.record_requests import read_all
from ..protocol.security.peer import Peer
from ..protocol.wire import messages
from ..protocol.wire.apis import KNOWN, NAMING_TOPICS, Api
from ..protocol.wire.faults import code_of
from ..protocol.wire.fetch_messages import ClientFetch, FetchedPartition, FetchPosition
from ..protocol.wire.frames import CLIENT_ID
from ..protocol.wire.messages import Fields
from ..protocol.wire.produce_messages import ProduceResult
from ..records.batch import EncodedBatch
from ..storage.reader import read
from .own_transactions import OwnTransactions

_NOWHERE: Final = ("", 0)
_VERSIONS: Final = {api: min(known.newest, NAMING_TOPICS.get(api, known.newest)) for api, known in KNOWN.items()}
"""The versions of requests on a connection to a node of this version of Millstream."""

_Result = TypeVar("_Result")
_Write = Callable[[TopicPartition, EncodedBatch, str | None, float], ProduceResult]
_WriteCopies = Callable[[TopicPartition, Sequence[EncodedBatch], str, float], ProduceResult]


class _OwnDesk(Desk):
    async def blocking(self, work: Callable[[], _Result]) -> _Result:
        """Runs the work directly, since nothing else uses this thread."""
        return work()


class OwnNode:
    """A `Door`, and the `Line` behind it. Its clients are in this process: they have the rights of clients with the
    log's secret, and no quotas.

    State: the clients that wait for new records, and whether the node was ready once. Any thread may call any method.
    """

    def __init__(
        self,
        serving: Serving,
        write: _Write,
        write_copies: _WriteCopies,
        transactions: OwnTransactions,
        failure: Callable[[], str | None],
        full: Callable[[], LogFull | None],
    ) -> None:
        """In: `failure`: why the node ended by itself, if it did; it cannot recover in this process. `full`: the error
        if its disk is full."""
        self.node = serving.layout.node
        self._desk = _OwnDesk(serving, KafkaServiceSettings())
        self._write = write
        self._write_copies = write_copies
        self.transactions = transactions
        self._is_ready = serving.is_ready
        self._failure = failure
        self.full = full
        self._ready = self._closed = False
        self._peer = Peer(_NOWHERE, _NOWHERE, client_id=CLIENT_ID, trusted=True)
        self._guard = threading.Lock()
        self._looks: tuple[_OwnLook, ...] = ()
        self._stop_listening = serving.log.listen(self._advanced)
        self._as_line = nullcontext(self)

    # The door

    def line(self) -> AbstractContextManager[Line]:
        if self._closed:
            raise LogClosed(
                "the log is closed", hint="The server stops, or its engine moves to another node: ask again soon."
            )
        failure = self._failure()
        if failure is not None:
            raise LogClosed(f"this node has ended: {failure}", hint="Start it again: what was acknowledged is safe.")
        self._ready = self._ready or self._is_ready()
        if not self._ready:
            raise LogUnavailable("this node does not serve yet", hint="It has to reach the cluster's controller first.")
        return self._as_line

    def begin_look(
        self, offsets: Mapping[TopicPartition, int], wait_s: float, bytes_max: int = 0, ids: TopicIds | None = None
    ) -> Look:
        del wait_s, ids  # the caller ends the wait itself, and knows the topics
        self.line()
        look = _OwnLook(self, offsets)
        with self._guard:
            self._looks = (*self._looks, look)
        look.wake_if_there_is_news()
        return look

    def end_look(self, look: _OwnLook) -> None:
        with self._guard:
            self._looks = tuple(other for other in self._looks if other is not look)

    def _advanced(self, where: TopicPartition) -> None:
        """It is called on the node's thread."""
        for look in self._looks:
            if where in look.offsets:
                look.wake_if_there_is_news()

    def leader_epoch(self, where: TopicPartition) -> int | None:
        self.line()
        topic = self._desk.log.topic(where.topic)
        if topic is None or not 0 <= where.partition < topic.partition_count:
            lacks = "does not exist" if topic is None else f"has no partition {where.partition}"
            raise UnknownTopic(f'topic "{where.topic}" {lacks}')
        found = self._desk.layout.partition(*where)
        return None if found.leader != self.node else found.leader_epoch

    def coordinates(self, kind: KeyKind, key: str) -> bool:
        self.line()
        try:
            return self._desk.layout.coordinator(kind, key, _NOWHERE).node == self.node
        except LogError:
            return False

    def close(self) -> None:
        self._closed = True
        self._stop_listening()

    # The line

    def ask(self, api: Api, fields: Fields, *, wait_s: float = 0) -> Any:
        del wait_s  # the request tells the handler how long to wait
        asked = messages.build_request(api, _VERSIONS[api], fields)
        waiting = WAITING_HANDLERS.get(api)
        if waiting is not None:
            answer = asyncio.run(waiting(self._desk, asked, self._peer))
        else:
            answer = HANDLERS[api](self._desk, asked, self._peer)
        return messages.build_response(api, _VERSIONS[api], answer)

    def produce(
        self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None, timeout_ms: int
    ) -> ProduceResult:
        return self._write(where, batch, transactional_id, timeout_ms / 1000)

    def produce_copies(
        self, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str, timeout_ms: int
    ) -> ProduceResult:
        return self._write_copies(where, batches, mirror, timeout_ms / 1000)

    def read(self, position: FetchPosition, isolation: Isolation) -> ReadAnswer:
        """Records count as read only if this node led the partition all the time (T-L4)."""
        where, layout = position.partition, self._desk.layout
        try:
            layout.check_reads(where, position.leader_epoch, position.offset, "")
            partition = self._desk.log.partition(*where)
            view = partition.view(position.offset, position.bytes_max, isolation)
            try:
                fetched = read(view, position.offset, position.bytes_max)
            except CorruptLog as error:
                raise partition.unreadable(position.offset, error) from error
            layout.check_reads(where, position.leader_epoch, position.offset, "")
        except NotNow as error:
            return ReadAnswer(code_of(error), None)
        except LogError as error:
            return ReadAnswer(code_of(error), None, error)
        return ReadAnswer(0, fetched)

    def look(self, positions: Sequence[FetchPosition], isolation: Isolation, wait_s: float) -> list[FetchedPartition]:
        if wait_s > 0:
            look = self.begin_look({position.partition: position.offset for position in positions}, wait_s)
            try:
                poll = select.poll()  # `select` refuses descriptors above 1,023, which a node with many partitions has
                poll.register(look, select.POLLIN)
                poll.poll(wait_s * 1000)
            finally:
                look.leave()
        return read_all(self._desk, ClientFetch(0, 0, 0, isolation, positions), self._peer)

    def has_news(self, where: TopicPartition, offset: int) -> bool:
        """Whether there is something to report about the partition: committed records, or that it is not read here."""
        try:
            ends = self._desk.log.partition(*where).offsets()
            return ends.last_stable_offset > offset or offset > ends.high_watermark
        except LogError:
            return True


class _OwnLook:
    """State: a pipe, whose one end becomes readable once there is news."""

    grace_s: ClassVar[float] = 0.0

    def __init__(self, own: OwnNode, offsets: Mapping[TopicPartition, int]) -> None:
        self._own = own
        self.offsets = dict(offsets)
        self._guard = threading.Lock()
        self._woken = self._left = False
        self._reading, self._writing = os.pipe()

    def wake_if_there_is_news(self) -> None:
        if not self._woken and any(self._own.has_news(*found) for found in self.offsets.items()):
            with self._guard:
                if not self._woken and not self._left:
                    self._woken = True
                    os.write(self._writing, b"!")

    def fileno(self) -> int:
        return self._reading

    def finish(self) -> list[FetchedPartition]:
        positions = [FetchPosition(where, offset, 0) for where, offset in self.offsets.items()]
        return self._own.look(positions, "read_committed", 0)

    def leave(self) -> None:
        self._own.end_look(self)
        with self._guard:
            if not self._left:
                self._left = True
                os.close(self._reading)
                os.close(self._writing)
