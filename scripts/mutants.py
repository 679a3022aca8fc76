"""Changes the core in small ways, and runs the tests nearest to each change: a change that no test notices is a test
that is missing. `make mutants` takes a sample of each module in `scripts/mutants.toml`, the same for the same seed.

    python -m scripts.mutants [--seed N] [--count PER_MODULE] [--module PART_OF_NAME] [--mutant PART_OF_KEY] [--anew]

No file is changed. Pytest runs once for each module, up to the point where the module is imported. There the process
forks: one child runs the module as it is and notes which test runs which line, then each mutant has a child of its
own, which runs only the tests that reach the changed line. A survivor needs a test, or a sentence in `mutants.toml`
that says why none can tell. Results are kept in `build/mutants/` while the texts they rest on stay the same.

mutmut changes functions only, and not those with decorators; cosmic-ray edits the files in place and starts an
interpreter for each mutant; neither finds packages that pyproject.toml maps to other folders.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from hypothesis import Phase, settings
from numba.core.dispatcher import Dispatcher

from scripts.mutant_results import Kill, Results
from scripts.mutations import COMPILING, Mutation, mutated, mutations, noting

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SETTINGS: Final = REPOSITORY / "scripts" / "mutants.toml"
REPORT: Final = REPOSITORY / "build" / "mutants.txt"
RESULTS: Final = REPOSITORY / "build" / "mutants"
GOAL_PERCENT: Final = 85
_TIME_LIMIT_S: Final = 8  # of the processor for a mutant, and …
_COMPILING_S: Final = 40  # … if it has compiled loops, and …
_SLOWER_AT_MOST: Final = 2  # … times what its tests take without it
_WAITING_AT_MOST: Final = 6  # times its limit a mutant may take on the clock: it waits, or others use the machine
_NOTE: Final = "_line_runs"  # the function that a noted module calls with its lines
_PYTEST: Final = (
    "--assert=plain",  # what rewrites `assert` would import the module in our place: Millstream is a plugin of pytest
    "-o",
    "timeout=900",
    "-x",
    "-q",
    "-s",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-seed=0",
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    module: str
    mutation: Mutation
    outcome: str  # killed, timed out, survived, not reached

    @property
    def survived(self) -> bool:
        return self.outcome in ("survived", "not reached")


@dataclass
class Reach:
    """Which lines of the module each test runs, and how long it takes."""

    lines: dict[str, frozenset[int]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    at_import: frozenset[int] = frozenset()

    def tests_of(self, mutation: Mutation) -> list[str]:
        """The tests that can notice, those of quick files first, and the quick ones of a file first."""
        everywhere = bool(mutation.lines & self.at_import)
        tests = [test for test, lines in self.lines.items() if everywhere or lines & mutation.lines]
        files: defaultdict[str, float] = defaultdict(float)
        for test, seconds in self.seconds.items():
            files[_file_of(test)] += seconds
        return sorted(tests, key=lambda test: (files[_file_of(test)], _file_of(test), self.seconds[test]))


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def sample(module: str, source: str, seed: int, count: int, wanted: str = "") -> list[Mutation]:
    """`count` mutations of a module (all that there are, if fewer), by their place; other modules do not matter."""
    found = [mutation for mutation in mutations(source) if wanted in mutation.key]
    chosen = random.Random(f"{seed} {module}").sample(found, min(count, len(found)))
    return sorted(chosen, key=lambda mutation: mutation.number)


# ------------------------------------------------------------------ in the process of a module


class Worker(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Pytest's plugin, and the importer of the module: the import is where the process forks."""

    def __init__(self, module: str, chosen: Sequence[Mutation], jobs: int, folder: Path, results: Results) -> None:
        super().__init__(_dotted(module), str(REPOSITORY / module))
        self._source = Path(self.path).read_text(encoding="utf-8")
        self._chosen, self._jobs, self._folder, self._results = chosen, jobs, folder, results
        self._patience_s = _TIME_LIMIT_S + (_COMPILING_S if COMPILING.search(self._source) else 0)
        self._running: dict[int, tuple[Mutation, float, Path]] = {}
        self._outcomes: dict[int, str] = {}
        self._wanted: list[str] | None = None  # the tests to run; None: all, and note their lines
        self._reach = Reach()
        self._begun = folder
        self._loaded = 0  # modules, when the process forked
        self._ran: set[int] = set()

    # ---- importing

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType | None:
        if fullname != self.name:
            return super().get_code(fullname)
        return compile(self._fork(), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_NOTE] = self._ran.add
        super().exec_module(module)

    def _fork(self) -> ast.Module:
        """The source, changed or not, in a child; the parent watches the children and never returns."""
        self._loaded = len(sys.modules)
        told = self._results.reach()
        if told is None:
            child = self._start("unchanged")
            if child == 0:
                return noting(self._source, _NOTE)
            _, status = os.waitpid(child, 0)
            if status != 0:
                shutil.copyfileobj((self._folder / "unchanged.out").open(), sys.stderr)
                os._exit(1)
            told = json.loads((self._folder / "reach.json").read_text(encoding="utf-8"))
            self._results.keep_reach(told)
        for name in told["packages"]:
            with contextlib.suppress(Exception):
                importlib.import_module(name)  # once, not in each child; what fails here fails there, and is said
        lines = {test: frozenset(lines) for test, lines in told["lines"].items()}
        reach = Reach(lines, told["seconds"], frozenset(told["at_import"]))
        for mutation in self._chosen:
            kept = self._results.outcome(mutation.key)
            tests = reach.tests_of(mutation)
            if kept is not None or not tests:
                self._settle(mutation, kept or "not reached")
                continue
            while len(self._running) >= self._jobs:
                self._watch()
            name = f"mutant-{mutation.number}"
            limit_s = math.ceil(self._patience_s + _SLOWER_AT_MOST * sum(reach.seconds[test] for test in tests))
            child = self._start(name)
            if child == 0:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
                self._wanted = tests
                # One failing example is enough: nobody reads the smallest.
                settings.register_profile("mutants", settings(), phases=(Phase.explicit, Phase.generate))
                settings.load_profile("mutants")
                compile_anew(self.name)
                return mutated(self._source, mutation.number)
            deadline = time.monotonic() + _WAITING_AT_MOST * limit_s
            self._running[child] = (mutation, deadline, self._folder / name)
        while self._running:
            self._watch()
        (self._folder / "outcomes.json").write_text(json.dumps(self._outcomes), encoding="utf-8")
        os._exit(0)

    def _start(self, name: str) -> int:
        """Fork. The child has a session, an output and a folder for temporary files of its own."""
        child = os.fork()
        if child != 0:
            return child
        os.setsid()
        output = os.open(self._folder / f"{name}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        self._begun = self._folder / f"{name}.test"
        temporary = self._folder / name
        temporary.mkdir()
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(temporary)
        return 0

    def _watch(self) -> None:
        """Wait until a child has ended, and end those that take too long."""
        while True:
            for child, (mutation, deadline, temporary) in list(self._running.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                late = not ended and time.monotonic() > deadline
                if not ended and not late:
                    continue
                _kill_session(child)
                if late:
                    os.waitpid(child, 0)
                late |= os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
                self._settle(mutation, "timed out" if late else "survived" if status == 0 else "killed")
                del self._running[child]
                shutil.rmtree(temporary, ignore_errors=True)
                return
            time.sleep(0.01)

    def _settle(self, mutation: Mutation, outcome: str) -> None:
        self._outcomes[mutation.number] = outcome
        if outcome == self._results.outcome(mutation.key):
            return
        if outcome in ("survived", "not reached"):
            self._results.keep_survival(mutation.key, outcome)
        else:
            begun = self._folder / f"mutant-{mutation.number}.test"
            self._results.keep_kill(mutation.key, Kill(outcome, begun.read_text() if begun.exists() else ""))

    # ---- in a child: as a plugin of pytest

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._wanted is not None:
            places = {test: place for place, test in enumerate(self._wanted)}
            items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
        self._reach.at_import = frozenset(self._ran)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._ran.clear()
        if self._wanted is not None:
            self._begun.write_text(nodeid)  # the last one is the one that killed
        self._reach.seconds[nodeid] = -time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._reach.seconds[nodeid] += time.monotonic()
        self._reach.lines[nodeid] = frozenset(self._ran)

    def end(self, status: int) -> None:
        """In a child: tell what the tests reached, and end without waiting for threads."""
        if not self._loaded:
            print(f"no test of {self.name} imports it", file=sys.stderr)
            status = 1
        elif self._wanted is None:
            told = {
                "lines": {test: sorted(lines) for test, lines in self._reach.lines.items()},
                "seconds": self._reach.seconds,
                "at_import": sorted(self._reach.at_import),
                "packages": [name for name in list(sys.modules)[self._loaded :] if _is_foreign(sys.modules[name])],
            }
            (self._folder / "reach.json").write_text(json.dumps(told), encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def compile_anew(module: str) -> None:
    """From now on the loops of this module, and those that call them, are compiled without numba's cache: it tells
    loops apart by their code, but not by constants and callees, and would answer with the loops of the unchanged
    module."""
    enable = Dispatcher.enable_caching
    changed: set[str | None] = {module}

    def enable_caching(self: Any) -> None:
        used = {getattr(value, "__module__", None) for value in self.py_func.__globals__.values()}
        if changed.isdisjoint({*used, self.__module__}):
            enable(self)
        else:
            changed.add(self.__module__)

    Dispatcher.enable_caching = enable_caching  # pyrefly: ignore[method-assign]


def _dotted(module: str) -> str:
    name = module.removesuffix(".py").replace("/", ".")
    return name if name.startswith("millstream.") else f"millstream.{name}"


def _is_foreign(module: ModuleType) -> bool:
    """Whether it is a part of an installed package, which cannot import the one that is changed."""
    return "site-packages" in (getattr(module, "__file__", None) or "")


def _kill_session(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing of it is left


def work(module: str, tests: Sequence[str], chosen: Sequence[Mutation], jobs: int, folder: Path) -> None:
    """Run the tests of a module; never returns."""
    import pytest  # here: the process that only reports starts without it

    worker = Worker(module, chosen, jobs, folder, Results(RESULTS, REPOSITORY, module, tests))
    sys.meta_path.insert(0, worker)
    worker.end(int(pytest.main([*_PYTEST, *tests], plugins=[worker])))


# ------------------------------------------------------------------ in the process that reports


def judge(module: str, tests: Sequence[str], chosen: Sequence[Mutation], options: argparse.Namespace) -> list[Verdict]:
    """Run the mutants of a module in a process of its own, unless all results are there. Raises `CalledProcessError`:
    its tests fail unchanged."""
    results = Results(RESULTS, REPOSITORY, module, tests)
    kept = {mutation: results.outcome(mutation.key) for mutation in chosen}
    if None not in kept.values():
        return [Verdict(module, mutation, outcome) for mutation, outcome in kept.items() if outcome is not None]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        command = [sys.executable, "-m", "scripts.mutants", "--work", folder, "--module", module]
        command += ["--seed", str(options.seed), "--count", str(options.count), "--mutant", options.mutant]
        command += ["--jobs", str(options.jobs)]
        environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": folder}
        subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, check=True)
        outcomes = json.loads((Path(folder) / "outcomes.json").read_text(encoding="utf-8"))
    return [Verdict(module, mutation, outcomes[str(mutation.number)]) for mutation in chosen]


def report(verdicts: Sequence[Verdict], judged: dict[str, dict[str, str]]) -> tuple[str, bool]:
    """The report, and whether all is well: enough mutants killed, each survivor judged."""
    lines = [f"{'module':45} {'mutants':>8} {'killed':>7} {'late':>5} {'judged':>7} {'open':>5} {'percent':>8}"]
    by_module = {verdict.module: [v for v in verdicts if v.module == verdict.module] for verdict in verdicts}
    for module, of_module in [*by_module.items(), ("all", list(verdicts))]:
        late = sum(verdict.outcome == "timed out" for verdict in of_module)
        survivors = [verdict for verdict in of_module if verdict.survived]
        known = sum(verdict.mutation.key in judged.get(verdict.module, {}) for verdict in survivors)
        killed = len(of_module) - len(survivors)
        percent = 100 * killed / max(len(of_module), 1)
        counts = f"{len(of_module):8} {killed - late:7} {late:5} {known:7} {len(survivors) - known:5} {percent:8.1f}"
        lines.append(f"{module:45} {counts}")
    opened = [v for v in verdicts if v.survived and v.mutation.key not in judged.get(v.module, {})]
    lines += [f"\n{v.module}:{v.mutation.line} {v.outcome} ({v.mutation.operator})\n  {v.mutation.key}" for v in opened]
    share = sum(not verdict.survived for verdict in verdicts) * 100 >= GOAL_PERCENT * len(verdicts)
    return "\n".join(lines) + "\n", share and not opened


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which sample (default: 1)")
    parser.add_argument("--count", type=int, default=16, help="mutants of each module (default: 16)")
    parser.add_argument("--module", default="", help="only modules whose path contains this")
    parser.add_argument("--mutant", default="", help="only mutants whose key contains this")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--anew", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    told = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    if options.anew:
        shutil.rmtree(RESULTS, ignore_errors=True)
    verdicts: list[Verdict] = []
    for module, tests in told["nearest"].items():
        if options.module not in module:
            continue
        source = (REPOSITORY / module).read_text(encoding="utf-8")
        chosen = sample(module, source, options.seed, options.count, options.mutant)
        if options.work is not None:
            work(module, tests, chosen, options.jobs, options.work)
        verdicts += judge(module, tests, chosen, options) if chosen else []
        print(report(verdicts[-len(chosen) :], told["judged"])[0].splitlines()[1], flush=True)
    text, well = report(verdicts, told["judged"])
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
