"""What a server keeps of tables, queries and clients that are gone: no object of ours, whatever their names were."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from comings_and_goings import left_behind
from forked import forking


def test_tables_queries_and_clients_that_are_gone_leave_no_objects(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, forking()) as alone:
        assert alone.submit(left_behind, tmp_path).result() == {}
