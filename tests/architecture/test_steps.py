"""A step knows itself: adding one touches its module in `planner/steps/` and the one in `executor/operators/`."""

from __future__ import annotations

import ast
import contextlib
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from repository import REPOSITORY
from spark_stages import QUERIES, plan_of

from millstream.executor import building, pipeline
from millstream.executor.partitioning import RekeyPartitioner
from millstream.planner import steps
from millstream.planner.logical import LogicalPlan
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.step import Step

ANYWHERE = {"Step", "Source", "Sink", "Rekey"}  # where rows enter a plan, leave it, and cross tasks
PRODUCT = ("sql", "planner", "logcore", "executor", "server", "repl", "millstream")
MODULES = [importlib.import_module(f"{steps.__name__}.{each.name}") for each in pkgutil.iter_modules(steps.__path__)]


def below(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from below(each)


def steps_of(base: type) -> set[str]:
    """The names of the classes under `base` that `planner/steps/` defines."""
    modules = {module.__name__ for module in MODULES}
    return {each.__name__ for each in below(base) if each.__module__ in modules}


def imported(folder: str) -> Iterator[tuple[Path, str]]:
    """(file, name) of all that files of this folder import from `planner/steps/`."""
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "steps" in text else ():
            if isinstance(node, ast.ImportFrom) and ".steps." in f".{node.module}." and "steps" in str(node.module):
                for alias in node.names:
                    yield path.relative_to(REPOSITORY), alias.name


@pytest.mark.parametrize("folder", PRODUCT)
def test_nobody_knows_a_step_but_its_modules(folder: str) -> None:
    known = steps_of(Step) - ANYWHERE
    rooms = ("planner/steps", "executor/operators")
    found = [f"{path}: {name}" for path, name in imported(folder) if name in known]
    assert [line for line in found if not line.startswith(rooms)] == []


@pytest.mark.parametrize("folder", [folder for folder in PRODUCT if folder != "planner"])
def test_nodes_of_the_analyzed_plan_stay_in_the_planner(folder: str) -> None:
    nodes = steps_of(LogicalPlan)
    assert nodes
    assert [f"{path}: {name}" for path, name in imported(folder) if name in nodes] == []


def test_every_step_has_an_operator() -> None:
    assert callable(pipeline.Pipeline)  # imports the operators
    runnable = {each.__name__ for each in building.runnable_steps()}
    bases = {"JoinStep", "JoinOfTables"}
    assert steps_of(Step) - runnable == {Sink.__name__, *bases}, "a sink is written by the runtime"


@pytest.mark.parametrize("query", QUERIES)
def test_a_step_has_state_where_its_operator_has_stores(query: str) -> None:
    """A store that only remembers the time of a source does not count: it is read again with the source."""
    plan = plan_of(query, "OUT")
    with contextlib.closing(duckdb.connect()) as connection:
        stores = pipeline.Pipeline(plan, connection, partitioner=RekeyPartitioner()).stores
    with_stores = {name.partition(".")[0] for name in stores if not name.endswith(".stream_time")}
    assert with_stores == {step.id for step in plan.steps() if step.stateful}
