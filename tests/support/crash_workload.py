"""What a process of a crash test does: two queries over one log, to the end of their input."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

from hand_plans import count_plan, filter_plan, read_all, rows

from millstream.executor import processing_log
from millstream.executor.queries import query
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.state import state_commits
from millstream.logcore.failpoints import arm
from millstream.logcore.log import open_log

BATCHES, PER_BATCH, PARTITIONS = 6, 10, 2
ByKey = dict[bytes, list[Any]]

BAD = b"{not json"


def input_record(number: int) -> tuple[str, bytes | dict[str, object], int]:
    """Every 17th record cannot be decoded, every 5th does not pass the filter."""
    value: dict[str, object] = {"V": number if number % 5 else -number - 1, "W": "w"}
    return f"key-{number % 7}", (BAD if number % 17 == 16 else value), 1_000 + number


def prepare(directory: Path) -> None:
    """Writes the input, in small record batches."""
    client = open_log(directory / "log")
    for topic in ("input", "filtered", "counts"):
        client.create_topic(topic, PARTITIONS)
    for batch in range(BATCHES):
        for partition in range(PARTITIONS):
            first = (batch * PARTITIONS + partition) * PER_BATCH
            client.append("input", partition, rows([input_record(first + i) for i in range(PER_BATCH)]))
    client.close()


def run(directory: Path, failpoints: str = "", max_bytes: int = 1, *, together: bool = False) -> None:
    """Runs both queries until nothing is left to read. May not return: that is what failpoints are for.

    `together`: a batch is computed while the one before is written, and the state file commits after each.
    """
    if together:
        query.READ_AHEAD_RECORDS = 1  # pyrefly: ignore[bad-assignment]
        state_commits._EVERY_S = 0.0
        state_commits._WAIT_ROWS = 0  # pyrefly: ignore[bad-assignment]
    arm(failpoints)
    client = open_log(directory / "log")
    plans = [count_plan(partitions=PARTITIONS), filter_plan(partitions=PARTITIONS)]
    runtimes = [QueryRuntime(plan, client, directory / "state" / plan.query_id) for plan in plans]
    while any(runtime.step(max_bytes) for runtime in runtimes):
        pass
    for runtime in runtimes:
        runtime.close()
    client.close()


def run_and_exit(directory: str, failpoints: str = "", together: bool = False) -> None:
    """`run`, and the end of the process without any clean-up of the interpreter."""
    run(Path(directory), failpoints, together=together)
    os._exit(0)


def differences(directory: Path) -> list[str]:
    """How the topics differ from the model; empty where every record had exactly its effect."""
    client = open_log(directory / "log")
    found = [
        *_compare("filtered", _by_key(read_all(client, "filtered", range(PARTITIONS))), _expected_filtered()),
        *_compare("counts", _by_key(read_all(client, "counts", range(PARTITIONS))), _expected_counts()),
    ]
    logged = collections.Counter(
        (
            record["value"]["message"]["deserializationError"]["partition"],
            record["value"]["message"]["deserializationError"]["offset"],
        )
        for record in read_all(client, processing_log.TOPIC)
    )
    expected = collections.Counter(dict.fromkeys(_bad_records(), 2))  # one entry per query
    found += [] if logged == expected else [f"processing log: {logged} instead of {expected}"]
    client.close()
    return found


def _compare(topic: str, got: ByKey, expected: ByKey) -> list[str]:
    return [] if got == expected else [f"{topic}: {got} instead of {expected}"]


def _by_key(records: list[dict[str, Any]]) -> ByKey:
    keyed: ByKey = collections.defaultdict(list)
    for record in records:
        keyed[record["key"]].append(record["value"])
    return {key: sorted(values, key=str) for key, values in keyed.items()}


def _inputs() -> list[tuple[int, int, int]]:
    """(partition, offset, number) of every input record."""
    return [
        (partition, batch * PER_BATCH + i, (batch * PARTITIONS + partition) * PER_BATCH + i)
        for batch in range(BATCHES)
        for partition in range(PARTITIONS)
        for i in range(PER_BATCH)
    ]


def _bad_records() -> list[tuple[int, int]]:
    return [(partition, offset) for partition, offset, number in _inputs() if input_record(number)[1] == BAD]


def _expected_filtered() -> ByKey:
    keyed: ByKey = collections.defaultdict(list)
    for _, _, number in _inputs():
        key, value, _ = input_record(number)
        if isinstance(value, dict) and value["V"] >= 0:  # pyrefly: ignore[unsupported-operation]
            keyed[key.encode()].append({**value, "V": value["V"] * 2})  # pyrefly: ignore[unsupported-operation]
    return {key: sorted(values, key=str) for key, values in keyed.items()}


def _expected_counts() -> ByKey:
    """One running result per record, per task: the counts of a key in different partitions are different tasks."""
    keyed: ByKey = collections.defaultdict(list)
    running: dict[tuple[int, str], tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
    for partition, _, number in _inputs():
        key, value, _ = input_record(number)
        if isinstance(value, dict):
            count, total = running[partition, key]
            running[partition, key] = (count + 1, total + value["V"])  # pyrefly: ignore[unsupported-operation]
            keyed[key.encode()].append(dict(zip("NS", running[partition, key], strict=True)))
    return {key: sorted(values, key=str) for key, values in keyed.items()}
