"""Drivers of PostgreSQL that are not Python's own: JDBC (all of its DatabaseMetaData) and ADBC. What tools ask at their
start stands in `tools/`."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest
from java_compiler import compile_java

from bench.maven import Unavailable, jars
from millstream.server.service import Service

PGJDBC = "org.postgresql:postgresql:42.7.14"
JAVA = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=America/New_York")
TOTALS = (
    "[user_id|text|12|2147483647|0|NO, userName|text|12|2147483647|0|YES, n|int8|-5|19|0|YES, i|int4|4|10|0|YES, "
    "f|float8|8|17|17|YES, ok|bool|-7|1|0|YES, amount|numeric|2|10|2|YES, b|bytea|-2|2147483647|0|YES, "
    "d|date|91|13|0|YES, t|time|92|15|6|YES, ts|timestamp|93|29|6|YES, tags|_text|2003|2147483647|0|YES, "
    "nums|_int4|2003|10|0|YES, m|json|1111|2147483647|0|YES, s|json|1111|2147483647|0|YES]"
)
WANTED = {
    "product": "PostgreSQL 15", "catalogs": "[millstream]", "schemas": "[information_schema, pg_catalog, public]",
    "all tables": "[public|totals]", "columns": TOTALS, "primary key": "[user_id|1|totals_pkey]",
    "no primary key": "[]", "indexes": "[totals_pkey|user_id]", "imported": "[]", "exported": "[]", "cross": "[]",
    "procedures": "[]", "functions": "[]", "function columns": "[]", "table types": "true", "types": "true",
    "udts": "[]", "privileges": "true", "column privileges": "true", "best row": "[user_id]", "client info": "true",
    "keywords": "true", "name length": "63", "statement": "[ada|1, bo|2, cy|3]",
    "prepared": "[3|12.50|2020-01-02T03:04:05.678|2020-02-03|10:11:12|true|1.5|2]", "every type": "[[ada]]",
    "java.sql.Timestamp": "[ada]", "arrays": '[a, b "c", null][1, 2]', "described": "user_id|int8|int8",
    "batch": "[1, 1, 1]", "in parts": "[ada, bo, cy]", "push": "[ada, bo, cy]", "alive": "true",
    "copied out": "3 ada,1;bo,2;cy,3;", "copied in": "2",
    "written": '[2020-03-01|10:11:12|2020-03-01 15:11:12|{"x":1}|{"A":1,"B":"y"}|{}]', "found by dates": "[[jdbc]]",
    "null": "1", "rewritten batch": "50", "isolation": "8",
}  # fmt: skip
REFUSED = {
    "cancel": "57014", "no program": "42501", "transaction": "42703", "generated keys": "0A000", "read only": "25006",
}  # fmt: skip


@pytest.mark.soak
def test_the_jdbc_driver_finds_reads_and_writes(service: Service, tmp_path: Path) -> None:
    try:
        libraries = ":".join(map(str, jars(PGJDBC)))
    except Unavailable as reason:
        pytest.skip(str(reason))
    source = Path(__file__).parent / "java" / "PgJdbc.java"
    compile_java(source, libraries, tmp_path)
    assert service.pg_address is not None
    url = f"jdbc:postgresql://127.0.0.1:{service.pg_address.port}/millstream?user=ana"
    command = [*JAVA, "-cp", f"{tmp_path}:{libraries}", "PgJdbc", url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True).stdout
    found = dict(line.split(": ", 1) for line in said.splitlines())
    assert {name: found.get(name) for name in WANTED} == WANTED
    assert {name: found[name].split()[1] for name in REFUSED} == REFUSED
    assert "totals|TABLE|TABLE on topic totals" in found["tables"]


def test_adbc_finds_reads_and_ingests(service: Service) -> None:
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs adbc-driver-postgresql")
    import pyarrow as pa

    assert service.pg_address is not None
    with adbc.connect(f"postgresql://ana@127.0.0.1:{service.pg_address.port}/millstream") as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT n, f, ok, amount, b, d, t, ts, tags, nums FROM totals WHERE user_id = $1", ("ada",))
            (row,) = cursor.fetch_arrow_table().to_pylist()
            assert list(row.values()) == [
                3, 1.5, True, "12.50", b"\x00\xff", datetime.date(2020, 2, 3), datetime.time(10, 11, 12),
                datetime.datetime(2020, 1, 2, 3, 4, 5, 678000), ["a", 'b "c"', None], [1, 2],
            ]  # fmt: skip
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        (public,) = [each for each in objects[0]["catalog_db_schemas"] if each["db_schema_name"] == "public"]
        tables = {each["table_name"]: each for each in public["db_schema_tables"]}
        assert {"clicks", "totals"} <= tables.keys()
        assert {each["column_name"] for each in tables["clicks"]["table_columns"]} == {"user_id", "size"}
        assert connection.adbc_get_table_schema("clicks").names == ["user_id", "size"]
        rows = pa.table({"id": pa.array([51, 52], pa.int32()), "v": pa.array([6, None], pa.int32())})
        with connection.cursor() as cursor:
            assert cursor.adbc_ingest("secret", rows, mode="append") == 2
        connection.commit()
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, v FROM secret WHERE id > 50 AND id < 60")
            assert sorted(cursor.fetchall()) == [(51, 6), (52, None)]
