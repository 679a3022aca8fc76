"""Going on without lost records: what is left can be read without a gap, and the rest is kept aside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli import app
from millstream.logcore.client import TopicPartition
from millstream.logcore.cluster.node_folder import accept_loss_of_node
from millstream.logcore.cluster.node_log import NodeLog
from millstream.logcore.errors import CorruptLog, UnknownTopic
from millstream.logcore.log import Log, open_log

from .cluster.nodes import Cluster
from .damage import read_all
from .log_records import rows, segment_files

pytestmark = pytest.mark.usefixtures("only_processes_die")
COUNT = 40


@pytest.fixture
def killed(log: Log, folder: Path) -> Path:
    log.transactional_producer("p")
    log.create_topic("s", 1, {"segment.bytes": "1024"})
    for number in range(COUNT):
        log.append("s", 0, rows(b"%d" % number * 20))
        log.commit_offsets("g", {TopicPartition("s", 0): number})
    return Path(shutil.copytree(folder, folder.with_name("killed")))


def damage(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    if harm == "flipped":
        data[80] ^= 1
        path.write_bytes(data)
    elif harm == "shortened":
        path.write_bytes(data[:100])
    else:
        path.unlink()


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("harm", ["flipped", "shortened", "deleted"])
def test_what_is_left_can_be_read_without_a_gap(killed: Path, harm: str, place: int) -> None:
    damage(segment_files(killed, "s")[place], harm)
    given_up = accept_loss_of_node(killed, "s")
    assert given_up
    with open_log(killed) as log:
        found, complaints = read_all(log, "s", 0)
        assert not complaints and not log.problems()
        assert 0 < COUNT - len(found) == sum(_count(line) for line in given_up)
        assert all(value == b"%d" % offset * 20 for offset, value in found.items())
        assert log.append("s", 0, rows(b"new")) == COUNT
    assert not accept_loss_of_node(killed, "s")


def _count(line: str) -> int:
    first, last = line.rpartition(" ")[2].split("..")
    return int(last) - int(first) + 1


def test_nothing_is_changed_where_nothing_is_lost(killed: Path) -> None:
    before = {path: path.read_bytes() for path in segment_files(killed, "s")}
    assert not accept_loss_of_node(killed, "s")
    assert {path: path.read_bytes().rstrip(b"\0") for path in before} == {
        path: data.rstrip(b"\0") for path, data in before.items()
    }
    with pytest.raises(UnknownTopic):
        accept_loss_of_node(killed, "unknown")


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_topics_of_the_log_itself_are_usable_again(killed: Path, topic: str) -> None:
    path = segment_files(killed, topic)[0]
    path.write_bytes(path.read_bytes()[:100])
    with open_log(killed) as log, pytest.raises(CorruptLog, match=topic):
        use(log)
    result = CliRunner().invoke(app, ["log", "accept-loss", str(killed), topic])
    assert result.exit_code == 0 and "given up: partition 0" in result.output
    with open_log(killed) as log:
        log.commit_offsets("g", {TopicPartition("s", 0): 3})
        assert log.committed_offsets("g") == {TopicPartition("s", 0): 3}
        log.transactional_producer("p")


def use(log: Log) -> None:
    log.transactional_producer("p")
    log.committed_offsets("g")


def test_what_other_nodes_have_is_not_given_up(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        node = cluster.running[1]
        with NodeLog(node.parts) as log:
            log.create_topic("t", 1)
            log.append("t", 0, rows(b"a"))
    result = CliRunner().invoke(app, ["log", "accept-loss", str(tmp_path / "node1"), "t"])
    assert result.exit_code != 0
    assert 'topic "t" has copies on nodes 1, 2' in result.output


def test_a_part_of_a_querys_state_is_not_given_up(killed: Path) -> None:
    result = CliRunner().invoke(app, ["log", "accept-loss", str(killed), "_millstream-Q_1-changelog"])
    assert result.exit_code != 0
    assert "RESET QUERY_ID;" in result.output
    assert os.listdir(killed)
