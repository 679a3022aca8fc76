"""A mirror into a cluster of three nodes, and out of one, while leaders move."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from two_logs import records_of, rows, until_level
from waiting import eventually

from millstream.logcore.client import LogClient
from millstream.logcore.errors import LogUnavailable, NotNow
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.mirror_target import MirrorLog
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from ..cluster.nodes import Cluster
from ..soak import count_of

EVERYTHING = TopicFilter(("*",))
PARTITIONS = 3


@pytest.fixture
def cluster(memory_folder: Path) -> Iterator[Cluster]:
    with Cluster(memory_folder / "cluster") as running:
        yield running


def test_copies_go_on_while_leaders_of_the_target_move(memory_folder: Path, cluster: Cluster) -> None:
    into_a_cluster(memory_folder, cluster, moves=2, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_copies_go_on_while_leaders_of_the_target_move_often(memory_folder: Path, cluster: Cluster) -> None:
    into_a_cluster(memory_folder, cluster, moves=count_of("MOVES", 50), seed=count_of("SEED", 2))


def test_copies_go_on_while_leaders_of_the_source_move(memory_folder: Path, cluster: Cluster) -> None:
    chance = random.Random(3)
    with RemoteLog(cluster.bootstrap, patience_s=30) as there, open_log(memory_folder / "here", sync="never") as here:
        there.create_topic("t", PARTITIONS)
        copier = Copier(lambda: here, cluster.bootstrap)
        copy_under_moves(there, copier, cluster, chance, moves=2)
        for partition in range(PARTITIONS):
            assert records_of(here, "t", partition) == records_of(there, "t", partition)


def copy_under_moves(there: LogClient, copier: Copier, cluster: Cluster, chance: random.Random, moves: int) -> None:
    """Ten records between two moves."""
    for move in range(moves):
        for number in range(10 * move, 10 * move + 10):
            there.append("t", number % PARTITIONS, rows(b"%d" % number))
            copier.step()
        move_a_leader(cluster, chance)
    copier.finish()


def into_a_cluster(folder: Path, cluster: Cluster, moves: int, seed: int) -> None:
    chance = random.Random(seed)
    with open_log(folder / "there", sync="never") as there, LogServer(there, port=0) as server:
        there.create_topic("t", PARTITIONS)
        any_node = next(iter(cluster.running.values()))
        with RemoteLog(trusted_address(any_node.parts.log, cluster.bootstrap), patience_s=30) as here:
            copier = Copier(lambda: here, server.address)
            copy_under_moves(there, copier, cluster, chance, moves)
            for partition in range(PARTITIONS):
                assert records_of(here, "t", partition) == records_of(there, "t", partition)
                offsets = here.offsets("t", partition), there.offsets("t", partition)
                assert offsets[0].log_end_offset == offsets[1].log_end_offset


def move_a_leader(cluster: Cluster, chance: random.Random) -> None:
    """Its node is killed, or leaves, and comes back once another one leads. All nodes are in sync before, or the only
    one that is might be killed, and nobody could lead."""
    if all("t" not in each.node.image.topic_ids for each in cluster.running.values()):
        return
    partition = chance.randrange(PARTITIONS)
    before = cluster.leader_of("t", partition)
    eventually(lambda: are_all_in_sync(cluster, before, partition))
    cluster.kill(before) if chance.random() < 0.5 else cluster.stop(before)
    assert cluster.leader_of("t", partition) != before
    cluster.start(before)


def are_all_in_sync(cluster: Cluster, leader: int, partition: int) -> bool:
    image = cluster.running[leader].node.image
    state = image.topics[image.topic_ids["t"]].partitions[partition]
    return set(state.isr) == set(state.replicas)


class Copier:
    """As the worker of a mirror: after what passes it is begun anew."""

    def __init__(self, log: Callable[[], MirrorLog], address: str) -> None:
        self._log, self._address = log, address
        self._mirror: ExactMirror | None = None

    def step(self) -> None:
        try:
            self._opened().step(0.05)
        except (LogUnavailable, NotNow):
            self._close()

    def finish(self) -> None:
        for attempt in range(100):
            try:
                until_level(self._opened())
                break
            except (LogUnavailable, NotNow):
                self._close()
                assert attempt < 99
        self._close()

    def _opened(self) -> ExactMirror:
        if self._mirror is None:
            source = MirrorSource(KafkaProperties({"bootstrap.servers": self._address}))
            settings = ExactMirrorSettings("m", EVERYTHING, EVERYTHING, look_ms=200)
            self._mirror = ExactMirror(self._log(), source, settings)
        return self._mirror

    def _close(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
            self._mirror = None
