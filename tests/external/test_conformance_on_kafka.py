"""ksqlDB's query cases with brokers of others as the log: what passes on our own log passes on them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from external_sandbox import BROKERS, ExternalSandbox

from bench.apache_kafka import ApacheKafka
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer
from millstream.testing import Sandbox

_SAMPLE: Final = 16
"""Of the cases in CI. All of them run on Apache Kafka with the soak tests: about 8 minutes."""


@pytest.fixture
def cases(shared: Path, case_runner: ModuleType) -> list[dict[str, Any]]:
    return [case for case in case_runner.read_cases(shared / "qtt" / "cases") if case["applicable"]]


def test_a_sample_on_the_kafka_port_of_another_millstream(
    case_runner: ModuleType, cases: Sequence[Mapping[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(tmp_path, sync="never") as log, LogServer(log, port=0) as other:
        monkeypatch.setenv(BROKERS, other.address)
        assert only_on_brokers(case_runner, random.Random(20261126).sample(cases, _SAMPLE)) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_on_apache_kafka(
    case_runner: ModuleType,
    cases: Sequence[Mapping[str, Any]],
    kafka: ApacheKafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(BROKERS, kafka.address)
    assert only_on_brokers(case_runner, cases) == []


def only_on_brokers(case_runner: ModuleType, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of them fail there, and pass on a log of our own."""
    return [
        f"{case['id']}: {found['reason']}"
        for case in cases
        for found in [case_runner.run_case(case, ExternalSandbox, "duckdb")]
        if found["status"] != "pass" and case_runner.run_case(case, Sandbox, "duckdb")["status"] == "pass"
    ]
