"""Finds when a group of rows is empty: during that time, a row of the other side of an outer join has no partner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Ints


@dataclass(frozen=True, slots=True)
class Lives:
    """Lifetimes of rows. Each has its group and the changes at which it begins and ends: -1 is before the first change,
    and the number of changes is after the last one."""

    group: Ints
    born: Ints
    died: Ints


def absences(rows: Lives, group_count: int, sequence: Ints) -> Lives:
    """The times at which the groups from 0 to `group_count` have no rows.

    In: `sequence`: the `_seq` of each change. A row that one record removes and adds again was never absent.
    """
    count = len(sequence)
    everywhere = np.arange(group_count, dtype=np.int64)
    ends = rows.died < count
    groups = np.concatenate([everywhere, rows.group, rows.group[ends]])
    at = np.concatenate([np.full(group_count, -1, dtype=np.int64), rows.born, rows.died[ends]])
    step = np.repeat(np.array([0, 1, -1], dtype=np.int64), [group_count, len(rows.born), ends.sum()])
    order = np.lexsort((at, groups))
    groups, at, present = groups[order], at[order], np.cumsum(step[order])
    # The running sum continues across groups: subtract what it was at the start of each group.
    first = np.append(True, groups[1:] != groups[:-1]) if len(groups) else np.zeros(0, dtype=np.bool_)
    before = np.where(first, present - step[order], 0)
    present = present - np.maximum.accumulate(np.where(first, before, np.iinfo(np.int64).min))
    last_of_moment = np.append((groups[1:] != groups[:-1]) | (at[1:] != at[:-1]), True)
    groups, at, present = groups[last_of_moment], at[last_of_moment], present[last_of_moment]
    until = np.append(at[1:], count)
    until[np.append(groups[1:] != groups[:-1], True)] = count
    empty = present == 0
    moment = np.append(sequence, -1)  # the position after the last change has no `_seq`
    empty &= (at < 0) | (until == count) | (moment[at] != moment[until])
    return Lives(groups[empty], at[empty], until[empty])
