"""Statements that try to reach files, the network, other programs or the engine's settings: through the public API, and
on a connection of the engine as it runs below everything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import httpx
import pytest
from running_server import service_in

from millstream.executor.state.connection import lock, open_connection

SECRET = "the content of a file that nobody may see"

ESCAPES = {
    "read_csv": "SELECT * FROM read_csv('{file}');",
    "read_csv in a push query": "SELECT * FROM read_csv('{file}') EMIT CHANGES;",
    "read_json": "SELECT * FROM read_json('{file}');",
    "read_parquet": "SELECT * FROM read_parquet('{file}');",
    "read_text": "SELECT content FROM read_text('{file}');",
    "read_text as a scalar": "SELECT read_text('{file}') FROM s;",
    "read_blob": "SELECT * FROM read_blob('{file}');",
    "a file as a source": "SELECT * FROM '{file}';",
    "a quoted file as a source": 'SELECT * FROM "{file}";',
    "a file in backticks": "SELECT * FROM `{file}`;",
    "Spark's file source": "SELECT * FROM csv.`{file}`;",
    "glob": "SELECT * FROM glob('/etc/*');",
    "sniff_csv": "SELECT * FROM sniff_csv('{file}');",
    "parquet_metadata": "SELECT * FROM parquet_metadata('{file}');",
    "query": "SELECT * FROM query('SELECT 1');",
    "query_table": "SELECT * FROM query_table('s');",
    "COPY TO": "COPY s TO '{file}';",
    "COPY a query": "COPY (SELECT 1) TO '{file}';",
    "COPY FROM": "COPY s FROM '{file}';",
    "EXPORT": "EXPORT DATABASE '{file}';",
    "IMPORT": "IMPORT DATABASE '{file}';",
    "ATTACH": "ATTACH '{file}' AS other;",
    "ATTACH memory": "ATTACH ':memory:' AS other;",
    "DETACH": "DETACH other;",
    "INSTALL": "INSTALL httpfs;",
    "LOAD": "LOAD httpfs;",
    "FORCE INSTALL": "FORCE INSTALL httpfs FROM 'http://localhost:1';",
    "UPDATE EXTENSIONS": "UPDATE EXTENSIONS;",
    "CREATE SECRET": "CREATE SECRET x (TYPE s3, KEY_ID 'a', SECRET 'b');",
    "CREATE PERSISTENT SECRET": "CREATE PERSISTENT SECRET x (TYPE s3);",
    "SET without quotes": "SET memory_limit = '1TB';",
    "SET of the engine's names": "SET 'memory_limit' = '1TB';",
    "SET enable_external_access": "SET 'enable_external_access' = 'true';",
    "SET of Spark's names": "SET 'spark.sql.runSQLOnFiles' = 'true';",
    "SET VARIABLE": "SET VARIABLE a = 1;",
    "RESET": "RESET memory_limit;",
    "PRAGMA": "PRAGMA enable_verification;",
    "PRAGMA with a value": "PRAGMA memory_limit='1TB';",
    "CALL": "CALL pragma_version();",
    "CHECKPOINT": "CHECKPOINT;",
    "VACUUM": "VACUUM;",
    "USE": "USE memory;",
    "CREATE SCHEMA": "CREATE SCHEMA x;",
    "CREATE MACRO": "CREATE MACRO f(a) AS a + 1;",
    "CREATE VIEW": "CREATE VIEW v AS SELECT 1;",
    "CREATE TABLE USING": "CREATE TABLE x USING csv LOCATION '{file}';",
    "CREATE FUNCTION USING JAR": "CREATE FUNCTION f AS 'X' USING JAR '{file}';",
    "PREPARE": "PREPARE a AS SELECT 1;",
    "EXECUTE": "EXECUTE a;",
    "duckdb_settings": "SELECT * FROM duckdb_settings();",
    "duckdb_tables": "SELECT * FROM duckdb_tables();",
    "information_schema": "SELECT * FROM information_schema.tables;",
    "sqlite_master": "SELECT * FROM sqlite_master;",
    "the relation inside": "SELECT * FROM source;",
    "current_setting": "SELECT current_setting('memory_limit') FROM s;",
    "json_execute_serialized_sql": "SELECT json_execute_serialized_sql('x') FROM s;",
    "getenv": "SELECT getenv('HOME') FROM s;",
    "which_secret": "SELECT which_secret('a', 'b') FROM s;",
    "arrow_scan": "SELECT * FROM arrow_scan(1, 2, 3);",
    "pandas_scan": "SELECT * FROM pandas_scan(1);",
    "a Python variable": "SELECT * FROM service;",
    "reflect": "SELECT reflect('java.lang.Runtime', 'getRuntime') FROM s;",
    "java_method": "SELECT java_method('java.lang.System', 'exit', 1) FROM s;",
    "try_reflect": "SELECT try_reflect('java.lang.System', 'exit', 1) FROM s;",
    "input_file_name": "SELECT input_file_name() FROM s;",
    "TRANSFORM": "SELECT TRANSFORM(id) USING 'cat /etc/passwd' FROM s;",
    "ADD JAR": "ADD JAR '{file}';",
    "ADD FILE": "ADD FILE '{file}';",
    "LOAD DATA": "LOAD DATA INPATH '{file}' INTO TABLE s;",
    "INSERT OVERWRITE DIRECTORY": "INSERT OVERWRITE DIRECTORY '{file}' SELECT * FROM s;",
    "EXPLAIN CODEGEN": "EXPLAIN CODEGEN SELECT * FROM s;",
    "EXPLAIN ANALYZE": "EXPLAIN ANALYZE SELECT * FROM s;",
    "RUN SCRIPT": "RUN SCRIPT '{file}';",
    "a second statement behind a comment": "SELECT 1 /* ; */; COPY s TO '{file}';",
    "a NUL before a second statement": "SELECT id FROM s\u0000; SELECT 2;",
    "an identifier that ends itself": 'SELECT "id"" FROM read_text(\'{file}\') --" FROM s;',
    "a property of a stream": "CREATE STREAM x (a INT) WITH (kafka_topic='../../{file}', "
    "value_format='JSON', partitions=1);",
    "a format from a URL": "CREATE STREAM x (a INT) WITH (kafka_topic='x', partitions=1, "
    "value_format='http://localhost:1/a');",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files") / "secret.csv"
    made.write_text(SECRET, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
            ddl = "CREATE STREAM s (id INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
            assert client.post("/ksql", json={"ksql": f"{ddl} INSERT INTO s VALUES (1);"}).status_code == 200
            yield client


@pytest.mark.parametrize("name", ESCAPES)
def test_no_statement_reaches_out(http: httpx.Client, file: Path, name: str) -> None:
    text = ESCAPES[name].replace("{file}", str(file))
    for path, member in (("/ksql", "ksql"), ("/query-stream", "sql")):
        response = http.post(path, json={member: text, "properties": {"auto.offset.reset": "earliest"}})
        assert response.status_code == 400, response.text
        assert response.json()["error_code"] in (40000, 40001, 40002)
        assert SECRET not in response.text
    assert file.read_text(encoding="utf-8") == SECRET
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "COPY (SELECT 1) TO '{folder}/made'",
        "COPY (SELECT 1) TO '{folder}/../made'",
        "EXPORT DATABASE '{folder}/made'",
        "ATTACH '{folder}/made.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE PERSISTENT SECRET x (TYPE s3)",
        "SET memory_limit = '1TB'",
        "SET threads = 100",
        "SET home_directory = '/'",
        "SET enable_external_access = true",
        "SET allow_unsigned_extensions = true",
        "SET enable_logging = true",
        "SET lock_configuration = false",
        "RESET memory_limit",
        "SELECT * FROM a_python_variable",
    ],
)
def test_the_engine_itself_reaches_nothing_either(file: Path, sql: str) -> None:
    a_python_variable = duckdb.sql("SELECT 1")
    assert a_python_variable is not None
    connection = open_connection()
    lock(connection)
    with connection, pytest.raises(duckdb.Error):
        connection.execute(sql.format(file=file, folder=file.parent)).fetchall()
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
