"""Any file of a replica's log damaged: what is read is right, and what was durable is there or said to be lost."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from random import Random

import pytest

from millstream.logcore.errors import CorruptLog
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.storage import segment
from millstream.logcore.storage.durable_point import DurablePoint
from tests.logcore.soak import count_of

from .disk_log_workload import Workload
from .replica_logs import entries, open_disk_log, placed

pytestmark = pytest.mark.usefixtures("fast_disk")


@pytest.fixture(autouse=True)
def index_of_every_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments have index files, too."""
    monkeypatch.setattr(segment, "INDEX_SAVED_FROM", 0)


def test_damage_never_gives_wrong_records_and_never_goes_unnoticed(memory_folder: Path) -> None:
    damage_often(memory_folder, range(70))


@pytest.mark.soak
def test_damage_of_many_kinds_never_gives_wrong_records(memory_folder: Path) -> None:
    damage_often(memory_folder, range(1000, 1000 + count_of("REPLICA_DAMAGES", 10_000)))


@pytest.mark.parametrize("full", [False, True])
def test_what_a_start_has_found_is_damage_if_the_next_start_does_not_find_it(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Nobody had synced it when the process was killed, but since then it is read. With a full disk the log opens, too,
    but cannot tell."""
    log = open_disk_log(memory_folder / "log")
    first, second = placed(0, 1), placed(1, 1)
    log.append([first, second])
    with monkeypatch.context() as patch:
        if full:
            patch.setattr(DurablePoint, "note_synced", no_space)
        found = open_disk_log(memory_folder / "log")
    assert found.clean and found.end_offset == 2
    segment_file = memory_folder / "log" / "00000000000000000000.log"
    segment_file.write_bytes(segment_file.read_bytes()[: first.header.size + 20])
    left = open_disk_log(memory_folder / "log")
    assert (left.end_offset, left.clean) == (1, full)


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def damage_often(folder: Path, seeds: range) -> None:
    lost = 0
    for seed in seeds:
        lost += damaged(folder / str(seed), Random(seed))
    assert lost > len(seeds) // 20, "hardly anything was hit"


def damaged(folder: Path, random: Random) -> bool:
    workload = Workload(folder, random)
    for _ in range(random.randint(10, 60)):
        workload.step()
    if random.random() < 0.5:
        workload.log.close()
        workload.durable = len(workload.written)
    damage(random.choice(sorted(folder.iterdir())), random)
    log = open_disk_log(folder)
    found = read_all(log)
    if found is None:  # reading has found it: then the next start does
        log = open_disk_log(folder)
        assert not log.clean
        found = read_all(log)
        assert found is not None
    expected = [(offset, crc) for offset, _, crc in workload.written if offset >= log.log_start_offset]
    assert found == expected[: len(found)]
    durable = [(offset, crc) for offset, _, crc in workload.written[: workload.durable]]
    if log.clean:
        assert log.log_start_offset <= workload.log.log_start_offset
        assert set(found) >= {entry for entry in durable if entry[0] >= log.log_start_offset}
    shutil.rmtree(folder)
    return not log.clean


def read_all(log: DiskLog) -> list[tuple[int, int]] | None:
    """Offsets and checksums; nothing else tells what the epoch of the last batches was. None where it is damaged."""
    try:
        return [(offset, crc) for offset, _, crc in entries(log)]
    except CorruptLog:
        return None


def damage(file: Path, random: Random) -> None:
    content = bytearray(file.read_bytes())
    at = random.randrange(len(content)) if content else 0
    match random.randrange(5):
        case 0:
            file.unlink()
            return
        case 1:
            del content[at:]
        case 2:
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        case 3:
            content[at : at + 40] = random.randbytes(len(content[at : at + 40]))
        case _:
            if content:
                content[at] ^= 1 << random.randrange(8)
    file.write_bytes(content)
