"""Ways out of the engine: refused as statements of ours, and blocked where DuckDB would run them.

Two fences. Nothing that a user writes reaches DuckDB as text; and a connection could not reach a file, the network or a
setting if it did. What stays open in the second is listed here, too: it touches nothing but the connection's own data.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hand_plans import count_plan, rows

from millstream.errors import MillstreamError
from millstream.executor import row_times
from millstream.executor.answers.materialization import Materialization
from millstream.executor.answers.push_query import PushQuery
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.state.connection import MEMORY, EngineSettings, lock, open_connection
from millstream.executor.state.databases import SharedDatabases
from millstream.logcore.log import open_log
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import SqlExpression
from millstream.server.engine.constants import ConstantEvaluator
from millstream.sql.types import BIGINT
from millstream.testing import Sandbox

FILES = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM read_duckdb('{folder}/other.duckdb')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT * FROM query_table('{file}')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_text('{folder}/../{name}/secret.csv')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM read_text(''{file}'')'))",
    "CREATE MACRO leak() AS TABLE SELECT * FROM read_text('{file}')",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "EXPORT DATABASE '{folder}/export'",
    "IMPORT DATABASE '{folder}/export'",
    "PRAGMA import_database('{folder}')",
    "ATTACH '{folder}/attached.duckdb'",
    "ATTACH 'sqlite:{folder}/attached'",
    "SELECT * FROM read_csv('https://example.com/data.csv')",
    "SELECT * FROM 's3://bucket/data.parquet'",
)
CODE = (
    "INSTALL httpfs",
    "FORCE INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/extension'",
    "UPDATE EXTENSIONS",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "SELECT getenv('HOME')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM leaked",  # a variable of the Python code that calls DuckDB
)
SETTINGS = (
    "SET memory_limit = '1TB'",
    "SET threads = 1000",
    "SET home_directory = '{folder}'",
    "SET secret_directory = '{folder}'",
    "SET extension_directory = '{folder}'",
    "SET custom_extension_repository = 'http://example.com'",
    "SET temp_directory = '{folder}'",
    "SET file_search_path = '/'",
    "SET allowed_directories = ['/']",
    "SET allowed_paths = ['{file}']",
    "SET enable_external_access = true",
    "SET allow_unsigned_extensions = true",
    "SET autoinstall_known_extensions = true",
    "SET python_enable_replacements = true",
    "SET lock_configuration = false",
    "SET enable_logging = true",
    "SET max_execution_time = 0",
    "SET profiling_output = '{folder}/profile'",
    "PRAGMA enable_profiling",
    "PRAGMA profiling_output = '{folder}/profile'",
    "CALL enable_logging()",
    "CALL enable_logging(storage = 'file', storage_path = '{folder}/log')",
    "RESET memory_limit",
    "RESET enable_external_access",
)
PROBES = FILES + CODE + SETTINGS
OWN_DATA_ONLY = (
    "ATTACH ':memory:' AS another",
    "SET VARIABLE x = 1",
    "CREATE SCHEMA another",
    "CHECKPOINT",
    "SELECT count(*) FROM duckdb_settings()",
    "SELECT current_setting('memory_limit')",
)

OWN_LIMIT = ("SET memory_limit = '1TB'", "RESET memory_limit")
"""What `LaidAside` leaves open where rows are kept for long: how much memory the connection may take."""
KEEP_ROWS = ("worker", "push", "pull")
CONNECTIONS = (
    "memory",
    "state",
    "worker",
    "shared worker",
    "push",
    "pull",
    "constants",
    "timestamps",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_text("a,b\n1,2\n")
    with duckdb.connect(str(folder / "other.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    return folder


@pytest.fixture(params=CONNECTIONS)
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection as each part of the engine uses it."""
    log = open_log(tmp_path / "log", sync="never")
    for topic in ("input", "counts"):
        log.create_topic(topic, 1)
    log.append("input", 0, rows([("a", {"V": 1, "W": "w"}, 10)]))
    plan, expression = count_plan(), SqlExpression("v0", BIGINT)
    opened = contextlib.ExitStack()
    match request.param:
        case "memory":
            found = open_connection(MEMORY, EngineSettings(memory_limit="1GB", threads=1))
            lock(found)
        case "state":
            found = open_connection(str(tmp_path / "state.duckdb"))
            lock(found)
        case "worker":
            runtime = QueryRuntime(plan, log, tmp_path / "state")
            assert runtime.step()
            runtime.rest()  # no transaction is open then
            found = runtime._recovered.state.connection  # pyrefly: ignore[missing-attribute]
        case "shared worker":
            shared = SharedDatabases(tmp_path / "queries")
            runtime = QueryRuntime(plan, log, tmp_path / "queries" / "state", open_database=shared.open)
            assert runtime.step()
            runtime.rest()
            found = runtime._recovered.state.connection  # pyrefly: ignore[missing-attribute]
        case "push":
            push = PushQuery(replace(plan, root=plan.root.input), log)  # pyrefly: ignore[missing-attribute]
            found = push._connection
        case "pull":
            source = plan.sources()[0]
            info = SourceInfo("INPUT", "STREAM", "input", source.schema, source.key_format, source.value_format)
            pull = Materialization(info, log)
            pull.catch_up()
            found = pull._connection
        case "constants":
            constants = ConstantEvaluator()
            constants.evaluate([SqlExpression("1", BIGINT)])
            found = constants._connection
            assert found is not None
        case _:
            held = row_times._Computed(expression)._connection
            found = opened.enter_context(held.in_use())
    yield found
    opened.close()
    log.close()


