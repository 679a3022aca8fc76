"""A server whose data folder is deleted, moved or replaced ends; it would acknowledge what no start can find."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from running_server import ServerProcess

from millstream.server.folder_watch import FolderWatch


def test_a_server_without_its_data_folder_ends_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        shutil.rmtree(data)
        assert server.process.wait(30) != 0
        assert f"the data folder {data} was deleted, moved or replaced" in server.end()


def _replace(log: Path) -> None:
    shutil.rmtree(log)
    log.mkdir()
    log.parent.joinpath("other").touch()  # a new file may get the inode of one that was just deleted
    (log / "lock").write_text("1")


@pytest.mark.parametrize("act", [shutil.rmtree, lambda log: log.rename(log.with_name("moved")), _replace])
def test_a_folder_that_is_not_there_any_more_is_noticed_once(tmp_path: Path, act: Callable[[Path], None]) -> None:
    log = tmp_path / "data" / "log"
    log.mkdir(parents=True)
    with (log / "lock").open("w"):  # a log that is open holds its lock file, so its inode is not given again
        reasons: list[str] = []
        told = threading.Event()

        def lost(reason: str) -> None:
            reasons.append(reason)
            told.set()

        watch = FolderWatch(log, lost, every_s=0.01)
        watch.start()
        assert not told.wait(0.1)
        act(log)
        assert told.wait(10)
        watch.close()
        assert [str(tmp_path / "data") in reason for reason in reasons] == [True]


def test_a_watch_can_be_closed_before_it_was_started(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    FolderWatch(tmp_path, lambda reason: None).close()
