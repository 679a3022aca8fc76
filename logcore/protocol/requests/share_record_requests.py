"""Answers to ShareFetch and ShareAcknowledge. The leader of a partition reads its records; the group's coordinator
decides which member gets them.

A fetch has three steps: ask where to read (`LookForRecords`), read, and acquire what was read (`AcquireRecords`). Other
members may acquire records in between. Then less is acquired than was read, and it tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from millstream.errors import LogError

from ...client import Isolation, Offsets, TopicPartition
from ...cores.share_settings import DEFAULTS, RESET, SESSIONS_MAX, duration_ms, in_force, is_committed_only
from ...error_codes import ErrorCode
from ...errors import NotNow, OffsetOutOfRange, UnknownTopicId
from ...log_settings import ALL_BROKERS, of_group
from ...records.batch import HEADER_SIZE, Buffer, read_header
from ...replication.replica.replica_messages import PartitionId
from ...replication.shards.share_messages import (
    START_UNKNOWN,
    AcknowledgeRecords,
    AcquireRecords,
    LeaderView,
    LookForRecords,
    ReadOffsets,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsFound,
    ReleaseRecords,
    ShareRequest,
    Verdicts,
)
from ...storage.timestamps import first_at_or_after
from ..connection import KafkaRequest
from ..kafka_service import Desk, KafkaService
from ..other_settings import OF_BROKERS, value_of
from ..retries import RETRIABLE
from ..security.access import check_readable
from ..security.peer import Peer
from ..setting_limits import NAME_BYTES_MAX
from ..share_sessions import FIRST_EPOCH, ShareMember, SharePlace, ShareTurn
from ..stored import read_stored
from ..wire import messages
from ..wire.apis import Api
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .share_request_shapes import AcknowledgedTopic, ShareAcknowledgeRequest, ShareFetchRequest

_RENEWS_FROM: Final = 2
_WAIT_S_MAX: Final = 300.0
_READ_BYTES: Final = 1024 * 1024  # of a partition, at a time: a client wants a few hundred records
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_PAUSE_S: Final = 0.005  # between two attempts, because growth of any partition triggers one
_LOOK_S: Final = 1.0  # then try without news: a coordinator on another node sends no notice of its changes
_AGAIN_S: Final = 0.05
_COORDINATOR_S: Final = 3.0
_EXACT_MODE: Final = 1

_Wanted = TypeVar("_Wanted")


class _Batch(NamedTuple):
    """A record batch in the form that the client gets. `dead`: it has no record that the group may see."""

    first: int
    last: int
    dead: bool
    content: Buffer


@dataclass(frozen=True, slots=True)
class _Led:
    """A partition that this node leads."""

    place: SharePlace
    where: TopicPartition
    id: PartitionId
    offsets: Offsets


@dataclass(slots=True)
class _Answered:
    """The answer for a partition. `acquired`: first and last offset, and how often these records were delivered."""

    error: LogError | None = None
    verdict: int | None = None
    acquired: Sequence[tuple[int, int, int]] = ()
    records: list[Buffer] = field(default_factory=list[Buffer])

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


_Shape = Callable[[_Answered], Fields]
_Acks = Mapping[SharePlace, tuple[tuple[int, int, tuple[int, ...]], ...]]


async def answer_share_fetch(broker: KafkaService, request: KafkaRequest) -> list[Buffer]:
    version = request.header.version
    asked: ShareFetchRequest = messages.read_request(Api.SHARE_FETCH, version, request.message, request.position)
    fields = await share_fetch(broker, asked, request.peer)
    return [messages.write_response(Api.SHARE_FETCH, version, fields)]


async def share_fetch(broker: KafkaService, request: ShareFetchRequest, peer: Peer) -> Fields:
    member = ShareMember(request.group_id or "", request.member_id or "")
    acks = _acks_of(request.topics)
    refused = _refused(broker, peer, member)
    if refused is ErrorCode.none and request.share_session_epoch == FIRST_EPOCH and acks:
        refused = ErrorCode.invalid_request  # the acknowledgements belong to a previous session, which has ended
    if refused is not ErrorCode.none:
        return {"error_code": refused}
    forgotten = [
        SharePlace(topic.topic_id, number)
        for topic in request.forgotten_topics_data
        if topic.topic_id is not None
        for number in topic.partitions
    ]
    broker.share_sessions.sessions_max = value_of(OF_BROKERS, broker.log.settings(ALL_BROKERS), SESSIONS_MAX)
    turn = broker.share_sessions.fetch(member, request.share_session_epoch, peer.id, _named(request.topics), forgotten)
    if turn.error is not ErrorCode.none:
        return {"error_code": turn.error}
    fetch = _ShareFetch(broker, request, member, turn, peer)
    answers = await fetch.acknowledged(acks)
    if not turn.ended and not (request.__version__ >= _RENEWS_FROM and request.is_renew_ack):
        await fetch.wait(answers, at_once=bool(acks))
    throttle_ms = broker.throttle(peer, fetched=sum(each.size for each in answers.values()))
    broker.share_sessions.gave(member, [place for place, each in answers.items() if each.acquired])
    return {
        "throttle_time": timedelta(milliseconds=throttle_ms),
        "acquisition_lock_timeout": timedelta(milliseconds=fetch.lock_ms),
        **_told(broker, peer, answers, _fetched),
    }


async def share_acknowledge(broker: KafkaService, request: ShareAcknowledgeRequest, peer: Peer) -> Fields:
    member = ShareMember(request.group_id or "", request.member_id or "")
    refused = _refused(broker, peer, member)
    if refused is ErrorCode.none and request.share_session_epoch == FIRST_EPOCH:
        refused = ErrorCode.invalid_share_session_epoch  # a fetch begins a session
    if refused is not ErrorCode.none:
        return {"error_code": refused}
    turn = broker.share_sessions.acknowledge(member, request.share_session_epoch)
    if turn.error is not ErrorCode.none:
        return {"error_code": turn.error}
    fetch = _ShareFetch(broker, None, member, turn, peer)
    answers = await fetch.acknowledged(_acks_of(request.topics))
    return {
        "acquisition_lock_timeout": timedelta(milliseconds=fetch.lock_ms),
        **_told(broker, peer, answers, _acknowledged),
    }


def _refused(broker: Desk, peer: Peer, member: ShareMember) -> ErrorCode:
    if not member.group or not member.member_id or len(member.member_id.encode()) > NAME_BYTES_MAX:
        return ErrorCode.invalid_request
    return ErrorCode.group_authorization_failed if broker.refuses(peer, member.group) else ErrorCode.none


def _named(topics: Sequence[AcknowledgedTopic]) -> list[SharePlace]:
    return [
        SharePlace(topic.topic_id, entry.partition_index)
        for topic in topics
        if topic.topic_id is not None
        for entry in topic.partitions
    ]


def _acks_of(topics: Sequence[AcknowledgedTopic]) -> _Acks:
    return {
        SharePlace(topic.topic_id, entry.partition_index): tuple(
            (batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in entry.acknowledgement_batches
        )
        for topic in topics
        if topic.topic_id is not None
        for entry in topic.partitions
        if entry.acknowledgement_batches
    }


async def release_ended(broker: KafkaService, member: ShareMember, places: Sequence[SharePlace]) -> None:
    """Releases the member's records of these partitions, because its connection is closed."""
    fetch = _ShareFetch(broker, None, member, ShareTurn(places, ended=True), None)
    await fetch.acknowledged({})


