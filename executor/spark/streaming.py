"""One run of a query as a Structured Streaming query: source, shuffle, second stage, sink."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .data_source import SINK, SOURCE
from .progress import observed
from .rows import REPORT_SCHEMA
from .spark_session import make_active
from .spec import RunSpec
from .stage_two import StageTwo


def start(session: SparkSession, spec: RunSpec, checkpoint: Path, *, available_now: bool) -> StreamingQuery:
    """Starts the run. Each bucket's pieces come together in one task; where a bucket is what one task has read, they
    are there already."""
    make_active(session)
    text = spec.to_json()
    pieces = session.readStream.format(SOURCE).option("spec", text).load()
    if spec.stages.shuffled:
        tasks = max(1, min(spec.parallelism, spec.stages.bucket_count))
        pieces = pieces.repartitionById(tasks, pieces["bucket"] % tasks)
    reports = observed(pieces.mapInArrow(StageTwo(text), REPORT_SCHEMA))
    writer = reports.writeStream.format(SINK).option("spec", text).option("checkpointLocation", checkpoint.as_uri())
    writer = writer.outputMode("append").queryName(f"{spec.query_id}-{spec.run[:8]}")
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.start()
