"""Random damage to the files of a log, and what it may make of it: nothing wrong, and nothing lost without a word."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from millstream.logcore import failpoints
from millstream.logcore.client import FetchedRows, LogClient, TopicPartition
from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import HEADER_SIZE, read_header

from .log_records import columnar, crashed_copy, partition_folder, rows

Served = dict[int, object]
TOPICS = {
    "plain": {"segment.bytes": "2048"},
    "large": {},
    "compacted": {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}


GROUP, COMMITS = "g", 30


@dataclass(frozen=True, slots=True)
class Original:
    """A log in a folder, and what it serves: whatever happens, nothing else than `written`, and all of `kept` where
    nothing is lost. `closed` in the proper way, or not."""

    folder: Path
    written: Mapping[TopicPartition, Served]
    kept: Mapping[TopicPartition, Served]
    closed: bool


def make_original(folder: Path, end: Literal["closed", "crashed", "swapping"]) -> Original:
    """How the log ended: properly, or killed, or killed while a compacted segment is put in its place."""
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
        if number % 2:
            log.commit_offsets(GROUP, {TopicPartition("plain", 0): number // 2})
    if end == "swapping":
        written = _served(log)
        failpoints.arm("clean.swapping:1:raise")
        with suppress(failpoints.FailpointHit):
            log.keep_house()
        failpoints.arm("")
    else:
        log.keep_house()
        written = _served(log)
    if end == "closed":
        log.close()
        return Original(folder, written, written, closed=True)
    crashed = crashed_copy(log, folder, folder.with_name(folder.name + "-crashed"))
    log.close()
    shutil.copytree(crashed, folder.with_name("opened"))
    with open_log(folder.with_name("opened"), sync="never") as opened:
        kept = _served(opened)
    assert end != "swapping" or (kept != written and list(crashed.rglob("swap.json")))
    return Original(crashed, written, kept, closed=False)


def _served(log: Log) -> Mapping[TopicPartition, Served]:
    places = [TopicPartition(topic, partition) for topic in TOPICS for partition in (0, 1)]
    return {where: read_all(log, *where)[0] for where in places}


def read_all(log: LogClient, topic: str, partition: int) -> tuple[Served, list[str]]:
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
    """The offset of the batch in which this position lies, or after the last; that of the batch before, where it is the
    marker of its transaction."""
    data = path.read_bytes()
    at, offset, before = 0, int(path.stem), int(path.stem)
    while at + HEADER_SIZE <= len(data):
        header = read_header(data, at)
        if not header.plausible:
            return offset
        if at + header.size > position:
            return before if header.control else header.base_offset
        at, offset, before = at + header.size, header.last_offset + 1, header.base_offset
    return offset


def check_damaged(original: Original, folder: Path, seed: int) -> None:
    """Raises AssertionError, naming the seed."""
    shutil.copytree(original.folder, folder)
    path, position = damage_one_file(folder, random.Random(seed))
    what = f"seed {seed}: {path.relative_to(folder)} from {position} on"
    before = original.folder / path.relative_to(folder)
    of_offsets = path.parent.name == partition_folder(original.folder, "__consumer_offsets").name
    kept_below = first_offset_at(before, position) if path.suffix == ".log" else None
    later = [int(other.stem) for other in path.parent.glob("*.log") if other.stem > path.stem]
    try:
        log = open_log(folder, sync="never")
    except CorruptLog as error:
        if path.parent.name == "quorum":  # which topics there are is known from nowhere else
            shutil.rmtree(folder)
            return
        raise AssertionError(f"{what}: the log does not open: {error.message}") from error
    with log:
        check_commits(log, exact=original.closed or not of_offsets, what=what)
        for where, truth in original.written.items():
            found, complaints = read_all(log, *where)
            assert all(truth.get(offset) == value for offset, value in found.items()), f"{what}: wrong records"
            lost = original.kept[where].keys() - found.keys()
            if path.parent.name != partition_folder(original.folder, *where).name or kept_below is None:
                assert not lost, f"{what}: {where} lost {sorted(lost)}"
                continue
            assert min(lost, default=kept_below) >= kept_below, f"{what}: records before the damage are lost"
            if later:
                assert max(lost, default=0) < min(later), f"{what}: records of other files are lost"
            if original.closed or later:
                assert not lost or complaints or log.problems(), f"{what}: {sorted(lost)} are lost without a word"
            assert log.problems() or not list(path.parent.glob("*.dropped-*")), f"{what}: nobody speaks of the tail"
            if original.closed:
                assert log.append(*where, rows(b"after")) > max(truth), f"{what}: an offset is used again"
    with open_log(folder, sync="never") as log:
        check_commits(log, exact=original.closed or not of_offsets, what=what)
        for where, truth in original.written.items():
            found, _ = read_all(log, *where)
            assert all(truth.get(offset, b"after") == value for offset, value in found.items()), f"{what}: wrong later"
    shutil.rmtree(folder)


def check_commits(log: Log, *, exact: bool, what: str) -> None:
    """What a group has committed is known, or is an error; after a crash that tore the end of it, it may be older."""
    try:
        committed = log.committed_offsets(GROUP)
    except CorruptLog:
        return
    last = {TopicPartition("plain", 0): COMMITS - 1}
    assert committed == last or not exact, f"{what}: {dict(committed)} is committed"
    assert all(where in last and offset < COMMITS for where, offset in committed.items()), what