class _ShareFetch:
    """One request of a session. State: how long the member has acquired records."""

    def __init__(
        self,
        broker: KafkaService,
        asked: ShareFetchRequest | None,
        member: ShareMember,
        turn: ShareTurn,
        peer: Peer | None,
    ) -> None:
        self._broker = broker
        self._asked = asked
        self._member = member
        self._turn = turn
        self._peer = peer
        self._settings = in_force(broker.log.settings(ALL_BROKERS), broker.log.settings(of_group(member.group)))
        self.lock_ms = 0

    # Acknowledging

    async def acknowledged(self, acks: _Acks) -> dict[SharePlace, _Answered]:
        answers = await self._broker.blocking(partial(self._acknowledge, acks)) if acks else {}
        if self._turn.ended:
            await self._broker.blocking(self._release)
        return answers

    def _acknowledge(self, acks: _Acks) -> dict[SharePlace, _Answered]:
        answers: dict[SharePlace, _Answered] = {}
        led: list[_Led] = []
        for place in acks:
            answers[place] = _Answered()
            try:
                led.append(self._led(place))
            except LogError as error:
                answers[place] = _Answered(error, code_of(error))
        verdicts = tuple(Verdicts(each.id, acks[each.place]) for each in led)
        if not verdicts:
            return answers
        try:
            asked = AcknowledgeRecords(self._member.member_id, verdicts)
            done = self._ask(asked, RecordsAcknowledged)
        except LogError as error:
            for each in led:
                answers[each.place] = _Answered(error, code_of(error))
            return answers
        self.lock_ms = done.lock_ms
        for each, code in zip(led, done.codes, strict=True):
            answers[each.place].verdict = code
        return answers

    def _release(self) -> None:
        """Releases the member's records. If this fails, they are released when their acquisition expires."""
        shares = self._broker.log.shares
        with suppress(LogError):
            found = (self._where(place) for place in self._turn.places)
            ids = tuple(shares.place(where) for where in found if where is not None)
            shares.ask(self._member.group, ReleaseRecords(self._member.member_id, ids), RecordsAcknowledged)

    def _ask(self, body: ShareRequest, kind: type[_Wanted]) -> _Wanted:
        """Asks the coordinator; retries for a while if there is none now."""
        deadline_s = time.monotonic() + _COORDINATOR_S
        while True:
            try:
                return self._broker.log.shares.ask(self._member.group, body, kind)
            except NotNow as error:
                if error.problem not in RETRIABLE or time.monotonic() >= deadline_s:
                    raise
            time.sleep(_AGAIN_S)

    def _where(self, place: SharePlace) -> TopicPartition | None:
        name = self._broker.log.topic_name(place.topic_id.bytes)
        return None if name is None else TopicPartition(name, place.partition)

    def _led(self, place: SharePlace) -> _Led:
        """Raises `LogError`, also if this node does not lead the partition."""
        where = self._where(place)
        if where is None:
            raise UnknownTopicId(f"no topic has the id {place.topic_id}")
        if self._peer is not None:
            check_readable(self._peer, where.topic)
        id = self._broker.log.shares.place(where)
        return _Led(place, where, id, self._broker.layout.offsets(where).offsets)

    # Fetching

    async def wait(self, answers: dict[SharePlace, _Answered], *, at_once: bool) -> None:
        """Waits until the answer has records or errors, at most for the time that the client sets. In: `at_once`: it
        does not wait."""
        assert self._asked is not None and self._peer is not None
        wait_s = min(max(self._asked.max_wait.total_seconds(), 0), _WAIT_S_MAX)
        deadline_s = time.monotonic() + (0 if at_once else wait_s)
        while not self._peer.gone:
            advance = self._broker.next_advance()
            fetched = await self._broker.blocking(self._attempt)
            for place, each in fetched.items():
                each.verdict = answers[place].verdict if place in answers else None
                answers[place] = each
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not self._turn.places or any(each.acquired or each.error for each in fetched.values()):
                break
            try:
                await asyncio.wait_for(advance.wait(), min(left_s, _LOOK_S))
                await asyncio.sleep(_PAUSE_S)
            except TimeoutError:
                pass
        if self._peer.gone and any(each.acquired for each in answers.values()):
            await self._broker.blocking(self._release)

    def _attempt(self) -> dict[SharePlace, _Answered]:
        """What can be acquired now. If there is no coordinator now, it returns no error, so that `wait` tries again."""
        answers: dict[SharePlace, _Answered] = {}
        led: list[_Led] = []
        for place in self._turn.places:
            try:
                led.append(self._led(place))
            except LogError as error:
                answers[place] = _Answered(error)
        if not led:
            return answers
        try:
            return answers | self._acquire(led)
        except NotNow as error:
            if error.problem not in RETRIABLE:
                answers |= {each.place: _Answered(error) for each in led}
        except LogError as error:
            answers |= {each.place: _Answered(error) for each in led}
        return answers

    def _acquire(self, led: Sequence[_Led]) -> dict[SharePlace, _Answered]:
        """Raises `LogError`."""
        assert self._asked is not None
        answers: dict[SharePlace, _Answered] = {}
        read: dict[PartitionId, tuple[_Led, list[_Batch]]] = {}
        left = min(max(self._asked.max_bytes, 0), _ANSWER_BYTES_MAX)
        for each, first in self._where_to_read(led):
            try:
                batches = self._read(each, first, left)
            except OffsetOutOfRange:
                continue  # the records were deleted meanwhile; the next attempt takes that into account
            except LogError as error:
                answers[each.place] = _Answered(error)
                continue
            if batches:
                left = max(left - sum(len(batch.content) for batch in batches), 0)
                read[each.id] = each, batches
        if not read:
            return answers
        offsets = tuple(ReadOffsets(id, _runs(batches)) for id, (_, batches) in read.items())
        exact = self._asked.__version__ >= _RENEWS_FROM and self._asked.share_acquire_mode == _EXACT_MODE
        wanted = AcquireRecords(self._member.member_id, max(self._asked.max_records, 1), exact, offsets)
        given = self._broker.log.shares.ask(self._member.group, wanted, RecordsAcquired)
        self.lock_ms = given.lock_ms
        for id, spans in given.acquired:
            each, batches = read[id]
            records = [batch.content for batch in batches if any(_overlap(batch, *span) for span in spans)]
            answers[each.place] = _Answered(acquired=spans, records=records)
        return answers

    def _where_to_read(self, led: Sequence[_Led]) -> list[tuple[_Led, int]]:
        """Raises `LogError`."""
        found = self._look([LeaderView(each.id, each.offsets.log_start_offset) for each in led])
        unknown = [each for each in led if found[each.id] == START_UNKNOWN]
        if unknown:
            views = [LeaderView(each.id, each.offsets.log_start_offset, self._start(each)) for each in unknown]
            found |= self._look(views)
        return [(each, found[each.id]) for each in led if 0 <= found[each.id] < self._end(each.offsets)]

    def _look(self, views: Sequence[LeaderView]) -> dict[PartitionId, int]:
        found = self._broker.log.shares.ask(self._member.group, LookForRecords(tuple(views)), RecordsFound)
        if not found.known:
            raise NotNow(ErrorCode.group_id_not_found, f'there is no share group "{self._member.group}"')
        return {place.partition: place.first for place in found.places}

    @property
    def _isolation(self) -> Isolation:
        return "read_committed" if is_committed_only(self._settings) else "read_uncommitted"

    def _end(self, offsets: Offsets) -> int:
        committed_only = self._isolation == "read_committed"
        return offsets.last_stable_offset if committed_only else offsets.high_watermark

    def _start(self, led: _Led) -> int:
        """The offset at which the group should begin."""
        reset = self._settings.get(RESET, DEFAULTS[RESET])
        if reset == "earliest":
            return led.offsets.log_start_offset
        end_offset, ago_ms = self._end(led.offsets), duration_ms(reset)
        if ago_ms is None:
            return end_offset
        found = first_at_or_after(self._broker.log.partition(*led.where), round(time.time() * 1000) - ago_ms)
        return min(found.offset, end_offset) if found is not None else end_offset

    def _read(self, led: _Led, first: int, left: int) -> list[_Batch]:
        """Whole batches from this offset on. Raises `LogError`."""
        assert self._peer is not None
        partition = self._broker.log.partition(*led.where)
        bytes_max = min(left, _READ_BYTES)
        view = partition.view(first, bytes_max, self._isolation)
        stored = read_stored(view, first, bytes_max, committed_only=False)
        rows = self._broker.row_view(self._peer, led.where.topic)
        records: Sequence[Buffer] = stored.records
        if rows is not None and stored.records:
            records = [memoryview(b"".join(rows.of(stored.records, first)))]
        if stored.records:
            partition.traffic.note_sent(stored.end_offset - first, sum(map(len, records)))
        self._broker.layout.check_leads(led.where)
        return [
            _Batch(header.base_offset, header.last_offset, dead, content)
            for stretch in records
            for content in _batches(memoryview(stretch))
            if (header := read_header(content))
            for dead in (header.control or not header.record_count or view.aborted.covers(header),)
        ]


