"""Files of a log that were truncated, zeroed, flipped or overwritten: what is served is right, the rest is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

import pytest

from millstream.logcore.storage import segment

from .damage import check_damaged, make_original
from .soak import count_of

End = Literal["closed", "crashed", "swapping"]
ENDS: Final = get_args(End)
pytestmark = pytest.mark.usefixtures("only_processes_die")


@pytest.fixture(autouse=True)
def index_of_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments have index files, too."""
    monkeypatch.setattr(segment, "INDEX_SAVED_FROM", 0)


@pytest.mark.parametrize("end", ENDS)
def test_damage_loses_what_it_hit_and_is_reported(memory_folder: Path, end: End) -> None:
    damage_often(memory_folder, end, range(30))


@pytest.mark.soak
@pytest.mark.parametrize("end", ENDS)
def test_damage_of_many_kinds_loses_what_it_hit_and_is_reported(memory_folder: Path, end: End) -> None:
    damage_often(memory_folder, end, range(1000, 1000 + count_of("DAMAGES", 5000) // len(ENDS)))


def damage_often(folder: Path, end: End, seeds: range) -> None:
    original = make_original(folder / "original", end)
    for seed in seeds:
        check_damaged(original, folder / str(seed), seed)
