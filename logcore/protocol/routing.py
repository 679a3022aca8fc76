"""Routes a client's requests: to leaders of partitions, coordinators of groups and transactional ids, or any node.

With a single node there is no lookup. If several addresses are given, or a response shows that there is a cluster
(perhaps of one node: a lookup creates its coordinators), metadata decide the target, and requests that fail because
of a fail-over are retried for `patience_s`.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from millstream.errors import LogError

from ..client import TopicPartition
from ..error_codes import ErrorCode
from ..errors import LogUnavailable, UnknownTopic
from .channel import Address, Timeouts
from .lines import Door, Line, WireDoor
from .own import Own, TransactionsHere
from .retries import IN_DOUBT, MOVED, RETRIABLE, codes_of
from .security.sasl import Login
from .wire.apis import Api
from .wire.faults import error_of
from .wire.messages import Fields

T = TypeVar("T")

_ONE_NODE: Final = Timeouts(connect_s=10.0, answer_s=60.0)
_CLUSTER: Final = Timeouts(connect_s=3.0, answer_s=10.0)  # a node that is stopped or cut off is left before long
_PAUSE_S: Final = 0.02
_PAUSE_S_MAX: Final = 0.5
_UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_REFUSED_BY_DISK: Final = int(ErrorCode.kafka_storage_error)
_OF_A_CLUSTER: Final = frozenset(
    map(
        int,
        (
            ErrorCode.not_leader_or_follower,
            ErrorCode.not_coordinator,
            ErrorCode.coordinator_not_available,
            ErrorCode.coordinator_load_in_progress,
        ),
    )
)
"""Codes that only a node of a cluster of several sends: the only node of a cluster coordinates and leads everything."""
_NO_NODE: Final = -1
_CONSUMER: Final = -1
_LATEST: Final = -1
_NOT_YET: Final = int(ErrorCode.offset_not_available)


_HERE: Final = Address("this process", 0)


class CoordinatorKey(NamedTuple):
    """A consumer group or a transactional id."""

    kind: Literal["group", "transaction"]
    key: str


Target = TopicPartition | CoordinatorKey | Address | None
"""The target of a request: the leader of a partition, a coordinator, a certain node, or (None) any node."""


@dataclass(frozen=True, slots=True)
class _Leader:
    address: Address
    epoch: int
    topic_id: object
    doubted: bool = False  # it has failed, or said that it no longer leads
    proven: bool = False  # it knows everything that was committed before it led


class Router:
    """Any thread may call any method.

    The states of a partition's leader, and what a request does in each:

    | state   | reason                                          | a request                                           |
    | ------- | ----------------------------------------------- | --------------------------------------------------- |
    | nothing | no request yet                                  | first asks an adviser: any node that has metadata   |
    | told    | an adviser named it, in a newer epoch or again  | goes there; a read first requires a proof           |
    | proven  | it has all that was committed before it led     | goes there                                          |
    | doubted | it failed, or says that it does not lead        | first asks an adviser                               |

    A doubted leader is kept with its epoch: an adviser that is cut off may name the leader of an older epoch, which
    would fail, or answer with stale data. If the advice is not newer than the failed leader, the next adviser is asked.
    A new epoch starts as `told`, because its leader's high watermark may be behind.

    The retry rules of a request (`_put`): if it was not sent, it is retried. If it was sent and not answered, it is
    retried only if `repeat` says that repetition is harmless, and its outcome is then in doubt. A MOVED response makes
    the leader doubted; an IN_DOUBT response also the outcome; after other RETRIABLE responses the same node is asked
    later. An unknown topic counts as MOVED, because its leader may not have heard of it yet; metadata decide whether it
    exists. Retries end after `patience_s`; a single node is tried only twice.

    State: the latest metadata. Invariant: for one topic id, a leader of an older epoch never replaces one of a newer
    epoch, so nodes that were cut off cannot mislead a client that has newer metadata.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
        patience_s: float = 30.0,
        *,
        own: Own | None = None,
        alone: bool = False,
        clustered: bool = False,
    ) -> None:
        """In: `own`: the node in this process, which is asked first and without a connection; perhaps it is the only
        one of its cluster. `alone`: it will always be the only one, so every request goes to a node of this version.
        `clustered`: whether it is already known that there is a cluster."""
        assert addresses or own
        self.alone = alone
        self._own = own
        self._bootstrap = (*([] if own is None else [_HERE]), *addresses)
        self._login, self._tls = login, tls
        self._patience_s = patience_s
        self.clustered = clustered or len(addresses) > 1 or own is not None
        self._advisers: tuple[Address, ...] = self._bootstrap
        self._adviser = 0
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, _Leader] = {}
        self._coordinators: dict[CoordinatorKey, Address] = {}
        self._doors: dict[tuple[Address, bool], Door] = {}
        self._closed = False

    # Asking

    def ask(self, api: Api, fields: Fields, *, to: Target = None, wait_s: float = 0, repeat: bool = True) -> Any:
        """Sends a request without records; returns the response's object. Raises like `put`."""
        return self.ask_in_doubt(api, fields, to=to, wait_s=wait_s, repeat=repeat)[0]

    def ask_in_doubt(
        self, api: Api, fields: Fields, *, to: Target = None, wait_s: float = 0, repeat: bool = True
    ) -> tuple[Any, bool]:
        """Like `ask`. Also returns whether an earlier attempt is in doubt: it may have carried out the request."""

        return self._put(lambda line: line.ask(api, fields, wait_s=wait_s), codes_of, to, repeat=repeat)

    def ask_all(self, api: Api, fields: Fields) -> list[Any]:
        """The answers of all nodes."""
        if self.clustered:
            everybody = {"topics": [], **_NO_CREATION}
            self._take_brokers(self.put(lambda line: line.ask(Api.METADATA, everybody), _no_codes))
        return [self.ask(api, fields, to=node) for node in self._nodes.values() or [None]]

    def put(
        self,
        question: Callable[[Line], T],
        codes: Callable[[T], Iterable[int]],
        *,
        to: Target = None,
        reads: bool = False,
    ) -> T:
        """The answer to a question that may be asked twice. In: `codes`: returns the error codes in an answer; an
        answer with codes that a fail-over explains is returned only after `patience_s`. `reads`: the question reads
        committed records from a leader.

        Raises `LogUnavailable`; `UnknownTopic` if the cluster has no such topic.
        """
        return self._put(question, codes, to, reads=reads)[0]

    def put_here(
        self,
        question: Callable[[TransactionsHere], T],
        codes: Callable[[T], Iterable[int]],
        *,
        to: CoordinatorKey | TopicPartition,
    ) -> T:
        """The same for a router that is `alone`: asks the coordinators and leaders in this process."""
        own = self._own
        assert own is not None and self.alone
        return self._put(lambda _: question(own.transactions), codes, to)[0]

    def _put(
        self,
        question: Callable[[Line], T],
        codes: Callable[[T], Iterable[int]],
        to: Target,
        *,
        repeat: bool = True,
        reads: bool = False,
    ) -> tuple[T, bool]:
        """Also returns whether an earlier attempt is in doubt. In: `repeat`: whether asking twice is harmless."""
        began, patience = time.monotonic(), None
        doubt = False
        while True:
            sent = False
            address = self._bootstrap[0]
            try:
                address = self._address_of(to)
                if reads and isinstance(to, TopicPartition):
                    self._prove(to)
                with self.door(address).line() as line:
                    sent = True
                    answer = question(line)
            except LogUnavailable:
                doubt = doubt or sent
                patience = patience or _Patience(began + self._patience_s)
                if self._closed or (sent and not repeat) or not patience.goes_on(self.clustered):
                    raise
                self._note_failure(address, to)
            else:
                found = {code for code in codes(answer) if code}
                if not found:
                    return answer, doubt
                patience = patience or _Patience(began + self._patience_s)
                if self._closed and self._own is not None and found & RETRIABLE:
                    self._own.line()  # raises `LogClosed`, the reason of the refusal
                if self._closed or not self._asks_again(found, to) or not patience.goes_on(self.clustered):
                    return answer, doubt
                doubt = doubt or bool(found & IN_DOUBT)
                self._note_refusal(found, to, patience)
            patience.pause(self.clustered)

    def asks_again(self, code: int, to: Target) -> bool:
        """Whether to put a question with this answer again, by `put`."""
        return self._asks_again({code}, to)

    def _asks_again(self, found: set[int], to: Target) -> bool:
        if found & _OF_A_CLUSTER:
            self.clustered = True
        if not self.clustered:
            return False
        return bool(found & RETRIABLE) or (_UNKNOWN_TOPIC in found and isinstance(to, TopicPartition))

    def _note_failure(self, address: Address, to: Target) -> None:
        if self._advisers[self._adviser % len(self._advisers)] == address:
            self._adviser += 1
        self._doubt(to)

    def _note_refusal(self, found: set[int], to: Target, patience: _Patience) -> None:
        if found & MOVED or _UNKNOWN_TOPIC in found:
            self._doubt(to)
            if patience.attempts > 1:  # the adviser may lag behind
                self._adviser += 1

    def _doubt(self, to: Target) -> None:
        if isinstance(to, CoordinatorKey):
            self._coordinators.pop(to, None)
        elif isinstance(to, TopicPartition) and (leader := self._leaders.get(to)) is not None:
            self._leaders[to] = replace(leader, doubted=True, proven=False)

    def error(self, code: int, what: str) -> LogError:
        """The error for this code of an answer. In: `what`: what the request wanted."""
        full = self._own.full() if self._own is not None and code == _REFUSED_BY_DISK else None
        return full or error_of(code, None, what)

    # Finding

    def leader(self, where: TopicPartition) -> Address:
        """The address of the leader of a partition. Raises `UnknownTopic`, `LogUnavailable`."""
        return self._address_of(where)

    def leader_here(self, where: TopicPartition) -> Own | None:
        """The node in this process, if there is no other node and it is known to lead the partition. Then it can be
        asked without a look-up. Raises `LogClosed`, `LogUnavailable`."""
        own = self._own
        if own is None or not self.alone:
            return None
        known = self._leaders.get(where)
        if known is None or known.doubted:
            return None
        own.line()
        return own

    def leader_epoch(self, where: TopicPartition) -> int:
        """The epoch of the leader that is asked, so that it refuses if it leads no longer, or in a new epoch; -1 if
        unknown."""
        known = self._leaders.get(where)
        return -1 if known is None else known.epoch

    def _prove(self, where: TopicPartition) -> None:
        """Proves that a new leader knows what is committed. Its high watermark is below what the previous leader has
        committed until its followers have fetched once; before that, a reader would miss committed records. Raises
        `LogUnavailable`."""
        leader = self._leaders.get(where)
        if leader is None or leader.proven:
            return
        asked = {"partition_index": where.partition, "timestamp": _LATEST, "current_leader_epoch": leader.epoch}
        topics = [{"name": where.topic, "partitions": [asked]}]
        answer = self._ask_at(leader.address, Api.LIST_OFFSETS, {"replica_id": _CONSUMER, "topics": topics})
        problem = int(answer.topics[0].partitions[0].error_code)
        if problem and problem != _NOT_YET:
            self._doubt(where)
        if problem == _UNKNOWN_TOPIC:  # or the topic was deleted: `_learn` finds out
            raise LogUnavailable(f'who leads topic "{where.topic}" has not heard of it')
        if problem:
            raise error_of(problem, None, f'read from partition {where.partition} of topic "{where.topic}"')
        self._leaders[where] = replace(leader, proven=True)

    def forget(self, gone: CoordinatorKey | str) -> None:
        """In: a key, or the name of a topic, that will not be asked for again. If it is, that costs a look-up."""
        if isinstance(gone, CoordinatorKey):
            self._coordinators.pop(gone, None)
            return
        for where in [where for where in list(self._leaders) if where.topic == gone]:
            self._leaders.pop(where, None)

    def doubt(self, where: TopicPartition) -> None:
        """The next request looks up the partition's leader again."""
        self._doubt(where)

    def _address_of(self, to: Target) -> Address:
        if isinstance(to, Address):
            return to
        if not self.clustered or to is None:
            return self._advisers[self._adviser % len(self._advisers)]
        if isinstance(to, CoordinatorKey):
            return self._coordinators.get(to) or self._find_coordinator(to)
        known = self._leaders.get(to)
        if known is None or known.doubted:
            self._learn(to)
            known = self._leaders.get(to)
        if known is None or known.doubted:
            self._adviser += 1
            raise LogUnavailable(
                f'partition {to.partition} of topic "{to.topic}" has no leader now',
                hint="The nodes elect one as soon as enough of them run.",
            )
        return known.address

    def _learn(self, where: TopicPartition) -> None:
        """Asks one node for the leaders of the topic's partitions. Raises `UnknownTopic`."""
        if self.alone:
            self._learn_here(where)
            return
        answer = self._ask_adviser(Api.METADATA, {"topics": [{"name": where.topic}], **_NO_CREATION})
        self._take_brokers(answer)
        [topic] = answer.topics
        if int(topic.error_code) == _UNKNOWN_TOPIC:
            raise UnknownTopic(f'topic "{where.topic}" does not exist')
        if topic.error_code and int(topic.error_code) not in RETRIABLE:
            raise error_of(topic.error_code, None, f'find topic "{where.topic}"')
        topic_id = getattr(topic, "topic_id", None)
        for partition in topic.partitions:
            self._take_leader(TopicPartition(where.topic, partition.partition_index), partition, topic_id)
        if topic.partitions and where.partition not in [entry.partition_index for entry in topic.partitions]:
            raise UnknownTopic(f'topic "{where.topic}" has no partition {where.partition}')

    def _learn_here(self, where: TopicPartition) -> None:
        """If there is no other node, the one in this process answers without a message. It need not prove what earlier
        leaders have committed, because no other node ever leads. An engine in a notebook or in a test spends most of
        its start on first requests, and messages made three requests of each."""
        epoch = None if self._own is None else self._own.leader_epoch(where)
        if epoch is not None:
            self._leaders[where] = _Leader(_HERE, epoch, None, proven=True)

    def _take_leader(self, where: TopicPartition, told: Any, topic_id: object) -> None:
        address, epoch = self._nodes.get(told.leader_id), getattr(told, "leader_epoch", -1)
        if told.leader_id == _NO_NODE or address is None:
            return
        known = self._leaders.get(where)
        is_new = known is None or known.topic_id != topic_id or epoch > known.epoch
        if is_new or (known is not None and known.doubted and epoch == known.epoch):
            self._leaders[where] = _Leader(address, epoch, topic_id)

    def _find_coordinator(self, to: CoordinatorKey) -> Address:
        if self.alone and self._own is not None:
            if not self._own.coordinates(*to):
                raise LogUnavailable(f'nobody coordinates the {to.kind} "{to.key}" now')
            self._coordinators[to] = _HERE
            return _HERE
        kind = 0 if to.kind == "group" else 1
        answer = self._ask_adviser(
            Api.FIND_COORDINATOR, {"key": to.key, "key_type": kind, "coordinator_keys": [to.key]}
        )
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        if found.error_code:
            self._adviser += 1
            raise LogUnavailable(f'nobody coordinates the {to.kind} "{to.key}" now')
        address = self._address_at(found)
        self._coordinators[to] = address
        return address

    def _ask_adviser(self, api: Api, fields: Fields) -> Any:
        """Asks once; the caller asks again."""
        try:
            return self._ask_at(self._address_of(None), api, fields)
        except LogUnavailable:
            self._adviser += 1
            raise

    def _ask_at(self, address: Address, api: Api, fields: Fields) -> Any:
        with self.door(address).line() as line:
            return line.ask(api, fields)

    def _take_brokers(self, answer: Any) -> None:
        nodes = {broker.node_id: self._address_at(broker) for broker in answer.brokers}
        if nodes and nodes != self._nodes:
            current = self._address_of(None)
            others = dict.fromkeys(node for node in (*self._bootstrap, *nodes.values()) if node != current)
            self._nodes, self._advisers, self._adviser = nodes, (current, *others), 0

    def _address_at(self, told: Any) -> Address:
        """The address of a node in an answer."""
        return _HERE if self._own is not None and told.node_id == self._own.node else Address(told.host, told.port)

    # Doors

    def door(self, address: Address) -> Door:
        """The door to one node."""
        if self._own is not None and (address is _HERE or address == _HERE):
            return self._own
        found = self._doors.get((address, self.clustered))
        if found is None:
            timeouts = _CLUSTER if self.clustered else _ONE_NODE
            made = WireDoor(address, self._login, self._tls, timeouts)
            found = self._doors.setdefault((address, self.clustered), made)
            if self._closed:
                found.close()
        return found

    def close(self) -> None:
        self._closed = True
        self.door(self._bootstrap[0])
        for door in (*self._doors.values(), *([] if self._own is None else [self._own])):
            door.close()


class _Patience:
    """How long one request is retried: with a single node once, with a cluster until the deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.attempts = 0

    def goes_on(self, clustered: bool) -> bool:
        self.attempts += 1
        return time.monotonic() < self._deadline if clustered else self.attempts == 1

    def pause(self, clustered: bool) -> None:
        if clustered:
            longest = min(_PAUSE_S * 2 ** min(self.attempts - 1, 10), _PAUSE_S_MAX)
            time.sleep(random.uniform(longest / 2, longest))


_NO_CREATION: Final = {"allow_auto_topic_creation": False}


def _no_codes(answer: object) -> Iterable[int]:
    del answer
    return ()
