"""ksqlDB's request and response cases against a started server, over HTTP: a sample of what `run_cases.py --kind rest
--impl http_sandbox:HttpSandbox` runs as a whole."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import http_sandbox
import pytest

SAMPLE = 20


@pytest.mark.timeout(200)
def test_cases_pass_over_http_as_they_do_in_process(shared: Path, case_runner: ModuleType) -> None:
    cases: list[dict[str, Any]] = case_runner.read_cases(shared / "qtt" / "rest_cases")
    failed: list[str] = []
    for case in random.Random(20261120).sample(cases, SAMPLE):
        try:
            case_runner._run_rest(case, http_sandbox.HttpSandbox, "duckdb", False, {})
        except case_runner.Fail as failure:
            failed.append(f"{case['id']}: {failure}")
    assert len(failed) <= 1, "\n".join(failed)  # three of all 245 differ, in process too
