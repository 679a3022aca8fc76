"""What the shell does with text: statements, its own commands, Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from millstream.errors import MillstreamError
from millstream.repl.commands import command_of
from millstream.repl.interactive import is_finished
from millstream.repl.printer import Printer
from millstream.repl.runner import LeaveShell, Runner, ScriptUnreadable
from millstream.repl.settings import UnknownOutputFormat
from millstream.server.client import Row, Rows, RowsKind
from millstream.server.client_tables import ResultTables
from millstream.waiting import ResultsBehind


class RecordingClient:
    """Answers nothing, and keeps what it was asked."""

    address = "nowhere"

    def __init__(self, kind: RowsKind = "PUSH", rows: list[Row] | None = None) -> None:
        self.executed: list[str] = []
        self.closed = threading.Event()
        self._kind: RowsKind = kind
        self._rows = rows

    def execute(self, text: str) -> list[dict[str, Any]]:
        self.executed.append(text)
        return []

    def query(self, text: str) -> Rows:
        del text
        rows = iter(self._rows) if self._rows is not None else self._endless()
        return Rows(self._kind, "q", ("A", "B"), ("INTEGER", "STRING"), rows, self.closed.set, lambda: None)

    def tables(self, text: str) -> ResultTables:
        raise AssertionError(text)

    def insert(self, name: str, rows: pa.Table) -> int:
        raise AssertionError(name)

    def define(self, name: str, value: str) -> None: ...

    def info(self) -> dict[str, Any]:
        return {"version": "0.29.0", "millstreamVersion": "9"}

    def close(self) -> None: ...

    def _endless(self) -> Iterator[Row]:
        yield Row((1, "first"))
        os.kill(os.getpid(), signal.SIGINT)
        assert self.closed.wait(60)


def runner(client: RecordingClient) -> tuple[Runner, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Runner(client, Printer(out, err), interactive=True), out, err


def test_each_statement_is_sent_at_its_place_in_the_text() -> None:
    client = RecordingClient()
    runner(client)[0].run("SHOW STREAMS; -- one; two\n  SHOW 'a;b'\n; SHOW TABLES")
    assert client.executed == ["SHOW STREAMS;", "\n  SHOW 'a;b'\n;", "\n\n  SHOW TABLES"]


def test_ctrl_c_ends_the_query_and_not_the_shell() -> None:
    shell, out, err = runner(RecordingClient())
    before = signal.getsignal(signal.SIGINT)  # a Spark session in this process has a handler of its own
    shell.run("SELECT * FROM s EMIT CHANGES; output;")
    assert out.getvalue().splitlines()[2:] == ["          1 | first", "table"]
    assert err.getvalue() == "Query ended after 1 row.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_tombstone_shows_which_row_is_gone() -> None:
    shell, out, _ = runner(RecordingClient(rows=[Row((1, None), tombstone=True)]))
    shell.run("SELECT * FROM t EMIT CHANGES; output jsonl; SELECT * FROM t EMIT CHANGES;")
    assert out.getvalue().splitlines()[2:] == ["          1 | <gone>", '{"A":1,"@tombstone":true}']


def test_data_cannot_command_the_terminal() -> None:
    shell, out, _ = runner(RecordingClient("PULL", [Row((1, "a\x1b[31m\nb"))]))
    shell.run("SELECT * FROM t;")
    assert out.getvalue().splitlines()[2] == "  1 | a\\x1b[31m\\nb".replace("  1", " 1")


def test_a_script_runs_another_one_and_tells_when_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "inner.sql").write_text("SHOW TABLES;")
    client = RecordingClient()
    shell, _, _ = runner(client)
    shell.run(f"run script '{tmp_path}/inner.sql';")
    assert client.executed == ["SHOW TABLES;"]
    (tmp_path / "again.sql").write_text(f"RUN SCRIPT '{tmp_path}/again.sql';")
    for name in ("again.sql", "missing.sql"):
        with pytest.raises(ScriptUnreadable):
            shell.run(f"run script '{tmp_path}/{name}';")


def test_commands_of_the_shell_answer() -> None:
    shell, out, _ = runner(RecordingClient())
    shell.run("output jsonl; OUTPUT; server; version;")
    assert out.getvalue().splitlines() == ["jsonl", "nowhere", f"shell:  {_version()}", "server: 9"]
    with pytest.raises(UnknownOutputFormat):
        shell.run("output xml;")
    with pytest.raises(LeaveShell):
        shell.run("quit;")
    assert isinstance(UnknownOutputFormat("x"), MillstreamError)


def test_what_a_script_inserted_is_waited_for_once_and_before_a_pull_query() -> None:
    shell, _, err = runner(RecordingClient("PULL", []))
    waited: list[set[str]] = []

    def wait(_: object, names: Collection[str]) -> None:
        waited.append(set(names))
        if len(waited) == 2:
            raise ResultsBehind("query Q is behind")

    shell.wait_for_inserted = wait
    shell.run("INSERT INTO a VALUES (1); SELECT * FROM t;")
    assert waited == []  # somebody types
    shell.interactive = False
    shell.run(
        "INSERT INTO `b` VALUES (1); SELECT * FROM t EMIT CHANGES; SHOW TABLES; SELECT * FROM t; SELECT * FROM t;"
    )
    assert waited == [{"A", "b"}]
    shell.run("DELETE FROM c WHERE k = 1; SELECT * FROM t;")
    assert waited[1:] == [{"C"}]
    assert "The next result may lack rows that were inserted: query Q is behind" in err.getvalue()
    shell.run("\\set wait off\nINSERT INTO d VALUES (1); SELECT * FROM t;")
    assert len(waited) == 2


def test_what_only_looks_like_a_command_is_sql() -> None:
    assert command_of("exit") is not None
    assert command_of("server 'http://a:1';") is not None
    assert command_of("exit now") is None
    assert command_of("SELECT 'exit';") is None


def test_enter_sends_what_is_finished() -> None:
    finished = ["", "help", "SHOW STREAMS;", "a; -- b"]
    assert all(map(is_finished, finished))
    assert not any(map(is_finished, ["SELECT 1", "SELECT ';", "help me"]))


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("millstream")


@pytest.mark.parametrize("kind", ["PUSH", "PRINT"])
def test_a_query_that_goes_on_ends_after_the_limit_of_rows(kind: RowsKind) -> None:
    client = RecordingClient(kind, [Row((number, "x")) for number in range(9)])
    shell, out, err = runner(client)
    shell.run("\\set limit 3\n\\set format csv\nSELECT * FROM s EMIT CHANGES;")
    assert len(out.getvalue().splitlines()) == (4 if kind == "PUSH" else 5)  # with the lines about columns or formats
    assert client.closed.is_set()
    assert "ended" not in err.getvalue()  # it is no Ctrl-C
    shell.run("\\set format table\nSELECT * FROM s EMIT CHANGES;")
    assert "Limit Reached" in err.getvalue()


@pytest.mark.parametrize(("kind", "limit", "count"), [("PUSH", 3, 3), ("PUSH", 4, 4), ("PUSH", 9, 6), ("PULL", 3, 6)])
def test_arrow_has_the_limit_too(kind: Literal["PULL", "PUSH"], limit: int, count: int) -> None:
    class InTables(RecordingClient):
        def tables(self, text: str) -> ResultTables:
            table = pa.table({"a": [1, 2]})
            return ResultTables(kind, "q", table.schema, ("BIGINT",), iter([table] * 3), self.closed.set)

    out = io.TextIOWrapper(io.BytesIO())
    shell = Runner(InTables(), Printer(out, io.StringIO()), interactive=True)
    shell.run(f"\\set limit {limit}\n\\set format arrow\nSELECT * FROM s EMIT CHANGES;")
    written = out.buffer.getvalue()
    assert pa.ipc.open_stream(written).read_all().num_rows == count


def test_a_pull_query_has_no_limit() -> None:
    shell, out, _ = runner(RecordingClient("PULL", [Row((number, "x")) for number in range(5)]))
    shell.run("\\set limit 3\n\\set timeout 1\n\\set format csv\nSELECT * FROM s;")
    assert len(out.getvalue().splitlines()) == 6


def test_a_query_that_goes_on_ends_after_its_time() -> None:
    class Waiting(RecordingClient):
        def _endless(self) -> Iterator[Row]:
            yield Row((1, "first"))
            assert self.closed.wait(60)

    shell, out, err = runner(Waiting())
    shell.run("\\set timeout 20\nSELECT * FROM s EMIT CHANGES;")
    assert "first" in out.getvalue()
    assert "The query ran for 20 ms" in err.getvalue()


def test_columns_are_as_wide_as_one_wants() -> None:
    for kind in ("PULL", "PUSH"):
        shell, out, _ = runner(RecordingClient(kind, [Row((123456789, "a long text")), Row((1, None))]))
        shell.run("set cli column-width 6; SELECT * FROM s EMIT CHANGES; ")
        assert out.getvalue().splitlines() == [
            "      A | B",
            "--------+--------",
            " 12345… | a lon…",
            "      1 | null",
        ]
