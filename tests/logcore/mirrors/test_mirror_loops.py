"""A log is no mirror of itself, whichever address leads to it, and no chain of mirrors comes back to where it began."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tcp_relay import TcpRelay
from two_logs import TwoLogs, records_of, rows, until_level

from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.mirror_errors import MirrorOfItself
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.mirrored_topics import release_topics
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.server import LogServer

EVERYTHING = TopicFilter(("*",))


class ThreeLogs:
    """State: three logs, each served."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        self.logs = [opened.enter_context(open_log(folder / name, sync="never")) for name in "abc"]
        self.addresses = [opened.enter_context(LogServer(log, port=0)).address for log in self.logs]

    def between(self, there: int, here: int) -> TwoLogs:
        return TwoLogs(self.logs[there], self.logs[here], self.addresses[there])


@pytest.fixture
def three(memory_folder: Path) -> Iterator[ThreeLogs]:
    with ExitStack() as opened:
        yield ThreeLogs(memory_folder, opened)


def renamed(into: Log, address: str, alias: str, target: str) -> RenamedMirror:
    settings = RenamedMirrorSettings(f"from-{alias}", alias, target, EVERYTHING, EVERYTHING, look_ms=100)
    return RenamedMirror(into, MirrorSource(KafkaProperties({"bootstrap.servers": address})), settings)


# Itself


@pytest.mark.parametrize("adopts", [False, True])
def test_a_log_is_no_mirror_of_itself(three: ThreeLogs, adopts: bool) -> None:
    three.logs[0].create_topic("t", 1)
    three.logs[0].append("t", 0, rows(b"a"))
    with pytest.raises(MirrorOfItself, match="is this log itself"), three.between(0, 0).mirror(adopts=adopts):
        pass
    three.logs[0].append("t", 0, rows(b"b"))
    assert list(three.logs[0].groups.names()) == []


def test_an_address_of_another_name_leads_to_the_same_log(three: ThreeLogs) -> None:
    three.logs[0].create_topic("t", 1)
    with TcpRelay(int(three.addresses[0].rpartition(":")[2])) as relay:
        itself = TwoLogs(three.logs[0], three.logs[0], f"localhost:{relay.port}")
        with pytest.raises(MirrorOfItself), itself.mirror():
            pass


def test_a_log_is_no_mirror_of_itself_under_other_names(three: ThreeLogs) -> None:
    three.logs[0].create_topic("t", 1)
    with pytest.raises(MirrorOfItself):
        renamed(three.logs[0], three.addresses[0], "a", "b")
    assert not [name for name in three.logs[0].topics() if name.startswith(("a.", "mm2"))]


def test_a_restored_copy_of_a_log_is_another_log_although_its_ids_are_equal(
    memory_folder: Path,
) -> None:
    with open_log(memory_folder / "original", sync="never") as original:
        original.create_topic("t", 1)
        original.append("t", 0, rows(b"a"))
    shutil.copytree(memory_folder / "original", memory_folder / "restored")
    with (
        open_log(memory_folder / "original", sync="never") as there,
        open_log(memory_folder / "restored", sync="never") as here,
        LogServer(there, port=0) as server,
    ):
        there.append("t", 0, rows(b"b"))
        assert there.served.id == here.served.id
        TwoLogs(there, here, server.address).copy(adopts=True)
        assert records_of(here, "t") == records_of(there, "t")


# Chains


def test_a_chain_of_mirrors_does_not_come_back_to_the_topic_it_began_with(three: ThreeLogs) -> None:
    three.logs[0].create_topic("t", 1)
    three.logs[0].append("t", 0, rows(b"a"))
    three.between(0, 1).copy()
    three.between(1, 2).copy()
    for there in (1, 2):
        with three.between(there, 0).mirror(adopts=True) as mirror:
            mirror.look()
            assert "is a copy of this one" in mirror.board.refused["t"]
    three.logs[0].append("t", 0, rows(b"b"))
    three.between(0, 1).copy()
    three.between(1, 2).copy()
    assert [record[2] for record in records_of(three.logs[2], "t")] == [b"a", b"b"]


def test_a_promoted_copy_may_be_copied_back(three: ThreeLogs) -> None:
    three.logs[0].create_topic("t", 1)
    three.logs[0].append("t", 0, rows(b"a"))
    three.between(0, 1).copy()
    release_topics(three.logs[1], "m")
    three.logs[1].append("t", 0, rows(b"b"))
    three.between(1, 0).copy(adopts=True)
    assert records_of(three.logs[0], "t") == records_of(three.logs[1], "t")


def test_topics_of_two_servers_that_were_begun_alike_are_two_topics(three: ThreeLogs) -> None:
    for log in three.logs:
        log.create_topic("t", 1)
    with three.between(0, 1).mirror(adopts=True) as mirror:
        until_level(mirror)
        assert not mirror.board.refused


def test_names_do_not_grow_in_a_ring_of_which_nobody_knows_its_own_alias(three: ThreeLogs) -> None:
    """Each mirror names its source, and leaves `target.alias` at its default."""
    three.logs[0].create_topic("t", 1)
    three.logs[0].append("t", 0, rows(b"a"))
    ring = [(0, 1, "a"), (1, 2, "b"), (2, 0, "c")]
    for _ in range(3):
        for there, here, alias in ring:
            mirror = renamed(three.logs[here], three.addresses[there], alias, "millstream")
            while not mirror.is_level():
                mirror.step(0.02)
            mirror.close()
    names = [{name for name in log.topics() if name.endswith("t") and "heart" not in name} for log in three.logs]
    assert names == [{"t", "c.b.a.t"}, {"a.t"}, {"b.a.t"}]
