"""What the log is measured with works. How fast anything is, no test asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.log_speed import load
from bench.log_speed.codec import codec_lines
from bench.log_speed.serve import Sync, serving


@pytest.mark.parametrize("sync", ["always", "never"])
def test_the_client_does_each_kind_of_work(tmp_path: Path, sync: Sync) -> None:
    with serving(tmp_path, sync) as (log, address):
        log.create_topic("t", 1)
        for number, what in enumerate(("produce", "requests", "turns"), 1):
            assert load.WORK[what](address, "t", 20, 100)
            assert log.offsets("t", 0).log_end_offset == number * 21  # and one to warm up
        assert load.fetch(address, "t", 63, 100) > 0
        assert len(load.paced(address, "t", 10, 100)) == 10


def test_the_codec_is_compared_with_aiokafkas() -> None:
    lines = codec_lines(500, 1)
    assert [line.wanted for line in lines] == ["", "≥ 3", "≥ 20", "", "≥ 3"]
    assert all("of aiokafka" in line.ratio for line in lines if line.wanted)
