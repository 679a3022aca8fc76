"""Files of a log that were truncated, zeroed, flipped or overwritten: what is served is right, the rest is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.logcore import segment

from .damage import check_damaged, make_original


@pytest.fixture(autouse=True)
def index_of_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments have index files, too."""
    monkeypatch.setattr(segment, "INDEX_SAVED_FROM", 0)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
def test_damage_loses_what_it_hit_and_is_reported(tmp_path: Path, closed: bool) -> None:
    original = make_original(tmp_path / "original", closed=closed)
    for seed in range(150):
        check_damaged(original, tmp_path / str(seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
def test_damage_of_many_kinds_loses_what_it_hit_and_is_reported(tmp_path: Path, closed: bool) -> None:
    original = make_original(tmp_path / "original", closed=closed)
    for seed in range(1000, 3500):
        check_damaged(original, tmp_path / str(seed), seed)
