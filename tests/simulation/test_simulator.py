"""The simulator itself: one seed is one run, disks lose what they may lose, failures are repeated and made smaller."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from .disk import SimDisk
from .fresh import SeedRuns
from .kernel import MILLISECOND, Kernel
from .network import NetworkOptions, SimNetwork
from .runs import Run, execute, load_scenario, prepare, save_scenario
from .shrink import shrink
from .worlds import WORLDS, world_named

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_seed_is_the_same_run(world: str) -> None:
    first, second, other = (execute(Run(world, seed, events=3_000)) for seed in (7, 7, 8))
    assert first.trace_hash == second.trace_hash
    assert first.counters == second.counters
    assert first.trace_hash != other.trace_hash


def test_a_run_does_not_depend_on_the_hashes_of_this_process() -> None:
    seeds = 3  # of the cluster's, some have groups and transactions, and some have not
    code = (
        "import tests.simulation.runs as runs\n"
        f"for world in {sorted(WORLDS)}:\n"
        f"    for seed in range({seeds}): print(runs.execute(runs.Run(world, seed, events=3000)).trace_hash)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().split()) == seeds * len(WORLDS)


def test_more_seeds_run_until_all_that_must_happen_has_happened() -> None:
    runs = SeedRuns("quorum", seeds=0, events=3_000)
    often, *others = world_named("quorum").must_happen
    assert runs.run_until_all_happened(seeds_max=0) == [often, *others]
    runs.counters.update(others)
    assert runs.run_until_all_happened(seeds_max=20) == []
    assert runs.counters[often] > 0


def test_a_stored_run_is_the_run_of_its_seed(tmp_path: Path) -> None:
    run = Run("quorum", 11, events=3_000)
    drawn = prepare(run)
    save_scenario(replace(run, options=drawn.options, faults=drawn.faults), tmp_path / "stored.json")
    assert execute(load_scenario(tmp_path / "stored.json")).trace_hash == execute(run).trace_hash


def test_a_failure_names_what_repeats_it() -> None:
    outcome = execute(Run("control", 0, events=5_000, mutant="answers_before_commit"))
    assert outcome.violated == "R5"
    assert "VIOLATED R5" in outcome.report
    again = "python -m tests.simulation --world control --seed 0 --events 5000 --mutant answers_before_commit"
    assert again in outcome.report
    assert "options: {" in outcome.report and "nodes:" in outcome.report


def test_a_failing_run_becomes_smaller_and_still_fails() -> None:
    run = Run("control", 4, mutant="answers_before_commit", events=4_000)
    small, outcome = shrink(run, reruns_max=25)
    assert outcome.violated == execute(run).violated
    assert len(small.faults or []) < len(prepare(run).faults) / 4
    assert execute(Run.of_json(json.loads(json.dumps(small.to_json())))).violated is None, "without the bug all is well"


def test_a_disk_keeps_what_was_synced() -> None:
    for seed in range(50):
        disk = SimDisk()
        file = disk.create("log")
        disk.sync_folder()
        file.append(b"safe" * 500)
        file.sync()
        file.append(b"not yet" * 500)
        disk.crash(Random(seed))
        found = disk.get("log")
        assert found is not None and found.read()[:2_000] == b"safe" * 500


def test_a_disk_may_lose_tear_and_zero_what_was_not_synced() -> None:
    whole = bytes(range(1, 250)) * 10
    outcomes: set[str] = set()
    for seed in range(200):
        disk = SimDisk()
        file = disk.create("log")
        disk.sync_folder()
        for start in range(0, len(whole), 830):
            file.append(whole[start : start + 830])
        disk.crash(Random(seed))
        outcomes.add(_what_is_left(file.read(), whole))
    assert outcomes == {"all", "nothing", "a prefix", "zeros in it"}


def _what_is_left(content: bytes, whole: bytes) -> str:
    if content in (whole, b""):
        return "all" if content else "nothing"
    return "a prefix" if whole.startswith(content) else "zeros in it" if 0 in content else "something else"


def test_a_name_is_safe_once_its_folder_is_synced() -> None:
    seen: set[bool] = set()
    for seed in range(20):
        disk = SimDisk()
        disk.create("tmp").sync()
        disk.rename("tmp", "name")
        disk.crash(Random(seed))
        seen.add(disk.get("name") is not None)
    assert seen == {True, False}
    disk = SimDisk()
    disk.create("tmp")
    disk.rename("tmp", "name")
    disk.sync_folder()
    disk.crash(Random(1))
    assert disk.names() == ["name"]


def test_what_a_failed_sync_loses_is_still_seen_until_the_crash() -> None:
    disk = SimDisk()
    file = disk.create("log")
    disk.sync_folder()
    file.append(b"lost")
    disk.failing_syncs = 1
    with pytest.raises(OSError) as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    assert file.read() == b"lost"
    file.sync()  # succeeds, and means nothing
    disk.crash(Random(1))
    assert file.read() == b""


def test_a_full_disk_takes_a_part() -> None:
    disk = SimDisk()
    file = disk.create("log")
    disk.full = True
    with pytest.raises(OSError) as raised:
        file.append(b"12345678")
    assert raised.value.errno == errno.ENOSPC
    assert file.read() == b"1234"


def test_a_cut_network_delivers_nothing_in_that_direction() -> None:
    kernel = Kernel(1)
    network = SimNetwork(kernel, NetworkOptions())
    arrived: list[str] = []
    network.cut([1], [2])
    network.send(1, 2, arrived.append, "there")
    network.send(2, 1, arrived.append, "back")
    network.mend([1], [2])
    network.send(1, 2, arrived.append, "later")
    kernel.run(until_ns=1_000 * MILLISECOND)
    assert sorted(arrived) == ["back", "later"]


def test_a_bad_network_loses_repeats_and_reorders() -> None:
    kernel = Kernel(1)
    network = SimNetwork(kernel, NetworkOptions(loss_share=0.1, twice_share=0.1, tail_share=0.1))
    arrived: list[int] = []
    for number in range(1_000):
        network.send(1, 2, arrived.append, number)
    kernel.run(until_ns=60_000 * MILLISECOND)
    assert 800 < len(set(arrived)) < 1_000
    assert len(arrived) > len(set(arrived))
    assert arrived != sorted(arrived)
