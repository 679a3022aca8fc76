"""How a client asks a node: in Kafka's protocol over a connection, or, if the node is in the same process, by calling
the handlers. Clients (`routing.py` and above) do not know which of the two it is."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from millstream.errors import LogError

from ..client import Fetched, Isolation, TopicPartition
from ..errors import LogUnavailable
from ..records.batch import Buffer, EncodedBatch
from .channel import Address, Channel, Channels, Response, Timeouts, understanding
from .security.sasl import Login
from .wire import fetch_messages, messages
from .wire import produce_messages as produce
from .wire.apis import Api
from .wire.fetch_messages import ClientFetch, FetchedPartition, FetchPosition
from .wire.messages import Fields
from .wire.produce_messages import ProduceData, ProduceRequest, ProduceResult
from .wire.received import decode

_ALL: Final = -1

TopicIds = Mapping[str, bytes]
"""By name."""
_NO_IDS: Final[TopicIds] = MappingProxyType({})

_Answer = TypeVar("_Answer")


class ReadAnswer(NamedTuple):
    """`fetched`: None if there is an error. `error`: the exception, if the node is in this process."""

    error_code: int
    fetched: Fetched | None
    error: LogError | None = None


class Line(Protocol):
    """Takes one question at a time. Methods raise `LogUnavailable` if the answer is lost; the request may have been
    carried out."""

    def ask(self, api: Api, fields: Fields, *, wait_s: float = 0) -> Any:
        """Sends a request without records. In: `wait_s`: how long the request asks the node to wait with its answer."""
        ...

    def produce(
        self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None, timeout_ms: int
    ) -> ProduceResult: ...

    def produce_copies(
        self, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str, timeout_ms: int
    ) -> ProduceResult:
        """For a mirror, to a node of this version: each batch contains the offset at which it must be stored."""
        ...

    def read(self, position: FetchPosition, isolation: Isolation) -> ReadAnswer:
        """Reads records of one partition; does not wait for new ones."""
        ...

    def look(self, positions: Sequence[FetchPosition], isolation: Isolation, wait_s: float) -> list[FetchedPartition]:
        """The ends of the partitions; waits until one of them is past its position."""
        ...


class Look(Protocol):
    """A `Line.look` that is under way. The answer is there when `fileno` is readable."""

    grace_s: ClassVar[float]
    """How long after the wait an answer may still arrive."""

    def fileno(self) -> int: ...

    def finish(self) -> list[FetchedPartition]: ...

    def leave(self) -> None:
        """Abandons the look."""
        ...


class Door(Protocol):
    """Access to one node, for any number of threads."""

    def line(self) -> AbstractContextManager[Line]:
        """Raises `LogUnavailable` if it cannot connect; then nothing was sent."""
        ...

    def begin_look(
        self, offsets: Mapping[TopicPartition, int], wait_s: float, bytes_max: int = 0, ids: TopicIds = _NO_IDS
    ) -> Look:
        """Like `Line.look`, for committed records. In: `bytes_max`: how many bytes of records to return as well; `ids`:
        the topics' ids, so that a new topic of the same name is not mistaken for them. Raises `LogUnavailable`."""
        ...

    def close(self) -> None: ...


class WireDoor:
    """A node that is reached over connections."""

    def __init__(self, address: Address, login: Login | None, tls: ssl.SSLContext | None, timeouts: Timeouts) -> None:
        self._channels = Channels(address, login, tls, timeouts)

    @contextmanager
    def line(self) -> Generator[Line]:
        channel = self._channels.take()
        try:
            yield WireLine(channel, self._channels.address)
        except BaseException:
            channel.close()
            raise
        self._channels.give_back(channel)

    def begin_look(
        self, offsets: Mapping[TopicPartition, int], wait_s: float, bytes_max: int = 0, ids: TopicIds = _NO_IDS
    ) -> Look:
        channel = self._channels.take()
        by_id = channel.fetches_by_id and all(where.topic in ids for where in offsets)
        names = {ids[where.topic]: where.topic for where in offsets} if by_id else {}
        positions = [
            FetchPosition(where, offset, bytes_max, topic_id=ids[where.topic] if by_id else b"")
            for where, offset in offsets.items()
        ]
        request = _look_request(positions, "read_committed", wait_s)
        if bytes_max:
            request = replace(request, bytes_max=bytes_max)
        channel.begin(Api.FETCH, lambda version: fetch_messages.write_request(request, version), by_id=by_id)
        return _WireLook(self._channels, channel, names)

    def close(self) -> None:
        self._channels.close()


