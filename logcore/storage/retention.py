"""Retention of one partition: old segments go, by their age or because there are too many bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from ..errors import LogFull
from ..topic_settings import TopicSettings
from .partition_keeping import KeptPartition
from .segment import Segment


def drop_expired(partition: KeptPartition, now_ms: int) -> bool:
    """Lets the log start behind the segments that are not kept any longer. True where there were some.

    What belongs to an open transaction is kept. Raises `LogError`.
    """
    settings = partition.settings
    if not settings.deleting:
        return False
    if settings.retention_ms is not None:
        with suppress(LogFull):  # what is before it can go all the same, and makes room
            partition.roll_if_old(settings.retention_ms)
    segments = partition.segments()
    excess = partition.size_on_disk - settings.retention_bytes if settings.retention_bytes is not None else 0
    start = segments[0].base_offset
    for segment, following in pairwise(segments):
        excess -= segment.size
        if not _is_expired(segment, settings, now_ms) and (settings.retention_bytes is None or excess < 0):
            break
        start = following.base_offset
    before = partition.offsets().log_start_offset
    return start > before and partition.drop_before(start) > before


def _is_expired(segment: Segment, settings: TopicSettings, now_ms: int) -> bool:
    """By the time of its youngest record, and by when that was written: old events that were just imported stay."""
    if settings.retention_ms is None:
        return False
    deadline = now_ms - settings.retention_ms
    return segment.written_ms < deadline and segment.newest_ms < deadline
