"""`millstream sql` as people run it: on a server, on an engine of its own, from a file, from standard input."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from running_server import ENVIRONMENT, millstream, service_in
from warm_command import WarmPopen

from millstream.server.client import connect

SCRIPT = """\
-- a script as people keep them
CREATE STREAM s (id INT KEY, v INT, d DECIMAL(4,2), t STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);
SET 'auto.offset.reset' = 'earliest';
DEFINE wanted = '2';
INSERT INTO s VALUES (1, ${wanted}, 3.50, 'héllo');
INSERT INTO s VALUES (20, NULL, 4.00, '日本語');
SHOW STREAMS;
SELECT * FROM s EMIT CHANGES LIMIT 2;
SELECT * FROM s;
output jsonl;
SELECT * FROM s;
"""

PRINTED = """\
Stream created
 Name | Topic | Key format | Value format | Windowed
------+-------+------------+--------------+----------
 S    | s     | KAFKA      | JSON         | false
         ID |          V |                    D | T
------------+------------+----------------------+----------------------
          1 |          2 |                 3.50 | héllo
         20 |       null |                 4.00 | 日本語
 ID |    V |    D | T
----+------+------+--------
  1 |    2 | 3.50 | héllo
 20 | null | 4.00 | 日本語
{"ID":1,"V":2,"D":3.50,"T":"héllo"}
{"ID":20,"V":null,"D":4.00,"T":"日本語"}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        yield f"http://{service.http_address}"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.sql"
    file.write_text(SCRIPT)
    return file


def test_a_script_prints_the_same_on_an_engine_of_its_own_and_on_a_server(script: Path, url: str) -> None:
    for where in ((), (url,)):
        ended = millstream("sql", *where, "-f", str(script))
        assert ended.stdout == PRINTED
        assert ended.stderr == "Limit Reached\nQuery Completed\n"
        assert ended.returncode == 0


DERIVED = """\
CREATE STREAM {0}_clicks (id INT KEY, url STRING) WITH (kafka_topic='{0}_clicks', value_format='JSON', partitions=2);
CREATE TABLE {0}_per_url AS SELECT url, COUNT(*) AS n FROM {0}_clicks GROUP BY url;
CREATE TABLE {0}_popular AS SELECT url, n FROM {0}_per_url WHERE n > 1;
INSERT INTO {0}_clicks VALUES (1, '/a');
INSERT INTO {0}_clicks VALUES (2, '/b'), (3, '/a');
SELECT url, n FROM {0}_popular;
DELETE FROM {0}_own WHERE k = 1;
SELECT n FROM {0}_counted WHERE v = 7;
"""
OWN = """\
CREATE TABLE {0}_own (k INT PRIMARY KEY, v INT) WITH (kafka_topic='{0}_own', value_format='JSON', partitions=1);
CREATE TABLE {0}_counted AS SELECT v, COUNT(*) AS n FROM {0}_own GROUP BY v;
INSERT INTO {0}_own VALUES (1, 7), (2, 7);
"""


def test_a_pull_query_of_a_script_sees_what_the_script_inserted(url: str) -> None:
    for number, where in enumerate(((), (url,))):
        ended = millstream("sql", *where, "--format", "csv", input=(OWN + DERIVED).format(f"w{number}"))
        assert ended.stdout == "URL,N\n/a,2\nN\n1\n"
        assert ended.returncode == 0


def test_a_script_does_not_wait_for_a_query_that_is_paused(url: str) -> None:
    client = connect(url)
    client.execute(OWN.format("late"))
    (described,) = client.execute("DESCRIBE late_counted;")
    client.execute(f"PAUSE {described['sourceDescription']['writeQueries'][0]['id']};")
    statements = "INSERT INTO late_own VALUES (3, 8); SELECT v FROM late_own WHERE k = 3;"
    ended = millstream("sql", url, "--format", "csv", "-c", statements)
    assert (ended.stdout, ended.returncode) == ("V\n8\n", 0)
    assert "lack" not in ended.stderr


