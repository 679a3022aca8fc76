"""Why a query emits nothing: causes from its state, its sources, its operators and its sink, each a sentence with
figures and a hint. Each fact is read from the log once, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from millstream.errors import LogError

from ...executor import processing_log
from ...executor.executor import QueryStatus
from ...executor.figures import QueryFigures
from ...executor.queries.start_offsets import StartSettings
from ...logcore.client import FetchedRows, LogClient, Offsets, TopicPartition
from ...planner.catalog import PersistentQuery
from ...planner.insight.stall import Cause, counted
from ...planner.steps.sink import Sink
from ...sql.identifiers import quote_identifier

_LOG_TAIL = 2_000  # newest records of the processing log that are searched for the last error


@dataclass(frozen=True, slots=True)
class Situation:
    """All inputs of the diagnosis. `bounds`: of the partitions of sources and sink; a deleted topic has none."""

    query: PersistentQuery
    status: QueryStatus
    figures: QueryFigures
    start: StartSettings
    bounds: Mapping[TopicPartition, Offsets]
    last_error: str | None = None

    @property
    def topics(self) -> set[str]:
        return {at.topic for at in self.bounds}

    @property
    def flows(self) -> bool:
        """Whether the query wrote rows in the last seconds."""
        sink = self.query.plan.root.id
        return any(each.rows_out_per_second > 0 for each in self.figures.operators if each.steps[-1] == sink)

    @property
    def sink_rows(self) -> int:
        """The number of offsets in use in the sink's topic, from all writers; transaction markers count."""
        root = self.query.plan.root
        topic = root.topic if isinstance(root, Sink) else ""
        return sum(
            bounds.last_stable_offset - bounds.log_start_offset
            for at, bounds in self.bounds.items()
            if at.topic == topic
        )

    def partitions(self, topic: str) -> dict[TopicPartition, Offsets]:
        return {at: bounds for at, bounds in self.bounds.items() if at.topic == topic}


def situation(
    query: PersistentQuery,
    status: QueryStatus,
    figures: QueryFigures | None,
    log: LogClient,
    settings: Mapping[str, str],
) -> Situation:
    """In: `settings`: the server's settings for the query."""
    known = log.topics()
    root = query.plan.root
    names = {source.topic for source in query.plan.sources()} | ({root.topic} if isinstance(root, Sink) else set())
    bounds = {
        TopicPartition(name, partition): log.offsets(name, partition)
        for name in sorted(names & known.keys())
        for partition in range(known[name].partition_count)
    }
    last = _last_error(query.id, log) if status.metrics.rows_failed else None
    return Situation(
        query, status, figures or QueryFigures(), StartSettings.of({**settings, **query.plan.properties}), bounds, last
    )


def state_causes(seen: Situation) -> Iterator[Cause]:
    """Whether the query runs, and whether its topics exist."""
    status, name = seen.status, quote_identifier(seen.query.id)
    if status.state == "PAUSED":
        yield Cause("PAUSED", "The query is paused.", f"RESUME {name}; continues where it stopped.")
    if status.state in ("ERROR", "STOPPED"):
        yield Cause("FAILED", f"The query has stopped: {status.error or 'without an error'}.",
                    f"When the reason is fixed, RESUME {name}; retries from its last commit.")  # fmt: skip
    elif status.error is not None:
        yield Cause("RETRYING", f"The query cannot continue and retries: {status.error}.",
                    "It continues automatically when the reason is gone.")  # fmt: skip
    if status.spark_starts:
        yield Cause("SPARK_STARTS", "Spark is starting.", "The query begins when it has started, within a minute.")
    if status.backfill_left is not None:
        yield Cause("BACKFILL", f"The query reads its history on Spark: {status.backfill_left} records are left.",
                    "It moves to its own executor when it has read what its sources held when it was created.",
                    blocks=False, figures={"left": status.backfill_left})  # fmt: skip
    if status.recovery_left is not None:
        left = f"{counted(status.recovery_left, 'record')} {'is' if status.recovery_left == 1 else 'are'} left to read"
        yield Cause("RECOVERY", f"The query restores its state: {left}.", "It continues when it has read them.",
                    figures={"left": status.recovery_left})  # fmt: skip
    for source in seen.query.plan.sources():
        if source.topic not in seen.topics:
            yield Cause("SOURCE_TOPIC_GONE", f'The topic "{source.topic}" of {source.name} no longer exists.',
                        "Create it again, or TERMINATE the query.")  # fmt: skip
    root = seen.query.plan.root
    if isinstance(root, Sink) and root.topic not in seen.topics:
        yield Cause("SINK_TOPIC_GONE", f'The topic "{root.topic}", the sink of the query, no longer exists.',
                    "Create it again, or DROP its stream or table and create it again.")  # fmt: skip


def source_causes(seen: Situation) -> Iterator[Cause]:
    """The records to read, and the query's progress."""
    for topic in dict.fromkeys(source.topic for source in seen.query.plan.sources()):
        partitions = seen.partitions(topic)
        if not partitions:
            continue
        if all(bounds.log_end_offset == bounds.log_start_offset for bounds in partitions.values()):
            figures = {"topic": topic, "partitions": len(partitions)}
            yield Cause("NO_RECORDS", f'The topic "{topic}" is empty.', "Nothing has been written to it yet.",
                        blocks=not seen.status.metrics.rows_out, figures=figures)  # fmt: skip
            continue
        yield from _undecided(topic, partitions)
        yield from _progress(seen, topic, partitions)


