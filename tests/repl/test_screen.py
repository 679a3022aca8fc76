"""The shell on a terminal, as people see it: a pseudo-terminal, a server process, and the screen compared."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pseudo_terminal import CTRL_C, CTRL_D, CTRL_R, CTRL_Z, ENTER, PAGE_DOWN, TAB, PseudoTerminal, shell_command
from running_server import ServerProcess

from millstream.server.client import HttpClient, connect

PROMPT = "millstream>"
QUIET = "\\set suggest off\nSET 'auto.offset.reset' = 'earliest';\n"
HOSTILE = "\x1b[31m\x1b]0;owned\x07\x1b[2Jred\x9b5n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("data")) as started:
        client = connect(started.url)
        client.execute("""
            CREATE TABLE users (id INT PRIMARY KEY, name STRING)
              WITH (kafka_topic='users', value_format='JSON', partitions=1);
            CREATE STREAM clicks (user STRING KEY, size INT)
              WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
            CREATE TABLE sizes AS SELECT user, SUM(size) AS total FROM clicks GROUP BY user;
            INSERT INTO users (ROWTIME, id, name) VALUES (1000, 1, 'ada');
            INSERT INTO users (ROWTIME, id, name) VALUES (2000, 2, 'bob');
        """)
        yield started


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config" / "millstream").mkdir(parents=True)
    (tmp_path / "config" / "millstream" / "shellrc").write_text(QUIET)
    return tmp_path


def shell(url: str, home: Path, *, rows: int = 16, columns: int = 72, **environment: str) -> PseudoTerminal:
    """A shell that is ready for keys."""
    terminal = PseudoTerminal(shell_command(url), home=home, rows=rows, columns=columns, environment=environment)
    try:
        terminal.wait_for_last(PROMPT)
    except BaseException:
        terminal.close()
        raise
    return terminal


def client_of(server: ServerProcess) -> HttpClient:
    return connect(server.url)


def test_a_statement_is_completed_and_goes_over_lines_until_its_semicolon(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home) as terminal:
        terminal.type(f"select na{TAB}")
        terminal.wait_for_last(f"{PROMPT} select name")
        terminal.type(f"{ENTER}from us{TAB}")
        terminal.wait_for_last("        ... from users")
        terminal.type(f"{ENTER}wh{TAB}")
        terminal.wait_for_last("        ... where")
        assert terminal.enter(" id = 2;", PROMPT)[-8:] == [
            f"{PROMPT} select name",
            "        ... from users",
            "        ... where id = 2;",
            " NAME",
            "------",
            " bob",
            "1 row",
            PROMPT,
        ]
        assert terminal.enter("select name frm users;", PROMPT)[-5:-2] == [
            'error: unexpected "frm"; expected FROM',
            "  1 | select name frm users;",
            "    |             ^^^",
        ]
        terminal.type(CTRL_D)
        assert terminal.wait_for_exit() == 0


def test_what_was_typed_is_found_by_ctrl_r_also_the_next_time(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home) as terminal:
        terminal.enter("show variables;", PROMPT)
        terminal.type(f"exit{ENTER}")
        assert terminal.wait_for_exit() == 0
    with shell(server.url, home) as terminal:
        terminal.type(f"{CTRL_R}vari")
        screen = terminal.wait_for_last("I-search backward: vari")
        assert f"{PROMPT} show variables;" in screen
        terminal.type(f"{ENTER}")
        terminal.wait_for_last(f"{PROMPT} show variables;")
        terminal.type(ENTER)
        terminal.wait_for_last(PROMPT)
        assert terminal.enter("history 2;", PROMPT)[-4:-1] == [f"{PROMPT} history 2;", "show variables;", "history 2;"]


def test_a_push_query_on_a_table_redraws_its_rows_and_ctrl_c_ends_only_it(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home) as terminal:
        terminal.type(f"SELECT * FROM sizes EMIT CHANGES;{ENTER}")
        terminal.wait_for("no rows · 0 changes")
        insert(server, ada=1, bob=10)
        insert(server, ada=41)
        screen = terminal.wait(lambda lines: " ada  |    42" in lines and any("stream time" in line for line in lines))
        assert terminal.alternate
        assert screen[:5] == [" USER | TOTAL", "------+-------", " ada  |    42", " bob  |    10", ""]
        assert len(screen) == 16
        assert re.fullmatch(r" rows 1 to 2 of 2 · \d changes · N/s · lag 0 · stream time 1970.*", screen[-1])
        terminal.resize(6, 36)
        screen = terminal.wait(lambda lines: len(lines) == 6 and lines[-1].endswith("…"))
        assert screen[:4] == [" USER | TOTAL", "------+-------", " ada  |    42", " bob  |    10"]
        terminal.resize(16, 72)
        terminal.wait(lambda lines: len(lines) == 16)
        terminal.type(CTRL_C)
        screen = terminal.wait_for_last(PROMPT)
        assert not terminal.alternate
        assert screen[-6:-2] == [" USER | TOTAL", "------+-------", " ada  |    42", " bob  |    10"]
        assert re.fullmatch(r"Query ended after \d rows\.", screen[-2])
        terminal.type(f"version;{ENTER}")
        terminal.wait_for("server: ")


def test_a_push_query_on_a_stream_scrolls_above_a_bar(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home, rows=8) as terminal:
        terminal.type(f"SELECT size FROM clicks WHERE user = 'eve' EMIT CHANGES;{ENTER}")
        terminal.wait_for(" 0 rows · N/s")
        for size in range(1, 9):
            insert(server, eve=size)
        screen = terminal.wait(lambda lines: "          8" in lines and " 8 rows" in lines[-1])
        assert screen[:-1] == [f"          {size}" for size in range(2, 9)]
        assert not terminal.alternate
        terminal.type(CTRL_C)
        assert terminal.wait_for_last(PROMPT)[-3:] == ["          8", "Query ended after 8 rows.", PROMPT]


@pytest.mark.parametrize(
    ("query", "bar", "advice"),
    [
        (
            "SELECT size FROM clicks EMIT CHANGES;",
            " 0 rows · new records only · N/s",
            "'auto.offset.reset' = 'earliest'",
        ),
        (
            "SELECT COUNT(*) AS n FROM clicks EMIT CHANGES;",
            "no rows · 0 changes · new records only · N/s",
            "'auto.offset.reset' = 'earliest'",
        ),
        ("PRINT clicks;", " 0 rows · new records only · N/s", "with FROM BEGINNING all of them."),
    ],
)
def test_who_sees_no_row_is_told_that_only_new_records_are_read(
    server: ServerProcess, home: Path, query: str, bar: str, advice: str
) -> None:
    with shell(server.url, home, columns=120) as terminal:
        terminal.enter("UNSET 'auto.offset.reset';", PROMPT)
        terminal.type(f"{query}{ENTER}")
        terminal.wait_for(bar)
        terminal.type(CTRL_C)
        screen = terminal.wait_for_last(PROMPT)
        assert "Query ended after 0 rows." in screen[-3] and advice in screen[-2]
        if not query.startswith("PRINT"):
            terminal.enter("SET 'auto.offset.reset' = 'earliest';", PROMPT)
            terminal.type(f"{query.replace('FROM clicks', 'FROM clicks WHERE size < 0')}{ENTER}")
            terminal.wait(lambda lines: any("0 rows" in line or "no rows" in line for line in lines[-1:]))
            terminal.type(CTRL_C)
            assert advice not in terminal.wait_for_last(PROMPT)[-2]


def test_ctrl_z_stops_the_shell_until_fg(server: ServerProcess, home: Path) -> None:
    job = [*shell_command(server.url)]
    with PseudoTerminal(["bash", "--norc", "-i"], home=home, columns=200, environment={"PS1": "$ "}) as terminal:
        terminal.wait_for_last("$")
        terminal.type(f"{shlex.join(job)}{ENTER}")
        terminal.wait_for_last(PROMPT)
        terminal.type(f"SHOW{CTRL_Z}")
        terminal.wait_for_last("$")
        terminal.type(f"fg{ENTER}")
        terminal.wait_for_last(f"{PROMPT} SHOW")
        terminal.type(CTRL_C)
        for query, bar in (("clicks", "0 rows · N/s"), ("sizes", "rows · ")):
            terminal.enter("-- next", PROMPT)
            terminal.type(f"SELECT * FROM {query} WHERE user = 'nobody' EMIT CHANGES;{ENTER}")
            terminal.wait_for(bar)
            terminal.type(CTRL_Z)
            terminal.wait_for_last("$")
            terminal.type(f"fg{ENTER}")
            terminal.wait_for(bar)
            terminal.type(CTRL_C)
            terminal.wait_for_last(PROMPT)


def test_watch_asks_again_until_ctrl_c(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home, rows=8) as terminal:
        terminal.type(f"SELECT COUNT(*) AS n FROM clicks WHERE user = 'watched' \\watch 0.2{ENTER}")
        terminal.wait(lambda lines: lines[:3] == [" N", "---", " 0"])
        insert(server, watched=1)
        screen = terminal.wait(lambda lines: lines[:3] == [" N", "---", " 1"])
        assert screen[-1].startswith(" every 0.2 s · run N at HH:MM:SS · Ctrl-C ends · SELECT COUNT(*)")
        terminal.type(CTRL_C)
        assert terminal.wait_for_last(PROMPT)[-4:] == [" N", "---", " 1", PROMPT]


def test_the_editor_is_called_and_what_it_wrote_stands_at_the_prompt(server: ServerProcess, home: Path) -> None:
    editor = home / "editor"
    editor.write_text('#!/bin/sh\nprintf "SELECT name\\nFROM users\\nWHERE id = 1;" > "$1"\n')
    editor.chmod(0o755)
    with shell(server.url, home, EDITOR=str(editor)) as terminal:
        terminal.type(f"\\e{ENTER}")
        terminal.wait_for_last("        ... WHERE id = 1;")
        terminal.type(ENTER)
        assert terminal.wait_for_last(PROMPT)[-5:] == [" NAME", "------", " ada", "1 row", PROMPT]


def test_a_query_of_the_command_line_is_live_and_ends_by_ctrl_c_with_exit_code_130(
    server: ServerProcess, home: Path
) -> None:
    statements = "SET 'auto.offset.reset' = 'earliest'; SELECT * FROM users EMIT CHANGES; SHOW STREAMS;"
    with PseudoTerminal(shell_command(server.url, "-c", statements), home=home, rows=8) as terminal:
        terminal.wait_for("rows 1 to 2 of 2 · 2 changes")
        terminal.type(CTRL_C)
        assert terminal.wait_for_exit() == 130
        terminal.wait_for_last("Query ended after 2 rows.")


def test_a_long_result_goes_through_the_pager_of_the_user(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home, rows=10, PAGER="grep -c SCALAR") as terminal:
        screen = terminal.enter("\\df", PROMPT)
        assert int(screen[-2]) > 100


def test_where_there_is_no_pager_the_shell_has_one(server: ServerProcess, home: Path) -> None:
    with shell(server.url, home, rows=10, PATH="/nowhere") as terminal:
        terminal.type(f"\\df{ENTER}")
        screen = terminal.wait(lambda lines: len(lines) == 10 and lines[-1].startswith(" lines 1 to 9 of "))
        assert screen[2].startswith(" ABS  ")
        terminal.type(PAGE_DOWN)
        terminal.wait(lambda lines: lines[-1].startswith(" lines 8 to 16 of "))
        terminal.type("q")
        terminal.wait_for_last(PROMPT)


def test_a_killed_server_is_said_so_and_a_new_one_is_found(tmp_path: Path, home: Path) -> None:
    with ServerProcess(tmp_path / "data") as first:
        url = first.url
        client_of(first).execute(
            "CREATE TABLE t (id INT PRIMARY KEY) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        )
        with shell(url, home) as terminal:
            terminal.type(f"SELECT * FROM t EMIT CHANGES;{ENTER}")
            terminal.wait_for("no rows")
            first.process.kill()
            first.process.wait(60)
            screen = terminal.wait_for_last(PROMPT)
            assert "error: the connection to http://127.0.0.1:PORT broke before the last row" in "".join(screen)
            assert screen[-2] == "The session goes on; \\c URL goes to another server."
            assert "error: no server answers at http://127.0.0.1:PORT" in terminal.enter("\\dt", PROMPT)
            with ServerProcess(tmp_path / "data", "--http", url.removeprefix("http://")):
                assert " T    | t     | KAFKA      | JSON         | false" in terminal.enter("\\dt t*", PROMPT)


def test_data_and_names_cannot_command_the_terminal(server: ServerProcess, home: Path) -> None:
    answers = f"""
        CREATE TABLE hostile (id INT PRIMARY KEY, name STRING)
          WITH (kafka_topic='hostile', value_format='JSON', partitions=1);
        INSERT INTO hostile (ROWTIME, id, name) VALUES (3000, 66, '{HOSTILE}');
        SELECT name FROM hostile WHERE id = 66;
        SELECT id, name FROM hostile WHERE id = 66 EMIT CHANGES LIMIT 1;
        SELECT name FROM hostile WHERE id = 66 EMIT CHANGES LIMIT 1;
        PRINT 'hostile' FROM BEGINNING LIMIT 1;
        output csv; SELECT name FROM hostile WHERE id = 66;
        output json; SELECT name FROM hostile WHERE id = 66;
        output markdown; SELECT name FROM hostile WHERE id = 66;
        output vertical; SELECT name FROM hostile WHERE id = 66;
        output table; DEFINE v = '{HOSTILE}'; SHOW VARIABLES;"""
    screen: list[str] = []
    with shell(server.url, home, rows=60, columns=100) as terminal:
        for number, text in enumerate(
            (answers, f"SELECT id AS `{HOSTILE}` FROM hostile;", f"SELECT '{HOSTILE}' FROM;")
        ):
            (home / f"{number}.sql").write_text(text)
            screen = terminal.enter(f"\\i {home}/{number}.sql", PROMPT)
        assert sum("owned" in line for line in screen) >= 10
        assert b"\x1b]0;" not in terminal.raw
        assert b"\x1b[31mred" not in terminal.raw
        assert b"\xc2\x9b" not in terminal.raw


def insert(server: ServerProcess, **sizes: int) -> None:
    text = "".join(
        f"INSERT INTO clicks (ROWTIME, user, size) VALUES (5000, '{user}', {size});" for user, size in sizes.items()
    )
    client_of(server).execute(text)
