"""The disk of the tests of power cuts, while several threads use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from millstream.logcore.storage.disk import sync_folder

from .power import Power

LOOKS = 300
FILES = 30


@contextmanager
def meanwhile(act: Callable[[], None]) -> Generator[None]:
    """Another thread does it, again and again."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_file_may_be_renamed_while_a_folder_is_synced_and_while_it_is_seen_what_a_disk_may_have(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"kept-{number}" for number in range(FILES)}
    for name in names:
        (memory_folder / name).write_bytes(b"old")

    def replace() -> None:
        for name in names:
            aside = memory_folder / f"{name}.new"
            aside.write_bytes(b"new")
            aside.replace(memory_folder / name)

    with monkeypatch.context() as patch:
        power = Power(memory_folder, patch)
        with meanwhile(replace):
            for seed in range(LOOKS):
                sync_folder(memory_folder)
                assert names <= power.possible(Random(seed))[Path()].keys()


def test_what_is_held_of_files_goes_with_the_disk(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of descriptors that were left kept other tests of the process from waiting by `select`."""
    (memory_folder / "kept").write_bytes(b"old")

    def held() -> int:
        there = [Path(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
        return sum(str(memory_folder) in os.readlink(each) for each in there if each.is_symlink())

    with monkeypatch.context() as patch:
        power = Power(memory_folder, patch)
        assert held() == 1
        del power
    assert held() == 0


def test_the_syncs_of_another_log_are_its_own(
    memory_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").write_bytes(b"other")
    with monkeypatch.context() as patch:
        power = Power(memory_folder, patch)
        power.syncs_left = 0  # the power goes at the next sync
        sync_folder(tmp_path)
        with (tmp_path / "other").open("rb") as file:
            os.fdatasync(file.fileno())
    assert power.syncs == 0
