"""Retention of one partition: drops segments that are too old, and the oldest ones of a partition that is too large."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from ..errors import LogFull
from ..topic_settings import TopicSettings
from .partition_keeping import KeptPartition
from .segment import Segment


def drop_expired(partition: KeptPartition, now_ms: int) -> bool:
    """Moves the log start offset past the segments that retention no longer keeps. True if it moved.

    Records of an open transaction are kept. Raises `LogError`.
    """
    settings = partition.settings
    if not settings.deleting:
        return False
    if settings.retention_ms is not None:
        with suppress(LogFull):  # older segments can be dropped anyway, which frees space
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
    """By its largest timestamp and by the time of its last write: old events that were just imported are kept."""
    if settings.retention_ms is None:
        return False
    deadline = now_ms - settings.retention_ms
    return segment.written_ms < deadline and segment.newest_ms < deadline
