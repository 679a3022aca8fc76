"""Tables of the lake sinks are the same whoever reads them: the formats' own libraries, DuckDB and Spark.

DuckDB reads the files that a table names; its extensions for the formats are not packaged. Spark reads the tables
itself, of the version for which both formats have releases, in an environment of its own:
`MILLSTREAM_LAKE_SPARK=/path/to/python`.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import deltalake
import duckdb
import pyarrow as pa
import pytest
from lakes import Lake
from pyiceberg.catalog import load_catalog

from bench.maven import Unavailable, jars

SPARK_JARS: Final = {
    "delta": ("io.delta:delta-spark_4.1_2.13:4.2.0",),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
}
SPARK_PARTS: Final = {
    "delta": (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "org.apache.iceberg.spark.SparkSessionCatalog",
    ),
}
SCHEMA: Final = pa.schema([
    ("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2)),
    ("made", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())),
])  # fmt: skip
SELECT: Final = """
    SELECT CAST(id AS STRING), name, CAST(price AS STRING), date_format(made, 'yyyy-MM-dd HH:mm:ss.SSS'), to_json(tags)
    FROM """
ROWS: Final = 1_000
Rows = list[list[Any]]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_duckdb_finds_in_the_files_what_the_library_finds(tmp_path: Path, format: str, mode: str) -> None:
    lake = Lake(format, tmp_path)
    expected = fill(lake, mode)
    assert shown(lake.table().to_pylist()) == expected
    assert by_duckdb(files_of(lake, tmp_path)) == expected


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_spark_finds_what_the_library_finds(tmp_path: Path, format: str, mode: str) -> None:
    lake = Lake(format, tmp_path)
    expected = fill(lake, mode)
    assert by_spark(format, tmp_path) == expected


def fill(lake: Lake, mode: str) -> Rows:
    """Several commits. In mode upsert each row is replaced once, and a tenth of them deleted. Returns what is there."""
    lake.create("orders", SCHEMA)
    upsert = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "key_converter": "integer"}
    rows = {number: row_of(number, 0) for number in range(ROWS)}
    with lake.sandbox(**(upsert if mode == "upsert" else {"key_converter": "integer"})) as box:
        for number, row in rows.items():
            box.produce("orders", number, row)
            if number % 400 == 0:
                box.run()
        box.run()
        if mode == "upsert":
            for number in range(ROWS):
                rows[number] = row_of(number, 1)
                box.produce("orders", number, rows[number])
            box.run()
            for number in range(0, ROWS, 10):
                del rows[number]
                box.produce("orders", number, None)
            box.run()
    assert lake.commits() > 2
    return sorted(
        [str(row["id"]), row["name"], f"{float(row['price']):.2f}", time_of(row["made"]), json.dumps(row["tags"])]
        for row in rows.values()
    )


def row_of(number: int, version: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": None if number % 7 == 3 else f"näme '{number}' \u2603 v{version}",
        "price": f"{number}.{number % 100:02}",
        "made": 1_700_000_000_000 + number * 1001,
        "tags": [f"t{each}" for each in range(number % 3)],
    }


def time_of(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).isoformat(" ", "milliseconds")[:23]


def shown(rows: list[dict[str, Any]]) -> Rows:
    return sorted(
        [str(row["id"]), row["name"], str(row["price"]), row["made"].isoformat(" ", "milliseconds")[:23],
         json.dumps(row["tags"])]
        for row in rows
    )  # fmt: skip


def files_of(lake: Lake, folder: Path) -> list[str]:
    """The data files of the table's last version, by its own log."""
    if lake.name == "delta":
        return deltalake.DeltaTable(f"{folder}/lake/orders").file_uris()
    table = load_catalog("default", **lake.catalog).load_table("shop.orders")
    tasks = list(table.scan().plan_files())
    assert not any(task.delete_files for task in tasks), "DuckDB alone would not apply them"
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def by_duckdb(files: list[str]) -> Rows:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.read_parquet(files).to_arrow_table().to_pylist()
    return shown(rows)


def by_spark(format: str, folder: Path) -> Rows:
    python = os.environ.get("MILLSTREAM_LAKE_SPARK")
    if python is None:
        pytest.skip("MILLSTREAM_LAKE_SPARK names no Python with PySpark 4.1")
    try:
        libraries = jars(*SPARK_JARS[format], alone=format == "iceberg")
    except Unavailable as error:
        pytest.skip(str(error))
    place = f"delta.`{folder}/lake/orders`" if format == "delta" else "iceberg_table"
    metadata = sorted((folder / "lake").glob("shop*/orders/metadata/*.metadata.json"), key=lambda path: path.name)
    script = folder / "read.py"
    script.write_text(
        f"""
import json
from pyspark.sql import SparkSession
extension, catalog = {SPARK_PARTS[format]!r}
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", {",".join(map(str, libraries))!r})
    .config("spark.sql.extensions", extension)
    .config("spark.sql.catalog.spark_catalog", catalog)
    .config("spark.sql.catalog.spark_catalog.type", "hadoop")
    .config("spark.sql.catalog.spark_catalog.warehouse", {str(folder / "warehouse")!r})
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
if {format!r} == "iceberg":
    spark.read.format("iceberg").load({str(metadata[-1]) if metadata else ""!r}).createTempView("iceberg_table")
rows = spark.sql({SELECT + place!r}).collect()
print("ROWS" + json.dumps([list(row) for row in rows]))
"""
    )
    run = subprocess.run([python, str(script)], capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("ROWS")]
    assert lines, run.stderr[-3000:]
    return sorted([*values, json.dumps(json.loads(tags))] for *values, tags in json.loads(lines[0][4:]))
