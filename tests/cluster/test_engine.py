"""A persistent query while the nodes of its cluster are killed (kill -9), one after the other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from warm_command import WarmPopen

from .engine_run import EngineRun, batch_answer, group_changes

_KILLS = int(os.environ.get("MILLSTREAM_SOAK_ENGINE_KILLS", "20"))
_SEED = int(os.environ.get("MILLSTREAM_SOAK_ENGINE_SEED", "1"))


class Record:
    """As confluent-kafka gives it."""

    def __init__(self, key: str, window_ms: int, n: int, total: int) -> None:
        self._key = key.encode() + window_ms.to_bytes(8, "big")
        self._value = json.dumps({"N": n, "TOTAL": total}).encode()

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


def test_what_is_lost_or_written_twice_is_not_the_batch_answer() -> None:
    expected = batch_answer([("a", 5, 1), ("b", 6, 2), ("a", 7, 3), ("a", 10_007, 4)])
    first, second, other, later = (
        Record("a", 0, 1, 1), Record("a", 0, 2, 4), Record("b", 0, 1, 2), Record("a", 10_000, 1, 4)
    )  # fmt: skip
    assert group_changes([first, other, second, later]) == expected
    for wrong in ([first, other, later], [first, other, second, second, later], [second, other, first, later]):
        assert group_changes(wrong) != expected


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_windowed_aggregate_is_right_after_its_engine_was_killed(tmp_path: Path) -> None:
    result = EngineRun(tmp_path, seed=_SEED, kills=2, rate=100, open_process=WarmPopen).execute()
    assert list(result.wrong) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_windowed_aggregate_is_right_after_many_kills(tmp_path: Path) -> None:
    result = EngineRun(tmp_path, seed=_SEED, kills=_KILLS).execute()
    assert list(result.wrong) == []
    assert result.engine_moves > 0
