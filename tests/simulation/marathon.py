"""Runs seeds for hours and adds up honestly: what ran on which code.

    python -m tests.simulation.marathon run FILE --world quorum --first 100000 --count 8000
    python -m tests.simulation.marathon sum FILE

`run` appends a line of JSON per 25 seeds, with the hash of each file of the machines that the world imports, and one of
the simulator. `sum` adds up the lines whose machines are those of now, each seed once; what ran on other code is told
beside it, with the files that differ. A failed seed is written to FILE.failures, and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from .runs import Outcome, Run, execute
from .worlds import WORLDS, world_named

ROOT: Final = Path(__file__).resolve().parents[2]
_PER_LINE: Final = 25


class CodeHashes(NamedTuple):
    """`machines`: of what a world tests, by file; `simulator`: of what it is tested with."""

    machines: dict[str, str]
    simulator: str


def main() -> int:
    options = _arguments()
    if options.act == "hash":
        print(json.dumps(code_hashes(options.world)))
        return 0
    if options.act == "sum":
        return _print_sums(options.file)
    return _run(options.file, options.world, range(options.first, options.first + options.count), options.events)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.marathon")
    acts = parser.add_subparsers(dest="act", required=True)
    run = acts.add_parser("run")
    run.add_argument("file", type=Path)
    run.add_argument("--world", choices=sorted(WORLDS), required=True)
    run.add_argument("--first", type=int, required=True)
    run.add_argument("--count", type=int, required=True)
    run.add_argument("--events", type=int, default=20_000)
    acts.add_parser("sum").add_argument("file", type=Path)
    acts.add_parser("hash").add_argument("--world", choices=sorted(WORLDS), required=True)
    return parser.parse_args()


# Running


def _run(file: Path, world: str, seeds: range, events: int) -> int:
    hashes = code_hashes(world)
    gc.freeze()
    failed = 0
    for start in range(seeds.start, seeds.stop, _PER_LINE):
        used = time.process_time()
        outcomes = [
            execute(Run(world, seed, events=events)) for seed in range(start, min(start + _PER_LINE, seeds.stop))
        ]
        failures = [outcome for outcome in outcomes if outcome.violated]
        failed += len(failures)
        _write(file, _line_of(world, hashes, outcomes, time.process_time() - used))
        for outcome in failures:
            with file.with_name(file.name + ".failures").open("a") as reports:
                reports.write(f"=== {world} {outcome.run.seed}\n{outcome.report}\n\n")
    return 1 if failed else 0


def code_hashes(world: str) -> CodeHashes:
    """Of the files imported for this world, in this process: call it before another world is imported."""
    world_named(world)
    machines: dict[str, str] = {}
    simulator: dict[str, str] = {}
    for path in {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}:
        for folder, hashes in ((ROOT / "logcore", machines), (ROOT / "tests" / "simulation", simulator)):
            if path.is_relative_to(folder) and path != Path(__file__):  # how seeds are counted is not what they ran
                hashes[str(path.relative_to(folder))] = blake2b(path.read_bytes(), digest_size=6).hexdigest()
    together = json.dumps(sorted(simulator.items())).encode()
    return CodeHashes(dict(sorted(machines.items())), blake2b(together, digest_size=6).hexdigest())


def _line_of(world: str, hashes: CodeHashes, outcomes: list[Outcome], cpu_s: float) -> dict[str, Any]:
    counters: Counter[str] = Counter()
    for outcome in outcomes:
        counters.update(outcome.counters)
    return {
        "world": world,
        **hashes._asdict(),
        "first": outcomes[0].run.seed,
        "seeds": len(outcomes),
        "events": sum(outcome.events for outcome in outcomes),
        "events_min": min(outcome.events for outcome in outcomes),
        "virtual_ms": sum(outcome.virtual_ms for outcome in outcomes),
        "cpu_s": round(cpu_s, 2),
        "failed": [[outcome.run.seed, outcome.violated] for outcome in outcomes if outcome.violated],
        "counters": dict(sorted(counters.items())),
    }


def _write(file: Path, line: Mapping[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


# Adding up


def _print_sums(file: Path) -> int:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    failed = 0
    for world in WORLDS:
        hashes = _hashes_in_a_process_of_its_own(world)
        mine = [line for line in lines if line["world"] == world]
        by_code: dict[str, list[dict[str, Any]]] = {}
        for line in mine:
            by_code.setdefault(_differing(line["machines"], hashes.machines), []).append(line)
        current = _each_seed_once(by_code.pop("", []))
        print(f"{world}: {describe(current)}")
        failed += sum(len(line["failed"]) for line in current)
        for files, others in by_code.items():
            print(f"  on other code ({files}): {describe(_each_seed_once(others))}")
    return 1 if failed else 0


def _hashes_in_a_process_of_its_own(world: str) -> CodeHashes:
    command = [sys.executable, "-m", "tests.simulation.marathon", "hash", "--world", world]
    return CodeHashes(*json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout))


def _differing(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    return ", ".join(sorted(file for file in {*then, *now} if then.get(file) != now.get(file)))


def _each_seed_once(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last line about the same first seed and the same simulator counts."""
    return list({(line["simulator"], line["first"]): line for line in lines}.values())


def describe(lines: list[dict[str, Any]]) -> str:
    """Seeds, events, virtual and processor time, faults, what failed, what happened how often."""
    if not lines:
        return "nothing yet"
    counters: Counter[str] = Counter()
    for line in lines:
        counters.update(line["counters"])
    faults = sum(count for name, count in counters.items() if name.startswith("fault "))
    failed = [failure for line in lines for failure in line["failed"]]
    totals = {name: sum(line[name] for line in lines) for name in ("seeds", "events", "virtual_ms", "cpu_s")}
    return (
        f"{totals['seeds']:,} seeds ({len({line['simulator'] for line in lines})} versions of the simulator),"
        f" {totals['events']:,} events (least of a seed {min(line['events_min'] for line in lines):,}),"
        f" {totals['virtual_ms'] / 3_600_000:.1f} virtual hours, {totals['cpu_s']:,.0f} s CPU,"
        f" {faults:,} faults; failed: {failed or 'none'}\n    {dict(sorted(counters.items()))}"
    )


if __name__ == "__main__":
    sys.exit(main())
