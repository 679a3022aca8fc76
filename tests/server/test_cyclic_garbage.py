"""What requests and connections held is free when they end, and not when the collector of cyclic garbage runs.

That counts objects and not their bytes, and a server's collector runs seldom, because it looks through all that lives:
700 produce requests of 900 kB, each in a cycle of a dozen objects, took 600 MB.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")
from cyclic_garbage import SHAPES, left_for_the_collector
from forked import forking


@pytest.mark.timeout(400)  # a new process with a server and clients: on a very busy machine 180 were not enough
def test_requests_and_connections_leave_no_cycles(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, forking()) as alone:
        left = alone.submit(left_for_the_collector, tmp_path).result()
    assert left == {shape: {} for shape in SHAPES}
