"""Markers that were lost with damage: a transaction ends as it was decided, and never by a guess."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from waiting import eventually

from millstream.logcore.cluster.node_folder import replica_folder, topics_of_node
from millstream.logcore.cluster.node_log import NodeLog
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import HEADER_SIZE, read_header
from millstream.logcore.replication.controller.controller_messages import ElectLeader
from millstream.logcore.replication.machine import BROKER, NodeId
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.logcore.replication.shards.coordination_messages import ForTransaction
from millstream.logcore.replication.shards.transaction_messages import Included, IncludePartitions

from ..damage import read_all
from ..log_records import crashed_copy, rows
from .nodes import Cluster

_TRANSACTIONS: Final = 6
_ABORTED: Final = (1, 4)


def _live(log: Log | NodeLog) -> dict[bytes, bool]:
    """Two producers take turns: what they wrote to topic "t", and whether that was committed. Topic "u" is a part of
    some transactions only."""
    log.create_topic("t", 1)
    log.create_topic("u", 1)
    producers = [log.transactional_producer(name) for name in ("p", "q")]
    written: dict[bytes, bool] = {}
    for number in range(_TRANSACTIONS):
        producer, value = producers[number % 2], b"%d" % number
        producer.begin()
        if number % 3:
            producer.append("u", 0, rows(value))
        producer.append("t", 0, rows(value))
        written[value] = number not in _ABORTED
        (producer.commit if written[value] else producer.abort)()
        producer.begin()
        producer.append("u", 0, rows(b"in another topic only"))
        (producer.abort if written[value] else producer.commit)()
    return written


def _batches(segment: Path) -> Iterator[tuple[int, int]]:
    """Where each batch begins, and the offset behind its last record."""
    content, at = segment.read_bytes(), 0
    while at + HEADER_SIZE <= len(content) and (header := read_header(content, at)).plausible:
        yield at, header.base_offset
        at += header.size


def _segment(folder: Path, topic: str) -> Path:
    [segment] = replica_folder(folder, topics_of_node(folder)[topic], 0).glob("*.log")
    return segment


def _cut(folder: Path, at: int) -> None:
    segment = _segment(folder, "t")
    segment.write_bytes(segment.read_bytes()[:at])


def _committed(log: Log | NodeLog, below: int) -> set[bytes]:
    """What readers of committed records get of what was written below this offset, once nothing is open any more; or
    what they are told that they cannot get."""
    eventually(lambda: (offsets := log.offsets("t", 0)).last_stable_offset == offsets.log_end_offset)
    found, complaints = read_all(log, "t", 0)
    told = {offset: value for offset, value in found.items() if offset < below and isinstance(value, bytes)}
    lost = {
        b"%d" % (offset // 2)
        for text in complaints
        for first, last in re.findall(r"from offset (\d+) to (\d+)", text)
        for offset in range(int(first), min(below, int(last) + 1))
        if offset % 2 == 0 and offset // 2 not in _ABORTED
    }
    return {*told.values(), *lost}


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_each_transaction_ends_as_it_was_decided_whatever_marker_is_lost(tmp_path: Path, end: str) -> None:
    """The log of the partition is cut before each of its batches, in copies of the directory."""
    folder = tmp_path / "log"
    with open_log(folder) as log:
        written = _live(log)
        whole = log.offsets("t", 0).log_end_offset
        killed = crashed_copy(log, folder, tmp_path / "killed")
    folder = killed if end == "killed" else folder
    for at, offset in list(_batches(_segment(folder, "t")))[1:]:
        copy = shutil.copytree(folder, tmp_path / "copy")
        _cut(copy, at)
        expected = {value for value in list(written)[: (offset + 1) // 2] if written[value]}
        with open_log(copy) as log:
            assert log.append("t", 0, rows(b"after")) >= whole, "no offset is given twice"
            assert log.problems(), "what is lost is reported"
            assert _committed(log, offset) == expected, f"cut at offset {offset}"
            _go_on(log)
        with open_log(copy) as log:
            assert _committed(log, offset) == expected, f"cut at offset {offset}"
        shutil.rmtree(copy)


def _go_on(log: Log | NodeLog) -> None:
    for name in ("p", "q"):
        producer = log.transactional_producer(name)
        producer.begin()
        producer.append("t", 0, rows(name.encode()))
        producer.commit()
        assert name.encode() in read_all(log, "t", 0)[0].values()


def test_a_cluster_of_one_that_is_led_uncleanly_ends_them_too(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    folder = cluster.settings[NodeId(1)].folder
    cluster.start(1)
    try:
        written = _live(NodeLog(cluster.running[1].parts))
        cluster.stop(1)
        at, offset = list(_batches(_segment(folder, "t")))[-1]
        _cut(folder, at)
        cluster.start(1)
        node = cluster.running[1].node
        for row in node.image.rows():  # nobody else has what this node reports as not whole
            for state in row.states() if row.first.leader is None else ():
                node.decide(ElectLeader(PartitionId(state.topic_id, state.partition), unclean=True))
        log = NodeLog(cluster.running[1].parts)
        eventually(lambda: node.leads("t", 0))
        assert _committed(log, offset) == {value for value, committed in written.items() if committed}
    finally:
        cluster.kill(1)


def test_what_was_open_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The coordinator has it open, too: it is neither ended nor refused, before its producer says so."""
    with open_log(tmp_path / "log") as log:
        log.create_topic("t", 1)
        producer = log.transactional_producer("p")
        producer.begin()
        producer.append("t", 0, rows(b"open"))
        epoch = producer.epoch
        # As a client says that may outlive the node: of its own process's producers the node writes nothing down.
        where = log.node.partition_id("t", 0)
        assert where is not None
        included = IncludePartitions(producer.producer_id, epoch, (where,))
        assert log.node.answer(BROKER, ForTransaction("p", included)) == Included()
        copy = shutil.copytree(tmp_path / "log", tmp_path / "copy")
        producer.abort()
    with open_log(copy) as log:
        log.append("t", 0, rows(b"other"))
        assert log.offsets("t", 0).last_stable_offset == 0
        assert log.transactional_producer("p").epoch > epoch
        assert _committed(log, 9) == {b"other"}
