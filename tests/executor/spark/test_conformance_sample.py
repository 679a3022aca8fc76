"""ksqlDB's query cases on Spark's stages in this process: a sample of what `make conformance ARGS="--executor spark
--final"` runs as a whole, on Spark itself. What passes on DuckDB passes here."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from staged_sandbox import StagedSandbox

from millstream.testing import Sandbox

SAMPLE, PARTS, FEW = 240, 8, 2  # in a run of all tests a few of the parts; `make soak` runs the others


@pytest.mark.parametrize(
    "part", [*range(FEW), *(pytest.param(part, marks=pytest.mark.soak) for part in range(FEW, PARTS))]
)
def test_cases_that_pass_on_duckdb_pass_on_spark(shared: Path, case_runner: ModuleType, part: int) -> None:
    failed = [
        f"{case['id']}: {found['reason']}"
        for case in sample(case_runner.read_cases(shared / "qtt" / "cases"))[part::PARTS]
        for found in [case_runner.run_case(case, StagedSandbox, "spark", final=True)]
        if found["status"] != "pass" and case_runner.run_case(case, Sandbox, "duckdb", final=True)["status"] == "pass"
    ]
    assert not failed, "\n".join(failed)


def sample(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two thirds of them are cases in which rows of several topics, or of several times, meet."""
    running = [case for case in cases if case["applicable"] and not case["expect_error"] and case["inputs"]]
    meeting = [case for case in running if {"joins", "aggregate", "windowed"} & set(case["tags"])]
    others = [case for case in running if case not in meeting]
    chance = random.Random(20261123)
    return chance.sample(meeting, SAMPLE * 2 // 3) + chance.sample(others, SAMPLE // 3)
