"""Kafka's command-line tools: what they print of us, beside what they print of Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.apache_kafka import ApacheKafka
from bench.maven import Unavailable

from ..clients import outside
from .kafka_tools import Asked, KafkaTools, Said
from .serving import Product
from .tool_calls import GROUPS, OPERATIONS, REASSIGNMENTS, RECORDS, SETTINGS, TOPICS, Call

confluent_kafka = pytest.importorskip("confluent_kafka")

_OUR_NODE, _THEIR_NODE = 0, 1


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[KafkaTools]:
    running = KafkaTools(tmp_path / "classes")
    yield running
    running.close()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Asked]:
    with Product(tmp_path / "data") as product:
        yield Asked(product.address, _OUR_NODE, _files(tmp_path, _OUR_NODE))
        assert "Traceback" not in product.said


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Asked]:
    try:
        running = ApacheKafka(tmp_path / "kafka")
    except Unavailable as reason:
        pytest.skip(f"Apache Kafka: {reason}")
    with running:
        yield Asked(running.address, _THEIR_NODE, _files(tmp_path, _THEIR_NODE))


def _files(folder: Path, node: int) -> Mapping[str, Path]:
    def records(offset: int) -> list[dict[str, object]]:
        return [{"topic": "first", "partition": 0, "offset": offset}]

    written: Mapping[str, object] = {
        "plan": {"version": 1, "partitions": [{"topic": "first", "partition": 0, "replicas": [node]}]},
        "moved": {"version": 1, "topics": [{"topic": "first"}]},
        "records": {"version": 1, "partitions": records(1)},
        "too_many_records": {"version": 1, "partitions": records(1000)},
    }
    files = {name: folder / f"{name}-{node}.json" for name in written}
    for name, file in files.items():
        file.write_text(json.dumps(written[name]))
    return files


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_tools_say_of_us_what_they_say_of_apache_kafka(tools: KafkaTools, ours: Asked, theirs: Asked) -> None:
    for asked in (ours, theirs):
        outside.create_topic(asked.address, "first")
        outside.append(asked.address, "first", 0, b"a", b"b")
    calls = (*TOPICS, *SETTINGS, *RECORDS, *GROUPS, *OPERATIONS)
    found = list(_differences(calls, tools, ours, theirs))
    assert not found, "\n\n".join(found)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_tools_move_replicas_with_a_throttle_and_end_a_hanging_transaction(
    tools: KafkaTools, ours: Asked, theirs: Asked
) -> None:
    hanging: list[Any] = []  # kept: where a producer goes, its transaction ends
    for asked in (ours, theirs):
        outside.create_topic(asked.address, "first")
        outside.create_topic(asked.address, "hanging")
        hanging.append(_open_transaction(asked.address))
    found = list(_differences(REASSIGNMENTS, tools, ours, theirs))
    for asked in (ours, theirs):
        outside.append(asked.address, "hanging", 0, b"after")
        assert outside.values(asked.address, "hanging") == [b"after"]
    assert not found, "\n\n".join(found)


def _open_transaction(address: str) -> Any:
    """Its producer. It has one record, at offset 0."""
    settings = {"bootstrap.servers": address, "transactional.id": "tx", "transaction.timeout.ms": 800_000}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("hanging", b"hanging", partition=0)
    assert producer.flush(60) == 0
    return producer


def _differences(calls: Sequence[Call], tools: KafkaTools, ours: Asked, theirs: Asked) -> Iterator[str]:
    for call in calls:
        of_us, of_kafka = tools.run(call, ours), tools.run(call, theirs)
        if not _as_expected(call, of_us, of_kafka):
            yield _told(call, of_us, of_kafka)


def _as_expected(call: Call, ours: Said, theirs: Said) -> bool:
    """A difference that is there no more is none to be named, either."""
    if call.refuse:
        return ours.end != theirs.end
    return ours.end == theirs.end and (ours.lines == theirs.lines) == (not call.differs)


def _told(call: Call, ours: Said, theirs: Said) -> str:
    lines = [f"{call.tool} {call.arguments}", f"  ours:   {ours.code}", *(f"    {line}" for line in ours.lines)]
    return "\n".join([*lines, f"  theirs: {theirs.code}", *(f"    {line}" for line in theirs.lines)])
