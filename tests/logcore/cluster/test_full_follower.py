"""A node whose disk is full while the others go on: it says so, and comes back by itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs
from waiting import eventually

from millstream.logcore.records.batch import Buffer
from millstream.logcore.storage.disk import LogFile

from .nodes import PATIENCE_S, Cluster


def test_a_follower_whose_disk_is_full_says_so_and_is_in_sync_again_when_there_is_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(PATIENCE_S)
    follower = cluster.leader_of("orders") % 3 + 1
    logs = cluster.running[follower].node.logs
    eventually(lambda: in_sync(admin) == 3)
    with capture_logs() as said, monkeypatch.context() as full:
        fill(full, cluster.settings[cluster.running[follower].node.id].folder / "replicas")
        write(cluster, [b"%d" % number for number in range(10)])
        eventually(lambda: in_sync(admin) == 2)
        assert logs.without_room == 1
    warnings = [each for each in said if each["log_level"] == "warning" and "disk is full" in each["event"]]
    assert len(warnings) == 1 and "orders" in warnings[0]["partition"]
    eventually(lambda: in_sync(admin) == 3)
    assert logs.without_room == 0 and cluster.running[follower].node.failure is None
    assert cluster.running[follower].kafka.log.partition("orders", 0).offsets().log_end_offset == 10


def test_a_leader_whose_disk_is_full_hands_over_to_a_replica_that_has_room(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(PATIENCE_S)
    leader = cluster.leader_of("orders")
    eventually(lambda: in_sync(admin) == 3)
    write(cluster, [b"first"])
    with monkeypatch.context() as full:
        fill(full, cluster.settings[cluster.running[leader].node.id].folder / "replicas")
        write(cluster, [b"%d" % number for number in range(10)])
        assert cluster.leader_of("orders") != leader
        assert in_sync(admin) == 2
    eventually(lambda: in_sync(admin) == 3)
    assert cluster.running[leader].node.failure is None
    assert cluster.running[leader].kafka.log.partition("orders", 0).offsets().log_end_offset == 11


def fill(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """No file below the folder gets a byte more."""
    write = LogFile.write

    def refusing(file: LogFile, buffers: Sequence[Buffer], position: int) -> int:
        if Path(file.path).is_relative_to(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, buffers, position)

    patch.setattr(LogFile, "write", refusing)


def write(cluster: Cluster, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(PATIENCE_S) == 0


def in_sync(admin: AdminClient) -> int:
    return len(admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"].partitions[0].isrs)
