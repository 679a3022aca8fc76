"""What people do with kafkajs, on one node, on three and on Apache Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.apache_kafka import ApacheKafka, Unavailable
from bench.maven import cache_folder

from .serving import Product, ProductCluster, needs, run, words_of

_PACKAGE: Final = "kafkajs@2.2.4"
_PROGRAM: Final = Path(__file__).parent / "javascript" / "with_kafkajs.js"
_STEPS: Final = 9
_WITHIN_S: Final = 1500.0


@pytest.fixture(scope="module")
def packages() -> str:
    """The folder of the packages. Skips where there is no Node, or the registry cannot be reached."""
    needs("node", "npm")
    folder = cache_folder("npm") / _PACKAGE
    if not (folder / "node_modules").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), _PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"{_PACKAGE} cannot be had: {done.stderr.strip()[-300:]}")
    return str(folder / "node_modules")


@pytest.fixture(params=["one node", "three nodes", "Apache Kafka"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address, and how many replicas there can be."""
    match request.param:
        case "one node":
            with Product(tmp_path / "data") as product:
                yield product.address, 1
                assert "Traceback" not in product.said
        case "three nodes":
            with ProductCluster(tmp_path) as cluster:
                yield cluster.address, 3
                assert "Traceback" not in cluster.said
        case _:
            try:
                kafka = ApacheKafka(tmp_path / "kafka")
            except Unavailable as reason:
                pytest.skip(f"Apache Kafka: {reason}")
            with kafka:
                yield kafka.address, 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_people_do_with_kafkajs_works(tmp_path: Path, packages: str, served: tuple[str, int]) -> None:
    address, replicas = served
    command = ["node", str(_PROGRAM), address, str(replicas)]
    _, said = run(command, tmp_path, timeout_s=_WITHIN_S, NODE_PATH=packages, KAFKAJS_NO_PARTITIONER_WARNING="1")
    assert len(words_of(said, "^ok ")) == _STEPS, said
