"""The directory of a single node, as the version before wrote it, becomes that of a node that is alone.

`golden/single_node_log.tar.gz` was written by that version, and closed properly:

    t (2 partitions)   0: a b c, of which a was deleted; two committed transactions and an aborted one of producer q
                       1: a transaction of producer p that was open, and a record behind it
    compacted          twelve records of two keys, compacted
    gone               deleted, after group g had committed an offset of it
    settings           of group g and of the node
"""

from __future__ import annotations

import hashlib
import json
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from forked import run_forked

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.transaction_records import Identity
from millstream.logcore.errors import CorruptLog, LogFull, LogLocked, NotNow, UnsupportedDataDirectory
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.checked_json import write_checked_json
from millstream.logcore.storage.directory_lock import locked
from millstream.logcore.storage.recovery import read_checkpoint

from ..log_records import records_of, rows, values_of

GOLDEN: Final = Path(__file__).with_name("golden") / "single_node_log.tar.gz"
WRITTEN_S: Final = 1_795_472_716.0  # so that nothing expires
ID: Final = "458b84c8979d4a1296854eba5bccac65"
SECRET: Final = "ab" * 32
T_ID: Final = "b6cd98e8b3824d86b83dc44584aa04a1"
STEPS: Final = ("planned", "node", "metadata", "rewritten", "moved", "marked", "aborted", "finished")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "log" / "secret").write_text(SECRET)
    return tmp_path / "log"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def opened(directory: Path) -> Log:
    return open_log(directory, clock=lambda: WRITTEN_S)


def content(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def check_all_is_there(log: Log) -> None:
    assert (log.served.id, log.served.secret, log.served.topic_id("t")) == (ID, SECRET, T_ID)
    assert {name: topic.partition_count for name, topic in log.topics().items() if not name.startswith("__")} == {
        "t": 2,
        "compacted": 1,
    }
    assert log.topics()["t"].config == {"retention.ms": "-1"}
    assert log.topics()["compacted"].config["cleanup.policy"] == "compact"
    assert log.offsets("t", 0).log_start_offset == 1
    assert records_of(log, "t", 0, 1) == [(1, b"b"), (2, b"c"), (3, b"q0"), (5, b"q1")]
    assert records_of(log, "t", 1) == [(1, b"behind")], "the open transaction was aborted"
    assert [offset for offset, _ in records_of(log, "compacted")] == [9, 10, 11]
    assert log.offsets("t", 1).log_end_offset == 3, "with one marker"
    assert log.committed_offsets("g") == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}
    assert log.committed_offsets("h") == {TopicPartition("t", 0): 3}
    assert log.served.settings("group:g") == {"consumer.session.timeout.ms": "50000"}
    assert log.served.settings("broker:1") == {"leader.replication.throttled.rate": "1000"}
    assert log.problems() == []


def test_everything_is_there_after_the_upgrade_and_after_the_next_start(directory: Path) -> None:
    for _ in range(2):
        with opened(directory) as log:
            check_all_is_there(log)
    assert sorted(path.name for path in directory.iterdir() if path.is_file()) == [
        "lock",
        "node.json",
        "node.json.copy",
        "secret",
    ]


def test_what_was_upgraded_is_written_on(directory: Path) -> None:
    with opened(directory) as log:
        assert log.append("t", 0, rows(b"new")) == 9
        log.create_topic("next", 1)
        for name, known_id, known_epoch in (("q", 0, 0), ("p", 1, 0)):
            producer = log.transactional_producer(name)
            assert producer.producer_id == known_id and producer.epoch > known_epoch
            producer.begin()
            producer.append("t", 1, rows(name.encode()))
            producer.send_offsets("h", {TopicPartition("t", 0): 9})
            producer.commit()
        assert log.transactional_producer("another").producer_id >= 1_000, "a block of ids was taken before"
        log.delete_topic("compacted")
    with opened(directory) as log:
        assert values_of(log, "t", 1) == [b"behind", b"q", b"p"]
        assert log.committed_offsets("h") == {TopicPartition("t", 0): 9}
        assert log.served.topic_name(bytes.fromhex(T_ID)) == "t"


