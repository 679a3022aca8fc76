"""What the two logs are compared with works. How fast either is, no test asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.one_log import OPENERS, PROCESS_WORK, OneLogOptions, call_lines


def test_each_call_is_measured_on_both(tmp_path: Path) -> None:
    lines = call_lines(tmp_path, OneLogOptions(calls=2, rounds=1, partitions=10))
    assert len(lines) == 6
    assert all(line.ratio.partition(" ")[0].replace(".", "").isdecimal() for line in lines)


@pytest.mark.parametrize("kind", OPENERS)
def test_a_filled_log_is_opened(tmp_path: Path, kind: str) -> None:
    PROCESS_WORK["fill"](kind, tmp_path, 10)
    assert PROCESS_WORK["open"](kind, tmp_path, 10) > 0
    assert PROCESS_WORK["memory"](kind, tmp_path, 10) > 0
