"""kcat, a program in C on an older librdkafka, where it is installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("confluent_kafka")

from . import outside, with_confluent
from .driver import Record

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(address: str, *arguments: str, sent: str = "") -> str:
    command = [str(KCAT), "-b", address, "-q", *arguments]
    return subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_it_reads_what_it_has_written(address: str, topic: str, compression: str) -> None:
    lines = [f"k{number}:value {number}" for number in range(200)]
    kcat(address, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", compression, sent="\n".join(lines))
    assert outside.values(address, topic) == [line.partition(":")[2].encode() for line in lines]
    assert kcat(address, "-C", "-t", topic, "-p", "0", "-e", "-K", ":").splitlines() == lines


def test_it_writes_and_reads_headers(address: str, topic: str) -> None:
    kcat(address, "-P", "-t", topic, "-p", "0", "-H", "a=1", "-H", "b=2", sent="value")
    assert kcat(address, "-C", "-t", topic, "-p", "0", "-e", "-f", "%h %s") == "a=1,b=2 value"


def test_it_reads_as_a_member_of_a_group_and_goes_on_where_it_was(address: str, topic: str, group: str) -> None:
    outside.append(address, topic, 0, b"a", b"b")
    member = ("-G", group, "-c", "2", "-X", "auto.offset.reset=earliest", topic)
    assert sorted(kcat(address, *member).split()) == ["a", "b"]
    outside.append(address, topic, 1, b"c", b"d")
    assert sorted(kcat(address, *member).split()) == ["c", "d"]


def test_it_reads_what_is_committed(address: str, topic: str) -> None:
    with with_confluent.transactions(address, outside.unique("tx")) as begin:
        for value, commits in ((b"kept", True), (b"gone", False)):
            transaction = begin()
            transaction.send(topic, [Record(value)])
            transaction.commit() if commits else transaction.abort()
    read = ("-C", "-t", topic, "-p", "0", "-e", "-X")
    assert kcat(address, *read, "isolation.level=read_committed").split() == ["kept"]
    assert kcat(address, *read, "isolation.level=read_uncommitted").split() == ["kept", "gone"]


def test_it_lists_topics_and_finds_offsets_by_time(address: str, topic: str) -> None:
    outside.append(address, topic, 0, b"a", timestamp_ms=1000)
    outside.append(address, topic, 0, b"b", timestamp_ms=2000)
    assert f'topic "{topic}" with 2 partitions' in kcat(address, "-L")
    assert kcat(address, "-Q", "-t", f"{topic}:0:1500").split() == [topic, "[0]", "offset", "1"]


def test_it_writes_to_a_topic_that_there_was_not(address: str) -> None:
    name = outside.unique("made")
    kcat(address, "-P", "-t", name, sent="value")
    assert outside.values(address, name) == [b"value"]