def test_whoever_had_a_transaction_open_is_fenced(directory: Path) -> None:
    with opened(directory) as log, pytest.raises(NotNow, match='"p" with epoch 0 was replaced'):
        log.parts.serving.transactions.add_partitions(Identity("p", 1, 0), frozenset({TopicPartition("t", 1)}))


@pytest.mark.parametrize(
    ("step", "nth"), [(step, nth) for step in STEPS for nth in (range(1, 6) if step == "moved" else (1,))]
)
@pytest.mark.parametrize("action", ["raise", "enospc"])
def test_a_start_that_ends_in_between_is_gone_on_with(directory: Path, step: str, nth: int, action: str) -> None:
    failpoints.arm(f"upgrade.{step}:{nth}:{action}")
    with pytest.raises((failpoints.FailpointHit, LogFull)):
        opened(directory)
    assert failpoints.hits(f"upgrade.{step}") == nth
    failpoints.arm("")
    with opened(directory) as log:
        check_all_is_there(log)


_KILLED: Final = """
from millstream.logcore import failpoints
from millstream.logcore.log import open_log
failpoints.arm(failpoint)
open_log(folder)
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_start_that_is_killed_is_gone_on_with(directory: Path, step: str) -> None:
    assert run_forked(_KILLED, folder=str(directory), failpoint=f"upgrade.{step}:1:kill9") == -signal.SIGKILL
    with opened(directory) as log:
        check_all_is_there(log)


# What is refused


def refused(directory: Path, words: str) -> None:
    before = content(directory)
    with pytest.raises(UnsupportedDataDirectory, match=words):
        opened(directory)
    assert content(directory) == before


def test_a_directory_that_was_not_closed_is_refused_untouched(directory: Path) -> None:
    (directory / "closed").unlink()
    refused(directory, "was not closed")


def test_another_format_is_refused_untouched(directory: Path) -> None:
    for name in ("meta.json", "meta.json.copy"):
        write_checked_json(directory / name, {"format": 2, "node_id": ID}, durable=True)
    refused(directory, "has format 2")


@pytest.mark.parametrize("described", [None, {"t": {"config": {}, "id": "0" * 32, "partition_count": 1}}])
def test_a_directory_without_its_list_of_topics_is_refused_untouched(
    directory: Path, described: dict[str, object] | None
) -> None:
    """An early 0.1 wrote the topics without the list around them: the upgrade found none, and removed the file."""
    for name in ("topics.json", "topics.json.copy"):
        (directory / name).unlink()
        if described is not None:
            write_checked_json(directory / name, described, durable=True)
    refused(directory, "has no list of topics in topics.json")


def test_lost_records_are_refused_until_they_are_given_up(directory: Path) -> None:
    checkpoint = read_checkpoint(directory / "t-0")
    assert checkpoint is not None
    segment = directory / "t-0" / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-10])
    (directory / "t-0" / "checkpoint.json").unlink()
    with pytest.raises(UnsupportedDataDirectory, match=r'has lost records, in partition 0 of topic "t"'):
        opened(directory)
    assert (directory / "meta.json").exists() and not (directory / "node.json").exists()


def test_a_partition_that_nobody_opened_since_a_crash_is_recovered(directory: Path) -> None:
    (directory / "t-1" / "checkpoint.json").unlink()
    with opened(directory) as log:
        check_all_is_there(log)


def test_damaged_files_of_the_directory_are_said(directory: Path) -> None:
    for name in ("topics.json", "topics.json.copy"):
        (directory / name).write_text("not json")
    with pytest.raises(CorruptLog, match=r"topics\.json is damaged"):
        opened(directory)
    assert not (directory / "node.json").exists()


def test_a_directory_that_is_open_elsewhere_is_not_touched(directory: Path) -> None:
    held = locked(directory / "lock")
    before = content(directory)
    with pytest.raises(LogLocked):
        opened(directory)
    assert content(directory) == before
    del held


def test_a_new_directory_needs_no_upgrade(tmp_path: Path) -> None:
    with open_log(tmp_path / "new") as log:
        log.create_topic("t", 1)
    assert json.loads((tmp_path / "new" / "node.json").read_text().splitlines()[1])["node"] == 1
