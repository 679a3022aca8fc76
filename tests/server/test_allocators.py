"""A server's memory is that of what it holds, however many threads have come and gone."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running_server import ENVIRONMENT, ServerProcess

from millstream.server.allocators import MemoryReturns, arenas_max

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


LOAD_ARROW = """
import os
from millstream.server.allocators import choose_allocators
choose_allocators()
import pyarrow
pyarrow.array([1])
print(os.environ["JE_ARROW_MALLOC_CONF"])
"""


def of_jemalloc(**chosen: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("ARROW", "JE_"))}
    command = [sys.executable, "-c", LOAD_ARROW]
    return subprocess.run(command, env=environment | chosen, capture_output=True, text=True, timeout=100, check=True)


def test_arrow_keeps_freed_memory_for_the_next_batches_unless_the_environment_says_otherwise() -> None:
    given = of_jemalloc().stdout.strip()
    confirmed = of_jemalloc(JE_ARROW_MALLOC_CONF=f"confirm_conf:true,{given}").stderr.strip().splitlines()
    assert f"<jemalloc>: -- Set conf value: {given}" in confirmed
    assert of_jemalloc(JE_ARROW_MALLOC_CONF="dirty_decay_ms:500").stdout.strip() == "dirty_decay_ms:500"


FREE_BEHIND_WHAT_LIVES = """
import sys
from millstream.server.allocators import MemoryReturns
def resident_mb():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
pieces = [bytes([at % 256]) * 4_000 for at in range(50_000)]  # below what glibc maps on its own
last = pieces[-1]
held = resident_mb()
del pieces
kept = resident_mb()
returns = MemoryReturns(every=0.01)
returns.start()
while resident_mb() > held - 150: pass
returns.close()
print("kept", held - kept < 50, "gone", held - resident_mb() > 150)
"""


def test_free_memory_behind_what_lives_goes_back() -> None:
    command = [sys.executable, "-c", FREE_BEHIND_WHAT_LIVES]
    said = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=True).stdout
    assert said == "kept True gone True\n"


def test_memory_is_given_back_again_and_again_until_the_server_stops() -> None:
    times, enough = 0, threading.Event()

    def returned() -> None:
        nonlocal times
        times += 1
        if times == 3:
            enough.set()

    returns = MemoryReturns(0.001, returned)
    returns.start()
    assert enough.wait(60)
    returns.close()
    assert not any(thread.name == "memory-returns" for thread in threading.enumerate())


def test_one_that_was_never_started_can_be_closed() -> None:
    MemoryReturns(0.001, lambda: None).close()
