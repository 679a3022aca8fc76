"""Databases of queries in one DuckDB instance: what one does reaches no other, and what ends gives its memory back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hand_plans import INPUT, JSON, KAFKA, count_plan, read_all, rows, sink_of, stream_source

from millstream.errors import InvalidStatement
from millstream.executor import row_times
from millstream.executor.answers import materialization, pull_query
from millstream.executor.answers.materialization import Materialization
from millstream.executor.answers.pull_limits import PullLimits
from millstream.executor.answers.pull_query import PullQuery
from millstream.executor.batch import ChangeBatch
from millstream.executor.queries.query import QueryRuntime
from millstream.executor.sink_writer import SinkWriter
from millstream.executor.sources.source_decoder import Records, SourceDecoder
from millstream.executor.sources.source_reader import ReadBatch
from millstream.executor.state import databases
from millstream.executor.state.connection import MEMORY, EngineSettings, SideConnections
from millstream.executor.state.databases import Database, SharedDatabases
from millstream.executor.state.memory_shares import MemoryShares, room_of_a_store
from millstream.logcore.client import RowRecords
from millstream.logcore.log import open_log
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import SqlExpression
from millstream.server.engine.constants import ConstantEvaluator
from millstream.sql.functions.casts import cast_functions
from millstream.sql.functions.udf import Udf, by_row, failures_of, register_udfs
from millstream.sql.types import BIGINT, DOUBLE, STRING

SETTINGS = EngineSettings(memory_limit="1GB", threads=1)


def _half(value: int) -> int:
    if value % 2:
        raise ValueError("it is odd")
    return value // 2


HALF = Udf(by_row(_half), (BIGINT,), BIGINT)
JAVA_TEXT = Udf(cast_functions.to_java_text, (DOUBLE,), STRING)


@pytest.fixture
def shared(tmp_path: Path) -> SharedDatabases:
    return SharedDatabases(tmp_path)


@pytest.fixture
def pair(shared: SharedDatabases, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    """One in a file, one in memory."""
    opened = shared.open(str(tmp_path / "one.duckdb"), SETTINGS), shared.open(MEMORY, SETTINGS)
    yield opened
    for each in opened:
        each.close()


def count(database: Database) -> int:
    ((found,),) = database.connection.execute("SELECT count(*) FROM t").fetchall()
    return found


def test_tables_and_statements_of_two_queries_do_not_meet(pair: tuple[Database, Database]) -> None:
    for number, each in enumerate(pair):
        each.connection.execute("CREATE TABLE t (a INTEGER)")
        each.connection.execute(f"INSERT INTO t SELECT i FROM range({number + 1}) r(i)")
        each.connection.execute(f"PREPARE p AS SELECT {number}")
        each.connection.execute("CREATE TEMP TABLE own AS SELECT 1")
    assert [count(each) for each in pair] == [1, 2]
    assert [each.connection.execute("EXECUTE p").fetchall() for each in pair] == [[(0,)], [(1,)]]


def test_a_transaction_that_fails_is_the_own_one_only(pair: tuple[Database, Database]) -> None:
    for each in pair:
        each.connection.execute("CREATE TABLE t (a INTEGER)")
        each.connection.execute("BEGIN")
        each.connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(duckdb.ConversionException):
        pair[0].connection.execute("INSERT INTO t VALUES ('x')").fetchall()
    pair[1].connection.execute("COMMIT")
    pair[0].connection.execute("ROLLBACK")
    assert [count(each) for each in pair] == [0, 1]


def test_an_interrupted_statement_is_the_own_one_only(pair: tuple[Database, Database]) -> None:
    found: list[object] = []

    def run(database: Database, number: int) -> None:
        try:
            sql = f"SELECT sum(i % {number + 7}) FROM range({(30, 3)[number]}00000000) r(i)"
            found.append((number, len(database.connection.execute(sql).fetchall())))
        except duckdb.InterruptException:
            found.append((number, "interrupted"))

    threads = [threading.Thread(target=run, args=(each, number)) for number, each in enumerate(pair)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    pair[0].connection.interrupt()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [(0, "interrupted"), (1, 1)]


def test_settings_are_locked_and_files_outside_of_the_folder_are_closed(
    pair: tuple[Database, Database], tmp_path: Path
) -> None:
    outside = tmp_path.parent / "outside.csv"
    outside.write_text("a\n1\n")
    probes = ("SET memory_limit = '2GB'", "SET enable_external_access = true", f"ATTACH '{outside}.duckdb'",
              f"SELECT * FROM read_csv('{outside}')", "SET allowed_directories = ['/']")  # fmt: skip
    for each in pair:
        for probe in probes:
            with pytest.raises(duckdb.Error):
                each.connection.execute(probe).fetchall()


def test_a_file_is_the_same_whether_its_database_is_shared_or_alone(shared: SharedDatabases, tmp_path: Path) -> None:
    path = str(tmp_path / "state's.duckdb")
    for open_database in (shared.open, databases.alone, shared.open):
        opened = open_database(path, SETTINGS)
        opened.connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")
        opened.connection.execute("INSERT INTO t VALUES (1)")
        opened.close()
    opened = databases.alone(path, SETTINGS)
    assert count(opened) == 3
    opened.close()


def test_what_was_not_committed_is_rolled_back_at_the_end(shared: SharedDatabases, tmp_path: Path) -> None:
    path = str(tmp_path / "state.duckdb")
    opened, other = shared.open(path, SETTINGS), shared.open(MEMORY, SETTINGS)
    opened.connection.execute("CREATE TABLE t (a INTEGER)")
    opened.connection.execute("BEGIN")
    opened.connection.execute("INSERT INTO t VALUES (1)")
    opened.close()
    opened.close()  # twice does no harm
    again = shared.open(path, SETTINGS)
    assert count(again) == 0
    again.close()
    other.close()


def test_queries_with_other_limits_and_too_many_queries_have_another_instance(tmp_path: Path) -> None:
    shared = SharedDatabases(tmp_path, tenants_max=2)
    opened = [shared.open(MEMORY, SETTINGS) for _ in range(3)]
    opened.append(shared.open(MEMORY, EngineSettings(memory_limit="500MB", threads=1)))
    seen = [len(each.connection.execute("SELECT * FROM duckdb_databases()").fetchall()) for each in opened]
    limits = {each.connection.execute("SELECT current_setting('memory_limit')").fetchone() for each in opened}
    for each in opened:
        each.close()
    assert seen == [5, 5, 4, 4]  # with memory, system and temp
    assert len(limits) == 2
    assert not any(shared._instances.values())


def test_instances_that_nobody_uses_stay_open_up_to_a_number_and_are_used_again(tmp_path: Path) -> None:
    shared = SharedDatabases(None, idle_max=1)
    other = EngineSettings(memory_limit="500MB", threads=1)
    first = shared.open(MEMORY, SETTINGS)
    first.connection.execute("CREATE TABLE t (a INTEGER)")
    first.close()
    (kept,) = instances(shared)
    again = shared.open(MEMORY, SETTINGS)
    assert instances(shared) == [kept]
    assert again.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []
    unused = shared.open(MEMORY, other)
    unused.close()  # stays, while the first is in use
    assert len(instances(shared)) == 2
    again.close()  # stays in place of that
    assert instances(shared) == [kept]
    assert kept.is_usable()


def test_an_instance_ends_after_so_many_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB keeps a little about each query, for a long time."""
    monkeypatch.setattr(databases, "USES_MAX", 3)
    shared = SharedDatabases(None, idle_max=2)
    long = shared.open(MEMORY, SETTINGS)
    (first,) = instances(shared)
    for _ in range(2):
        shared.open(MEMORY, SETTINGS).close()
        assert instances(shared) == [first]
    later = shared.open(MEMORY, SETTINGS)
    assert len(instances(shared)) == 2
    assert long.connection.execute("SELECT 1").fetchall() == [(1,)], "it goes on where it is"
    long.close()
    (second,) = instances(shared)
    assert second is not first and not first.is_usable()
    later.close()
    assert instances(shared) == [second]


