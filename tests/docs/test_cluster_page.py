"""docs/cluster.md, docs/growing.md and docs/backup.md are followed word by word."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import sampled
from followed_page import follow

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", sampled(["cluster.md", "growing.md", "backup.md"], 3))
def test_the_page_is_true_word_by_word(page: str, tmp_path: Path) -> None:
    follow(DOCS / page, tmp_path)