def test_flags_of_ksqldbs_shell_end_queries_and_set_properties(url: str, tmp_path: Path) -> None:
    file = tmp_path / "session.properties"
    file.write_text("# of the session\nksql.streams.auto.offset.reset = earliest\n")
    statements = """
CREATE STREAM flags (n INT) WITH (kafka_topic='flags', value_format='JSON', partitions=1);
INSERT INTO flags VALUES (1), (2), (3);
SELECT * FROM flags EMIT CHANGES;
SELECT * FROM flags;
"""
    for where in ((), (url,)):
        flags = ("--config-file", str(file), "--query-row-limit", "2", "--query-timeout", "60000", "--format", "csv")
        ended = millstream("sql", *where, *flags, "-c", statements)
        assert (ended.stdout, ended.returncode) == ("N\n1\n2\nN\n1\n2\n3\n", 0), ended.stderr
    printed = millstream("sql", url, "--query-row-limit", "1", "-c", "-- first\nPRINT flags FROM BEGINNING;")
    assert [line.partition(":")[0] for line in printed.stdout.splitlines()] == ["Key format", "Value format", "rowtime"]
    timed = millstream(
        "sql", url, "--query-timeout", "300", "--format", "csv", "-c", "SELECT * FROM flags EMIT CHANGES;"
    )
    assert (timed.stdout, timed.returncode) == ("N\n", 0)
    file.write_text("no.such.property=1\n")
    refused = millstream("sql", url, "--config-file", str(file), "-c", "SHOW STREAMS;")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no.such.property" in refused.stderr
    assert millstream("sql", url, "--config-file", str(tmp_path / "none"), "-c", "SHOW STREAMS;").returncode == 2


def test_ctrl_c_ends_a_query_of_a_script_with_all_that_came_and_exit_code_130(url: str) -> None:
    connect(url).execute(
        "CREATE STREAM ticks (n INT) WITH (kafka_topic='ticks', value_format='JSON', partitions=1);"
        "INSERT INTO ticks VALUES (7);"
    )
    statements = "SET 'auto.offset.reset'='earliest'; SELECT * FROM ticks EMIT CHANGES; SHOW STREAMS;"
    command = [sys.executable, "-m", "millstream", "sql", url, "--format", "csv", "-c", statements]
    with WarmPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as shell:
        assert shell.stdout is not None
        assert [shell.stdout.readline() for _ in range(2)] == ["N\n", "7\n"]
        shell.send_signal(signal.SIGINT)
        out, err = shell.communicate(timeout=60)
    assert (out, shell.returncode) == ("", 130)
    assert err.splitlines()[-1] == "Query ended after 1 row."


@pytest.mark.parametrize("arguments", [("--format", "xml"), ("-d", "a b=1"), ("-d", "1=x"), ("",), ("--server", " ")])
def test_wrong_usage_has_exit_code_2(arguments: Sequence[str]) -> None:
    ended = millstream("sql", *arguments, "-c", "SHOW VARIABLES;")
    assert (ended.returncode, ended.stdout) == (2, "")


def test_statements_that_are_not_utf_8_are_refused(url: str) -> None:
    bytes_of_latin_1 = "SHOW VARIABLES;\nSELECT '\udce9' FROM s;"
    for arguments, typed in ((("-c", bytes_of_latin_1), ""), ((), bytes_of_latin_1)):
        command = [sys.executable, "-m", "millstream", "sql", url, *arguments]
        ended = subprocess.run(
            command, input=typed.encode(errors="surrogateescape"), capture_output=True, env=ENVIRONMENT, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr == b"error: the input is not UTF-8 text in line 2\n"


def test_variables_are_not_replaced_where_the_session_says_so(url: str) -> None:
    switched_off = "SET 'ksql.variable.substitution.enable'='false'; DEFINE t = 's'; SELECT * FROM ${t};"
    ended = millstream("sql", url, "-c", switched_off)
    assert ended.stderr.startswith('error: variable "t" is not replaced\n')


def test_standard_input_that_is_no_terminal_is_a_script() -> None:
    ended = millstream("sql", "--output", "json", input="SHOW VARIABLES;\nexit;\nSHOW NOTHING;")
    assert ended.stdout == '{"@type":"variables","statementText":"SHOW VARIABLES;","warnings":[],"variables":[]}\n'
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_first_error_ends_a_script_with_its_line_and_exit_code_1() -> None:
    ended = millstream(
        "sql", "-d", "topic=t", "-e", "SHOW VARIABLES;\nSHOW STREAMS; SHOW STREEMS;", "-e", "SHOW TABLES;"
    )
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1] == "------+-------+------------+--------------+----------"
    assert " topic    | t" in ended.stdout
    error = ended.stderr.splitlines()
    assert error[0].startswith("error: ")
    assert error[1] == "  2 |               SHOW STREEMS;"
    assert error[2] == "    |                    ^^^^^^^"


def test_a_data_directory_is_kept_for_the_next_shell(tmp_path: Path) -> None:
    create = "CREATE STREAM kept (id INT KEY) WITH (kafka_topic='k', value_format='JSON', partitions=1);"
    assert millstream("sql", "--data", str(tmp_path), "-e", create).returncode == 0
    assert " KEPT " in millstream("sql", "--data", str(tmp_path), "-e", "SHOW STREAMS;").stdout


def test_a_server_that_is_not_there_is_said_so() -> None:
    ended = millstream("sql", "http://127.0.0.1:1", "-e", "SHOW STREAMS;")
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: no server answers at http://127.0.0.1:1\nhint: ")
