"""Temporary folders of processes that were killed go; nobody else's do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millstream.executor.state.temporary_folders import TemporaryFolder, clear_away

_MAKE_ONE = (
    "import sys, tempfile\n"
    "tempfile.tempdir = sys.argv[1]\n"
    "from millstream.executor.state.temporary_folders import TemporaryFolder\n"
    "folder = TemporaryFolder('sandbox')\n"
    "(folder.path / 'file').write_text('something')\n"
    "print(folder.path.parent, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_only_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _MAKE_ONE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = Path(process.stdout.readline().strip())
        (tmp_path / "millstream-of-somebody").mkdir()
        link = tmp_path / "millstream-link"
        link.symlink_to(made)
        clear_away(tmp_path)
        assert (made / "kept" / "file").read_text() == "something"
        process.send_signal(signal.SIGKILL)
        process.wait()
    own = TemporaryFolder("spark")  # the first of this process here
    assert sorted(tmp_path.iterdir()) == sorted([own.path.parent, tmp_path / "millstream-of-somebody", link])
    clear_away(tmp_path)
    assert own.path.is_dir()
    own.remove()
    assert not own.path.parent.exists()


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "millstream-sandbox-a"
    folder.mkdir()
    (folder / "owner.lock").touch()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    clear_away(tmp_path)
    assert folder.is_dir()
    monkeypatch.setattr(os, "geteuid", lambda: me)
    clear_away(tmp_path)
    assert not folder.exists()
