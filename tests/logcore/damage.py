"""Random damage to the files of a log, and what it may make of it: nothing wrong, and nothing lost without a word."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.logcore.client import FetchedRows, TopicPartition
from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import HEADER_SIZE, read_header

from .log_records import columnar, rows

Served = dict[int, object]
TOPICS = {
    "plain": {"segment.bytes": "2048"},
    "large": {},
    "compacted": {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}


@dataclass(frozen=True, slots=True)
class Original:
    """A log in a folder, and what it serves. `closed` in the proper way, or not."""

    folder: Path
    served: Mapping[TopicPartition, Served]
    closed: bool


def make_original(folder: Path, *, closed: bool) -> Original:
    log = open_log(folder)
    for topic, config in TOPICS.items():
        log.create_topic(topic, 2, config)
    producer = log.transactional_producer("p")
    for number in range(60):
        for topic in TOPICS:
            log.append(topic, number % 2, rows(b"%d" % number * (1 + number % 9), key=b"k%d" % (number % 7)))
        if number % 5 == 0:
            producer.begin()
            producer.append("plain", 0, rows(b"in a transaction %d" % number))
            producer.append("large", 1, columnar(number, number + 1))
            (producer.commit if number % 10 else producer.abort)()
    log.keep_house()
    served = {
        TopicPartition(topic, partition): read_all(log, topic, partition)[0] for topic in TOPICS for partition in (0, 1)
    }
    if closed:
        log.close()
        return Original(folder, served, closed)
    crashed = folder.with_name(folder.name + "-crashed")
    shutil.copytree(folder, crashed)
    log.close()
    return Original(crashed, served, closed)


def read_all(log: Log, topic: str, partition: int) -> tuple[Served, list[str]]:
    """All that can be read, and what was said about the rest."""
    found: Served = {}
    complaints: list[str] = []
    try:
        offsets = log.offsets(topic, partition)
    except CorruptLog as error:
        return {}, [error.message]
    offset = offsets.log_start_offset
    while offset < offsets.last_stable_offset:
        try:
            fetched = log.fetch(topic, partition, offset)
        except CorruptLog as error:
            complaints.append(error.message)
            offset += 1
            continue
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                found.update(zip(run.table["offset"].to_pylist(), run.table["value"].to_pylist(), strict=True))
            else:
                found.update(zip(run.row_offsets.tolist(), run.batch["x"].to_pylist(), strict=True))
        assert fetched.next_offset > offset, "a reader that gets nothing and no error waits for ever"
        offset = fetched.next_offset
    return found, complaints


def damage_one_file(folder: Path, chance: random.Random) -> tuple[Path, int]:
    """Which file, and where the damage begins."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choice(files if chance.random() < 0.3 else [each for each in files if each.suffix == ".log"])
    data = bytearray(path.read_bytes())
    position = chance.randrange(len(data))
    size = min(chance.choice([1, 1, 3, 100, 5000]), len(data) - position)
    match chance.choice(["truncate", "zero", "flip", "garbage"]):
        case "truncate":
            del data[position:]
        case "zero":
            data[position : position + size] = bytes(size)
        case "flip":
            data[position] ^= 1 << chance.randrange(8)
        case _:
            data[position : position + size] = chance.randbytes(size)
    path.write_bytes(data)
    return path, position


def first_offset_at(path: Path, position: int) -> int:
    """The offset of the batch in which this position lies, or after the last."""
    data = path.read_bytes()
    at, offset = 0, int(path.stem)
    while at + HEADER_SIZE <= len(data):
        header = read_header(data, at)
        if not header.plausible or at + header.size > position:
            return header.base_offset if header.plausible else offset
        at, offset = at + header.size, header.last_offset + 1
    return offset


def check_damaged(original: Original, folder: Path, seed: int) -> None:
    """Raises AssertionError, naming the seed."""
    shutil.copytree(original.folder, folder)
    path, position = damage_one_file(folder, random.Random(seed))
    what = f"seed {seed}: {path.relative_to(folder)} from {position} on"
    before = original.folder / path.relative_to(folder)
    kept_below = first_offset_at(before, position) if path.suffix == ".log" else None
    later = [int(other.stem) for other in path.parent.glob("*.log") if other.stem > path.stem]
    try:
        log = open_log(folder, sync="never")
    except CorruptLog as error:
        raise AssertionError(f"{what}: the log does not open: {error.message}") from error
    with log:
        for where, truth in original.served.items():
            found, complaints = read_all(log, *where)
            assert all(truth.get(offset) == value for offset, value in found.items()), f"{what}: wrong records"
            lost = truth.keys() - found.keys()
            if path.parent.name != f"{where.topic}-{where.partition}" or kept_below is None:
                assert not lost, f"{what}: {where} lost {sorted(lost)}"
                continue
            assert min(lost, default=kept_below) >= kept_below, f"{what}: records before the damage are lost"
            if later:
                assert max(lost, default=0) < min(later), f"{what}: records of other files are lost"
            if original.closed or later:
                assert not lost or complaints or log.problems(), f"{what}: {sorted(lost)} are lost without a word"
            if original.closed:
                assert log.append(*where, rows(b"after")) > max(truth), f"{what}: an offset is used again"
    with open_log(folder, sync="never") as log:
        for where, truth in original.served.items():
            found, _ = read_all(log, *where)
            assert all(truth.get(offset, b"after") == value for offset, value in found.items()), f"{what}: wrong later"
    shutil.rmtree(folder)
