"""What DuckDB and Spark's stages write of the same rows, with a restart of the stages in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
from hand_plans import read_all
from planning import Planner
from spark_stages import OnDuckDB, StagedRun

from millstream.logcore.client import LogClient, RowRecords
from millstream.logcore.log import open_log

PARTITIONS = 3
Record = tuple[str, Mapping[str, Any], int]  # key, value, rowtime


def written_by_both(
    folder: Path, topic: str, declaration: str, select: str, records: Sequence[Record]
) -> dict[str, list[tuple[str, str]]]:
    """Keys and values, sorted, by executor. In: `declaration`: of the source over `topic`, whose keys are one letter
    and whose format is MSGPACK; `select`: what both write as JSON."""

    def plan_of(sink: str) -> Any:
        planner = Planner(properties={"auto.offset.reset": "earliest"})
        (plan,) = planner.plans(f"{declaration} CREATE STREAM {sink} WITH (format='JSON') AS {select};")
        return replace(plan, query_id=f"{sink}_1")

    with open_log(folder / "log", sync="never") as log:
        for name in (topic, "DUCK", "SPARK"):
            log.create_topic(name, PARTITIONS)
        duck = OnDuckDB(plan_of("DUCK"), log)
        half = len(records) // 2
        for run, part in enumerate((records[:half], records[half:])):
            _append(log, topic, part)
            duck.drain()
            staged = StagedRun(plan_of("SPARK"), log, f"run{run}", folder, records_max=15)
            staged.drain()
            staged.close()
        return {
            sink: sorted((repr(r["key"]), repr(r["value"])) for r in read_all(log, sink, range(PARTITIONS)))
            for sink in ("DUCK", "SPARK")
        }


def _append(log: LogClient, topic: str, records: Sequence[Record]) -> None:
    """All records of a key are in one partition."""
    for key, value, time in records:
        cells = {"key": msgpack.packb(key), "value": msgpack.packb(value)}
        columns = {name: pa.array([cell], pa.binary()) for name, cell in cells.items()}
        log.append(topic, ord(key) % PARTITIONS, RowRecords(pa.table({"timestamp": pa.array([time]), **columns})))
