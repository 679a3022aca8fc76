"""The package on hosts that have only its archive: each process imports it from one place, which stays.

The processes here see the archive and what the package depends on, and not the package itself.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.executor.spark.spark_session import write_archive
from millstream.executor.spark.unpacking import once

_WHERE = "from millstream.executor.spark import unpacking; print(unpacking.__file__)"
_ALL_THAT_RUNS = "from millstream.executor.spark import job_stages; print(job_stages.__file__)"
_COMPILED = """
import numpy as np
from millstream.executor.formats.compiled.json_values import skip_number
skip_number(np.zeros(64, np.uint8), 0, 8)
stats = skip_number.stats
print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
"""


class Host:
    """State: what its user keeps is below `folder`, as are the archives its executors have got."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self._folder = folder
        self._executors = 0
        self.cache.mkdir(mode=0o700)
        self.temporary.mkdir()

    @property
    def packages(self) -> Path:
        return self.cache / "millstream" / "packages"

    def begin(self, program: str = _WHERE) -> subprocess.Popen[str]:
        """A process of an executor of its own."""
        self._executors += 1
        own = self._folder / f"executor{self._executors}"
        own.mkdir()
        archive = own / "millstream.zip"
        write_archive(archive)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(archive), sysconfig.get_path("purelib")]),
            "XDG_CACHE_HOME": str(self.cache),
            "TMPDIR": str(self.temporary),
        }
        return subprocess.Popen(
            [sys.executable, "-S", "-c", program],  # without -S, an installation for developers is found
            cwd=own, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, program: str = _WHERE) -> str:
        return said(self.begin(program))


def said(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output.strip()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_all_executors_import_the_package_from_one_private_folder(host: Host) -> None:
    first = Path(host.run(_ALL_THAT_RUNS))
    assert first.is_relative_to(host.packages)
    assert [folder.name for folder in host.packages.iterdir()] == [first.relative_to(host.packages).parts[0]]
    for folder in (host.packages, *host.packages.iterdir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    written = first.stat().st_mtime_ns
    assert Path(host.run(_ALL_THAT_RUNS)) == first
    assert first.stat().st_mtime_ns == written


def test_a_host_compiles_once_for_all_its_executors(host: Host) -> None:
    assert host.run(_COMPILED) == "1 0"
    assert host.run(_COMPILED) == "0 1"


def test_executors_that_begin_at_once_unpack_once(host: Host) -> None:
    processes = [host.begin() for _ in range(3)]
    assert len({said(process) for process in processes}) == 1
    assert len(list(host.packages.iterdir())) == 1


def test_what_was_unpacked_by_half_is_unpacked_again(host: Host) -> None:
    file = Path(host.run())
    whole = file.read_text()
    file.write_text("half of it, or")
    (host.packages / file.relative_to(host.packages).parts[0] / "unpacked").unlink()
    assert Path(host.run()) == file
    assert file.read_text() == whole


def test_a_folder_that_others_may_write_to_is_not_used(host: Host) -> None:
    host.packages.mkdir(parents=True)
    host.packages.chmod(0o777)
    file = Path(host.run())
    assert file.is_relative_to(host.temporary)
    assert list(host.packages.iterdir()) == []
    assert Path(host.run()) == file
    (own,) = host.temporary.iterdir()
    own.chmod(0o722)
    assert not Path(host.run()).is_relative_to(own)


def test_who_fails_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        do_once(tmp_path, lambda: 1 // 0)
    done: list[str] = []
    do_once(tmp_path, lambda: done.append("second"))
    do_once(tmp_path, lambda: done.append("third"))
    assert done == ["second"]


def do_once(folder: Path, what: Callable[[], object]) -> None:
    with once(folder, "done") as first:
        if first:
            what()
