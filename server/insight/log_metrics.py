"""Figures of a log, or of a node's part of a cluster's log, for GET /metrics: its disk, partitions, consumer groups.

The number of series is limited: with more partitions than the limit, figures are summed per topic, and only over
partitions in use, because reading all of them would open all their files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millstream.errors import LogError

from ...logcore.client import Offsets, TopicPartition
from ...logcore.protocol.served_log import ServedLog
from ...logcore.storage.partition_files import PartitionFiles

_GAUGES: Final = {
    "topic_records": "Offsets in use.",
    "topic_start_offset": "The first offset that can be read.",
    "topic_high_watermark": "The offset before which everything is durable.",
    "topic_bytes": "Bytes on disk.",
    "topic_segments": "Files of records.",
    "topic_sync_seconds_max": "The longest time that a sync took since the start.",
}
_COUNTERS: Final = {
    "topic_end_offset": "Offsets given.",
    "topic_appended_records": "Records written since the start.",
    "topic_appended_bytes": "Bytes written since the start.",
    "topic_sent_records": "Records sent to Kafka clients since the start.",
    "topic_sent_bytes": "Bytes sent to Kafka clients since the start.",
    "topic_syncs": "Syncs since the start.",
    "topic_sync_seconds": "Time of syncs since the start.",
}
_LARGEST: Final = frozenset({"topic_sync_seconds_max"})  # for several partitions the maximum counts, not the sum
_OFFSETS: Final = frozenset({"topic_start_offset", "topic_high_watermark"})  # sums of these have no meaning
_GROUP_SERIES_PER_PARTITION: Final = 4  # limit of groups' series, for each partition of the limit


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a partition, or of a topic (then `partition` is empty)."""

    topic: str
    partition: str
    values: dict[str, float]


class _GroupPlace(NamedTuple):
    where: TopicPartition
    offset: int
    offsets: Offsets | None


class _GroupFigures(NamedTuple):
    member_count: int
    places: Sequence[_GroupPlace]


class LogMetrics(Collector):
    """Reads the log at each scrape. A group is reported by the node that coordinates it."""

    def __init__(self, log: ServedLog, partitions_max: int) -> None:
        self._log = log
        self._partitions_max = partitions_max

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._disk()
        yield from topic_families(list(self._figures()))
        yield from self._groups()

    def _disk(self) -> Iterator[Metric]:
        """Nothing if the disk does not answer."""
        try:
            usage = shutil.disk_usage(self._log.path)
        except OSError:
            return
        yield GaugeMetricFamily("millstream_disk_size_bytes", "Size of the disk with the data folder.", usage.total)
        yield GaugeMetricFamily("millstream_disk_free_bytes", "What can still be written there.", usage.free)

    def _figures(self) -> Iterator[Figures]:
        each = self._log.partitions_here <= self._partitions_max
        for name, topic in self._log.topics().items():
            found = [
                (number, values)
                for number in range(topic.partition_count)
                if (values := self._values(name, number, opens=each)) is not None
            ]
            if each:
                yield from (Figures(name, str(number), values) for number, values in found)
            elif found:
                yield Figures(name, "", united(values for _, values in found))

    def _values(self, topic: str, number: int, *, opens: bool) -> dict[str, float] | None:
        """None if the partition was deleted meanwhile, is damaged, not in use, or not here."""
        try:
            partition = self._log.partition(topic, number) if opens else self._log.partition_if_open(topic, number)
            return None if partition is None else values_of(partition)
        except LogError:
            return None

    # Groups

    def _groups(self) -> Iterator[Metric]:
        labels = ["group", "topic", "partition"]
        members = GaugeMetricFamily("millstream_group_members", "Members now.", labels=["group"])
        committed = GaugeMetricFamily(
            "millstream_group_committed_offset", "The group's committed offset.", labels=labels
        )
        lags = GaugeMetricFamily("millstream_group_lag", "Records that the group has not read.", labels=labels)
        leads = GaugeMetricFamily(
            "millstream_group_lead", "Records between the log start and the group's committed offset.", labels=labels
        )
        left = self._partitions_max * _GROUP_SERIES_PER_PARTITION
        for group in self._group_names():
            if left <= 0:
                break
            figures = self._figures_of(group)
            if figures is None:
                continue
            members.add_metric([group], figures.member_count)
            left -= 1 + len(figures.places)
            for where, offset, offsets in figures.places:
                place = [group, where.topic, str(where.partition)]
                committed.add_metric(place, offset)
                if offsets is not None:
                    lags.add_metric(place, max(0, offsets.high_watermark - offset))
                    leads.add_metric(place, offset - offsets.log_start_offset)
        yield from (members, committed, lags, leads)

    def _group_names(self) -> list[str]:
        """Empty if the node of a cluster does not answer."""
        try:
            return self._log.groups.names()
        except LogError:
            return []

    def _figures_of(self, group: str) -> _GroupFigures | None:
        """None if the group was deleted meanwhile, or another node coordinates it now."""
        try:
            member_count = len(self._log.groups.describe(group).members)
            committed = self._log.groups.committed(group)
        except LogError:
            return None
        topics = self._log.topics()
        places = [
            _GroupPlace(where, found.offset, self._offsets(where))
            for where, found in committed.items()
            if where.topic in topics
        ]
        return _GroupFigures(member_count, places)

    def _offsets(self, where: TopicPartition) -> Offsets | None:
        """None if the partition is damaged, or has no replica here."""
        try:
            return self._log.partition(*where).offsets()
        except LogError:
            return None


def topic_families(figures: Sequence[Figures]) -> Iterator[Metric]:
    for names, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
        for name, doc in names.items():
            metric = family(f"millstream_{name}", doc, labels=["topic", "partition"])
            for found in figures:
                if name in found.values:
                    metric.add_metric([found.topic, found.partition], found.values[name])
            yield metric


def values_of(partition: PartitionFiles) -> dict[str, float]:
    offsets, traffic = partition.offsets(), partition.traffic
    return {
        "topic_records": offsets.log_end_offset - offsets.log_start_offset,
        "topic_start_offset": offsets.log_start_offset,
        "topic_high_watermark": offsets.high_watermark,
        "topic_end_offset": offsets.log_end_offset,
        "topic_bytes": partition.size_on_disk,
        "topic_segments": len(partition.segments()),
        "topic_appended_records": traffic.appended.records,
        "topic_appended_bytes": traffic.appended.bytes,
        "topic_sent_records": traffic.sent.records,
        "topic_sent_bytes": traffic.sent.bytes,
        "topic_syncs": traffic.synced.syncs,
        "topic_sync_seconds": traffic.synced.seconds,
        "topic_sync_seconds_max": traffic.synced.slowest_s,
    }


def united(found: Iterable[dict[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for values in found:
        for name, value in values.items():
            if name not in _OFFSETS:
                known = totals.get(name, 0.0)
                totals[name] = max(known, value) if name in _LARGEST else known + value
    return totals
