"""A node that is alone: whoever asks it does its work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.transaction_records import Identity
from millstream.logcore.errors import CorruptLog, LogClosed, LogFull, NotNow
from millstream.logcore.log import open_log
from millstream.logcore.replication.machine import BROKER, NodeId
from millstream.logcore.replication.node.lone_node import LoneNode
from millstream.logcore.replication.node.node_runtime import NoAnswer, NodeStopped
from millstream.logcore.replication.shards.transaction_messages import AskProducerId, ProducerGiven

from ..log_records import rows, values_of
from .ticks import Pauses

WHERE = TopicPartition("t", 0)


def test_all_that_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 2, {"retention.ms": "-1"})
        log.append("t", 0, rows(b"a"))
        producer = log.transactional_producer("q")
        producer.begin()
        producer.append("t", 0, rows(b"b"))
        producer.send_offsets("g", {WHERE: 2})
        producer.commit()
        epoch = producer.epoch
        producer.begin()
        producer.append("t", 0, rows(b"never committed"))
    with open_log(tmp_path) as log:
        assert log.topics()["t"].config == {"retention.ms": "-1"}
        after = log.transactional_producer("q")
        assert (after.producer_id, after.epoch > epoch) == (producer.producer_id, True)
        after.begin()
        after.commit()
        assert values_of(log, "t") == [b"a", b"b"]
        assert log.committed_offsets("g") == {WHERE: 2}


def test_writers_share_syncs_and_nobody_is_forgotten(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 4)

        def write(number: int) -> list[int]:
            return [log.append("t", number % 4, rows(b"%d" % number)) for _ in range(20)]

        with ThreadPoolExecutor(12) as pool:
            written = list(pool.map(write, range(12)))
        for partition in range(4):
            offsets = sorted(offset for number in range(partition, 12, 4) for offset in written[number])
            assert offsets == list(range(60))


def test_a_sync_that_failed_ends_it_and_whoever_waits_is_told(tmp_path: Path) -> None:
    """R17."""
    log = open_log(tmp_path)
    try:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"kept"))
        failpoints.arm("replica.before_sync:1:eio")
        with pytest.raises(LogClosed, match="this node has ended"):
            log.append("t", 0, rows(b"in doubt"))
        assert log.node.failure is not None
    finally:
        failpoints.arm("")
        log.close()
    with open_log(tmp_path) as again:
        assert values_of(again, "t")[0] == b"kept"


def test_who_asks_a_node_that_has_ended_is_told(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    log = open_log(tmp_path)
    asked = log.node.ask(BROKER, AskProducerId(), at=None)
    given = asked.result(60)
    assert isinstance(given, ProducerGiven) and given.producer_id >= 0
    with pytest.raises(NoAnswer):
        log.node.ask(BROKER, AskProducerId(), at=NodeId(7)).result(60)
    log.close()
    with pytest.raises(NodeStopped):
        log.node.ask(BROKER, AskProducerId()).result(60)
    with pytest.raises(LogClosed):
        log.append("t", 0, rows(b"x"))
    assert not [thread.name for thread in set(threading.enumerate()) - others if thread.name == "node 1"]


def test_a_node_that_nobody_asks_rests_and_the_next_request_is_told_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wake up twenty times a second costs more than all that ticks do."""
    told: list[int] = []
    tell = LoneNode._tell_the_time

    def counted(node: LoneNode) -> None:
        told.append(threading.get_ident())
        tell(node)

    monkeypatch.setattr(LoneNode, "_tell_the_time", counted)
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
        pauses = Pauses(monkeypatch)  # only now: on a slow machine it rested before

        def rested() -> bool:
            return pauses.next_of(0.5) + 0.4 < pauses.next_of(0.05)

        def told_here() -> bool:
            told.clear()
            log.append("t", 0, rows(b"b"))
            return threading.get_ident() in told

        # Its own housekeeping may ask something and end a rest, before it is seen or after.
        assert any(rested() and told_here() for _ in range(30))


