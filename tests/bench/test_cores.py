"""The parts `cores` and `idle` of the benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import structlog
from forked import forking

from bench.__main__ import main
from bench.cores import serial_share, speedup_of

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")


@pytest.mark.parametrize(("speedup", "share"), [(2.0, 0.0), (1.0, 1.0), (1.8, 1 / 9), (2.1, 0.0), (0.9, 1.0)])
def test_the_serial_share_is_that_of_amdahl(speedup: float, share: float) -> None:
    assert serial_share(speedup, 2) == pytest.approx(share)
    if 1 <= speedup <= 2:
        assert speedup_of(share, 2) == pytest.approx(speedup)


@pytest.fixture
def log_settings() -> Iterator[None]:
    """The benchmarks set how much is logged."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.soak
@pytest.mark.usefixtures("log_settings")
def test_both_parts_print_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    forking()  # what the workers are forked from, as those of other tests
    main(["--quick", "--rows", "2000", "--only", "cores", "--only", "idle"])
    printed = capsys.readouterr().out
    assert "stream-table join" in printed or "not measured" in printed
    assert "4 idle queries: threads of the process" in printed