class _WireLook:
    """State: whether the answer was read."""

    grace_s: ClassVar[float] = 0.2

    def __init__(self, channels: Channels, channel: Channel, names: Mapping[bytes, str]) -> None:
        """In: `names`: the names of topics that were requested by id."""
        self._channels, self._channel, self._names = channels, channel, names
        self._ended = False

    def fileno(self) -> int:
        return self._channel.fileno()

    def finish(self) -> list[FetchedPartition]:
        self._ended = True
        response = self._channel.finish()
        self._channels.give_back(self._channel)
        with understanding(self._channels.address):
            return [self._named(fetched) for fetched in _fetched(response)]

    def _named(self, fetched: FetchedPartition) -> FetchedPartition:
        if not fetched.topic_id:
            return fetched
        name = self._names.get(fetched.topic_id)
        if name is None:
            raise LogUnavailable("the server answered for a topic that nobody asked for")
        return replace(fetched, partition=fetched.partition._replace(topic=name))

    def leave(self) -> None:
        """The connection owes an answer, and can be used again when that has arrived."""
        if not self._ended:
            self._channels.give_back(self._channel, owing=True)


class WireLine:
    """One connection."""

    def __init__(self, channel: Channel, address: Address) -> None:
        self._channel = channel
        self._address = address

    def ask(self, api: Api, fields: Fields, *, wait_s: float = 0) -> Any:
        return self._exchange(
            api,
            lambda version: [messages.write_request(api, version, fields)],
            lambda response: messages.read_response(api, *response),
            wait_s,
        )

    def produce(
        self, where: TopicPartition, batch: EncodedBatch, transactional_id: str | None, timeout_ms: int
    ) -> ProduceResult:
        return self._produce(ProduceRequest(transactional_id, _ALL, timeout_ms, [ProduceData(where, batch.buffers)]))

    def produce_copies(
        self, where: TopicPartition, batches: Sequence[EncodedBatch], mirror: str, timeout_ms: int
    ) -> ProduceResult:
        buffers = [buffer for batch in batches for buffer in batch.buffers]
        return self._produce(ProduceRequest(None, _ALL, timeout_ms, [ProduceData(where, buffers)], mirror=mirror))

    def _produce(self, request: ProduceRequest) -> ProduceResult:
        def read(response: Response) -> ProduceResult:
            results = produce.read_response(response.message, response.position, response.version)
            if [result.partition for result in results] != [data.partition for data in request.data]:
                raise LogUnavailable("the server did not answer for the partition")
            return results[0]

        return self._exchange(Api.PRODUCE, lambda version: produce.write_request(request, version), read, 0)

    def read(self, position: FetchPosition, isolation: Isolation) -> ReadAnswer:
        [fetched] = self._fetch(ClientFetch(0, 0, position.bytes_max, isolation, [position]), 0)
        if fetched.error_code:
            return ReadAnswer(fetched.error_code, None)
        return ReadAnswer(0, decode(fetched, position.offset))

    def look(self, positions: Sequence[FetchPosition], isolation: Isolation, wait_s: float) -> list[FetchedPartition]:
        return self._fetch(_look_request(positions, isolation, wait_s), wait_s)

    def _fetch(self, request: ClientFetch, wait_s: float) -> list[FetchedPartition]:
        def read(response: Response) -> list[FetchedPartition]:
            fetched = _fetched(response)
            if [entry.partition for entry in fetched] != [position.partition for position in request.positions]:
                raise LogUnavailable("the server did not answer for all partitions")
            return fetched

        return self._exchange(Api.FETCH, lambda version: fetch_messages.write_request(request, version), read, wait_s)

    def _exchange(
        self, api: Api, body: Callable[[int], list[Buffer]], read: Callable[[Response], _Answer], wait_s: float
    ) -> _Answer:
        response = self._channel.ask(api, body, wait_s=wait_s)
        with understanding(self._address):
            return read(response)


def _look_request(positions: Sequence[FetchPosition], isolation: Isolation, wait_s: float) -> ClientFetch:
    return ClientFetch(int(wait_s * 1000), 1 if wait_s else 0, 0x7FFFFFFF, isolation, positions)


def _fetched(response: Response) -> list[FetchedPartition]:
    """Raises `LogUnavailable` if the node refuses the whole request."""
    error_code, fetched = fetch_messages.read_response(response.message, response.position, response.version)
    if error_code:
        raise LogUnavailable(f"a fetch was answered with error {error_code}")
    return fetched