def written(probe: str, folder: Path) -> str:
    return probe.format(folder=folder, file=folder / "secret.csv", name=folder.name)


def test_no_way_out_of_a_connection(
    connection: duckdb.DuckDBPyConnection, folder: Path, request: pytest.FixtureRequest
) -> None:
    leaked = pa.table({"a": [1]})
    before = sorted(os.listdir(folder))
    opened: list[str] = []
    for probe in PROBES:
        try:
            connection.execute(written(probe, folder)).fetchall()
        except duckdb.Error:
            continue
        opened.append(probe)
    del leaked
    keeps_rows = request.node.callspec.params["connection"] in KEEP_ROWS
    assert opened == (list(OWN_LIMIT) if keeps_rows else [])
    assert sorted(os.listdir(folder)) == before
    for probe in (*OWN_DATA_ONLY, "DETACH another", "DROP SCHEMA another"):  # others may use the instance after it
        connection.execute(probe).fetchall()


def test_a_state_file_can_be_read_by_its_own_connection_which_is_why_only_our_sql_runs_there(tmp_path: Path) -> None:
    """The one hole that DuckDB has: its fence leaves a database's own files open. Should this fail, it was closed."""
    path = tmp_path / "own.duckdb"
    connection = open_connection(str(path))
    lock(connection)
    assert connection.execute(f"SELECT octet_length(content) > 0 FROM read_blob('{path}')").fetchall() == [(True,)]
    with pytest.raises(duckdb.Error):
        connection.execute(f"COPY (SELECT 1) TO '{path}'")


def test_connections_in_memory_do_not_spill_into_the_working_directory() -> None:
    connection = open_connection()
    (spill,) = connection.execute("SELECT current_setting('temp_directory')").fetchone() or ("",)
    assert Path(spill).is_absolute()
    assert Path(spill).parent.stat().st_mode & 0o077 == 0


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        sandbox.create_topic("s")
        sandbox.execute(
            "CREATE STREAM s (k STRING KEY, v STRING, n BIGINT) WITH (kafka_topic='s', value_format='JSON');"
        )
        yield sandbox


