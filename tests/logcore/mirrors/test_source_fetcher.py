"""The thread that fetches for a mirror: how it ends."""

from __future__ import annotations

import os
from pathlib import Path

from millstream.logcore.client import TopicPartition
from millstream.logcore.mirrors.source_fetcher import SourceFetcher
from millstream.logcore.protocol.channel import Address
from millstream.logcore.protocol.routing import Router


def test_a_closed_fetcher_writes_to_no_file_that_was_opened_after_it(tmp_path: Path) -> None:
    """An append that is under way while a mirror is closed may still seek."""
    router = Router([Address("127.0.0.1", 1)], None, None, 0.1, clustered=True)
    fetcher = SourceFetcher(router)
    fetcher.close()
    files = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(20)]
    try:
        fetcher.seek(TopicPartition("t", 0), 0)
        fetcher.close()
        assert [os.fstat(file).st_size for file in files] == [0] * 20
    finally:
        for file in files:
            os.close(file)
