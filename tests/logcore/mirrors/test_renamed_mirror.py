"""A mirror in renamed mode: MirrorMaker 2's names and records, each record once, offsets translated, no loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from two_logs import TwoLogs, records_of, rows, two_logs

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors import renamed_mirror
from millstream.logcore.mirrors.mirror_maker_formats import GroupCheckpoint, OffsetSync, SourceHeartbeat
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.offset_translation import OffsetTranslation
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.server import LogServer

EVERYTHING = TopicFilter(("*",))


@pytest.fixture
def logs(memory_folder: Path) -> Iterator[TwoLogs]:
    with two_logs(memory_folder) as opened:
        yield opened


@contextmanager
def renamed(into: Log, address: str, alias: str = "a", target: str = "b") -> Generator[RenamedMirror]:
    settings = RenamedMirrorSettings(f"from-{alias}", alias, target, EVERYTHING, EVERYTHING, look_ms=100)
    mirror = RenamedMirror(into, MirrorSource(KafkaProperties({"bootstrap.servers": address})), settings)
    try:
        yield mirror
    finally:
        mirror.close()


def copy(into: Log, address: str, alias: str = "a", target: str = "b") -> None:
    with renamed(into, address, alias, target) as mirror:
        while not mirror.is_level():
            mirror.step(0.05)
        mirror.look()


def copy_on(mirror: RenamedMirror, until: Callable[[], object] = lambda: False) -> None:
    for _ in range(100):
        mirror.step(0.05)
        if until():
            return


def values(log: Log, topic: str, partition: int = 0) -> list[object]:
    return [record[2] for record in records_of(log, topic, partition)]


def test_records_are_there_once_under_another_name(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 2)
    producer = logs.there.transactional_producer("p")
    for number in range(6):
        producer.begin()
        producer.append("t", number % 2, rows(b"%d" % number, b"%d again" % number))
        producer.commit() if number % 3 else producer.abort()
        if number == 3:
            copy(logs.here, logs.address)
    copy(logs.here, logs.address)
    copy(logs.here, logs.address)
    for partition in range(2):
        assert values(logs.here, "a.t", partition) == values(logs.there, "t", partition)


def test_committed_offsets_mean_the_same_records(logs: TwoLogs) -> None:
    random_ = random.Random(3)
    logs.there.create_topic("t", 1)
    producer = logs.there.transactional_producer("p")
    for number in range(20):
        producer.begin()
        producer.append("t", 0, rows(*(b"%d %d" % (number, each) for each in range(random_.randrange(1, 4)))))
        producer.commit() if random_.random() < 0.6 else producer.abort()
    there, end = records_of(logs.there, "t"), logs.there.offsets("t", 0).log_end_offset
    for offset in range(end + 1):
        logs.there.commit_offsets(f"g{offset}", {TopicPartition("t", 0): offset})
    copy(logs.here, logs.address)
    for offset in range(end + 1):
        found = logs.here.committed_offsets(f"g{offset}")[TopicPartition("a.t", 0)]
        left_there = [record[2] for record in there if record[0] >= offset]
        left_here = [record[2] for record in records_of(logs.here, "a.t") if record[0] >= found]
        assert left_here == left_there


def test_a_topic_that_was_made_anew_stops_and_the_others_go_on(logs: TwoLogs) -> None:
    for topic in ("t", "u"):
        logs.there.create_topic(topic, 1)
        logs.there.append(topic, 0, rows(b"a"))
    copy(logs.here, logs.address)
    logs.there.delete_topic("t")
    logs.there.create_topic("t", 1)
    for value in (b"x", b"y", b"z"):  # batches that would fit behind the position
        logs.there.append("t", 0, rows(value))
    logs.there.append("u", 0, rows(b"b"))
    with renamed(logs.here, logs.address) as mirror:
        copy_on(mirror)
        assert mirror.is_level(), "of all that is copied"
        assert "made anew" in str(mirror.board.refused["t"])
    assert values(logs.here, "a.u") == [b"a", b"b"]
    assert values(logs.here, "a.t") == [b"a"], "nothing of the new one, of which the first record would be missing"
    logs.here.delete_topic("a.t")
    copy(logs.here, logs.address)
    assert values(logs.here, "a.t") == [b"x", b"y", b"z"]


def test_a_topic_that_is_made_anew_meanwhile_stops(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a"))
    with renamed(logs.here, logs.address) as mirror:
        copy_on(mirror)
        logs.there.delete_topic("t")
        copy_on(mirror)
        assert mirror.is_level(), "what is gone holds up no promotion"
        logs.there.create_topic("t", 1)
        logs.there.append("t", 0, rows(b"x", b"y"))
        copy_on(mirror)
        assert "made anew" in str(mirror.board.refused["t"])
        assert mirror.board.partitions[TopicPartition("t", 0)].phase == "STOPPED"
    assert values(logs.here, "a.t") == [b"a"]


def test_a_topic_that_was_deleted_here_is_copied_anew(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a", b"b"))
    copy(logs.here, logs.address)
    logs.here.delete_topic("a.t")
    copy(logs.here, logs.address)
    copy(logs.here, logs.address)
    assert values(logs.here, "a.t") == [b"a", b"b"]


def test_a_source_that_went_back_stops_its_partition_and_the_others_go_on(logs: TwoLogs, memory_folder: Path) -> None:
    for topic in ("t", "u"):
        logs.there.create_topic(topic, 1)
        logs.there.append(topic, 0, rows(b"a"))
    copy(logs.here, logs.address)
    with open_log(memory_folder / "unclean", sync="never") as unclean, LogServer(unclean, port=0) as server:
        for topic in ("t", "u"):
            unclean.create_topic(topic, 1)
            logs.here.alter_topic(f"a.{topic}", {})  # an older version did not note the id
        unclean.append("t", 0, rows(b"x", b"y"))
        for value in (b"a", b"b"):
            unclean.append("u", 0, rows(value))
        with renamed(logs.here, server.address) as mirror:
            copy_on(mirror)
            told = mirror.board.partitions[TopicPartition("t", 0)]
            assert (told.phase, "ends inside of it" in str(told.error)) == ("STOPPED", True)
    assert values(logs.here, "a.t") == [b"a"]
    assert values(logs.here, "a.u") == [b"a", b"b"]


def test_a_source_that_ends_before_the_position_is_waited_for_and_then_stops(
    logs: TwoLogs, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader does not know its own end at once. What a source that lost records gets anew is not copied."""
    logs.there.create_topic("t", 1)
    for value in (b"a", b"b", b"c"):
        logs.there.append("t", 0, rows(value))
    copy(logs.here, logs.address)
    logs.here.alter_topic("a.t", {})  # an older version did not note the id
    with open_log(memory_folder / "shorter", sync="never") as shorter, LogServer(shorter, port=0) as server:
        shorter.create_topic("t", 1)
        shorter.append("t", 0, rows(b"a"))
        with renamed(logs.here, server.address) as mirror:
            copy_on(mirror, until=lambda: mirror.board.partitions)
            assert mirror.board.partitions[TopicPartition("t", 0)].phase == "WAITING"
            for value in (b"b", b"c", b"d"):
                shorter.append("t", 0, rows(value))
            copy_on(mirror, until=lambda: len(values(logs.here, "a.t")) == 4)
            assert values(logs.here, "a.t") == [b"a", b"b", b"c", b"d"]
    monkeypatch.setattr(renamed_mirror, "_SUSPECT_S", 0.2)
    with open_log(memory_folder / "lost", sync="never") as lost, LogServer(lost, port=0) as server:
        lost.create_topic("t", 1)
        lost.append("t", 0, rows(b"a"))
        with renamed(logs.here, server.address) as mirror:
            copy_on(mirror, until=lambda: mirror.board.partitions[TopicPartition("t", 0)].phase == "STOPPED")
            for value in (b"x", b"y", b"z", b"!", b"?"):
                lost.append("t", 0, rows(value))
            copy_on(mirror)
            assert mirror.board.partitions[TopicPartition("t", 0)].phase == "STOPPED"
    assert values(logs.here, "a.t") == [b"a", b"b", b"c", b"d"]


