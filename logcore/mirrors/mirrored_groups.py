"""The committed offsets of consumer groups, translated for the copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit, CommitNote, CommittedOffset, GroupFault, GroupState
from .mirror_source import MirrorSource, TopicFilter
from .mirror_target import MirrorLog

_IDLE: Final = (GroupState.EMPTY, GroupState.DEAD)


class Translated(NamedTuple):
    """The position here that corresponds to an offset of the source."""

    where: TopicPartition
    offset: int


class GroupOffset(NamedTuple):
    """`offset`: the one here; `upstream`: the one at the source."""

    offset: int
    upstream: int
    metadata: str


GroupOffsets = dict[TopicPartition, GroupOffset]
Translate = Callable[[TopicPartition, int], Translated | None]
"""None if a partition is not copied, or if its offset here is unknown."""


class MirroredGroups:
    """State: the offsets that this mirror last committed here, to detect the commits of others and to keep those."""

    def __init__(self, log: MirrorLog, source: MirrorSource, wanted: TopicFilter) -> None:
        self._log, self._source, self._wanted = log, source, wanted
        self._written: dict[tuple[str, TopicPartition], int] = {}

    def copy(self, translate: Translate) -> int:
        """Commits the translated offsets, and returns their number. Groups with members here are not changed."""
        return sum(self._commit(group, there) for group, there in self.translated(translate))

    def translated(self, translate: Translate) -> Iterator[tuple[str, GroupOffsets]]:
        """The groups with committed offsets at the source, and these offsets translated."""
        for group in self._source.groups.names():
            if not self._is_wanted(group):
                continue
            with suppress(LogError):  # the group was deleted, or is of a kind that does not commit
                found: GroupOffsets = {}
                for at, committed in self._source.groups.committed(group).items():
                    place = translate(at, committed.offset)
                    if place is not None:
                        found[place.where] = GroupOffset(place.offset, committed.offset, committed.metadata)
                if found:
                    yield group, found

    def _is_wanted(self, group: str) -> bool:
        return bool(group) and not group.startswith("_millstream") and self._wanted.matches(group)

    def _commit(self, group: str, there: GroupOffsets) -> int:
        here = self._log.groups.committed(group)
        news = {at: found.offset for at, found in there.items() if self._is_news(group, at, found.offset, here)}
        if not news or not self._is_idle(group):
            return 0
        notes = {at: CommitNote(there[at].metadata) for at in news}
        if self._log.groups.commit(CheckCommit(group), news, notes) is not GroupFault.NONE:
            return 0
        self._written |= {(group, at): offset for at, offset in news.items()}
        return len(news)

    def _is_news(
        self, group: str, at: TopicPartition, offset: int, here: Mapping[TopicPartition, CommittedOffset]
    ) -> bool:
        """Whether to commit the offset: always forward, but back only if this mirror made the last commit."""
        known = here.get(at)
        if known is None or offset > known.offset:
            return True
        return offset < known.offset == self._written.get((group, at))

    def _is_idle(self, group: str) -> bool:
        return self._log.groups.describe(group).state in _IDLE