def test_a_directory_has_one_node(tmp_path: Path) -> None:
    with open_log(tmp_path), pytest.raises(LogError):
        open_log(tmp_path)


def test_without_syncs_records_survive_the_end_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)
    script = (
        "import os, sys\n"
        "from millstream.logcore.log import open_log\n"
        "from tests.logcore.log_records import rows\n"
        "log = open_log(sys.argv[1], sync='never')\n"
        "log.create_topic('t', 1)\n"
        "log.append('t', 0, rows(b'a', b'b'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=120)
    with open_log(tmp_path, sync="never") as log:
        assert values_of(log, "t") == [b"a", b"b"]
        synced.clear()
        log.append("t", 0, rows(b"c"))
        log.create_topic("u", 1)
        assert synced == []
    with open_log(tmp_path) as log:
        assert values_of(log, "t") == [b"a", b"b", b"c"]
        log.append("t", 0, rows(b"d"))
        assert synced


def test_each_has_an_id_and_a_secret_of_its_own(tmp_path: Path) -> None:
    """Who shows the secret may write to Millstream's own topics over the network."""
    with open_log(tmp_path / "a") as one, open_log(tmp_path / "b") as other:
        assert one.served.id != other.served.id
        assert one.served.secret != other.served.secret
        told = one.served.id, one.served.secret
    with open_log(tmp_path / "a") as again:
        assert (again.served.id, again.served.secret) == told


def test_damage_of_one_partition_leaves_the_others_usable(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        for topic in ("whole", "damaged"):
            log.create_topic(topic, 1)
            for value in (b"a", b"b", b"c"):
                log.append(topic, 0, rows(value))
        crashed = shutil.copytree(tmp_path / "log", tmp_path / "crashed")
        id = log.node.image.topic_ids["damaged"]
    [segment] = (crashed / "replicas").glob(f"{id}-0/*.log")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"c", b"x"))  # the value of the last record, and nothing else is a "c"
    with open_log(crashed) as log:
        for topic in ("whole", "damaged"):
            log.append(topic, 0, rows(b"d"))
        assert values_of(log, "whole") == [b"a", b"b", b"c", b"d"]
        assert values_of(log, "damaged", 0, 3) == [b"d"], "the offset of what is lost is not given again"
        assert ["damaged" in problem for problem in log.problems()] == [True]


@pytest.mark.parametrize("missing", ["quorum", "replicas"])
def test_logs_without_their_metadata_are_refused_and_the_other_way_round(tmp_path: Path, missing: str) -> None:
    with open_log(tmp_path / "log") as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
    (tmp_path / "log" / missing).rename(tmp_path / missing)
    for _ in range(2):
        with pytest.raises(CorruptLog, match=f"{missing} is missing") as refused:
            open_log(tmp_path / "log")
        assert refused.value.hint
    (tmp_path / missing).rename(tmp_path / "log" / missing)
    with open_log(tmp_path / "log") as log:
        assert values_of(log, "t") == [b"a"]


