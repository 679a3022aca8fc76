"""Runs as they are stored, started and told about: by a seed, or by a scenario (options and faults written out)."""

from __future__ import annotations

import gc
import json
import traceback
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .faults import Fault
from .kernel import InvariantViolated
from .mutants import all_mutants
from .options import Options
from .simulation import Simulation
from .worlds import world_named

SCENARIOS = Path(__file__).parent / "scenarios"


@dataclass
class Run:
    """What is to be run. Options and faults are drawn from the seed where they are None."""

    world: str
    seed: int
    events: int = 20_000
    mutant: str | None = None
    options: Options | None = None
    faults: list[Fault] | None = None
    note: str = ""  # of a scenario: what it shows

    def to_json(self) -> dict[str, Any]:
        return {
            "note": self.note,
            "world": self.world,
            "seed": self.seed,
            "events": self.events,
            "options": self.options.to_json() if self.options else None,
            "faults": [fault.to_json() for fault in self.faults] if self.faults is not None else None,
        }

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Run:
        options, faults = content["options"], content["faults"]
        return cls(
            world=content["world"],
            seed=content["seed"],
            events=content["events"],
            options=Options.of_json(options) if options else None,
            faults=[Fault.of_json(fault) for fault in faults] if faults is not None else None,
            note=content["note"],
        )


@dataclass
class Outcome:
    """How a run went. `violated` is None when every promise was kept."""

    run: Run
    violated: str | None
    trace_hash: str
    events: int
    virtual_ms: int
    counters: Counter[str] = field(default_factory=Counter[str])
    report: str = ""


def load_scenario(name: str | Path) -> Run:
    """By name (in the folder `scenarios`) or by path."""
    path = Path(name)
    if path.suffix != ".json":
        path = SCENARIOS / f"{name}.json"
    return Run.of_json(json.loads(path.read_text()))


def save_scenario(run: Run, path: Path) -> None:
    path.write_text(json.dumps(run.to_json(), indent=1) + "\n")


def prepare(run: Run) -> Simulation:
    """The simulation of a run, not yet begun. Its options and faults are those that the run says or draws."""
    return Simulation(world_named(run.world), run.seed, options=run.options, faults=run.faults, events=run.events)


def execute(run: Run, *, printing: bool = False) -> Outcome:
    """Runs it, with its mutant planted; whatever is raised inside counts as a violation."""
    with _rare_collections(), all_mutants()[run.mutant].planted() if run.mutant else nullcontext():
        simulation = prepare(run)
        kernel = simulation.kernel
        if printing:
            kernel.printing = print
        violated, report = None, ""
        try:
            simulation.run()
        except InvariantViolated as error:
            violated = error.name
            report = failure_report(run, simulation, str(error))
        except Exception as error:
            violated = type(error).__name__
            report = failure_report(run, simulation, traceback.format_exc())
        return Outcome(
            run, violated, kernel.trace_hash, kernel.event_count, kernel.now_ns // 1_000_000, kernel.counters, report
        )


@contextmanager
def _rare_collections() -> Generator[None]:
    """A run makes millions of tuples and hardly a cycle: looking for cycles as often as usual takes a tenth of it."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def failure_report(run: Run, simulation: Simulation, what: str) -> str:
    """For people: what was broken, when, the state of all nodes, what came before, how to see it again."""
    kernel = simulation.kernel
    mutant = f" --mutant {run.mutant}" if run.mutant else ""
    by_seed = run.options is None and run.faults is None
    again = f"--world {run.world} --seed {run.seed} --events {run.events}" if by_seed else "--scenario FILE"
    lines = [
        f"VIOLATED {what}",
        f"seed {run.seed}, event {kernel.event_count}, {kernel.now_ns / 1_000_000:.3f} ms virtual",
        f"options: {json.dumps(simulation.options.to_json())}",
        f"faults planned: {len(simulation.faults)}",
        "",
        "the last events:",
        *(f"  {happening}"[:240] for happening in kernel.recent),
        "",
        "nodes:",
        *(
            f"  {host.id} {'up' if host.alive else 'down':<5}{'paused ' if host.paused else ''}"
            f"starts {host.starts:<3} {simulation.world.line(host)}"
            for host in simulation.hosts.values()
        ),
        "",
        f"again: PYTHONHASHSEED=0 python -m tests.simulation {again}{mutant}",
    ]
    return "\n".join(lines)
