"""Whatever arrives: no crash, no hang, bounded memory, and nothing bad in the log."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.logcore.client import FetchedRows
from millstream.logcore.cluster.cluster_log import INTERNAL
from millstream.logcore.errors import TopicExists
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.security.users import NoUsers, Users
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of
from ..unforeseen import unforeseen_failures
from .hostile import Hostile

_FRAMES_PER_CONNECTION = 20
_GROWTH_MAX = 400 * 1024 * 1024


@pytest.fixture(autouse=True)
def unexpected() -> Iterator[list[str]]:
    with unforeseen_failures() as found:
        yield found


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as log:
        log.create_topic("t", 2)
        yield log


def test_hostile_frames_do_no_harm(victim: Log, unexpected: list[str]) -> None:
    attack(victim, seed=1, frames=20_000)
    assert unexpected == [], "\n".join(unexpected[:3])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
def test_a_million_hostile_frames_do_no_harm(victim: Log, unexpected: list[str], seed: int) -> None:
    attack(victim, seed=1000 + seed, frames=20_000)
    assert unexpected == [], "\n".join(unexpected[:3])


def test_hostile_frames_do_no_harm_where_there_are_users(victim: Log, unexpected: list[str]) -> None:
    attack(victim, seed=2, frames=2_000, users=NoUsers())
    assert unexpected == [], "\n".join(unexpected[:3])
    assert values_of(victim, "t") == []
    assert victim.groups.names() == []
    assert victim.topics().keys() - INTERNAL == {"t", "after"}


def attack(log: Log, seed: int, frames: int, users: Users | None = None) -> None:
    hostile = Hostile(seed)
    before = resident_bytes()
    with LogServer(log, port=0, users=users) as server:
        for _ in range(frames // _FRAMES_PER_CONNECTION):
            with suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
                for _ in range(_FRAMES_PER_CONNECTION):
                    peer.sendall(hostile.frame())
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
        assert resident_bytes() - before < _GROWTH_MAX
        with RemoteLog(trusted_address(log.served, server.address)) as bystander:
            with suppress(TopicExists):
                bystander.create_topic("after", 1)
            bystander.append("after", 0, rows(b"fine"))
            assert values_of(bystander, "after") == [b"fine"]
    for name, topic in log.topics().items():
        for partition in range(topic.partition_count):
            read_everything(log, name, partition)
    assert values_of(log, "after") == [b"fine"]
    assert not any(name.startswith("_millstream") for name in log.topics())


def read_everything(log: Log, topic: str, partition: int) -> None:
    """Raises where something was stored that a reader chokes on."""
    offset = log.offsets(topic, partition).log_start_offset
    while True:
        fetched = log.fetch(topic, partition, offset, isolation="read_uncommitted")
        for run in fetched.runs:
            (run.table if isinstance(run, FetchedRows) else run.batch).validate(full=True)
        if fetched.next_offset == offset:
            return
        offset = fetched.next_offset


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
