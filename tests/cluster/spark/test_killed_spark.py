"""Queries of all kinds on a standalone Spark cluster, parts of which are killed (kill -9), one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .killed_spark import KilledSpark
from .pipelines_of_all_kinds import Inputs, answers, differences

_KILLS = int(os.environ.get("MILLSTREAM_SOAK_SPARK_KILLS", "6"))
_SEED = int(os.environ.get("MILLSTREAM_SOAK_SPARK_SEED", "1"))


def test_a_change_that_is_missing_or_there_twice_is_told() -> None:
    inputs = Inputs(events=[("k0", 0, 5, 1_000), ("k0", 1, 6, 1_007)], orders=[("o1", "p1", 0)])
    for topic, expected in answers(inputs).items():
        assert differences(topic, expected, expected) == []
        for key, values in expected.items():
            for wrong in (values[:-1], [*values, values[-1]]):
                (said,) = differences(topic, expected, {**expected, key: wrong})
                assert f"{len(wrong)} changes instead of {len(values)}" in said


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_each_change_is_written_once_whatever_of_spark_is_killed(tmp_path: Path) -> None:
    outcome = KilledSpark(tmp_path, seed=_SEED, kills=_KILLS).execute()
    assert outcome.wrong == []
    assert outcome.kills.total() == _KILLS
