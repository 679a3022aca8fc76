"""`make mutants`: which changes of a source there are, which tests can notice them, and what is reported of them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from scripts.mutant_results import Kill, Results
from scripts.mutants import REPOSITORY, SETTINGS, Reach, Verdict, compile_anew, report, sample
from scripts.mutations import mutated, mutations, noting

SOURCE = dedent("""
    def clamp(value: int, high: int = 10, *, wrap: bool = False) -> int:
        '''Between 1 and `high`.'''
        assert high > 0, "high > 0"
        if not wrap and value > high:
            return high
        return max(value, 1)
""")


def keys(source: str) -> list[str]:
    return [mutation.key.removeprefix("clamp: ") for mutation in mutations(source)]


def changed(number: int) -> Callable[..., int]:
    names: dict[str, Callable[..., int]] = {}
    exec(compile(mutated(SOURCE, number), "source", "exec"), names)
    return names["clamp"]


def test_every_boundary_condition_constant_and_choice_is_changed_and_nothing_else() -> None:
    condition = ", in `if not wrap and value > high:`"
    header = ", in `def clamp(value: int, high: int=10, *, wrap: bool=False) -> int:`"
    assert keys(SOURCE) == [
        f"`False` → `True`{header}",
        f"`10` → `11`{header}",
        "`if not wrap and value > high:` → `if False:`",
        f"`not wrap and value > high` → `not wrap or value > high`{condition}",
        f"`not wrap` → `wrap`{condition}",
        f"`value > high` → `value >= high`{condition}",
        "`max(value, 1)` → `min(value, 1)`, in `return max(value, 1)`",
        "`1` → `2`, in `return max(value, 1)`",
    ]


def test_a_mutant_behaves_otherwise() -> None:
    assert [changed(number)(11) for number in range(8)] == [11, 11, 11, 10, 11, 10, 10, 10]
    assert [changed(number)(0) for number in (6, 7)] == [0, 2]


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("done.append(1)", "f: without `done.append(1)`"),
        ("self.x = y", "f: without `self.x = y`"),
        ("n -= y", "f: without `n -= y`"),
        ("return [x for x in y if x]", "f: `for x in y if x` → `for x in y`, in `return [x for x in y if x]`"),
        ("return a + b", "f: `a + b` → `a - b`, in `return a + b`"),
        ("return a if b else c", "f: `a if b else c` → `a if not b else c`, in `return a if b else c`"),
        ("return x in y", "f: `x in y` → `x not in y`, in `return x in y`"),
    ],
)
def test_statements_filters_and_operators_are_changed(source: str, change: str) -> None:
    assert change in [" ".join(m.key.split()) for m in mutations(f"def f():\n    {source}\n")]


def test_a_key_outlives_edits_of_other_lines() -> None:
    assert keys("import os\n\n" + SOURCE) == keys(SOURCE)
    twice = "def f():\n    g(0)\n    g(0)\n"
    assert len({mutation.key for mutation in mutations(twice)}) == len(mutations(twice)) == 4


def test_one_seed_gives_one_sample() -> None:
    one = sample("module.py", SOURCE, seed=1, count=3)
    assert one == sample("module.py", SOURCE, seed=1, count=3)
    assert one != sample("module.py", SOURCE, seed=2, count=3)
    assert len(one) == 3 and len(sample("module.py", SOURCE, seed=1, count=99)) == 8


def test_only_tests_that_run_the_line_are_asked_the_quick_ones_first() -> None:
    by_line = {mutation.line: mutation for mutation in mutations(SOURCE)}
    lines = {"a::slow": frozenset({7}), "a::quick": frozenset({5, 7}), "b::other": frozenset({5})}
    reach = Reach(lines, {"a::slow": 2.0, "a::quick": 1.0, "b::other": 0.5}, at_import=frozenset({2}))
    assert reach.tests_of(by_line[7]) == ["a::quick", "a::slow"]
    assert reach.tests_of(by_line[5]) == ["b::other", "a::quick"]
    assert reach.tests_of(by_line[2]) == ["b::other", "a::quick", "a::slow"], "everybody runs what an import runs"


def test_the_report_is_good_where_enough_are_killed_and_each_survivor_is_judged() -> None:
    found = mutations(SOURCE)
    verdicts = [Verdict("module.py", mutation, "killed") for mutation in found[1:]]
    survivor = Verdict("module.py", found[0], "survived")
    judged = {"module.py": {found[0].key: "nobody leaves out `high`"}}
    assert report([*verdicts, survivor], judged)[1]
    text, well = report([*verdicts, survivor], {})
    assert not well and f"module.py:2 survived (constant)\n  {found[0].key}" in text
    assert not report([survivor] * 8, judged)[1], "most of them survive"


def test_the_modules_and_tests_that_are_listed_exist_and_each_judgement_has_a_reason() -> None:
    told = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    for module, tests in told["nearest"].items():
        assert all((REPOSITORY / path).is_file() for path in (module, *tests))
    for module, judged in told["judged"].items():
        assert module in told["nearest"]
        assert all(len(reason.split()) > 3 for reason in judged.values())


LOOP = dedent("""
    import numba

    @numba.njit(cache=True)
    def step(value):
        return value + 1
""")
CALLER = dedent("""
    import numba
    from changed_loop import step

    @numba.njit(cache=True)
    def twice(value):
        return step(step(value))
