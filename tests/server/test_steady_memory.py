"""Ordinary clients all day: what the server takes does not grow.

`make soak` runs an hour, or MILLSTREAM_SOAK_SECONDS.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from footprint import Footprint, needs_proc, slope
from running_server import ServerProcess

pytest.importorskip("confluent_kafka")
from ordinary_clients import OrdinaryClients

pytestmark = needs_proc

SAMPLES = 60
ROOM_MB_PER_HOUR = 20.0


def served(data: Path, seconds: float) -> tuple[list[Footprint], OrdinaryClients]:
    """What the server takes in each sixtieth of the time."""
    quiet = data / "quiet.toml"  # nobody reads the log, and a full pipe would stop the server
    quiet.write_text('log_level = "error"\n', encoding="utf-8")
    seen: list[Footprint] = []
    with ServerProcess(data / "data", "--config", str(quiet)) as server:
        kafka = re.search(r"[0-9.]+:[0-9]+", server.announced[1])
        assert kafka is not None
        clients = OrdinaryClients(server.url, kafka[0], seed=11)
        try:
            for _ in range(SAMPLES):
                time.sleep(seconds / SAMPLES)
                seen.append(Footprint.of(server.process.pid))
        finally:
            clients.stop()
        assert server.stop() == 0
    sys.stdout.write(f"{dict(clients.done)}\n{clients.failed[:20]}\n" + "".join(f"{each}\n" for each in seen))
    return seen, clients


def test_ordinary_clients_are_served(tmp_path: Path) -> None:
    _, clients = served(tmp_path, seconds=8)
    assert not clients.failed
    assert len(clients.done) == 7, clients.done


@pytest.mark.soak
def test_an_hour_of_ordinary_clients_takes_no_more_memory(tmp_path: Path) -> None:
    seconds = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "3600"))
    seen, clients = served(tmp_path, seconds)
    assert not clients.failed
    warm = seen[SAMPLES // 3 :]  # by then what is kept for a minute, and every code path's first use, is there
    assert per_hour([each.memory_mb for each in warm], seconds) < ROOM_MB_PER_HOUR
    for name in ("threads", "files"):
        values = [float(getattr(each, name)) for each in warm]
        # Streams that come and go have up to ten files each, so 40 samples scatter by 8 and their slope by 7 an hour. A
        # leak of one file in a thousand operations would be 30.
        assert per_hour(values, seconds) < max(values) / 5, f"{name} grow: {values}"


def per_hour(values: Sequence[float], seconds: float) -> float:
    return slope(values) * SAMPLES / seconds * 3600
