"""What the suite asks of a client library. Each adapter says it in its library's words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

TIMEOUT_S = 60.0
_FAREWELL_S = 1.0


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


@dataclass(frozen=True)
class Got:
    offset: int
    record: Record


class Member(Protocol):
    """A consumer in a group; it commits only when told to."""

    def poll(self) -> list[Got]:
        """What has come within a moment; takes part in rebalances."""
        ...

    def partitions(self) -> set[int]: ...

    def commit(self) -> None:
        """All that `poll` has given so far."""
        ...

    def close(self) -> None: ...


class Transaction(Protocol):
    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Returns when the server has them."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Driver(Protocol):
    name: str
    compressions: Sequence[str]

    def produce(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        """Returns when all are acknowledged."""
        ...

    def read(self, address: str, topic: str, count: int, *, committed: bool = True) -> list[Got]:
        """The first `count` records of partition 0, and then makes sure that no more come."""
        ...

    def member(self, address: str, group: str, topic: str) -> Member: ...

    def transactions(self, address: str, transactional_id: str) -> AbstractContextManager[Callable[[], Transaction]]:
        """Takes the id; each call begins a transaction."""
        ...

    def create_topic(self, address: str, topic: str, partitions: int, config: Mapping[str, str]) -> None: ...

    def partitions_of(self, address: str, topic: str) -> int | None:
        """None where there is no such topic."""
        ...

    def delete_topic(self, address: str, topic: str) -> None: ...


@dataclass
class Members:
    """Some members of one group, polled together."""

    members: list[Member] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)

    def poll_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 2 * TIMEOUT_S
        with ThreadPoolExecutor(len(self.members)) as pool:  # some libraries wait in `poll` for the other members
            while not done():
                assert time.monotonic() < deadline, f"not in time: {what}"
                for got in pool.map(lambda member: member.poll(), self.members):
                    self.got += got

    def share(self, partitions: int) -> bool:
        """Whether each partition is one member's, and each member has one."""
        held = [member.partitions() for member in self.members]
        return all(held) and sorted(number for numbers in held for number in numbers) == list(range(partitions))


def abandon(member: Member) -> None:
    """Closes a member that reaches nobody any more, as far as it can be closed."""

    def close() -> None:
        with suppress(Exception):
            member.close()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(_FAREWELL_S)


@contextmanager
def closing_all(members: Members) -> Generator[Members]:
    try:
        yield members
    finally:
        for member in members.members:
            member.close()
