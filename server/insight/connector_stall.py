"""Why a connector moves no records: causes from its tasks and its topics, each a sentence with figures and a hint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ...executor.connect.connectors import ConnectorStatus
from ...executor.connect.sink_runner import group_of
from ...executor.connect.task_positions import read_positions
from ...executor.connect.task_worker import TaskStatus
from ...logcore.client import LogClient, Offsets, TopicPartition
from ...planner.connector_info import ConnectorInfo
from ...planner.insight.stall import Cause, counted
from ...sql.identifiers import quote_identifier


@dataclass(frozen=True, slots=True)
class ConnectorSituation:
    """All inputs of the diagnosis. `positions`: of a source's tasks, in the source's own form. `committed`, `bounds`:
    of the partitions that a sink reads. `missing`: topics that its settings name and that do not exist."""

    info: ConnectorInfo
    status: ConnectorStatus
    now_ms: int
    positions: Mapping[int, Any]
    committed: Mapping[TopicPartition, int]
    bounds: Mapping[TopicPartition, Offsets]
    missing: tuple[str, ...]


def connector_situation(
    info: ConnectorInfo, status: ConnectorStatus, topics: list[str], log: LogClient, now_ms: int
) -> ConnectorSituation:
    """In: `topics`: existing topics that its settings name."""
    if info.kind == "SOURCE":
        positions = {task: at for (name, task), at in read_positions(log).items() if name == info.name}
        return ConnectorSituation(info, status, now_ms, positions, {}, {}, ())
    named = [name.strip() for name in info.config.get("topics", "").split(",") if name.strip()]
    bounds = {
        at: log.offsets(*at)
        for topic in topics
        for at in (TopicPartition(topic, partition) for partition in range(log.partition_count(topic)))
    }
    missing = tuple(name for name in named if name not in topics)
    return ConnectorSituation(info, status, now_ms, {}, log.committed_offsets(group_of(info.name)), bounds, missing)


def connector_causes(seen: ConnectorSituation) -> list[Cause]:
    """All findings, those that block the connector first."""
    found = [*_state_causes(seen), *_topic_causes(seen), *_position_facts(seen)]
    if not any(cause.blocks for cause in found):
        records = sum(task.records for task in seen.status.tasks)
        message = f"Nothing blocks the connector: {counted(records, 'record')} since it started here."
        found.append(Cause("NOTHING_FOUND", message, blocks=False, figures={"records": records}))
    return sorted(found, key=lambda cause: not cause.blocks)


def _state_causes(seen: ConnectorSituation) -> Iterator[Cause]:
    name, status = quote_identifier(seen.info.name), seen.status
    restart = f"When the reason is fixed, RESTART CONNECTOR {name}; continues at the committed position."
    if status.error is not None:
        yield Cause("FAILED", f"The connector has no tasks: {status.error}.", restart)
    if status.state == "STOPPED":
        yield Cause("STOPPED", "The connector is stopped.", f"RESUME CONNECTOR {name}; continues where it stopped.")
    if status.state == "PAUSED":
        yield Cause("PAUSED", "The connector is paused.", f"RESUME CONNECTOR {name}; continues where it stopped.")
    for task in status.tasks:
        if task.state == "FAILED":
            yield Cause("FAILED", f"Task {task.number} has stopped: {task.error or 'without an error'}", restart,
                        figures={"task": task.number})  # fmt: skip
        elif task.state == "RUNNING" and task.error is not None:
            yield _retrying(task, seen.now_ms)
        elif task.state == "RUNNING" and task.waits_until_ms is not None and task.lag:
            left_ms = max(0, task.waits_until_ms - seen.now_ms)
            yield Cause(
                "WAITS_TO_COMMIT",
                f"Task {task.number} writes {counted(task.lag, 'unread record')} in {_seconds(left_ms)}: it lets "
                "records come together between two commits.",
                "commit.interval.ms is the time between two commits.",
                blocks=False,
                figures={"task": task.number, "waitMs": left_ms, "lag": task.lag},
            )


def _retrying(task: TaskStatus, now_ms: int) -> Cause:
    left_ms = None if task.waits_until_ms is None else max(0, task.waits_until_ms - now_ms)
    again = "now" if not left_ms else f"in {_seconds(left_ms)}"
    return Cause(
        "RETRYING",
        f"Task {task.number} waits for the other system and tries again {again} (error {task.restarts} since it "
        f"started here): {task.error}",
        "It continues automatically when the reason is gone.",
        figures={"task": task.number, "retryInMs": left_ms, "restarts": task.restarts},
    )


def _topic_causes(seen: ConnectorSituation) -> Iterator[Cause]:
    """The topics of a sink, and its progress in each."""
    for topic in seen.missing:
        yield Cause("SOURCE_TOPIC_GONE", f'The topic "{topic}" does not exist.',
                    "The connector reads it as soon as it does.", figures={"topic": topic})  # fmt: skip
    if seen.info.kind == "SINK" and not seen.bounds and not seen.missing:
        yield Cause("SOURCE_TOPIC_GONE", "No topic fits topics.regex.", "The connector looks again every few seconds.")
    for topic in dict.fromkeys(at.topic for at in seen.bounds):
        yield from _progress(seen, topic)


def _progress(seen: ConnectorSituation, topic: str) -> Iterator[Cause]:
    bounds = {at: found for at, found in seen.bounds.items() if at.topic == topic}
    if all(found.log_end_offset == found.log_start_offset for found in bounds.values()):
        yield Cause("NO_RECORDS", f'The topic "{topic}" is empty.', "Nothing has been written to it yet.",
                    figures={"topic": topic})  # fmt: skip
        return
    positions = {at: max(seen.committed.get(at, 0), found.log_start_offset) for at, found in bounds.items()}
    lag = {str(at.partition): found.last_stable_offset - positions[at] for at, found in bounds.items()}
    unread = {partition: records for partition, records in lag.items() if records > 0}
    figures = {"topic": topic, "positions": {str(at.partition): at_ for at, at_ in positions.items()}, "lag": unread}
    if unread:
        works = any(task.state == "RUNNING" and task.error is None for task in seen.status.tasks)
        running = works and seen.status.state == "RUNNING"
        count, names = sum(unread.values()), ", ".join(unread)
        yield Cause("BEHIND", f'{counted(count, "record")} of "{topic}" (partition {names}) are not written yet.',
                    "The other system does not have them.", blocks=not running, figures=figures)  # fmt: skip
    else:
        yield Cause("UP_TO_DATE", f'All records of "{topic}" are written.', blocks=False, figures=figures)
    held = sum(max(0, found.high_watermark - found.last_stable_offset) for found in bounds.values())
    if held:
        yield Cause(
            "OPEN_TRANSACTION",
            f'{counted(held, "record")} of "{topic}" follow an open transaction; sinks read committed records only.',
            "Its producer must commit or abort it; otherwise it ends after transaction.timeout.ms.",
            figures={"topic": topic, "records": held},
        )


def _position_facts(seen: ConnectorSituation) -> Iterator[Cause]:
    """The committed positions of a source, and how much it has not read."""
    if seen.info.kind != "SOURCE":
        return
    for task in seen.status.tasks:
        at = seen.positions.get(task.number)
        lag = "" if task.lag is None else f", and {task.lag} behind the end (in units of the source)"
        where = "has committed no position yet" if at is None else f"is at {orjson.dumps(at).decode()}"
        yield Cause("POSITION", f"Task {task.number} {where}{lag}.", blocks=False,
                    figures={"task": task.number, "position": at, "lag": task.lag})  # fmt: skip


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
