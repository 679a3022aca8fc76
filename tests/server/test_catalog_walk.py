"""Thousands of statements that change the catalog, with restarts and kills between them: the server holds what a model
in Python holds, and when all is dropped it takes no more than it did before.

`make soak` makes 20,000 steps, or MILLSTREAM_WALK_STEPS; each is a statement or two.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from statistics import median

import pytest
from catalog_walk import CatalogWalk
from footprint import Footprint, needs_proc
from waiting import eventually

pytestmark = needs_proc

ENDS = (signal.SIGTERM, signal.SIGKILL)
CHECK_EVERY = 50


def walk(data: Path, seed: int, steps: int, restart_every: int) -> CatalogWalk:
    quiet = data / "quiet.toml"  # nobody reads the log, and a full pipe would stop the server
    quiet.write_text('log_level = "error"\n', encoding="utf-8")
    walked = CatalogWalk(data / "data", seed, "--config", str(quiet))
    for number in range(1, steps + 1):
        walked.step()
        if number % CHECK_EVERY == 0:
            walked.check()
        if number % restart_every == 0:
            walked.restart(walked.random.choice(ENDS))
    return walked


def files_below(data: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(data))


def test_a_short_walk_with_a_kill_agrees_with_the_model(tmp_path: Path) -> None:
    walked = walk(tmp_path, seed=5, steps=120, restart_every=60)
    walked.drop_everything()
    walked.check()
    walked.restart(signal.SIGKILL)
    walked.stop()


@pytest.mark.soak
def test_a_long_walk_leaves_nothing_behind(tmp_path: Path) -> None:
    steps = int(os.environ.get("MILLSTREAM_WALK_STEPS", "20000"))
    walked = walk(tmp_path, seed=6, steps=steps // 20, restart_every=500)
    walked.drop_everything()
    first, files = Footprint.of(walked.server.process.pid), files_below(tmp_path)
    for number in range(1, steps + 1):
        walked.step()
        if number % CHECK_EVERY == 0:
            walked.check()
        if number % 500 == 0:
            walked.restart(walked.random.choice(ENDS))
    walked.drop_everything()
    walked.check()
    eventually(lambda: Footprint.of(walked.server.process.pid).files <= first.files)
    assert Footprint.of(walked.server.process.pid).threads <= first.threads
    assert files_below(tmp_path) <= files + 10  # segments of what the log itself keeps
    for kind, seconds in sorted(walked.seconds.items()):
        early, late = median(seconds[: len(seconds) // 20]), median(seconds[-len(seconds) // 20 :])
        sys.stdout.write(f"{kind:10} {1000 * early:6.1f} ms at first, {1000 * late:6.1f} ms at last\n")
    sys.stdout.write(f"starts: {', '.join(f'{each:.1f}' for each in walked.starts)} s\n")
    walked.stop()
