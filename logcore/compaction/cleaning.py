"""Compaction of one partition: the latest record of each key stays, and all records keep their offsets.

It reads the segments that are no longer written to three times. The first time it finds the last record of each key in
segments that were not cleaned yet, the second time the records in the other segments that these supersede. The third
time it rewrites all of them, into as few segments as possible. It reads nothing from the last stable offset on, where
transactions may be undecided. `segment_swap.py` replaces the old files by the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from millstream.errors import LogError

from ..storage.partition_keeping import KeptPartition, PartitionSnapshot
from ..storage.partition_state import scan
from ..storage.segment import Segment
from ..topic_settings import TopicSettings
from .batch_cleaning import CleaningRules, WholeBatch, add_earlier_keys, add_keys, clean
from .cleaned_segment import CleanedSegment
from .live_keys import LiveKeys

KEY_BYTES_MAX: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 512 * 1024
"""The size of batches that are processed together. A batch of one record takes more memory as an object than as bytes:
for 60,000 of them, windows of 4 MB took 48 MB more memory and a tenth more CPU."""
_Result = TypeVar("_Result")


class _Sealed(NamedTuple):
    """A segment that is no longer written to."""

    segment: Segment
    end_offset: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a pass: the bytes of the segments before and after it."""

    bytes_before: int
    bytes_after: int


def is_due(partition: KeptPartition, now_ms: int) -> bool:
    """Whether there is enough to clean, according to the topic's settings."""
    settings, snapshot = partition.settings, partition.snapshot()
    sealed = _cleanable(snapshot, settings, now_ms)
    dirty = [each for each in sealed if each.end_offset > snapshot.cleaning.cleaned_to]
    if dirty:
        share = sum(each.segment.size for each in dirty) / max(1, sum(each.segment.size for each in sealed))
        oldest_ms = min(each.segment.written_ms for each in dirty)
        if share >= settings.dirty_share_min or now_ms - oldest_ms >= settings.compaction_lag_ms_max:
            return True
    removable = snapshot.cleaning.removable_below(now_ms, settings.delete_retention_ms)
    return bool(sealed) and removable > snapshot.cleaning.removed_below


def compact(
    partition: KeptPartition,
    now_ms: int,
    *,
    pause: Callable[[], None] = lambda: None,
    key_bytes_max: int = KEY_BYTES_MAX,
) -> Compacted | None:
    """One pass; None if there is nothing to clean, or if segments were deleted meanwhile, for example by retention.

    In: `pause`: called from time to time, between pieces of work. Raises `LogError` (`CorruptLog` if a segment is
    damaged) and OSError: then the segments are unchanged, except for those already replaced.
    """
    snapshot = partition.snapshot()
    try:
        return _pass(partition, snapshot, now_ms, pause, key_bytes_max)
    except (LogError, OSError):
        if partition.segments()[0].base_offset > snapshot.segments[0].base_offset:
            return None  # the segments that could not be read may have been deleted
        raise


def _pass(
    partition: KeptPartition, snapshot: PartitionSnapshot, now_ms: int, pause: Callable[[], None], key_bytes_max: int
) -> Compacted | None:
    settings = partition.settings
    sealed = _cleanable(snapshot, settings, now_ms)
    rules = CleaningRules(snapshot, snapshot.cleaning.removable_below(now_ms, settings.delete_retention_ms))
    live = LiveKeys()
    end_offset = min(snapshot.cleaning.cleaned_to, sealed[-1].end_offset) if sealed else 0
    for each in sealed:
        if each.end_offset > snapshot.cleaning.cleaned_to and live.bytes <= key_bytes_max:
            for window in _windows(each):
                _checked(each, lambda window=window: add_keys(live, window, rules))
                pause()
            end_offset = each.end_offset
    live.settle()
    work = [each for each in sealed if each.end_offset <= end_offset]
    if not work:
        return None
    for each in work:
        if each.end_offset <= snapshot.cleaning.cleaned_to and live.bytes:
            for window in _windows(each):
                _checked(each, lambda window=window: add_earlier_keys(live, window, rules))
                pause()
    live.settle_earlier()
    rewriting = _Rewriting(partition, live, rules, settings, pause)
    if not all(rewriting.take(each) for each in work) or not rewriting.finish():
        return None
    cleaning = snapshot.cleaning.after(end_offset, now_ms, settings.delete_retention_ms, rules.removable_below)
    partition.note_cleaned(cleaning)
    return Compacted(sum(each.segment.size for each in work), rewriting.bytes_after)


