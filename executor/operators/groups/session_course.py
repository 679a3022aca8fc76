"""Finds which sessions the rows of a batch join, and which sessions they merge. It uses times only, no values.

A row joins the sessions of its key within the gap. If there is one, it continues; if there is none, a new session
starts; if there are several, a new session replaces them. So a session has one number from its start until it is merged
into another, and its rows are an ordinary group of an aggregation. The state of a session after a row is a version:

| version       | is                                                      |
| ------------- | ------------------------------------------------------- |
| 0 to known-1  | a session that existed before the batch                 |
| known + row   | the session that this row started, extended or merged   |

A merged session needs the final states of its parents first. Its level is one more than the highest level of its
parents. Level 0 begins with stored or empty states; each level can be computed once the one below it is. Rows in the
order of time need level 0 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....sql.compiling.loops import loop, read_only
from ....sql.functions.aggregation.aggregate_kernels import COMPILED_FROM
from ..columns import Bools, Ints


@dataclass(frozen=True, slots=True)
class SessionCourse:
    """What happened to the sessions in a batch of rows, as arrays.

    `known`: the number of sessions before the batch. Per session, known ones first: `group` (the number of its key),
    `level`, `version` (its last one), `into` (the session that it was merged into, or -1). Per version: `start` and
    `end`, its first and last rowtime. Per row: `session`, or -1 if the row is too late. Per join of a row and a
    session, ordered by row and then by the session's end: `joined_row`, `joined` (the session) and `joined_version`
    (its version before the row).
    """

    known: int
    group: Ints
    level: Ints
    version: Ints
    into: Ints
    start: Ints
    end: Ints
    session: Ints
    joined_row: Ints
    joined: Ints
    joined_version: Ints
    late_rows: int

    @property
    def is_open(self) -> Bools:
        """Per session, whether it was not merged into another one."""
        return self.into < 0

    @property
    def is_touched(self) -> Bools:
        """Per session from before the batch, whether a row joined it."""
        before = slice(self.known)
        return ~self.is_open[before] | (self.version[before] >= self.known)

    @property
    def is_gone(self) -> Bools:
        """Per session from before the batch, whether its window is gone: it was merged into another one, or grew."""
        before, now = slice(self.known), self.version[: self.known]
        same = (self.start[now] == self.start[before]) & (self.end[now] == self.end[before])
        return ~self.is_open[before] | ~same

    def parents(self) -> dict[int, list[int]]:
        """The sessions that were merged into each merged session, the earliest first."""
        found: dict[int, list[int]] = {}
        for session in self.joined[self.session[self.joined_row] != self.joined].tolist():
            found.setdefault(int(self.into[session]), []).append(session)
        return found


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """Existing sessions, ordered by group, end, start: the group, the first and the last rowtime of each."""

    group: Ints
    start: Ints
    end: Ints


def course_of(
    keys: int,
    groups: Ints,
    times: Ints,
    stream_times: Ints,
    sessions: OpenSessions,
    *,
    gap_ms: int,
    until_closed_ms: int,
) -> SessionCourse:
    """In: per row the number of its key (less than `keys`), its time, and the stream time at the row. A session accepts
    no more rows once stream time has passed its end by more than `until_closed_ms`. A row is late if it could only
    start or extend such a session."""
    known, rows = len(sessions.group), len(groups)
    room = known + rows  # each row makes one version, and a version is joined at most once
    group, start, end = (_with_room(column, room) for column in (sessions.group, sessions.start, sessions.end))
    version, level = np.arange(room, dtype=np.int64), np.zeros(room, dtype=np.int64)
    into, previous, following = (np.full(room, -1, dtype=np.int64) for _ in range(3))
    last = np.full(keys, -1, dtype=np.int64)
    _chain(sessions.group, previous, following, last)
    session = np.full(rows, -1, dtype=np.int64)
    joined_row, joined, joined_version = (np.empty(room, dtype=np.int64) for _ in range(3))
    follow = _follow if rows >= COMPILED_FROM else _follow.py_func
    count, joinings, late = follow(
        read_only(groups), read_only(times), read_only(stream_times), gap_ms, until_closed_ms, known,
        group, level, version, into, start, end, previous, following, last,
        session, joined_row, joined, joined_version,
    )  # fmt: skip
    return SessionCourse(
        known, group[:count], level[:count], version[:count], into[:count], start, end, session,
        joined_row[:joinings], joined[:joinings], joined_version[:joinings], late,
    )  # fmt: skip


def by_level(course: SessionCourse) -> Sequence[tuple[Ints, Ints]]:
    """Per level (there is at least one), its sessions and their rows, both in order."""
    levels = int(course.level.max(initial=0)) + 1
    rows = np.flatnonzero(course.session >= 0)
    of_session, of_row = course.level, course.level[course.session[rows]]
    if levels == 1:
        return [(np.arange(len(of_session), dtype=np.int64), rows)]
    sessions, order = np.argsort(of_session, kind="stable"), np.argsort(of_row, kind="stable")
    above = np.arange(1, levels)
    return list(
        zip(
            np.split(sessions, np.searchsorted(of_session[sessions], above)),
            np.split(rows[order], np.searchsorted(of_row[order], above)),
            strict=True,
        )
    )


def _with_room(values: Ints, room: int) -> Ints:
    longer = np.zeros(room, dtype=np.int64)
    longer[: len(values)] = values
    return longer


def _chain(groups: Ints, previous: Ints, following: Ints, last: Ints) -> None:
    """Links the sessions of each key into a chain, in their order; `last` has the end of the chain."""
    numbers = np.arange(len(groups), dtype=np.int64)
    same = groups[1:] == groups[:-1]
    previous[1 : len(groups)][same] = numbers[:-1][same]
    following[: len(groups) - 1][same] = numbers[1:][same]
    last[groups] = numbers


@loop
def _follow(
    groups: Ints,
    times: Ints,
    stream_times: Ints,
    gap: int,
    until_closed: int,
    known: int,
    group: Ints,
    level: Ints,
    version: Ints,
    into: Ints,
    start: Ints,
    end: Ints,
    previous: Ints,
    following: Ints,
    last: Ints,
    session: Ints,
    joined_row: Ints,
    joined: Ints,
    joined_version: Ints,
) -> tuple[int, int, int]:
    # A chain is walked from its end: rows mostly arrive in the order of time, and then they need only its last session.
    # The distance between open sessions is more than the gap; closed ones may lie between them. Nothing is added to a
    # time: it may be close to the largest number.
    count = known
    joinings = 0
    late = 0
    for row in range(len(groups)):
        key = groups[row]
        time = times[row]
        first = time
        latest = time
        earliest_end = max(time - gap, stream_times[row] - until_closed)
        begin = joinings
        at = last[key]
        while at >= 0 and end[version[at]] >= earliest_end:
            if start[version[at]] - gap <= time:
                joined[joinings] = at
                joinings += 1
                first = min(first, start[version[at]])
                latest = max(latest, end[version[at]])
            at = previous[at]
        if latest < stream_times[row] - until_closed:
            late += 1
            joinings = begin
            continue
        for i in range((joinings - begin) // 2):  # they were found from the end
            swapped = joined[begin + i]
            joined[begin + i] = joined[joinings - 1 - i]
            joined[joinings - 1 - i] = swapped
        own = joined[begin] if joinings - begin == 1 else count
        if own == count:
            count += 1
            group[own] = key
        for i in range(begin, joinings):
            at = joined[i]
            joined_row[i] = row
            joined_version[i] = version[at]
            if at != own:
                into[at] = own
                level[own] = max(level[own], level[at] + 1)
            if following[at] >= 0:
                previous[following[at]] = previous[at]
            else:
                last[key] = previous[at]
            if previous[at] >= 0:
                following[previous[at]] = following[at]
        version[own] = known + row
        start[known + row] = first
        end[known + row] = latest
        session[row] = own
        after = -1
        at = last[key]
        while at >= 0:
            other = version[at]
            if end[other] < latest or (end[other] == latest and start[other] <= first):
                break
            after = at
            at = previous[at]
        previous[own] = at
        following[own] = after
        if at >= 0:
            following[at] = own
        if after >= 0:
            previous[after] = own
        else:
            last[key] = own
    return count, joinings, late
