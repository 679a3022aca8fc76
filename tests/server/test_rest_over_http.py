"""ksqlDB's request and response cases against a started server, over HTTP: a sample of what `run_cases.py --kind rest
--impl http_sandbox:HttpSandbox` runs as a whole."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import http_sandbox
import pytest

SAMPLE = 20


@pytest.fixture(scope="module")
def runner(shared: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_cases", shared / "qtt" / "run_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(200)
def test_cases_pass_over_http_as_they_do_in_process(shared: Path, runner: ModuleType) -> None:
    cases: list[dict[str, Any]] = runner.read_cases(shared / "qtt" / "rest_cases")
    failed: list[str] = []
    for case in random.Random(20261120).sample(cases, SAMPLE):
        try:
            runner._run_rest(case, http_sandbox.HttpSandbox, "duckdb", False, {})
        except runner.Fail as failure:
            failed.append(f"{case['id']}: {failure}")
    assert len(failed) <= 1, "\n".join(failed)  # three of all 245 differ, in process too
