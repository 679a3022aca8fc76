"""Many threads on a disk that fails a sync: the log ends (R17), and when it is opened again what was acknowledged is
there, transactions are whole, and nothing is there that nobody has written."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import LogClosed, LogWriteFailed
from millstream.logcore.log import Log, open_log
from millstream.logcore.storage.disk import LogFile

from .log_records import rows, values_of

SOURCE = TopicPartition("src", 0)
WRITERS = 3


@dataclass(slots=True)
class Told:
    """What the threads know: what was acknowledged, and what they had under way when the log ended."""

    plain: set[bytes] = field(default_factory=set)
    both: set[bytes] = field(default_factory=set)
    in_doubt: set[bytes] = field(default_factory=set)
    commits: Counter[str] = field(default_factory=Counter)


def fail_one_sync(patch: pytest.MonkeyPatch, nth: int) -> None:
    """Of the segments."""
    lock, sync, left = threading.Lock(), LogFile.sync, [nth]

    def count_and_sync(file: LogFile) -> None:
        with lock:
            left[0] -= str(file.path).endswith(".log")
            fails = left[0] == 0
            left[0] -= fails
        if fails:
            raise OSError(5, "Input/output error")
        sync(file)

    patch.setattr(LogFile, "sync", count_and_sync)


def append(log: Log, told: Told, life: int, writer: int) -> None:
    for number in range(1000):
        value = b"plain-%d-%d-%d" % (life, writer, number)
        try:
            log.append("t", number % 2, rows(value))
        except (LogClosed, LogWriteFailed):  # the partition may hear of it before the node
            told.in_doubt.add(value)
            return
        told.plain.add(value)
    raise AssertionError("the log goes on behind a sync that failed")


def commit(log: Log, told: Told, life: int, writer: int) -> None:
    group = f"g{writer}"
    value = b""
    try:
        producer = log.transactional_producer(f"q{writer}")
        for number in range(1000):
            value = b"transaction-%d-%d-%d" % (life, writer, number)
            producer.begin()
            producer.append("t", 0, rows(value))
            producer.append("t", 1, rows(value))
            if number % 7 == 6:
                producer.abort()
                continue
            producer.send_offsets(group, {SOURCE: told.commits[group] + 1})
            producer.commit()
            told.both.add(value)
            told.commits[group] += 1
            assert log.committed_offsets(group) == {SOURCE: told.commits[group]}
    except (LogClosed, LogWriteFailed):
        told.in_doubt.add(value)


@pytest.mark.usefixtures("only_processes_die")
@pytest.mark.parametrize("nth", [5, 600, 1500])
def test_threads_that_append_and_commit_agree_with_the_log(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    folder, told = memory_folder / "log", Told()
    with open_log(folder) as log:
        log.create_topic("t", 2)
        log.create_topic("src", 1)
    for life in range(3):
        log = open_log(folder)
        check(log, told)
        with monkeypatch.context() as patch, ThreadPoolExecutor(2 * WRITERS) as pool:
            fail_one_sync(patch, nth)
            acts: tuple[Callable[[Log, Told, int, int], None], ...] = (append, commit)
            done = [pool.submit(act, log, told, life, writer) for act in acts for writer in range(WRITERS)]
            for future in done:
                future.result()
        assert log.node.failure is not None
        log.close()
    with open_log(folder) as log:
        check(log, told)
    assert told.plain and (told.both or nth < 10)


def check(log: Log, told: Told) -> None:
    """What was in doubt is there or not, for good."""
    for writer in range(WRITERS):
        group = f"g{writer}"
        count = log.committed_offsets(group).get(SOURCE, 0)
        assert count in (told.commits[group], told.commits[group] + 1)
        told.commits[group] = count
        log.transactional_producer(f"q{writer}")
    for partition in range(2):
        eventually(lambda partition=partition: _is_stable(log, partition))
    found = [Counter(values_of(log, "t", partition)) for partition in range(2)]
    assert all(max(each.values(), default=0) <= 1 for each in found), "a record is there twice"
    both = set(found[0]) & set(found[1])
    plain = set(found[0]) ^ set(found[1])
    assert told.both <= both and told.plain <= plain, "what was acknowledged is lost"
    assert both - told.both <= told.in_doubt and plain - told.plain <= told.in_doubt
    assert not any(isinstance(value, bytes) and value.startswith(b"transaction") for value in plain), "a half of one"
    told.both |= {value for value in both if isinstance(value, bytes)}
    told.plain |= {value for value in plain if isinstance(value, bytes)}
    told.in_doubt.clear()


def _is_stable(log: Log, partition: int) -> bool:
    offsets = log.offsets("t", partition)
    return offsets.last_stable_offset == offsets.high_watermark