def test_groups_and_transactions_are_kept_in_one_partition_each(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.commit_offsets("g", {WHERE: 0})
        log.transactional_producer("q")
        counts = {name: topic.partition_count for name, topic in log.topics().items()}
        assert counts == {"t": 1, "__consumer_offsets": 1, "__transaction_state": 1}


def test_who_reads_what_is_damaged_is_told_where_and_what_to_do(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
        [segment] = (tmp_path / "replicas").glob(f"{log.node.image.topic_ids['t']}-0/*.log")
        with segment.open("r+b") as file:
            file.seek(40)
            file.write(b"!")
        with pytest.raises(CorruptLog, match='partition 0 of topic "t" cannot be read from offset 0 on') as raised:
            log.fetch("t", 0, 0)
        assert raised.value.hint


def test_a_full_disk_refuses_a_record_and_takes_the_next(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
        failpoints.arm("append.write:1:enospc")
        try:
            with pytest.raises(LogFull, match='no room to write to partition 0 of topic "t"') as refused:
                log.append("t", 0, rows(b"b"))
        finally:
            failpoints.arm("")
        assert refused.value.hint
        log.append("t", 0, rows(b"c"))
        assert values_of(log, "t") == [b"a", b"c"]


def test_nobody_is_told_to_move_anything_to_other_nodes(tmp_path: Path) -> None:
    with capture_logs() as entries, open_log(tmp_path) as log:
        log.create_topic("t", 1)
        failpoints.arm("append.write:1:enospc")
        try:
            with pytest.raises(LogFull):
                log.append("t", 0, rows(b"a"))
        finally:
            failpoints.arm("")
    said = repr(entries)
    assert "the disk is full" in said and "Free disk space" in said
    assert "followers" not in said and "reassign" not in said


def test_an_opening_opens_no_partition_and_notes_nothing_for_each(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 300)
        log.append("t", 7, rows(b"a"))
    metadata, sizes = tmp_path / "quorum" / "quorum-log", list[int]()
    for _ in range(2):
        with open_log(tmp_path) as log:
            id = log.node.partition_id("t", 7)
            assert id is not None and log.node.logs.log(id) is None and log.node.leads("t", 7)
            assert values_of(log, "t", 7) == [b"a"]
            assert log.node.logs.log(id) is not None
        sizes.append(metadata.stat().st_size)
    assert sizes[1] - sizes[0] < 2_000
    assert len(list((tmp_path / "replicas").glob("*-*/"))) < 100


def test_what_rests_is_looked_after_in_the_background(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.append("t", 0, rows(b"a"))
    with open_log(tmp_path) as log:
        log.keep_house()
        id = log.node.partition_id("t", 0)
        assert id is not None and log.node.logs.log(id) is not None
        replica = log.node.replica(id)
        assert replica is not None and replica.leader is not None


def test_nothing_is_left_of_a_producer_and_a_group_that_are_forgotten(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        for number in range(3):
            producer = log.transactional_producer("q")
            producer.begin()
            producer.append("t", 0, rows(b"%d" % number))
            producer.send_offsets("q", {WHERE: number + 1})
            producer.commit()
            assert log.committed_offsets("q") == {WHERE: number + 1}, "an earlier life of the id settles nothing"
            log.forget_group("q")
            log.forget_producer("q")
            assert log.served.transactions() == []
            assert log.served.groups.names() == []
    with open_log(tmp_path) as log:
        assert log.served.transactions() == []
        assert values_of(log, "t") == [b"0", b"1", b"2"]


def test_a_producer_that_another_one_has_replaced_is_not_forgotten(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        old = log.transactional_producer("q")
        log.transactional_producer("q")
        with pytest.raises(NotNow, match="another producer"):
            log.parts.transactions.forget(Identity("q", old.producer_id, old.epoch))
        assert [found.identity.transactional_id for found in log.served.transactions()] == ["q"]


_SMALL_ENGINE = """
import sys, tempfile
import pyarrow as pa
from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.log import open_log

rows = RowRecords(pa.table({"timestamp": [1], "key": [b"k"], "value": [b"v"]}))
with tempfile.TemporaryDirectory() as folder, open_log(folder, sync="never") as log:
    log.create_topic("t", 1)
    log.append("t", 0, rows)
    log.commit_offsets("g", {TopicPartition("t", 0): 1})
    assert log.committed_offsets("g") == {("t", 0): 1}
    assert log.fetch("t", 0, 0).next_offset == 1
print([name for name in sys.modules if name.split(".")[0] == "kio"])
"""


def test_messages_of_kafka_are_not_loaded_before_one_is_needed() -> None:
    """That takes as long as a quarter of the start of an engine."""
    done = subprocess.run([sys.executable, "-c", _SMALL_ENGINE], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "[]\n"