def test_instances_of_files_have_no_such_end(shared: SharedDatabases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "USES_MAX", 1)
    opened = [shared.open(MEMORY, SETTINGS) for _ in range(3)]
    assert len(instances(shared)) == 1
    for each in opened:
        each.close()


def instances(shared: SharedDatabases) -> list[databases._Instance]:
    return [each for some in shared._instances.values() for each in some]


def test_an_instance_that_nobody_uses_keeps_no_share_of_the_memory() -> None:
    shares = MemoryShares(8 * 2**30)
    settings = EngineSettings(threads=1, shares=shares)
    one_at_a_time = SharedDatabases(None, idle_max=1, tenants_max=1)

    def limit(database: Database) -> str:
        return database.connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]

    first = one_at_a_time.open(MEMORY, settings)
    assert limit(first) == "2.0 GiB"
    second = one_at_a_time.open(MEMORY, settings)
    assert limit(second) == "1.1 GiB"
    assert len(instances(one_at_a_time)) == 2
    second.close()
    first.close()
    assert shares.take() == 2 * 2**30  # half of what is left for queries that start now
    again = one_at_a_time.open(MEMORY, settings)
    assert limit(again) == "1.5 GiB"
    assert len(instances(one_at_a_time)) == 1
    again.close()


def test_a_query_that_is_collected_while_another_one_is_opened_waits_for_it(
    shared: SharedDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs in whatever thread makes objects, also in the middle of `open`."""
    abandoned = shared.open(MEMORY, SETTINGS)
    (instance,) = instances(shared)
    attach = databases._Instance.attach

    def collects(self: databases._Instance, path: str) -> tuple[str, duckdb.DuckDBPyConnection]:
        abandoned.close()
        assert len(instance.tenants) == 1  # not yet
        return attach(self, path)

    monkeypatch.setattr(databases._Instance, "attach", collects)
    opened = shared.open(MEMORY, SETTINGS)
    assert len(instance.tenants) == 1
    assert opened.connection.execute("SELECT 1").fetchall() == [(1,)]
    opened.close()
    assert instances(shared) == []


def test_connections_for_expressions_share_an_instance_until_it_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_expressions", [])
    one, other = databases.for_expressions(), databases.for_expressions()
    (instance,) = databases._expressions
    for number, each in enumerate((one, other)):
        each.execute(f"CREATE TEMP VIEW own AS SELECT {number} AS a")
    assert [each.execute("SELECT a FROM own").fetchall() for each in (one, other)] == [[(0,)], [(1,)]]
    instance.close()
    assert databases.for_expressions().execute("SELECT 2").fetchall() == [(2,)]
    assert len(databases._expressions) == 2


FORKS = """
import os, sys
from millstream.executor.state.connection import MEMORY, EngineSettings, SideConnections
from millstream.executor.state.databases import for_expressions, of_this_process

def use():
    for_expressions().execute("SELECT sum(range) FROM range(1_000_000)").fetchall()
    database = of_this_process().open(MEMORY, EngineSettings(threads=2))
    database.connection.execute("SELECT sum(range) FROM range(1_000_000)").fetchall()
    database.close()

use()
child = os.fork()
use()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(7)
"""


def test_a_process_that_was_forked_has_instances_of_its_own_and_comes_to_its_end() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, timeout=100, check=False)
    assert ended.returncode == 7, ended.stderr


@pytest.mark.parametrize("broken", [duckdb.FatalException, duckdb.InternalException])
def test_constants_are_computed_again_after_their_instance_broke(broken: type[duckdb.Error]) -> None:
    class Broken:
        def __init__(self) -> None:
            self.closed = False

        def sql(self, text: str) -> Any:
            raise broken("database has been invalidated because of a previous fatal error")

        def close(self) -> None:
            self.closed = True

    constants, connection = ConstantEvaluator(), Broken()
    constants._connection = cast(duckdb.DuckDBPyConnection, connection)
    with pytest.raises(InvalidStatement, match="invalidated"):
        constants.evaluate([SqlExpression("1", BIGINT)])
    assert connection.closed
    assert [each.to_pylist() for each in constants.evaluate([SqlExpression("1", BIGINT)])] == [[1]]
    constants.close()


@pytest.mark.parametrize("broken", [duckdb.FatalException, duckdb.InternalException])
def test_times_of_records_are_computed_again_after_their_instance_broke(
    broken: type[duckdb.Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader and a writer outlive what broke: the query goes on with them."""
    source = replace(stream_source(), timestamp=SqlExpression("v0 + 1", BIGINT))
    decoder = SourceDecoder(source)
    writer = SinkWriter(replace(sink_of(source, "out", INPUT), timestamp=SqlExpression("v0 + 1", BIGINT)))
    zero = np.zeros(1, np.int64)
    records = Records(zero.astype(np.int32), zero, pa.table(rows([("a", {"V": 77, "W": "w"}, 1)]).table))
    row = {"_seq": 0, "_sub": 0, "_part": 0, "_ts": 1, "_weight": 1, "_null": False, "k0": "a", "v0": 77, "v1": "w"}
    changes = ChangeBatch(pa.table({name: [value] for name, value in row.items()}))

    def times() -> tuple[list[int], list[int]]:
        ((_, written),) = writer.encode(changes, ReadBatch({}, {})).records
        assert isinstance(written, RowRecords)
        return decoder.decode(records).times.tolist(), pa.table(written.table)["timestamp"].to_pylist()

    def connections() -> list[duckdb.DuckDBPyConnection | None]:
        assert writer._timestamps is not None
        held = [decoder._timestamp, writer._timestamps._times]
        return [each._connection._connection for each in held if isinstance(each, row_times._Computed)]

    assert times() == ([78], [78])
    before = connections()
    assert len(before) == 2

    def breaks(*_: object, **__: object) -> Any:
        raise broken("database has been invalidated because of a previous fatal error")

    with monkeypatch.context() as patched:
        patched.setattr(row_times.BatchStatement, "run", breaks)
        with pytest.raises(broken):
            decoder.decode(records)
        with pytest.raises(broken):
            writer.encode(changes, ReadBatch({}, {}))
    for connection in before:
        assert connection is not None
        with pytest.raises(duckdb.ConnectionException):
            connection.execute("SELECT 1")
    assert times() == ([78], [78])


def test_what_fails_to_begin_leaves_no_database_behind(
    shared: SharedDatabases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("no room for another query")

    for module, name in ((pull_query, "Pipeline"), (materialization, "SourceRelation")):
        monkeypatch.setattr(module, name, fails)
    planned = SimpleNamespace(plan=count_plan(), table=False)
    source = SourceInfo("INPUT", "STREAM", "input", INPUT, KAFKA, JSON)
    with closing(open_log(tmp_path / "log")) as client:
        client.create_topic("input", 1)
        with pytest.raises(MemoryError):
            PullQuery(cast(Any, planned), client, {}, PullLimits(), shared.open)
        assert instances(shared) == []
        with pytest.raises(MemoryError):
            Materialization(source, client, open_database=shared.open)
        assert instances(shared) == []


def test_a_function_in_python_is_of_one_query_and_ends_with_it(shared: SharedDatabases, tmp_path: Path) -> None:
    """Both call it by one name. Each has the failures of its own rows, and a further connection may call it, too."""
    opened = [shared.open(str(tmp_path / "one.duckdb"), SETTINGS), shared.open(MEMORY, SETTINGS)]
    for each in opened:
        register_udfs(each.connection, [HALF.name])
        register_udfs(each.connection, [HALF.name])  # twice does no harm
        each.connection.execute("CREATE TABLE t AS SELECT i FROM range(4) rows(i)")
    call = f'SELECT "{HALF.name}"(i) FROM t'
    assert [each.connection.execute(call).fetchall() for each in opened] == [[(0,), (None,), (1,), (None,)]] * 2
    assert len(failures_of(opened[0].connection).take()) == 2
    further = opened[1].connect()
    (side,) = SideConnections(opened[1].connection).first(1)
    for each in (further, side):
        assert each.execute(f'SELECT "{HALF.name}"(8)').fetchall() == [(4,)]
        each.close()
    assert len(failures_of(opened[1].connection).take()) == 2
    (instance,) = instances(shared)
    opened[1].connection.execute("BEGIN")
    with pytest.raises(duckdb.Error):
        opened[1].connection.execute("SELECT error('of the query')").fetchall()
    opened[1].close()  # in the middle of a transaction that failed
    gone = instance.cursor().execute("SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'ms$%'")
    assert {name for (name,) in gone.fetchall()} == {HALF.name, f"{HALF.name}@_database_{opened_number(opened[0])}"}
    assert opened[0].connection.execute(call).fetchall() == [(0,), (None,), (1,), (None,)]
    opened[0].close()
    again = shared.open(str(tmp_path / "one.duckdb"), SETTINGS)
    register_udfs(again.connection, [HALF.name])
    assert again.connection.execute(call).fetchall() == [(0,), (None,), (1,), (None,)]
    again.close()


def opened_number(database: Database) -> str:
    ((name,),) = database.connection.execute("SELECT current_database()").fetchall()
    return name.removeprefix("_database_")


def test_an_expression_with_a_function_in_python_is_alone_in_its_instance() -> None:
    plain = databases.connection_for(SqlExpression("1", BIGINT))
    with_function = databases.connection_for(SqlExpression("", STRING, udfs=(JAVA_TEXT.name,)))
    sql = f"SELECT count(*) FROM duckdb_functions() WHERE function_name = '{JAVA_TEXT.name}'"
    assert [each.execute(sql).fetchall() for each in (plain, with_function)] == [[(0,)], [(1,)]]


def test_each_query_has_room_of_its_own_in_memory(shared: SharedDatabases) -> None:
    shares = MemoryShares(8 * 2**30)
    opened = [shared.open(MEMORY, EngineSettings(threads=1, shares=shares)) for _ in range(2)]
    rooms = [room_of_a_store(each.connection) for each in opened]
    assert rooms[0] > rooms[1] > 0
    for each in opened:
        each.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="the system does not tell")
def test_a_hundred_databases_that_come_and_go_leave_memory_flat(shared: SharedDatabases, tmp_path: Path) -> None:
    stays = shared.open(MEMORY, SETTINGS)

    def come_and_go(number: int) -> None:
        opened = [shared.open(str(tmp_path / f"{number}-{n}.duckdb") if n % 2 else MEMORY, SETTINGS) for n in range(20)]
        for each in opened:
            each.connection.execute("CREATE TABLE t AS SELECT i, repeat('x', 100) AS text FROM range(10000) r(i)")
        for each in opened:
            each.close()

    come_and_go(0)
    before = resident_bytes()
    for number in range(1, 6):
        come_and_go(number)
    assert resident_bytes() - before < 30e6
    assert stays.connection.execute("SELECT 1").fetchall() == [(1,)]
    stays.close()


def test_queries_in_one_instance_recover_each_for_itself(tmp_path: Path, shared: SharedDatabases) -> None:
    with open_log(tmp_path / "log", sync="never") as log:
        for topic in ("input", "counts"):
            log.create_topic(topic, 1)
        stays = shared.open(MEMORY, SETTINGS)
        runtime = QueryRuntime(count_plan(), log, tmp_path / "state", open_database=shared.open)
        fail = _failing_once(runtime)
        for number in range(3):
            log.append("input", 0, rows([("a", {"V": number, "W": "w"}, 10)]))
            if number == 1:
                with pytest.raises(duckdb.IOException):
                    fail()
            while runtime.step():
                pass
        runtime.close()
        assert [record["value"]["N"] for record in read_all(log, "counts")] == [1, 2, 3]
        assert stays.connection.execute("SELECT 42").fetchall() == [(42,)]
        stays.close()


def _failing_once(runtime: QueryRuntime) -> Callable[[], None]:
    def fail() -> None:
        with runtime._recovery_on_failure():
            raise duckdb.IOException("no room")

    return fail