def test_an_older_copier_is_fenced(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    logs.there.append("t", 0, rows(b"a"))
    copy(logs.here, logs.address)
    logs.there.append("t", 0, rows(b"b"))
    with renamed(logs.here, logs.address) as mirror, renamed(logs.here, logs.address) as newer:
        with pytest.raises(ProducerFenced):
            copy_on(mirror)
        while not newer.is_level():
            newer.step(0.05)
    assert values(logs.here, "a.t") == [b"a", b"b"]


def test_two_logs_that_mirror_each_other_make_no_loop(logs: TwoLogs) -> None:
    with LogServer(logs.here, port=0) as server:
        logs.there.create_topic("t", 1)
        logs.here.create_topic("t", 1)
        logs.there.append("t", 0, rows(b"from a"))
        logs.here.append("t", 0, rows(b"from b"))
        for _ in range(3):
            copy(logs.here, logs.address, "a", "b")
            copy(logs.there, server.address, "b", "a")
        assert values(logs.here, "a.t") == [b"from a"]
        assert values(logs.there, "b.t") == [b"from b"]
        assert not [
            name for log in (logs.here, logs.there) for name in log.topics() if name.startswith(("a.b.", "b.a."))
        ]


def test_the_formats_are_those_of_mirrormaker() -> None:
    sync = OffsetSync("t", 3, 1 << 40, 7)
    assert sync.key == b"\x00\x01t\x00\x00\x00\x03"
    assert sync.value == b"\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07"
    assert OffsetSync.read(sync.key, sync.value) == sync
    checkpoint = GroupCheckpoint("g", "a.t", 1, 5, 6, "m")
    assert checkpoint.key == b"\x00\x01g\x00\x03a.t\x00\x00\x00\x01"
    assert checkpoint.value == b"\x00\x00" + (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\x00\x01m"
    assert SourceHeartbeat("a", "b", 9).key == b"\x00\x01a\x00\x01b"
    assert SourceHeartbeat("a", "b", 9).value == b"\x00\x00" + (9).to_bytes(8, "big")
    with pytest.raises(ValueError, match="not an offset sync"):
        OffsetSync.read(b"\x00", b"")


def test_offsets_between_syncs_are_translated_and_older_ones_are_not() -> None:
    translation, where = OffsetTranslation(), TopicPartition("t", 0)
    assert translation.translated(where, 5) is None
    assert translation.next_offset(where) is None
    for upstream, downstream in ((10, 100), (20, 105), (23, 109)):
        translation.add(OffsetSync("t", 0, upstream, downstream))
    found = [translation.translated(where, offset) for offset in (9, 10, 12, 19, 20, 22, 23, 50)]
    assert found == [None, 100, 102, 105, 105, 107, 109, 109]
    assert translation.next_offset(where) == 23


def test_who_sets_all_settings_of_a_copy_leaves_those_of_the_mirror(logs: TwoLogs) -> None:
    logs.there.create_topic("t", 1)
    copy(logs.here, logs.address)
    before = logs.here.topics()["a.t"].config["millstream.mirror.topic.id"]
    with LogServer(logs.here, port=0) as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        asked = ConfigResource(ResourceType.TOPIC, "a.t", {"retention.ms": "5000"})
        admin.alter_configs([asked])[asked].result()
    config = logs.here.topics()["a.t"].config
    assert (config["retention.ms"], config["millstream.mirror.topic.id"]) == ("5000", before)