STATEMENTS = (
    *PROBES,
    "SELECT * FROM read_csv('{file}') EMIT CHANGES",
    'SELECT * FROM "{file}" EMIT CHANGES',
    "SELECT * FROM `{file}` EMIT CHANGES",
    "SELECT read_text('{file}') FROM s EMIT CHANGES",
    "SELECT query('SELECT 1') FROM s EMIT CHANGES",
    "SELECT (SELECT 1) FROM s EMIT CHANGES",
    "SELECT * FROM (SELECT * FROM '{file}') EMIT CHANGES",
    "SELECT * FROM (SELECT * FROM duckdb_settings()) EMIT CHANGES",
    "SELECT * FROM (VALUES (1)) EMIT CHANGES",
    "SELECT current_setting('memory_limit') FROM s EMIT CHANGES",
    "SELECT getenv('HOME') FROM s EMIT CHANGES",
    "SELECT write_log('x') FROM s EMIT CHANGES",
    "SELECT v::INTEGER FROM s EMIT CHANGES",
    "SELECT COLUMNS('.*') FROM s EMIT CHANGES",
    "SELECT _offset, _part FROM s EMIT CHANGES",
    "SELECT k0 FROM s EMIT CHANGES",
    "SELECT v FROM s; COPY s TO '{folder}/out.csv';",
    "CREATE STREAM x AS SELECT * FROM read_csv('{file}');",
    "CREATE STREAM x AS SELECT read_blob('{file}') AS c FROM s;",
    "CREATE TABLE t AS SELECT 1",
    "CREATE STREAM x (v STRING) WITH (kafka_topic='../../{name}', value_format='JSON', partitions=1);",
    "INSERT INTO s (v) VALUES (read_text('{file}'));",
    "INSERT INTO s (v) SELECT * FROM read_text('{file}');",
    "SET 'millstream.duckdb.temp.directory' = '{folder}';",
    "SET 'millstream.duckdb.memory.limit' = '1TB';",
    "SET 'millstream.duckdb.threads' = '100000';",
    "SET 'temp_directory' = '{folder}';",
    "RUN SCRIPT '{file}';",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_way_out_of_a_statement(statement: str, sandbox: Sandbox, folder: Path) -> None:
    before = sorted(os.listdir(folder))
    text = written(statement, folder)
    for run in (sandbox.execute, lambda text: list(sandbox.query(text))):
        with pytest.raises(MillstreamError) as caught:
            run(text)
        caught.value.render().encode()
    assert sorted(os.listdir(folder)) == before


NO_NAMES = ("/* */ -- \n", "\u2028\u202f\ufeff")  # a name cannot have what cannot be seen
HOSTILE_TEXTS = (
    "' OR 1=1 --",
    "'; COPY (SELECT 1) TO 'x'; --",
    '"; DROP TABLE x; --',
    "{input}",
    "{keys} {rows}",
    "${{v}}",
    "$1 ? :text",
    "\\'; SELECT 1; --",
    "E'\\x41'",
    "$$ SELECT 1 $$",
    "%s %(a)s {0}",
    *NO_NAMES,
)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_text_stays_text_wherever_it_stands(text: str) -> None:
    """As literal of a projection, a filter and a lookup, as name of a column and of a member, through a store."""
    literal = "'" + text.replace("'", "''") + "'"
    named = "plain" if text in NO_NAMES else text
    name = "`" + named.replace("`", "``") + "`"
    with Sandbox() as sandbox:
        sandbox.create_topic("s")
        sandbox.execute("CREATE STREAM s (k STRING KEY, v STRING) WITH (kafka_topic='s', value_format='JSON');")
        sandbox.execute(f"CREATE STREAM literals AS SELECT k, {literal} AS c, v FROM s WHERE v = {literal};")
        sandbox.execute(
            f"CREATE TABLE counts AS SELECT v, COUNT(*) AS {name}, MAX({literal}) AS m FROM s GROUP BY v;"
            f"CREATE STREAM members AS SELECT k, STRUCT({name} := v) AS t, MAP({literal} := v) AS m FROM s;"
        )
        sandbox.produce("s", "a", {"v": text}, timestamp=1)
        sandbox.produce("s", "b", {"v": "else"}, timestamp=2)
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("LITERALS")] == [{"C": text, "V": text}]
        assert [list(record["value"].values()) for record in sandbox.consume("COUNTS")] == [[1, text], [1, text]]
        assert sandbox.consume("MEMBERS")[0]["value"] == {"T": {named: text}, "M": {text: text}}
        answer = sandbox.query(f"SELECT * FROM counts WHERE v = {literal};")
        found = [item["row"]["columns"] for item in answer if "row" in item]
        assert found == [[text, 1, text]]
