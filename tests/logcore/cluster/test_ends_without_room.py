"""A transaction that is decided, and whose end does not fit onto the disk: that is said at once, and made up for."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from waiting import eventually, without_error

from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.remote_producer import RemoteTransactionalProducer
from millstream.logcore.errors import LogFull
from millstream.logcore.failpoints import fp
from millstream.logcore.log import Log, open_log
from millstream.logcore.replication.shards import transaction_ends
from millstream.logcore.storage import disk

from ..log_records import NO_ROOM_YET, records_of, rows, values_of

WHERE: Final = TopicPartition("t", 0)
_AT_ONCE_S: Final = 10.0  # on a busy machine; who waits gives up after 30


class _Disk:
    """State: whether it is full, and after which failpoint it will be."""

    def __init__(self) -> None:
        self.full = False
        self.fills_at = ""

    def at(self, name: str) -> None:
        fp(name)
        if name == self.fills_at:
            self.full = True
        if self.full and name == "append.write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    made = _Disk()
    for module in (disk, transaction_ends):
        monkeypatch.setattr(module, "fp", made.at)
    return made


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path) as opened:
        opened.create_topic("t", 1)
        opened.commit_offsets("g", {WHERE: 0})
        yield opened


def _write(producer: Any) -> None:
    producer.append("t", 0, rows(b"a"))


def _send(producer: Any) -> None:
    producer.send_offsets("g", {WHERE: 1})


@pytest.mark.parametrize("does", [(_write,), (_send,), (_write, _send)])
def test_a_commit_whose_end_does_not_fit_is_said_at_once_and_done_once_there_is_room(
    log: Log, small: _Disk, does: tuple[Callable[[Any], None], ...]
) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    for act in does:
        act(producer)
    small.fills_at = "txn.after_prepare"
    began = time.monotonic()
    with pytest.raises(LogFull, match="no room to write") as refused:
        producer.commit()
    with pytest.raises(LogFull, match="no room to write"):
        log.transactional_producer("p")
    assert time.monotonic() - began < _AT_ONCE_S
    assert refused.value.hint
    small.full, small.fills_at = False, ""
    eventually(lambda: not _write_is_missing(log, does))
    _goes_on(log, does)


@pytest.mark.parametrize("does", [(_write,), (_write, _send)])
def test_a_commit_that_everybody_sees_has_succeeded_though_nothing_more_fits(
    log: Log, small: _Disk, does: tuple[Callable[[Any], None], ...]
) -> None:
    producer = log.transactional_producer("p")
    producer.begin()
    for act in does:
        act(producer)
    small.fills_at = "txn.marker"
    producer.commit()
    assert values_of(log, "t") == [b"a"]
    with pytest.raises(LogFull, match="no room to write"):
        log.transactional_producer("p")
    small.full, small.fills_at = False, ""
    _goes_on(log, does)


def _goes_on(log: Log, does: tuple[Callable[[Any], None], ...]) -> None:
    """What was committed is there, and so is what the next producer commits."""
    after = eventually(lambda: _taken(log))
    after.begin()
    after.append("t", 0, rows(b"b"))
    after.commit()
    assert values_of(log, "t") == [*([b"a"] if _write in does else []), b"b"]
    assert log.committed_offsets("g") == {WHERE: 1 if _send in does else 0}


def _taken(log: Log) -> RemoteTransactionalProducer | None:
    """The disk is tried again within a second."""
    with suppress(LogFull):
        return log.transactional_producer("p")
    return None


def _write_is_missing(log: Log, does: tuple[Callable[[Any], None], ...]) -> bool:
    """Without anybody's asking for it."""
    return _write in does and values_of(log, "t") != [b"a"]


def test_an_end_that_did_not_fit_is_written_by_the_next_start(tmp_path: Path, small: _Disk) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        producer = log.transactional_producer("p")
        producer.begin()
        producer.append("t", 0, rows(b"a"))
        small.fills_at = "txn.after_prepare"
        with pytest.raises(LogFull):
            producer.commit()
    small.full, small.fills_at = False, ""
    with open_log(tmp_path) as log:
        eventually(lambda: values_of(log, "t") == [b"a"])


def test_committed_offsets_from_before_a_committed_transaction_are_not_returned_after_a_restart_without_room(
    tmp_path: Path, small: _Disk
) -> None:
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
        log.commit_offsets("g", {WHERE: 0})
        producer = log.transactional_producer("p")
        producer.begin()
        producer.append("t", 0, rows(b"a"))
        producer.send_offsets("g", {WHERE: 1})
        small.fills_at = "txn.after_prepare"
        with pytest.raises(LogFull):
            producer.commit()
        for _ in range(3):
            with pytest.raises(LogFull):
                log.committed_offsets("g")
    with open_log(tmp_path) as log:
        for _ in range(3):
            with pytest.raises(LogFull):
                log.committed_offsets("g")
        small.full, small.fills_at = False, ""
        assert without_error(lambda: log.committed_offsets("g"), NO_ROOM_YET) == {WHERE: 1}
        eventually(lambda: values_of(log, "t") == [b"a"])  # its markers are written behind the decision


def test_one_refused_write_is_all_that_is_refused(log: Log, small: _Disk) -> None:
    """The coordinator reads its log again for the next request, not a second later."""
    small.full = True
    with pytest.raises(LogFull):
        log.commit_offsets("g", {WHERE: 1})
    small.full = False
    log.commit_offsets("g", {WHERE: 2})
    assert log.committed_offsets("g") == {WHERE: 2}
    small.full = True
    with pytest.raises(LogFull):
        log.transactional_producer("p")
    small.full = False
    producer = log.transactional_producer("p")
    producer.begin()
    _write(producer)
    producer.commit()
    assert values_of(log, "t") == [b"a"]


def test_the_log_end_offset_is_where_the_next_record_goes(log: Log) -> None:
    """Queries note where their records lie by it, while the markers before them are not durable yet."""
    producer = log.transactional_producer("p")
    ends: list[int] = []
    for _ in range(5):
        producer.begin()
        ends.append(log.offsets("t", 0).log_end_offset)
        _write(producer)
        assert log.offsets("t", 0).log_end_offset == ends[-1] + 1
        producer.commit()
    assert ends == [offset for offset, _ in records_of(log, "t")]