def _cleanable(snapshot: PartitionSnapshot, settings: TopicSettings, now_ms: int) -> list[_Sealed]:
    """The segments from the log's start that are before the last stable offset, and old enough."""
    found: list[_Sealed] = []
    for segment, following in pairwise(snapshot.segments):
        if following.base_offset > snapshot.last_stable_offset:
            break
        if settings.compaction_lag_ms_min and now_ms - segment.written_ms < settings.compaction_lag_ms_min:
            break
        found.append(_Sealed(segment, following.base_offset))
    return found


class _Rewriting:
    """State: the cleaned segment that is being written, and those that it will replace."""

    def __init__(
        self,
        partition: KeptPartition,
        live: LiveKeys,
        rules: CleaningRules,
        settings: TopicSettings,
        pause: Callable[[], None],
    ) -> None:
        self.bytes_after = 0
        self._partition = partition
        self._live = live
        self._rules = rules
        self._settings = settings
        self._pause = pause
        self._sources: list[_Sealed] = []
        self._cleaned: CleanedSegment | None = None
        self._unchanged_bytes = 0

    def take(self, source: _Sealed) -> bool:
        """Cleans one segment. False if a segment was deleted meanwhile."""
        cleaned = self._cleaned
        if cleaned is not None and cleaned.size + source.segment.size > self._settings.segment_bytes:
            if not self.finish():
                return False
            cleaned = None
        if cleaned is None:
            cleaned = self._cleaned = CleanedSegment(
                self._partition.folder, source.segment.base_offset, self._rules.snapshot.epochs
            )
        self._sources.append(source)
        try:
            for window in _windows(source):
                known = {id(stored.batch) for stored in window}
                for batch in _checked(source, lambda window=window: list(clean(self._live, window, self._rules))):
                    cleaned.add(batch)
                    self._unchanged_bytes += batch.header.size if id(batch.buffers[0]) in known else 0
                self._pause()
        except BaseException:
            cleaned.discard()
            raise
        return True

    def finish(self) -> bool:
        """Replaces the source segments by the cleaned one, if it differs. False if they were deleted meanwhile."""
        cleaned, sources, unchanged_bytes = self._cleaned, self._sources, self._unchanged_bytes
        if cleaned is None:
            return True
        self._cleaned, self._sources, self._unchanged_bytes = None, [], 0
        written_ms = max(source.segment.written_ms for source in sources)
        cleaned.finish(sources[-1].end_offset, written_ms, durable=self._partition.waits_for_disk)
        self.bytes_after += cleaned.size
        if len(sources) == 1 and unchanged_bytes == cleaned.size == sources[0].segment.size:
            cleaned.discard()  # nothing was removed
            return True
        replaced = self._partition.replace([source.segment for source in sources])
        if not replaced:
            cleaned.discard()
        return replaced


def _windows(source: _Sealed) -> Iterator[Sequence[WholeBatch]]:
    """All batches of a segment, in windows of about `_WINDOW_BYTES`. Raises `CorruptLog`."""
    segment, expected = source.segment, source.segment.base_offset
    window: list[WholeBatch] = []
    size = position = 0
    for position, header, batch in scan(segment.file, 0, segment.size):
        if header.base_offset != expected:
            raise segment.corrupt(position, f"a batch with offset {header.base_offset} lies where {expected} should")
        expected = header.last_offset + 1
        window.append(WholeBatch(header, batch))
        position += header.size
        size += header.size
        if size >= _WINDOW_BYTES:
            yield window
            window, size = [], 0
    if position < segment.size or expected != source.end_offset:
        raise segment.corrupt(position, "no record batch begins here")
    if window:
        yield window


def _checked(source: _Sealed, act: Callable[[], _Result]) -> _Result:
    try:
        return act()
    except (ValueError, IndexError) as error:
        raise source.segment.corrupt(0, f"a record batch in it cannot be read: {error}") from error