def _batches(stretch: memoryview) -> list[memoryview]:
    found: list[memoryview] = []
    position = 0
    while position + HEADER_SIZE <= len(stretch):
        end = position + read_header(stretch, position).size
        found.append(stretch[position:end])
        position = end
    return found


def _overlap(batch: _Batch, first: int, last: int, deliveries: int) -> bool:
    del deliveries
    return batch.first <= last and first <= batch.last


def _runs(batches: Sequence[_Batch]) -> tuple[tuple[int, int, bool], ...]:
    return tuple((batch.first, batch.last, batch.dead) for batch in batches)


# Answers


def _told(broker: Desk, peer: Peer, answers: Mapping[SharePlace, _Answered], shape: _Shape) -> Fields:
    """The answers by topic; for partitions that this node does not lead, also their leaders."""
    rows: list[tuple[SharePlace, Fields]] = []
    moved = False
    for place, answer in answers.items():
        fields = dict(shape(answer))
        if answer.error is not None and code_of(answer.error) is ErrorCode.not_leader_or_follower:
            name = broker.log.topic_name(place.topic_id.bytes)
            layout = broker.layout.partition(name or "", place.partition)
            fields["current_leader"] = {"leader_id": layout.leader, "leader_epoch": layout.leader_epoch}
            moved = True
        fields.setdefault("current_leader", {"leader_id": -1, "leader_epoch": -1})
        rows.append((place, {"partition_index": place.partition, **fields}))
    nodes = broker.layout.nodes(peer.local) if moved else ()
    rows.sort(key=lambda row: row[0].topic_id.bytes)
    return {
        "responses": [
            {"topic_id": topic_id, "partitions": [fields for _, fields in entries]}
            for topic_id, entries in groupby(rows, key=lambda row: row[0].topic_id)
        ],
        "node_endpoints": [
            {"node_id": each.node, "host": each.host, "port": each.port, "rack": each.rack} for each in nodes
        ],
    }


def _fetched(answer: _Answered) -> Fields:
    error = answer.error
    return {
        "error_code": ErrorCode.none if error is None else code_of(error),
        "error_message": None if error is None else message_of(error),
        "acknowledge_error_code": answer.verdict or 0,
        "records": b"".join(answer.records),
        "acquired_records": [
            {"first_offset": first, "last_offset": last, "delivery_count": deliveries}
            for first, last, deliveries in answer.acquired
        ],
    }


def _acknowledged(answer: _Answered) -> Fields:
    message = None if answer.error is None else message_of(answer.error)
    return {"error_code": ErrorCode(answer.verdict or 0), "error_message": message}
