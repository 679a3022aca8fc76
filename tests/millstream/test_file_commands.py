"""`millstream load` and `millstream test`, as people run them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_server import millstream

from millstream.commands import sql_tests
from millstream.commands.loading import CannotLoad, LoadTarget, load
from millstream.connection import connect

CSV = "id,name,at,paid\n1,ada,2020-01-01 00:00:00,1.5\n2,bo,1970-01-01 00:00:01,\n"


def test_a_file_becomes_a_stream_with_the_columns_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "2020-sales.csv").write_text(CSV)
    command = [
        "load",
        str(tmp_path / "2020-sales.csv"),
        "--data",
        str(tmp_path / "data"),
        "--key",
        "id",
        "--time",
        "at",
    ]
    done = millstream(*command)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "2 rows in rows_2020_sales")
    with connect(tmp_path / "data") as ms:
        assert ms.sql("SELECT id, name, paid, ROWTIME FROM rows_2020_sales;").fetchall() == [
            (1, "ada", 1.5, 1577836800000),
            (2, "bo", None, 1000),
        ]


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet", "arrow"])
def test_every_format_is_loaded_into_a_stream_that_exists(tmp_path: Path, suffix: str) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    path = tmp_path / f"rows.{suffix}"
    match suffix:
        case "csv":
            path.write_text("a,b\n1,x\n2,y\n3,\n")
        case "ndjson":
            path.write_text('{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n{"a":3,"b":null}\n')
        case "parquet":
            pq.write_table(rows, path)
        case _:
            with pa.ipc.new_file(str(path), rows.schema) as writer:
                writer.write_table(rows)
    seen: list[int] = []
    with connect() as ms:
        ms.sql("CREATE STREAM s (a INT, b STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        assert load(path, LoadTarget("s"), ms, lambda done, total: seen.append(done)) == 3
        last = (3, "" if suffix == "csv" else None)
        assert ms.table("s").fetchall() == [(1, "x"), (2, "y"), last]
    assert seen == [3]


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    (tmp_path / "bad.parquet").write_text(CSV)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "latin.csv").write_bytes(b"\xe9\n1\n")
    with connect() as ms:
        for name, target, complaint in (
            ("rows.xml", LoadTarget("s"), "unknown extension: expected one of .csv"),
            ("none.csv", LoadTarget("s"), "does not exist"),
            ("bad.parquet", LoadTarget("s"), "cannot be read as parquet"),
            ("rows.csv", LoadTarget("s", key="nr"), "has no key column nr"),
            ("rows.csv", LoadTarget("a name"), "a name is not a name of a stream or table"),
            ("rows.csv", LoadTarget("group"), "group is not a name of a stream or table"),
            ("empty.csv", LoadTarget("s"), r"cannot be read as csv: CSV parse error: Empty CSV file"),
            ("latin.csv", LoadTarget("s"), "the names of its columns are not UTF-8"),
        ):
            with pytest.raises(CannotLoad, match=complaint):
                load(tmp_path / name, target, ms, lambda done, total: None)


def test_names_are_quoted_where_they_have_to_be(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a`b,group,d e\n1,2,3\n")
    with connect() as ms:
        for rows in (1, 2):
            load(tmp_path / "rows.csv", LoadTarget("`it's small`"), ms, lambda done, total: None)
            assert len(ms.sql("SELECT `A``B`, `GROUP`, `D E` FROM `it's small`;").fetchall()) == rows


def test_sql_files_that_cannot_be_read_are_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes(b"--@test: \xe9")
    (tmp_path / "none").mkdir()
    for path, said in (
        ("latin.sql", f"FAILED  {tmp_path}/latin.sql  cannot be read: it is not UTF-8 text\n"),
        ("no.sql", f"FAILED  {tmp_path}/no.sql  cannot be read: no such file or directory\n"),
        ("none", ""),
    ):
        ended = millstream("test", str(tmp_path / path))
        assert (ended.returncode, ended.stdout) == (1, said)
    assert ended.stderr == "0 passed, 0 failed\nthere are no .sql files\n"


PASSING = """
--@test: clicks are counted per user
CREATE STREAM clicks (user STRING KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');
CREATE TABLE n AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;
INSERT INTO clicks (user, url) VALUES ('ada', '/');
ASSERT VALUES n (user, n) VALUES ('ada', 1);

--@test: a column that there is not
--@expected.error: io.confluent.ksql.util.KsqlException
--@expected.message: cannot be resolved
CREATE STREAM clicks (user STRING KEY) WITH (kafka_topic='clicks', value_format='JSON');
CREATE STREAM nothing AS SELECT missing FROM clicks;
"""


def test_files_of_sql_with_assertions_pass_or_say_where_they_fail(tmp_path: Path) -> None:
    (tmp_path / "good.sql").write_text(PASSING)
    done = millstream("test", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "2 passed, 0 failed\n"), done.stdout
    (tmp_path / "wrong.sql").write_text("--@test: wrong\nASSERT STREAM nope (id INT) WITH (kafka_topic='a');")
    done = millstream("test", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == "2 passed, 1 failed\n"
    assert f"FAILED  {tmp_path}/wrong.sql:2  wrong\n        ASSERT STREAM nope" in done.stdout
    assert "NOPE does not exist" in done.stdout


def test_tests_are_chosen_by_their_names_and_written_as_junit_xml(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(PASSING + "--@test: clicks \x01 <fail>\n\nASSERT TOPIC nope TIMEOUT 0 SECONDS;")
    (tmp_path / "b.sql").write_text("SHOW STREAMS;")
    results = tmp_path / "results.xml"
    done = millstream("test", str(tmp_path), "-k", "CLICKS", "--junit", str(results))
    assert (done.returncode, done.stderr) == (1, "1 passed, 2 failed\n"), done.stdout
    root = ElementTree.parse(results).getroot()
    suites = {suite.attrib["name"]: suite for suite in root}
    assert [suite.attrib["tests"] for suite in root] == ["2", "1"]
    assert [suite.attrib["failures"] + suite.attrib["errors"] for suite in root] == ["10", "01"]
    good, bad = suites[f"{tmp_path}/a.sql"]
    assert (good.attrib["name"], good.attrib["line"], len(good)) == ("clicks are counted per user", "2", 0)
    assert bad.attrib["name"] == "clicks \ufffd <fail>"
    assert bad[0].attrib["message"] == "Topic nope does not exist"
    assert (bad[0].text or "").startswith(f"{tmp_path}/a.sql:15\nASSERT TOPIC nope"), "the ASSERT's own line"
    (unread,) = suites[f"{tmp_path}/b.sql"]
    assert unread[0].tag == "error" and "a test has no name" in unread[0].attrib["message"]
    assert float(good.attrib["time"]) > 0


def test_names_that_no_test_has_and_files_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("--@test: one\nSHOW STREAMS;")
    done = millstream("test", str(tmp_path), "--name", "two")
    assert (done.returncode, done.stderr) == (1, "0 passed, 0 failed\nno test has 'two' in its name\n")
    done = millstream("test", str(tmp_path / "a.sql"), "--junit", str(tmp_path / "no" / "results.xml"))
    assert done.returncode == 1
    assert "results.xml cannot be written: No such file or directory" in done.stderr
    done = millstream("test", str(tmp_path / "missing.sql"), str(tmp_path / "a.sql"))
    assert (done.returncode, done.stderr) == (1, "1 passed, 1 failed\n")
    assert f"FAILED  {tmp_path}/missing.sql  cannot be read" in done.stdout


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("--@test: t\n--@expected.message: x\nSHOW STREAMS;", "a statement should have failed"),
        ("--@test: t\n--@expected.message: zebra\nSELECT;", 'does not contain "zebra"'),
    ],
)
def test_an_error_that_does_not_come_as_expected_is_a_failure(text: str, failure: str) -> None:
    (test,) = sql_tests.read_tests(text)
    assert failure in str(sql_tests.failure_of(test))


@pytest.mark.parametrize("text", ["SHOW STREAMS;", "--@expected.error: x\nSELECT 1;", "--@test: t\n--@unknown: x\n"])
def test_a_file_without_tests_is_no_success(text: str) -> None:
    with pytest.raises(sql_tests.MalformedTests):
        sql_tests.read_tests(text)
