"""Whatever file of a data folder is damaged: each answer after the restart is right, or an error says what to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

import pytest

from .folder_damage import End, prepare, try_damage

_MEMORY: Final = Path("/dev/shm")
_TRIALS: Final = int(os.environ.get("MILLSTREAM_SOAK_FOLDER_DAMAGES", "2000"))


@pytest.fixture
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a disk below it: it is the process that ends, and not the machine."""
    monkeypatch.setattr(os, "sync", lambda: None)
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="millstream-test-", dir=_MEMORY) as path:
        yield Path(path)


@pytest.mark.parametrize("end", get_args(End))
def test_damage_gives_no_wrong_answer_without_an_error(in_memory: Path, end: End) -> None:
    damage_often(in_memory, end, range(5))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("end", get_args(End))
def test_much_damage_gives_no_wrong_answer_without_an_error(in_memory: Path, end: End) -> None:
    damage_often(in_memory, end, range(1000, 1000 + _TRIALS // len(get_args(End))))


def damage_often(folder: Path, end: End, seeds: range) -> None:
    prepared = prepare(folder / "original", end)
    trials = [try_damage(prepared, folder / str(seed), seed) for seed in seeds]
    assert not [(trial.what, trial.wrong) for trial in trials if trial.wrong]