""")


def test_a_changed_constant_of_a_compiled_loop_reaches_the_loops_that_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changed_loop.py").write_text(LOOP)
    (tmp_path / "calling_loop.py").write_text(CALLER)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("calling_loop").twice(0) == 2  # which fills the cache

    monkeypatch.setattr(Dispatcher, "enable_caching", Dispatcher.enable_caching)  # what it is at the end, too
    compile_anew("changed_loop")
    module = sys.modules["changed_loop"]
    (two,) = [mutation for mutation in mutations(LOOP) if "`1` → `2`" in mutation.key]
    exec(compile(mutated(LOOP, two.number), str(tmp_path / "changed_loop.py"), "exec"), module.__dict__)
    monkeypatch.delitem(sys.modules, "calling_loop")
    assert importlib.import_module("calling_loop").twice(0) == 4


def test_a_mutant_takes_the_place_of_the_module_that_its_tests_import(tmp_path: Path) -> None:
    """With the plugins of this environment, Millstream's among them."""
    program = "import sys, pathlib; from scripts import mutants; mutants.RESULTS = pathlib.Path(sys.argv[1], 'kept')"
    command = [sys.executable, "-c", f"{program}; mutants.main(sys.argv[2:])", str(tmp_path), "--work", str(tmp_path)]
    command += ["--module", "logcore/storage/segment.py", "--mutant", "end_at: without", "--jobs", "1"]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    outcomes = json.loads((tmp_path / "outcomes.json").read_text(encoding="utf-8"))
    assert list(outcomes.values()) == ["killed"]


def test_each_statement_notes_its_line_when_it_runs_and_a_compiled_loop_all_its_lines_at_once() -> None:
    ran: set[int] = set()
    names: dict[str, Any] = {"note": ran.add}
    exec(compile(noting(SOURCE, "note"), "source", "exec"), names)
    assert ran == {2}
    names["clamp"](1)
    assert ran == {2, 4, 5, 7}
    names["clamp"](11)
    assert ran == {2, 4, 5, 6, 7}
    ran.clear()
    names["numba"] = None
    loop = "@numba.njit\ndef f(x):\n    while x:\n        x -= 1\n    return x\n"
    exec(compile(noting(f"class numba:\n    njit = staticmethod\n{loop}", "note"), "source", "exec"), names)
    assert ran >= {4, 5, 6, 7} and names["f"](2) == 0


class Kept:
    """The results of a module with two tests, each in the folder of a repository that the test edits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("module.py", "x = 1\n")
        self.write("tests.py", "from module import x\n\ndef test_a():\n    assert x\n\ndef test_b():\n    assert x\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        self.write(name, (self.folder / name).read_text(encoding="utf-8").replace(old, new))

    def results(self) -> Results:
        """As a new run finds them."""
        return Results(self.folder / "build", self.folder, "module.py", ["tests.py"])


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    kept = Kept(tmp_path)
    kept.results().keep_kill("killed", Kill("timed out", "tests.py::test_a[1-2]"))
    kept.results().keep_kill("nothing began", Kill("killed", ""))
    kept.results().keep_survival("left", "survived")
    kept.results().keep_reach({"lines": {}})
    return kept


def outcomes(kept: Kept) -> list[str | None]:
    return [kept.results().outcome(mutant) for mutant in ("killed", "nothing began", "left")]


def test_a_result_is_kept_for_the_next_run(kept: Kept) -> None:
    assert outcomes(kept) == ["timed out", "killed", "survived"]
    assert kept.results().outcome("another") is None
    assert kept.results().reach() == {"lines": {}}


def test_a_kill_holds_while_the_test_that_killed_is_the_same(kept: Kept) -> None:
    kept.edit("tests.py", "def test_b():\n    assert x", "def test_c():\n    assert x > 0")
    assert outcomes(kept) == ["timed out", None, None], "a new test may kill those that survived"
    assert kept.results().reach() is None
    kept.edit("tests.py", "def test_a():\n    assert x", "def test_a():\n    assert True")
    assert outcomes(kept) == [None, None, None]


def test_a_kill_outlives_what_its_test_does_not_use(kept: Kept) -> None:
    kept.edit("tests.py", "from module import x", "from module import x, y\n\ndef helper():\n    return y\n")
    assert outcomes(kept) == ["timed out", None, None]


def test_a_kill_does_not_outlive_a_helper_of_its_test(kept: Kept) -> None:
    kept.edit(
        "tests.py", "def test_a():\n    assert x", "def helper():\n    return x\n\ndef test_a():\n    assert helper()"
    )
    kept.results().keep_kill("killed", Kill("killed", "tests.py::test_a"))
    assert kept.results().outcome("killed") == "killed"
    kept.edit("tests.py", "    return x", "    return True")
    assert kept.results().outcome("killed") is None


def test_a_kill_does_not_outlive_what_the_tests_share(kept: Kept) -> None:
    kept.edit("tests.py", "from module import x", "x = 1")
    assert outcomes(kept) == [None, None, None]


def test_nothing_outlives_an_edit_of_the_module(kept: Kept) -> None:
    kept.edit("module.py", "x = 1", "x = 2")
    assert outcomes(kept) == [None, None, None]
    assert kept.results().reach() is None


def test_nothing_outlives_the_test_that_killed(kept: Kept) -> None:
    kept.edit("tests.py", "test_a", "test_z")
    assert outcomes(kept) == [None, None, None]
