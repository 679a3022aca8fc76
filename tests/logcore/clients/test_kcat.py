"""kcat, a program in C on an older librdkafka, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from millstream.logcore.log import Log
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    with LogServer(log, port=0) as running:
        yield running.address


def kcat(address: str, *arguments: str, sent: str = "") -> str:
    command = [str(KCAT), "-b", address, "-q", *arguments]
    return subprocess.run(command, input=sent, capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_it_reads_what_it_has_written(address: str, log: Log, compression: str) -> None:
    lines = [f"k{number}:value {number}" for number in range(200)]
    kcat(address, "-P", "-t", "t", "-p", "0", "-K", ":", "-z", compression, sent="\n".join(lines))
    assert values_of(log, "t") == [line.partition(":")[2].encode() for line in lines]
    assert kcat(address, "-C", "-t", "t", "-p", "0", "-e", "-K", ":").splitlines() == lines


def test_it_reads_as_a_member_of_a_group_and_goes_on_where_it_was(address: str, log: Log) -> None:
    log.append("t", 0, rows(b"a", b"b"))
    group = ("-G", "g", "-c", "2", "-X", "auto.offset.reset=earliest", "t")
    assert sorted(kcat(address, *group).split()) == ["a", "b"]
    log.append("t", 1, rows(b"c", b"d"))
    assert sorted(kcat(address, *group).split()) == ["c", "d"]


def test_it_lists_topics_and_finds_offsets_by_time(address: str, log: Log) -> None:
    log.append("t", 0, rows(b"a", timestamp=1000))
    log.append("t", 0, rows(b"b", timestamp=2000))
    assert 'topic "t" with 2 partitions' in kcat(address, "-L")
    assert kcat(address, "-Q", "-t", "t:0:1500").split() == ["t", "[0]", "offset", "1"]
