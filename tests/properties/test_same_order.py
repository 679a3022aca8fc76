"""Law: the order in which a query takes the records of several topics is one rule on every executor.

The executors themselves catch up on the same log, in batches of any size and with restarts; and a Sandbox on each gives
the same for the same script. The stages of Spark run in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.case import Case
from laws.queries import random_case
from laws.running import PROPERTIES, World, Written, content, world
from spark_stages import StagedRun
from staged_sandbox import StagedSandbox

from millstream.executor.errors import QueryFailed
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.sink import Sink
from millstream.testing import Sandbox

SEEDS = st.integers(0, 2**32)
CATCHING_UP, SCRIPTS = Budget(seconds=8), Budget(seconds=10)


def catch_up(seed: int) -> None:
    case, rng = random_case(seed), Random(seed + 1)
    with world(case, rng) as it:
        for plan in it.plans:
            plan = replace(plan, properties={**plan.properties, **PROPERTIES})
            on_duckdb(it, plan, rng)
            staged = it.variant(plan, "spark")
            on_spark(it, staged, rng)
            assert same(case, it, plan, staged), case.text


def on_duckdb(it: World, plan: PhysicalPlan, rng: Random) -> None:
    """In batches of any size, with a restart here and there."""
    goes_on = True
    while goes_on:
        runtime = it.runtime(plan)
        for _ in range(rng.choice((1, 2, 1000))):
            goes_on = runtime.step(rng.choice((1, 100, 1 << 20)))
            if not goes_on:
                break
        runtime.close()


def on_spark(it: World, plan: PhysicalPlan, rng: Random) -> None:
    """The same. Each run fences the one before."""
    goes_on, number = True, 0
    while goes_on:
        number += 1
        run = StagedRun(plan, it.client, f"run {number}", records_max=rng.choice((1, 2, 5, 1000)))
        for _ in range(rng.choice((1, 2, 1000))):
            before = run.at
            run.step()
            goes_on = run.at != before  # what it reads may be nothing but the marks of transactions
            if not goes_on:
                break
        run.close()


def same(case: Case, it: World, plan: PhysicalPlan, other: PhysicalPlan) -> bool:
    """The same records for each key in the same order, or where a batch gives its net changes, the same rows."""
    if case.net:
        return content(case, it.written(plan)) == content(case, it.written(other))
    ours, theirs = ([(r.partition, _key(case, r), r) for r in it.written(each)] for each in (plan, other))
    return by_key(ours) == by_key(theirs)


def _key(case: Case, record: Written) -> object:
    """Of a columnar record it is among its columns."""
    return [record.value.get(name) for name in case.keys] if isinstance(record.value, Mapping) else record.key


def by_key(records: Iterable[tuple[object, object, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for place, key, record in records:
        found.setdefault(repr((place, key)), []).append(record)
    return found


@settings(max_examples=drawn(30), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_executors_that_catch_up_take_records_in_one_order(seed: int) -> None:
    CATCHING_UP.run(catch_up, seed)


def play(seed: int) -> None:
    case = random_case(seed)
    duckdb, spark = (_played(case, make, name, seed) for make, name in ((Sandbox, "duckdb"), (StagedSandbox, "spark")))
    assert duckdb == spark, case.text


def _played(case: Case, make: type[Sandbox], executor: str, seed: int) -> object:
    """What is in the sinks in the end. Rows go in topic by topic as chance wills, with a drain here and there."""
    rng = Random(seed + 1)
    with make(executor, {"auto.offset.reset": "earliest"}) as sandbox:
        before = rng.random() < 0.5  # then the queries are live
        sandbox.execute("\n".join([source.statement for source in case.sources]))
        queries = "\n".join(case.statements)
        if before:
            sandbox.execute(queries)
        waiting = [(source.topic, *piece) for source in case.sources for piece in source.batches(rng)]
        while waiting:
            topic = rng.choice([topic for topic, _, _ in waiting])
            index = next(i for i, (name, _, _) in enumerate(waiting) if name == topic)
            sandbox.log.append(*waiting.pop(index))
            if before and rng.random() < 0.1:
                sandbox.drain()
        if not before:
            sandbox.execute(queries)
        try:
            sandbox.drain()
        except QueryFailed:
            return "failed"
        sinks = [query.plan.root for query in sandbox.engine.catalog.queries.values()]
        return [_contents(case, sandbox, sink.topic) for sink in sinks if isinstance(sink, Sink)]


def _contents(case: Case, sandbox: Sandbox, topic: str) -> dict[str, list[Any]]:
    found = by_key((None, (r["key"], r["window"]), (r["value"], r["timestamp"])) for r in sandbox.consume(topic))
    return {key: [records[-1][0]] for key, records in found.items()} if case.net and case.kind == "TABLE" else found


@settings(max_examples=drawn(30), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_a_script_gives_the_same_rows_in_a_sandbox_on_each_executor(seed: int) -> None:
    SCRIPTS.run(play, seed)
