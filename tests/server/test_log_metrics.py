"""Figures of the log, as Prometheus reads them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer
from millstream.server.insight.log_metrics import LogMetrics

from ..logcore.log_records import rows, values_of


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as opened:
        opened.create_topic("t", 2)
        yield opened


def figures(log: Log, partitions_max: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(LogMetrics(log.served, partitions_max))
    return registry


def test_what_goes_in_and_out_of_a_partition_is_counted(log: Log) -> None:
    with LogServer(log, port=0) as server, RemoteLog(server.address) as client:
        client.append("t", 0, rows(b"a", b"b", b"c"))
        assert values_of(client, "t") == [b"a", b"b", b"c"]
    log.append("t", 0, rows(b"d"))
    registry = figures(log, 100)

    def value(name: str, partition: str = "0") -> float | None:
        return registry.get_sample_value(f"millstream_topic_{name}", {"topic": "t", "partition": partition})

    assert (value("appended_records_total"), value("sent_records_total"), value("end_offset_total")) == (4, 3, 4)
    assert (value("high_watermark"), value("start_offset"), value("segments")) == (4, 0, 1)
    assert (value("appended_bytes_total") or 0) > (value("sent_bytes_total") or 0) > 60
    assert (value("syncs_total") or 0) >= 2
    assert 0 < (value("sync_seconds_max") or 0) <= (value("sync_seconds_total") or 0)
    assert value("appended_records_total", "1") == 0


def test_the_lag_and_the_lead_of_groups_are_said(log: Log) -> None:
    log.append("t", 0, rows(b"a", b"b", b"c"))
    log.create_topic("gone", 1)
    log.commit_offsets("g", {TopicPartition("t", 0): 2, TopicPartition("gone", 0): 0})
    log.delete_topic("gone")
    registry = figures(log, 100)
    labels = {"group": "g", "topic": "t", "partition": "0"}
    found = [
        registry.get_sample_value(f"millstream_group_{name}", labels) for name in ("committed_offset", "lag", "lead")
    ]
    assert found == [2, 1, 2]
    assert registry.get_sample_value("millstream_group_members", {"group": "g"}) == 0


def test_with_many_partitions_figures_are_per_topic(log: Log) -> None:
    log.append("t", 0, rows(b"a", b"b"))
    log.append("t", 1, rows(b"c"))
    registry = figures(log, 1)
    labels = {"topic": "t", "partition": ""}
    assert registry.get_sample_value("millstream_topic_appended_records_total", labels) == 3
    assert registry.get_sample_value("millstream_topic_high_watermark", labels) is None
    assert {sample.labels.get("partition") for metric in registry.collect() for sample in metric.samples} <= {"", None}


def test_groups_beyond_the_bound_are_left_out(log: Log) -> None:
    for number in range(50):
        log.commit_offsets(f"g{number}", {TopicPartition("t", 0): 0})
    series = [sample for metric in figures(log, 2).collect() for sample in metric.samples if "group" in sample.labels]
    assert 0 < len(series) < 30


def test_how_much_room_the_disk_has_is_said(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(log.served.path)
    registry = figures(log, 100)
    assert registry.get_sample_value("millstream_disk_size_bytes") == usage.total
    assert 0 < (registry.get_sample_value("millstream_disk_free_bytes") or 0) <= usage.total

    def fails(_: Path) -> None:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert registry.get_sample_value("millstream_disk_free_bytes") is None
    assert registry.get_sample_value("millstream_topic_records", {"topic": "t", "partition": "0"}) == 0
