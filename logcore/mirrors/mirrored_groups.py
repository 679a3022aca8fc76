"""Committed offsets of consumer groups, copied one to one: offsets mean the same at both logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import CheckCommit, CommitNote, CommittedOffset, GroupFault, GroupState
from .mirror_source import MirrorSource, TopicFilter
from .mirror_target import MirrorLog

_IDLE: Final = (GroupState.EMPTY, GroupState.DEAD)


class MirroredGroups:
    """State: what was committed here last, so that a commit of somebody else is seen and stays."""

    def __init__(self, log: MirrorLog, source: MirrorSource, wanted: TopicFilter) -> None:
        self._log, self._source, self._wanted = log, source, wanted
        self._written: dict[tuple[str, TopicPartition], int] = {}

    def copy(self, ends: Mapping[TopicPartition, int]) -> int:
        """In: `ends`: of the copies. Returns how many offsets were committed. A group that reads here is left alone."""
        return sum(self._copy(group, ends) for group in self._source.groups.names() if self._is_wanted(group))

    def _is_wanted(self, group: str) -> bool:
        return bool(group) and not group.startswith("_millstream") and self._wanted.matches(group)

    def _copy(self, group: str, ends: Mapping[TopicPartition, int]) -> int:
        try:
            there = {at: found for at, found in self._source.groups.committed(group).items() if at in ends}
        except LogError:  # one that is deleted, or is of a kind that commits nothing
            return 0
        if not there:
            return 0
        here = self._log.groups.committed(group)
        news = {
            at: min(found.offset, ends[at])
            for at, found in there.items()
            if self._is_news(group, at, found, here, ends)
        }
        if not news or not self._is_idle(group):
            return 0
        notes = {at: CommitNote(there[at].metadata) for at in news}
        if self._log.groups.commit(CheckCommit(group), news, notes) is not GroupFault.NONE:
            return 0
        self._written |= {(group, at): offset for at, offset in news.items()}
        return len(news)

    def _is_news(
        self,
        group: str,
        at: TopicPartition,
        there: CommittedOffset,
        here: Mapping[TopicPartition, CommittedOffset],
        ends: Mapping[TopicPartition, int],
    ) -> bool:
        """Nobody is sent beyond the end of the copy: what comes there later would be skipped. Forward always; back only
        what this mirror has committed itself."""
        offset, known = min(there.offset, ends[at]), here.get(at)
        if known is None or offset > known.offset:
            return True
        return offset < known.offset == self._written.get((group, at))

    def _is_idle(self, group: str) -> bool:
        return self._log.groups.describe(group).state in _IDLE
