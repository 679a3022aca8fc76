"""A cluster is upgraded from the last release without a stop."""

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
