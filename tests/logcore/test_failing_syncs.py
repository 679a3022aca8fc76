"""Many threads on a disk whose syncs fail now and then: what was acknowledged is there, what was refused is not."""

from __future__ import annotations

import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.disk import LogFile

from .log_records import rows, values_of


@pytest.fixture
def failing_syncs(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One sync in eight of a partition of "t" fails, and does not say so again when it is tried once more."""
    choice, lock, sync = random.Random(5), threading.Lock(), LogFile.sync
    failed: set[str] = set()

    def sometimes_sync(file: LogFile) -> None:
        with lock:
            name = str(file.path)
            fails = "/log/t-" in name and name not in failed and choice.random() < 1 / 8
            failed.discard(name)
            if fails:
                failed.add(name)  # the cut that follows must get through, or the partition stops for good
        if fails:
            raise OSError(5, "Input/output error")
        sync(file)

    monkeypatch.setattr(LogFile, "sync", sometimes_sync)
    return monkeypatch


def test_threads_that_append_and_commit_agree_with_the_log(
    log: Log, folder: Path, failing_syncs: pytest.MonkeyPatch
) -> None:
    def append(writer: int) -> set[bytes]:
        acknowledged: set[bytes] = set()
        for i in range(60):
            value = b"plain-%d-%d" % (writer, i)
            try:
                log.append("t", i % 2, rows(value))
                acknowledged.add(value)
            except LogError:
                continue
        return acknowledged

    def commit(writer: int) -> set[bytes]:
        acknowledged: set[bytes] = set()
        producer = log.transactional_producer(f"q{writer}")
        for i in range(40):
            value = b"transaction-%d-%d" % (writer, i)
            try:
                producer.begin()
                producer.append("t", 0, rows(value))
                producer.append("t", 1, rows(value))
                producer.send_offsets(f"g{writer}", {TopicPartition("src", 0): i + 1})
                if i % 7 == 6:
                    producer.abort()
                    continue
                producer.commit()
                acknowledged.add(value)
                assert log.committed_offsets(f"g{writer}") == {TopicPartition("src", 0): i + 1}
            except LogError:
                producer.abort()
        return acknowledged

    with ThreadPoolExecutor(6) as pool:
        plain = [pool.submit(append, writer) for writer in range(3)]
        transactions = [pool.submit(commit, writer) for writer in range(3)]
    expected_plain = set[bytes]().union(*(future.result() for future in plain))
    expected_both = set[bytes]().union(*(future.result() for future in transactions))
    assert len(expected_plain) < 180, "no sync failed"
    assert len(expected_both) < 100, "no sync failed"

    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    failing_syncs.undo()
    for opened in (log, open_log(crashed)):
        zero, one = (values_of(opened, "t", partition) for partition in range(2))
        assert len(zero + one) == len(expected_plain) + 2 * len(expected_both)
        assert set(zero) & set(one) == expected_both
        assert set(zero) ^ set(one) == expected_plain
    opened.close()
