"""Absences: the times at which a group has no row, against counting at every moment."""

from __future__ import annotations

import random

import numpy as np
import pytest

from millstream.executor.operators.absences import Lives, absences

Life = tuple[int, int, int]


@pytest.mark.parametrize("seed", range(300))
def test_a_group_is_absent_when_none_of_its_rows_lives(seed: int) -> None:
    rng = random.Random(seed)
    groups = rng.randint(1, 4)
    sequence = sorted(rng.randint(0, 5) for _ in range(rng.randint(1, 8)))
    lives: list[Life] = []
    for _ in range(rng.randint(0, 6)):
        born = rng.randint(-1, len(sequence) - 1)
        lives.append((rng.randrange(groups), born, rng.randint(born + 1, len(sequence))))
    columns = np.array(lives, dtype=np.int64).reshape(-1, 3).T
    found = absences(Lives(columns[0], columns[1], columns[2]), groups, np.array(sequence, dtype=np.int64))
    assert {*zip(found.group.tolist(), found.born.tolist(), found.died.tolist(), strict=True)} == {
        absence for group in range(groups) for absence in counted(lives, group, sequence)
    }


def counted(lives: list[Life], group: int, sequence: list[int]) -> list[Life]:
    found: list[Life] = []
    since: int | None = None
    for at in range(-1, len(sequence)):
        alive = any(of == group and born <= at < died for of, born, died in lives)
        if not alive and since is None:
            since = at
        elif alive and since is not None:
            if since < 0 or sequence[since] != sequence[at]:
                found.append((group, since, at))
            since = None
    return found if since is None else [*found, (group, since, len(sequence))]
