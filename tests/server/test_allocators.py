"""A server's memory is that of what it holds, however many threads have come and gone."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from running_server import ENVIRONMENT, ServerProcess

from millstream.server.allocators import arenas_max

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing is chosen")

COUNT_ARENAS = """
import ctypes, os, threading
from millstream.server.allocators import choose_allocators
choose_allocators()
all_at_once = threading.Barrier(64)
def allocate():
    held = bytearray(1_000)
    all_at_once.wait(60)
threads = [threading.Thread(target=allocate) for _ in range(64)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


def test_many_threads_share_few_arenas() -> None:
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("MALLOC", "GLIBC"))}
    command = [sys.executable, "-c", COUNT_ARENAS]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True).stdout
    assert 1 < said.count("<heap nr=") <= arenas_max() < 64


@pytest.mark.parametrize(("asked_for", "used"), [(None, "jemalloc"), ("system", "system")])
def test_arrows_memory_is_shared_by_threads_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for: str | None, used: str
) -> None:
    monkeypatch.delitem(ENVIRONMENT, "ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if asked_for is not None:
        monkeypatch.setitem(ENVIRONMENT, "ARROW_DEFAULT_MEMORY_POOL", asked_for)
    with ServerProcess(tmp_path) as server:
        server.process.terminate()
        assert f"arrow_memory={used}" in server.process.communicate(timeout=100)[1]
