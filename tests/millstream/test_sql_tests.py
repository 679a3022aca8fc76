"""`millstream test` runs a file of SQL as a server would: statement by statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.commands import sql_tests

CLICKS = "CREATE STREAM clicks (id INT KEY, v INT) WITH (kafka_topic='clicks', value_format='JSON');\n"
STOCK = "CREATE TABLE stock (id INT PRIMARY KEY, n INT) WITH (kafka_topic='stock', value_format='JSON');\n"

PASSING = {
    "a record meets the table as it was when it came": STOCK
    + CLICKS
    + """
        CREATE STREAM both AS SELECT clicks.id, v, n FROM clicks JOIN stock ON clicks.id = stock.id;
        INSERT INTO stock (ROWTIME, id, n) VALUES (10, 1, 5);
        INSERT INTO clicks (ROWTIME, id, v) VALUES (10, 1, 7);
        INSERT INTO stock (ROWTIME, id, n) VALUES (10, 1, 6);
        INSERT INTO clicks (ROWTIME, id, v) VALUES (10, 1, 8);
        ASSERT VALUES both (clicks_id, v, n) VALUES (1, 7, 5);
        ASSERT VALUES both (clicks_id, v, n) VALUES (1, 8, 6);
    """,
    "a query begins at the end of its topic": CLICKS
    + """
        INSERT INTO clicks (id, v) VALUES (1, 1);
        CREATE STREAM copy AS SELECT * FROM clicks;
        INSERT INTO clicks (id, v) VALUES (2, 2);
        ASSERT VALUES copy (id) VALUES (2);
    """,
    "a query begins at the start of its topic where the test says so": CLICKS
    + """
        INSERT INTO clicks (id, v) VALUES (1, 1);
        SET 'auto.offset.reset' = 'earliest';
        CREATE STREAM copy AS SELECT * FROM clicks;
        ASSERT VALUES copy (id) VALUES (1);
    """,
    "a replaced query goes on where the old one was": CLICKS
    + """
        SET 'auto.offset.reset' = 'earliest';
        CREATE STREAM copy AS SELECT * FROM clicks;
        INSERT INTO clicks (id, v) VALUES (1, 1);
        CREATE OR REPLACE STREAM copy AS SELECT id, v, v * 2 AS twice FROM clicks WHERE v > 1;
        INSERT INTO clicks (id, v) VALUES (2, 2);
        ASSERT VALUES copy (id, v) VALUES (1, 1);
        ASSERT VALUES copy (id, v, twice) VALUES (2, 2, 4);
    """,
    "a replaced query keeps its state": CLICKS
    + """
        SET 'ksql.create.or.replace.enabled' = 'true';
        CREATE TABLE sums AS SELECT id, SUM(v) AS s FROM clicks GROUP BY id;
        INSERT INTO clicks (id, v) VALUES (1, 1);
        CREATE OR REPLACE TABLE sums AS SELECT id, SUM(v) AS s FROM clicks WHERE v > 5 GROUP BY id;
        INSERT INTO clicks (id, v) VALUES (1, 5);
        INSERT INTO clicks (id, v) VALUES (1, 6);
        CREATE OR REPLACE TABLE sums AS SELECT id, SUM(v) AS s FROM clicks GROUP BY id;
        INSERT INTO clicks (id, v) VALUES (1, 100);
        ASSERT VALUES sums (id, s) VALUES (1, 1);
        ASSERT VALUES sums (id, s) VALUES (1, 7);
        ASSERT VALUES sums (id, s) VALUES (1, 107);
    """,
    "a query that is dropped and made anew begins anew": CLICKS
    + """
        CREATE TABLE sums AS SELECT id, SUM(v) AS s FROM clicks GROUP BY id;
        INSERT INTO clicks (id, v) VALUES (1, 1);
        DROP TABLE sums;
        CREATE TABLE sums AS SELECT id, SUM(v) AS s FROM clicks GROUP BY id;
        INSERT INTO clicks (id, v) VALUES (1, 2);
        ASSERT VALUES sums (id, s) VALUES (1, 1);
        ASSERT VALUES sums (id, s) VALUES (1, 2);
    """,
    "the filter of a copied table comes, changes and goes": STOCK
    + """
        CREATE TABLE few AS SELECT * FROM stock;
        INSERT INTO stock (id, n) VALUES (1, 50);
        CREATE OR REPLACE TABLE few AS SELECT * FROM stock WHERE n < 10;
        INSERT INTO stock (id, n) VALUES (1, 5);
        INSERT INTO stock (id, n) VALUES (1, 60);
        CREATE OR REPLACE TABLE few AS SELECT * FROM stock WHERE n > 10;
        INSERT INTO stock (id, n) VALUES (1, 70);
        INSERT INTO stock (id, n) VALUES (1, 7);
        CREATE OR REPLACE TABLE few AS SELECT * FROM stock;
        INSERT INTO stock (id, n) VALUES (1, 8);
        ASSERT VALUES few (id, n) VALUES (1, 50);
        ASSERT VALUES few (id, n) VALUES (1, 5);
        ASSERT NULL VALUES few (id) KEY (1);
        ASSERT VALUES few (id, n) VALUES (1, 70);
        ASSERT NULL VALUES few (id) KEY (1);
        ASSERT VALUES few (id, n) VALUES (1, 8);
    """,
    "assertions go through a topic once, whatever source names it": CLICKS
    + """
        CREATE STREAM same (id INT KEY, v INT) WITH (kafka_topic='clicks', value_format='JSON');
        INSERT INTO clicks (id, v) VALUES (1, 1);
        INSERT INTO clicks (id, v) VALUES (2, 2);
        ASSERT VALUES clicks (id) VALUES (1);
        ASSERT VALUES same (id) VALUES (2);
        ASSERT TOPIC clicks;
        ASSERT NOT EXISTS TOPIC taps TIMEOUT 0 SECONDS;
    """,
    "a topic that is made anew has none of the old one's records, and its assertions begin anew": CLICKS
    + "CREATE STREAM copy AS SELECT * FROM clicks;"
    + """
        INSERT INTO clicks (id, v) VALUES (1, 1);
        INSERT INTO clicks (id, v) VALUES (2, 2);
        ASSERT VALUES copy (id, v) VALUES (1, 1);
        ASSERT VALUES clicks (id, v) VALUES (1, 1);
        ASSERT VALUES clicks (id, v) VALUES (2, 2);
        DROP STREAM copy DELETE TOPIC;
        DROP STREAM clicks DELETE TOPIC;
    """
    + CLICKS
    + "CREATE STREAM copy AS SELECT * FROM clicks;"
    + """
        INSERT INTO clicks (id, v) VALUES (3, 3);
        ASSERT VALUES clicks (id, v) VALUES (3, 3);
        ASSERT VALUES copy (id, v) VALUES (3, 3);
    """,
}


def failure(text: str, folder: Path | None = None) -> str:
    (test,) = sql_tests.read_tests(text, folder)
    return str(sql_tests.failure_of(test) or "")


@pytest.mark.parametrize("name", PASSING)
def test_statements_mean_what_they_mean_to_a_server(name: str) -> None:
    assert failure(f"--@test: {name}\n{PASSING[name]}") == ""


def test_an_insert_without_rowtime_has_the_time_of_the_clock() -> None:
    late = "CREATE TABLE n AS SELECT id, COUNT(*) AS c FROM clicks WINDOW TUMBLING (SIZE 1 DAY) GROUP BY id;"
    text = f"{CLICKS}{late} INSERT INTO clicks (id, v) VALUES (1, 1); ASSERT VALUES n (id, WINDOWSTART) VALUES (1, 0);"
    assert "Actual: (ID=1, WINDOWSTART=1" in failure(f"--@test: t\n{text}")


ERRORS = {
    "the error may come before the last statement": "--@expected.message: WRONG does not exist\n"
    "DROP STREAM wrong; DROP STREAM never;",
    "what ksqlDB puts before its message is not compared": "--@expected.message: Exception while preparing statement: "
    "WRONG does not exist.\nCREATE STREAM s AS SELECT * FROM wrong;",
    "directives may be written in capitals, indented and between statements": f"{CLICKS}\n"
    "  --@EXPECTED.ERROR:java.lang.AssertionError\n\t--@Expected.Message:all records have already been read\n"
    "ASSERT VALUES clicks (id) VALUES (1);",
    "a class without a message takes any error": "--@expected.error: java.lang.Exception\nDROP STREAM x;",
    "a second HEADERS column": "--@expected.message: Schema already contains a HEADERS column.\n"
    "CREATE STREAM s (v INT, h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS, one BYTES HEADER('one'))"
    " WITH (kafka_topic='s', value_format='JSON');",
    "the same header twice": "--@expected.message: Schema already contains a HEADER('one') column.\n"
    "CREATE STREAM s (v INT, a BYTES HEADER('one'), b BYTES HEADER('one')) WITH (kafka_topic='s', format='JSON');",
    "a tombstone for a row that was never there": "--@expected.message: Expected record does not match actual\n"
    f"{STOCK} CREATE TABLE few AS SELECT * FROM stock WHERE n < 10; INSERT INTO stock (id, n) VALUES (1, 10);"
    "INSERT INTO stock (id, n) VALUES (2, 9); ASSERT NULL VALUES few (id) KEY (1);",
    "another wrapping": "--@expected.message: Expected value serde features does not match actual for source CLICKS\n"
    f"{CLICKS} ASSERT STREAM clicks (id INT KEY, v INT) WITH (wrap_single_value=false);",
    "another place of a column": "--@expected.message: (The following columns are changed, missing or reordered: "
    f"[`V` INTEGER, `W` INTEGER])\n{CLICKS} CREATE STREAM t AS SELECT id, v, v + 1 AS w FROM clicks;"
    "CREATE OR REPLACE STREAM t AS SELECT id, v + 1 AS w, v FROM clicks;",
    "another key": "--@expected.message: (Key columns must be identical. The following key columns are changed, "
    f"missing or reordered: [`ID` INTEGER KEY])\n{CLICKS} CREATE STREAM t AS SELECT * FROM clicks;"
    "CREATE OR REPLACE STREAM t AS SELECT * FROM clicks PARTITION BY v;",
    "another place in the log": "--@expected.message: DataSource '`CLICKS`' has topic = clicks which is not "
    f"upgradeable to taps.\n{CLICKS}" + CLICKS.replace("CREATE", "CREATE OR REPLACE").replace("'clicks'", "'taps'"),
    "another format": f"--@expected.message: is not upgradeable to DELIMITED (delimiter ','\n{CLICKS}"
    + CLICKS.replace("CREATE", "CREATE OR REPLACE").replace("JSON", "DELIMITED"),
    "an unknown stream cannot be altered": "--@expected.message: Source NONE_SUCH does not exist\n"
    "ALTER STREAM none_such ADD COLUMN a INT;",
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_expected_error_ends_the_test(name: str) -> None:
    assert failure(f"--@test: {name}\n{ERRORS[name]}") == ""


def test_the_examples_of_the_page_pass() -> None:
    page = Path("docs/sql-tests.md").read_text(encoding="utf-8")
    examples = page.split("```sql\n")[1].split("```")[0]
    assert [sql_tests.failure_of(test) for test in sql_tests.read_tests(examples)] == [None, None, None]


def test_what_looks_like_a_directive_in_a_string_is_none() -> None:
    text = "--@test: t\nSET 'ksql.service.id' = '\n--@test: no\n';"
    assert [test.name for test in sql_tests.read_tests(text)] == ["t"]


def test_run_script_reads_a_file_beside_or_above_the_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "setup.sql").write_text(f"{CLICKS} RUN SCRIPT 'more.sql';")
    (tmp_path / "tests" / "more.sql").write_text("CREATE STREAM copy AS SELECT * FROM clicks;")
    rest = "INSERT INTO clicks (id, v) VALUES (1, 1); ASSERT VALUES copy (id) VALUES (1);"
    assert failure(f"--@test: t\nRUN SCRIPT '/setup.sql'; {rest}", tmp_path / "tests") == ""
    assert failure(f"--@test: t\nRUN SCRIPT '{tmp_path}/setup.sql'; {rest}", tmp_path / "tests") == ""
    assert "the file nowhere.sql does not exist" in failure("--@test: t\nRUN SCRIPT 'nowhere.sql';", tmp_path)
    (tmp_path / "loop.sql").write_text("RUN SCRIPT 'loop.sql';")
    assert "is nested more than 16 levels" in failure("--@test: t\nRUN SCRIPT 'loop.sql';", tmp_path)


def test_a_failure_names_the_line_of_its_assert(tmp_path: Path) -> None:
    text = f"-- a file\n\n--@test: t\n{CLICKS}INSERT INTO clicks (id, v)\n  VALUES (1, 1);\n"
    (test,) = sql_tests.read_tests(f"{text}ASSERT VALUES clicks\n  (id) VALUES (2);")
    found = sql_tests.failure_of(test)
    assert found is not None
    assert (found.line, found.statement) == (7, "ASSERT VALUES clicks\n  (id) VALUES (2)")
    (tmp_path / "setup.sql").write_text(f"-- one\n{CLICKS}\nSHOW STREAMS; DROP STREAM none;")
    (tmp_path / "outer.sql").write_text("RUN SCRIPT 'setup.sql';")
    (test,) = sql_tests.read_tests("--@test: t\n\n RUN SCRIPT 'outer.sql';", tmp_path)
    found = sql_tests.failure_of(test)
    assert found is not None
    assert (found.line, found.statement) == (3, "RUN SCRIPT 'outer.sql'")
    assert found.message == "setup.sql:4: Line: 1, Col: 1: Stream NONE does not exist."
