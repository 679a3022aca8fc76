"""A cluster is upgraded from the last release without a stop, and from any commit that is named:

MILLSTREAM_SOAK_UPGRADE_FROM=0ad35df make soak ARGS=tests/cluster/test_rolling_upgrade.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .rolling_upgrade import LAST_RELEASE, NoEarlierRelease, RollingUpgrade, check_out

_SEED = int(os.environ.get("MILLSTREAM_SOAK_ENGINE_SEED", "1"))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_refused_while_nodes_get_the_new_release(tmp_path: Path) -> None:
    try:
        earlier = check_out(LAST_RELEASE, tmp_path / "earlier")
    except NoEarlierRelease as error:
        pytest.skip(f"the commit of the last release is not in this clone: {error}")
    result = RollingUpgrade(tmp_path, earlier, seed=_SEED).execute()
    assert list(result.wrong) == []
    assert result.engine_moves > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_refused_while_nodes_go_from_one_commit_to_the_next_and_back(tmp_path: Path) -> None:
    commit = os.environ.get("MILLSTREAM_SOAK_UPGRADE_FROM")
    if commit is None:
        pytest.skip("MILLSTREAM_SOAK_UPGRADE_FROM names no commit")
    earlier = check_out(commit, tmp_path / "earlier")
    result = RollingUpgrade(tmp_path, earlier, seed=_SEED, says_versions=True).execute()
    assert list(result.wrong) == []
    assert result.engine_moves > 0
