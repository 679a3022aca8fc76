"""The output of `millstream topic describe`."""

from __future__ import annotations

from ..logcore.client import LogClient
from ..logcore.topic_settings import SETTINGS
from .records import find_topic
from .text.tables import render_table


def topic_description(log: LogClient, name: str) -> list[str]:
    """The settings and partitions of a topic, as lines. Raises `UnknownTopic`."""
    topic = find_topic(log, name)
    partitions: list[list[object]] = []
    for partition in range(topic.partition_count):
        offsets = log.offsets(name, partition)
        partitions.append([partition, offsets.log_start_offset, offsets.last_stable_offset, offsets.log_end_offset])
    lines = render_table(["Partition", "Start", "Committed", "End"], partitions, None)
    if not topic.config:
        return [*lines, "", "All settings have their defaults."]
    settings: list[list[object]] = [
        [key, value, SETTINGS[key].default if key in SETTINGS else ""] for key, value in sorted(topic.config.items())
    ]
    return [*lines, "", *render_table(["Setting", "Value", "Default"], settings, None)]
