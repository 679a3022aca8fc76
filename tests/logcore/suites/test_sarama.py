"""The functional tests that come with sarama, run on three nodes behind the five proxies that it wants."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from bench.apache_kafka import free_ports

from .go_modules import GoTests, installed
from .serving import ProductCluster

_VERSION: Final = "v1.61.1"
_PROXY: Final = ("github.com/Shopify/toxiproxy/v2/cmd/server", "v2.5.0")
_PORTS: Final = (29091, 29092, 29093, 29094, 29095)  # those that the tests expect
_WITHIN_S: Final = 1500.0
_TESTS: Final = "TestFunc|TestConsumer|TestVersionMatrix|TestReadOnly|TestInterceptors|TestAsyncProducerRemote"
_NOT_RUN: Final = ("TestConsumerFetchFollowerFailover", "Java")  # they want Docker, and would end all others
_WITH_DOCKER: Final = "it stops brokers, or reads what they have logged, with Docker"
_EXPECTED: Final[Mapping[str, str]] = {
    "TestFuncAdminListConsumerGroupOffsets": _WITH_DOCKER,
    "TestFuncTxnProduceWithBrokerFailure": _WITH_DOCKER,
    "TestFuncIdempotentBufferedSequence": _WITH_DOCKER,
    "TestFuncAdminDescribeLogDirs": "it wants five brokers",
    "TestFuncAdminUpdateFeatures": "UpdateFeatures is not answered",
    "TestFuncAdminIncrementalAlterConfigs": "it changes a setting of brokers that Millstream does not have",
    "TestFuncAdminDescribeConfig": "settings come without their documentation",
}


@pytest.fixture
def proxies() -> Iterator[str]:
    """The address of what makes proxies."""
    for port in _PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"sarama's tests expect their brokers at {port}, and somebody listens there")
    (port,) = free_ports(1)
    command = [installed(*_PROXY), "-host", "127.0.0.1", "-port", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _wait_for(port)
    yield f"http://127.0.0.1:{port}"
    running.kill()
    running.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the proxies do not start"
        time.sleep(0.1)


def _passes_on(proxies: str, number: int, port: int, upstream: str) -> None:
    made = {"name": f"kafka{number}", "listen": f"127.0.0.1:{port}", "upstream": upstream, "enabled": True}
    headers = {"Content-Type": "application/json", "User-Agent": "tests"}
    request = urllib.request.Request(f"{proxies}/proxies", json.dumps(made).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_sarama_finds_nothing_wrong(tmp_path: Path, proxies: str) -> None:
    tests = GoTests("github.com/IBM/sarama", _VERSION, tags="functional")
    with ProductCluster(tmp_path, advertised=_PORTS, MILLSTREAM_KAFKA_AUTO_CREATE_TOPICS="false") as cluster:
        for number, port in enumerate(_PORTS):
            _passes_on(proxies, number + 1, port, cluster.nodes[number % 3].address)
        environment = {"TOXIPROXY_ADDR": proxies, "KAFKA_VERSION": "4.0.0"}
        results = tests.run(_TESTS, without="|".join(_NOT_RUN), within_s=_WITHIN_S, **environment)
        assert "Traceback" not in cluster.said
    assert results.those("FAIL") <= _EXPECTED.keys(), str(results)
    assert {"TestFuncTxnProduce", "TestFuncConsumerGroupFuzzy", "TestFuncOffsetManager"} <= results.those("PASS")
