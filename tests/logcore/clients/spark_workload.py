"""Spark's Kafka connector at work, in a process of its own: it has to know the connector's libraries when it starts.

Prints as JSON the rows that it read. In: the broker's address, the libraries, a folder for Spark.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main(address: str, libraries: str, folder: str) -> None:
    builder: Any = SparkSession.builder
    session = (
        builder.master("local[1]")
        .config("spark.jars", libraries)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def options(topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }

    def read(topic: str) -> DataFrame:
        return session.read.format("kafka").options(**options(topic)).load()

    columns = ("key", "value", "headers", "partition")
    written = read("source").select(*columns)
    written.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", "batch").save()
    stream = session.readStream.format("kafka").options(**options("source")).load().select(*columns)
    query = (
        stream.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("topic", "streamed")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {topic: rows(read(topic)) for topic in ("source", "columns", "batch", "streamed")}
    session.stop()
    print(json.dumps(found))


def rows(frame: DataFrame) -> list[list[Any]]:
    return [
        [row.partition, row.offset, row.timestamp.timestamp(), _text(row.key), _text(row.value), _headers(row.headers)]
        for row in frame.orderBy("partition", "offset").collect()
    ]


def _text(content: bytearray | None) -> str | None:
    return None if content is None else content.decode()


def _headers(headers: Any) -> list[list[str | None]]:
    return [[header.key, _text(header.value)] for header in headers or []]


if __name__ == "__main__":
    main(*sys.argv[1:])
