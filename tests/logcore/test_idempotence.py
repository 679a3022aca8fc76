"""Batches of an idempotent producer, sent as Kafka's clients send them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.logcore.errors import InvalidRecords, OutOfOrderSequence, ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import BatchProducer, read_header
from millstream.logcore.records.codec import encode
from millstream.logcore.storage.producer_state import ProducerStates
from millstream.logcore.storage.recovery import CHECKPOINT

from .log_records import partition_folder, rows, values_of


def sent(*values: bytes, sequence: int, epoch: int = 0) -> bytes:
    (batch,) = encode(rows(*values), BatchProducer(77, epoch, sequence))
    return b"".join(batch.buffers)


def test_a_repeated_batch_gets_its_first_offset_and_is_stored_once(log: Log) -> None:
    assert log.append_batches("t", 0, sent(b"a", b"b", sequence=0)) == 0
    assert log.append_batches("t", 0, sent(b"c", sequence=2)) == 2
    assert log.append_batches("t", 0, sent(b"a", b"b", sequence=0)) == 0
    assert values_of(log, "t") == [b"a", b"b", b"c"]


def test_a_gap_is_refused(log: Log) -> None:
    log.append_batches("t", 0, sent(b"a", sequence=0))
    with pytest.raises(OutOfOrderSequence):
        log.append_batches("t", 0, sent(b"c", sequence=2))
    assert log.append_batches("t", 0, sent(b"b", sequence=1)) == 1


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(log: Log) -> None:
    log.append_batches("t", 0, sent(b"a", sequence=0))
    with pytest.raises(OutOfOrderSequence):
        log.append_batches("t", 0, sent(b"b", sequence=1, epoch=1))
    log.append_batches("t", 0, sent(b"b", sequence=0, epoch=1))
    with pytest.raises(ProducerFenced):
        log.append_batches("t", 0, sent(b"c", sequence=1, epoch=0))


@pytest.mark.parametrize("crash", [False, True])
def test_sequences_are_known_after_a_restart(log: Log, folder: Path, crash: bool) -> None:
    log.append_batches("t", 0, sent(b"a", sequence=0))
    log.append_batches("t", 0, sent(b"b", sequence=1))
    log.close()
    if crash:
        (partition_folder(folder) / CHECKPOINT).unlink()
    with open_log(folder) as reopened:
        assert reopened.append_batches("t", 0, sent(b"a", sequence=0)) == 0
        with pytest.raises(OutOfOrderSequence):
            reopened.append_batches("t", 0, sent(b"d", sequence=3))
        assert reopened.append_batches("t", 0, sent(b"c", sequence=2)) == 2


def test_sequences_wrap_after_the_largest_number() -> None:
    states = ProducerStates(complete=False)  # it has forgotten the producer's first two thousand million records
    last = read_header(sent(b"a", b"b", sequence=2**31 - 2))
    assert states.check(last) is None
    states.note(last, 0)
    assert states.check(read_header(sent(b"c", sequence=0))) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(read_header(sent(b"c", sequence=1)))


def test_a_batch_that_overtakes_the_producers_first_one_is_refused(log: Log) -> None:
    """Else the first one could never be written: it would come out of order."""
    with pytest.raises(OutOfOrderSequence):
        log.append_batches("t", 0, sent(b"b", sequence=1))
    assert log.append_batches("t", 0, sent(b"a", sequence=0)) == 0
    assert log.append_batches("t", 0, sent(b"b", sequence=1)) == 1


def test_a_producer_that_was_forgotten_goes_on_where_it_was() -> None:
    states = ProducerStates()
    states.note(read_header(sent(b"a", sequence=0)), 0)
    assert states.expire(1, ())
    kept = ProducerStates.from_json(states.to_json(), complete=states.complete)
    assert kept.check(read_header(sent(b"b", sequence=1))) is None


def test_a_damaged_batch_is_refused(log: Log) -> None:
    batch = bytearray(sent(b"a", sequence=0))
    batch[-1] ^= 1
    for data in (batch, batch[:-1], b"short"):
        with pytest.raises(InvalidRecords):
            log.append_batches("t", 0, bytes(data))


def test_nobody_gets_a_producer_id_twice(log: Log, folder: Path) -> None:
    """After a crash it would be given to somebody else, whose first batches would be taken for repetitions."""
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: new_producer_id(log), range(40)))
    crashed = folder.with_name("crashed")
    shutil.copytree(folder, crashed)
    with open_log(crashed) as later:
        given += [new_producer_id(later) for _ in range(20)]
    assert len(set(given)) == 60


def new_producer_id(log: Log) -> int:
    return log.serving().transactions.new_producer_id()
