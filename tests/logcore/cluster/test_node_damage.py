"""Whatever file of a log is damaged: each answer after it is opened again is right, or an error says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

import pytest

from .node_damage import End, prepare, try_damage

_SEEDS: Final = range(8)


@pytest.mark.parametrize("end", get_args(End))
def test_damage_gives_no_wrong_answer_without_an_error(tmp_path: Path, end: End) -> None:
    prepared = prepare(tmp_path / "original", end)
    trials = [try_damage(prepared, tmp_path / str(seed), seed) for seed in _SEEDS]
    assert not [(trial.what, trial.wrong) for trial in trials if trial.wrong]