def _undecided(topic: str, partitions: Mapping[TopicPartition, Offsets]) -> Iterator[Cause]:
    held = {
        at.partition: bounds.high_watermark - bounds.last_stable_offset
        for at, bounds in partitions.items()
        if bounds.high_watermark > bounds.last_stable_offset
    }
    if held:
        count, names = sum(held.values()), ", ".join(map(str, held))
        yield Cause(
            "OPEN_TRANSACTION",
            f'{count} records of "{topic}" (partition {names}) follow an open transaction; '
            "`read_committed` readers do not see them.",
            "Its producer must commit or abort it; otherwise it ends after transaction.timeout.ms.",
            figures={"topic": topic, "records": {str(partition): records for partition, records in held.items()}},
        )


def _progress(seen: Situation, topic: str, partitions: Mapping[TopicPartition, Offsets]) -> Iterator[Cause]:
    status = seen.status
    lag = {at.partition: status.lag[at] for at in partitions if status.lag.get(at)}
    if lag:
        rate = sum(
            each.rows_in_per_second for each in seen.figures.operators if each.steps[0] in _source_ids(seen, topic)
        )
        waits = " A batch waits for the log to write it." if seen.figures.writing else ""
        speed = f"it reads {rate:.0f} rows/s" if rate else "it has read nothing in the last ten seconds"
        figures = {"topic": topic, "lag": {str(k): v for k, v in lag.items()}, "rowsPerSecond": rate}
        yield Cause("BEHIND", f'{sum(lag.values())} records of "{topic}" are unread; {speed}.{waits}',
                    "The current results do not include them.", blocks=not rate, figures=figures)  # fmt: skip
    elif not status.metrics.rows_in and not seen.sink_rows and status.positions:
        before = sum(status.positions.get(at, 0) - bounds.log_start_offset for at, bounds in partitions.items())
        reset = seen.start.reset
        if before > 0 and reset == "earliest":
            yield Cause(
                "NOTHING_NEW",
                f'The query had read all of "{topic}" ({counted(before, "record")}) before it started here, '
                "and none has arrived since.",
                "Counts start with the server: send a record to see how far it gets.",
                figures={"topic": topic, "recordsBefore": before},
            )
        elif before > 0:
            yield Cause(
                "STARTED_AT_END",
                f'The query has read nothing of "{topic}": it started at the end, after '
                f"{counted(before, 'record')}, and none has arrived since (auto.offset.reset is {reset}).",
                "SET 'auto.offset.reset'='earliest'; before CREATE … AS reads existing records.",
                figures={"topic": topic, "recordsBefore": before, "autoOffsetReset": reset},
            )


def _source_ids(seen: Situation, topic: str) -> set[str]:
    return {source.id for source in seen.query.plan.sources() if source.topic == topic}


def record_causes(seen: Situation) -> Iterator[Cause]:
    """Records that failed, and rows that were written."""
    metrics = seen.status.metrics
    if metrics.rows_failed:
        last = f" The last: {seen.last_error}" if seen.last_error else ""
        yield Cause(
            "RECORD_ERRORS",
            f"{metrics.rows_failed} of {counted(metrics.rows_in, 'record')} could not be decoded or computed and "
            f"were skipped.{last}",
            f"PRINT '{processing_log.TOPIC}' FROM BEGINNING; shows each with its topic, partition, offset and cause.",
            blocks=metrics.rows_failed == metrics.rows_in,
            figures={"failed": metrics.rows_failed, "read": metrics.rows_in, "processingLog": processing_log.TOPIC},
        )
    if metrics.rows_out or seen.sink_rows:
        sink = quote_identifier(seen.query.sink)
        before = "" if metrics.rows_out else " Its topic has only older records."
        yield Cause(
            "OUTPUT_IS_THERE",
            f"The query has written {counted(metrics.rows_out, 'record')} since it started here.{before}",
            f"A push query shows new records only: SET 'auto.offset.reset'='earliest'; or run a pull query, "
            f"SELECT * FROM {sink};",
            blocks=False,
            figures={"written": metrics.rows_out},
        )


def _last_error(query_id: str, log: LogClient) -> str | None:
    """The newest error of this query, if it is among the last records of the processing log."""
    try:
        bounds = log.offsets(processing_log.TOPIC, 0)
        fetched = log.fetch(processing_log.TOPIC, 0, max(bounds.log_start_offset, bounds.log_end_offset - _LOG_TAIL))
    except LogError:
        return None
    found: str | None = None
    for run in fetched.runs:
        if isinstance(run, FetchedRows):
            for value in run.table["value"].to_pylist():
                found = _message(value, query_id) or found
    return found


def _message(value: bytes | None, query_id: str) -> str | None:
    try:
        entry = orjson.loads(value or b"null")
        if not str(entry["logger"]).startswith(f"processing.{query_id}."):
            return None
        error = entry["message"].get("deserializationError") or entry["message"].get("recordProcessingError")
        place = f" (topic {error['topic']}, partition {error['partition']}, offset {error['offset']})"
        return f"{error['errorMessage']}{place if error['topic'] else ''}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
