"""Fetches of many partitions: one request at a time to each broker, the next one while the last answer is appended."""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.errors import LogError

from ..client import TopicPartition
from ..error_codes import ErrorCode
from ..protocol.channel import Address
from ..protocol.lines import Look
from ..protocol.routing import Router
from ..protocol.wire.faults import error_of
from ..protocol.wire.fetch_messages import FetchedPartition
from ..records.batch import HEADER_SIZE, read_header

_BYTES_MAX: Final = 16 * 1024 * 1024
_WAIT_S: Final = 0.5
_AGAIN_S: Final = 0.5
_ANSWERS_KEPT: Final = 2
_STOP_S: Final = 5.0


class SourceAnswer(NamedTuple):
    """The source's answer for one partition: records from `offset` on, or an error. `number`: that of the seek that it
    results from."""

    where: TopicPartition
    offset: int
    number: int
    fetched: FetchedPartition | None
    error: LogError | None = None


@dataclass(slots=True)
class _Place:
    """`offset`: the next one to request. `number`: that of the seek that it results from."""

    offset: int
    number: int
    not_before: float = 0.0


class _Asked(NamedTuple):
    look: Look
    until: float
    places: dict[TopicPartition, tuple[int, int]]


class SourceFetcher:
    """Has its own thread. State: the next offset to read of each partition, and the pending requests.

    Answers to requests before a `seek` are dropped. Any thread may call `seek`, `leave` and `take`.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._places: dict[TopicPartition, _Place] = {}
        self._ids: Mapping[str, bytes] = {}
        self._number = 0
        self._guard = threading.Lock()
        self._asked: dict[Address, _Asked] = {}
        self._answers: queue.Queue[list[SourceAnswer]] = queue.Queue()
        self._room = threading.Semaphore(_ANSWERS_KEPT)
        self._closed = threading.Event()
        self._ended = False
        self._woken, self._waking = os.pipe()
        self._thread = threading.Thread(target=self._run, name="millstream-mirror-fetch", daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()

    def name(self, ids: Mapping[str, str]) -> None:
        """Sets the ids of topics. Those with an id are read only if the source's topic has it, others by name alone."""
        self._ids = {name: bytes.fromhex(id) for name, id in ids.items()}

    def seek(self, where: TopicPartition, offset: int, *, after_s: float = 0.0) -> None:
        """Continues reading from this offset, and drops answers that were not taken yet."""
        with self._guard:
            self._number += 1
            self._places[where] = _Place(offset, self._number, time.monotonic() + after_s)
        self._wake()

    def leave(self, where: TopicPartition) -> None:
        with self._guard:
            self._places.pop(where, None)

    def reads(self, where: TopicPartition) -> bool:
        return where in self._places

    def take(self, timeout_s: float) -> list[SourceAnswer]:
        """The answer of one broker; empty if none answers within `timeout_s`."""
        if self._failure is not None:
            raise self._failure
        try:
            found = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return []
        self._room.release()
        return [answer for answer in found if self.is_current(answer)]

    def is_current(self, answer: SourceAnswer) -> bool:
        """Whether there was no `seek` in the partition since the answer was requested."""
        with self._guard:
            place = self._places.get(answer.where)
            return place is not None and place.number == answer.number

    def close(self) -> None:
        self._closed.set()
        self._room.release()
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)

    def _wake(self) -> None:
        """Does nothing once the thread has ended: another file may have the pipe's descriptor then."""
        with self._guard:
            if not self._ended:
                os.write(self._waking, b"!")

    # The thread

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._ask()
                self._collect()
        except BaseException as error:
            self._failure = error
        finally:
            for asked in self._asked.values():
                asked.look.leave()
            with self._guard:
                self._ended = True
                os.close(self._woken)
                os.close(self._waking)

    def _ask(self) -> None:
        """Sends a request to each broker without a pending one, for its partitions."""
        by_leader: dict[Address, dict[TopicPartition, tuple[int, int]]] = {}
        now = time.monotonic()
        with self._guard:
            places = {where: place for where, place in self._places.items() if place.not_before <= now}
        for where, place in places.items():
            try:
                address = self._router.leader(where)
            except LogError as error:
                self._fail({where: (place.offset, place.number)}, error)
                continue
            if address not in self._asked:
                by_leader.setdefault(address, {})[where] = place.offset, place.number
        for address, wanted in by_leader.items():
            offsets = {where: offset for where, (offset, _) in wanted.items()}
            try:
                look = self._router.door(address).begin_look(offsets, _WAIT_S, _BYTES_MAX, self._ids)
            except LogError as error:
                self._fail(wanted, error)
                continue
            self._asked[address] = _Asked(look, now + _WAIT_S + 10.0, wanted)

    def _collect(self) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        by_number = {asked.look.fileno(): (address, asked) for address, asked in self._asked.items()}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(_AGAIN_S * 1000):
            if number == self._woken:
                os.read(self._woken, 4096)
                continue
            address, asked = by_number[number]
            del self._asked[address]
            try:
                answers = asked.look.finish()
            except LogError as error:
                self._fail(asked.places, error)
            else:
                self._deliver(asked, answers)
        now = time.monotonic()
        for address, asked in list(self._asked.items()):
            if now > asked.until:
                del self._asked[address]
                asked.look.leave()
                self._fail(asked.places, error_of(ErrorCode.request_timed_out, None, f"fetch from {address}"))

    def _deliver(self, asked: _Asked, answers: list[FetchedPartition]) -> None:
        found: list[SourceAnswer] = []
        for fetched in answers:
            offset, number = asked.places[fetched.partition]
            with self._guard:
                place = self._places.get(fetched.partition)
                if place is None or place.number != number:
                    continue
                if fetched.size and not fetched.error_code:
                    place.offset = _end_of(fetched, offset)
                    del self._places[fetched.partition]  # so that the others come first next time
                    self._places[fetched.partition] = place
                elif fetched.error_code:
                    place.not_before = time.monotonic() + _AGAIN_S
            if fetched.error_code:
                self._router.doubt(fetched.partition)
                what = f"fetch offset {offset} of partition {fetched.partition.partition}"
                error = error_of(fetched.error_code, None, f'{what} of topic "{fetched.partition.topic}"')
                found.append(SourceAnswer(fetched.partition, offset, number, None, error))
            else:
                found.append(SourceAnswer(fetched.partition, offset, number, fetched))
        self._put(found)

    def _fail(self, places: dict[TopicPartition, tuple[int, int]], error: LogError) -> None:
        found: list[SourceAnswer] = []
        for where, (offset, number) in places.items():
            self._router.doubt(where)
            with self._guard:
                place = self._places.get(where)
                if place is not None and place.number == number:
                    place.not_before = time.monotonic() + _AGAIN_S
            found.append(SourceAnswer(where, offset, number, None, error))
        self._put(found)

    def _put(self, found: list[SourceAnswer]) -> None:
        """Adds answers. It waits while too many have not been taken yet."""
        if found:
            self._room.acquire()
            self._answers.put(found)


def _end_of(fetched: FetchedPartition, offset: int) -> int:
    """The offset after the last complete batch. Invalid bytes are ignored here; appending them reports an error."""
    end = offset
    data = memoryview(fetched.records[0]) if len(fetched.records) == 1 else memoryview(b"".join(fetched.records))
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if not header.plausible or position + header.size > len(data):
            break
        end = max(end, header.last_offset + 1)
        position += header.size
    return end
