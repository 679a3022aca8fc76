"""What a process of a Spark crash test does: one query, batch by batch, to the end of its input."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spark_stages import OnDuckDB, contents, create_topics, plan_of, produce

from millstream.executor.spark.spark_executor import SparkExecutor
from millstream.logcore.failpoints import arm
from millstream.logcore.log import open_log
from millstream.planner.catalog import PersistentQuery

QUERY = "group by another column"
RECORDS, RECORDS_PER_BATCH = 160, 40


def prepare(directory: Path) -> None:
    """Writes the input."""
    client = open_log(directory / "log")
    create_topics(client, "DUCK", "SPARK")
    produce(client, 0, RECORDS)
    client.close()


def run_and_exit(directory: str, failpoints: str = "") -> None:
    """Runs the query until nothing is left to read. The log is in this process, so failpoints of the log end both, the
    log and Spark's driver. The end comes without any clean-up of the interpreter."""
    client = open_log(Path(directory, "log"))
    properties = {
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "millstream.spark.batch.records.max": str(RECORDS_PER_BATCH),
    }
    executor = SparkExecutor(client, Path(directory, "queries"), properties)
    plan = plan_of(QUERY, "SPARK")
    arm(failpoints)
    executor.start(PersistentQuery(plan.query_id, "", plan, "SPARK", ("CLICKS",), "CREATE_AS"))
    while executor.status(plan.query_id).state == "RUNNING":
        status = executor.status(plan.query_id)
        if len(status.lag) == 3 and not any(status.lag.values()):
            executor.close()
            client.close()
            os._exit(0)
        time.sleep(0.05)
    print(executor.status(plan.query_id).error, flush=True)
    os._exit(1)


def differences(directory: Path) -> list[str]:
    """How the sink differs from what the DuckDB executor writes for the same input, record by record."""
    client = open_log(directory / "log")
    duck = OnDuckDB(plan_of(QUERY, "DUCK"), client)
    duck.drain()
    duck.close()
    got, expected = contents(client, "SPARK"), contents(client, "DUCK")
    client.close()
    keys = sorted({*got, *expected}, key=repr)
    return [
        f"{key}: {got.get(key)} instead of {expected.get(key)}" for key in keys if got.get(key) != expected.get(key)
    ]
