"""Words of other SQL dialects: each is answered with what is written here."""

from __future__ import annotations

import pytest

from millstream.errors import SqlSyntaxError
from millstream.sql.foreign_words import _FOREIGN
from millstream.sql.parser import parse

HINTS = {
    "CREATE VIEW v AS SELECT a FROM s": "CREATE TABLE … AS SELECT … is what others call a materialized view",
    "CREATE DATABASE d": "There are no databases or schemas",
    "SHOW SCHEMAS": "SHOW STREAMS; and SHOW TABLES; list them",
    "USE d": "There are no databases or schemas",
    "CREATE UNIQUE INDEX i ON t (a)": "a table is looked up by its PRIMARY KEY",
    "CREATE TEMPORARY TABLE t (a INT)": "Nothing is temporary",
    "DROP TOPIC t": "DROP STREAM name DELETE TOPIC;",
    "CREATE TOPIC t": "A topic is made with the stream or table on it",
    "SHOW TABLE": "These are listed in the plural",
    "TRUNCATE t": "Rows are not removed by statement",
    "BEGIN": "There are no transactions to begin or end",
    "GRANT SELECT ON t TO u": "Rights are given in the configuration",
    "ALTER TABLE t MODIFY a BIGINT": "ALTER can ADD COLUMN name TYPE",
    "CREATE TABLE t (a INT AUTO_INCREMENT)": "No column numbers itself",
    "CREATE TABLE t (a INT NOT NULL)": "Columns have no constraints",
    "CREATE TABLE t (a INT DEFAULT 1)": "Columns have no defaults",
    "CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES u (b))": "Tables have no foreign keys",
    "CREATE TABLE t (a INT) PARTITIONED BY (a)": "stands in WITH (…)",
    "SELECT a FROM s WHERE a ILIKE 'x'": "Write LCASE(column) LIKE 'pattern'",
    "SELECT a ILIKE 'x' FROM s": "Write LCASE(column) LIKE 'pattern'",
    "SELECT a SIMILAR TO 'x' FROM s": "Write LCASE(column) LIKE 'pattern'",
    "SELECT a FROM s EMIT ALL": "EMIT takes CHANGES",
    "SELECT * EXCEPT (a) FROM s": "A star means all columns",
    "SELECT s.* EXCLUDE (a) FROM s": "A star means all columns",
    "SELECT a FROM s WHERE a = 1 MINUS SELECT a FROM t": "Only UNION ALL puts queries together",
    "SELECT a FROM s INTERSECT SELECT a FROM t": "Only UNION ALL puts queries together",
    "SELECT a FROM s WHERE a = 1 FETCH FIRST 1 ROW ONLY": "The first rows are written LIMIT 10",
    "SELECT a FROM s FETCH FIRST 1 ROW ONLY": "The first rows are written LIMIT 10",
    "SELECT TOP 1 a FROM s": "The first rows are written LIMIT 1",
    "SELECT a, COUNT(*) FROM s GROUP BY ALL": "GROUP BY wants each column or expression by name",
    "SELECT a, COUNT(*) FROM s GROUP BY GROUPING SETS ((a), ())": "GROUP BY makes one grouping",
    "SELECT a FROM s WHERE a >= ALL (SELECT b FROM t)": "> (SELECT MAX(b) FROM …)",
    "SELECT a FROM (VALUES (1)) t": "INSERT INTO name VALUES (…) writes rows",
    "SELECT a FROM s TABLESAMPLE BERNOULLI (1)": "Some of the rows at random",
    "SELECT a FROM s FOR SYSTEM_TIME AS OF b": "gets the table's row of its own time by itself",
    "SELECT a ** 2 FROM s": "POWER(base, exponent)",
    "SELECT a + INTERVAL 1 DAY FROM s": "INTERVAL '1' DAY",
    "SELECT a FROM s JOIN t USING (a)": "A join names its condition",
    "SELECT a FROM s LEFT JOIN u ON a = b CROSS JOIN t": "A join names its condition",
    "SELECT TRY_CAST(a AS INT) FROM s": "what cannot be converted is NULL",
    "SELECT a FROM s CROSS JOIN UNNEST(b)": "Write EXPLODE(array) in SELECT",
    "COPY s FROM 'a.csv'": "'connector.class'='file'",
    "LOAD DATA INFILE 'a.csv' INTO TABLE s": "'connector.class'='file'",
    "SELECT * FROM 'a.csv'": "'connector.class'='file'",
    "SELECT a FROM read_csv('a.csv')": "'connector.class'='file'",
    "CREATE TABLE t (a INT, b TIMESTAMP(3), WATERMARK FOR b AS b - INTERVAL '5' SECOND)": "GRACE PERIOD 5 SECONDS",
    "CREATE TABLE t (a INT, WATERMARK FOR b AS b)": "GRACE PERIOD 5 SECONDS",
    "SHOW TABLES LIKE 'a%'": "take a pattern",
    "SHOW STREAMS FROM d": "take a pattern",
    "EXPLAIN ANALYZE SELECT a FROM s": "EXPLAIN STALL query_id;",
    "help CREATE STREAM": "lists the shell's commands",
    "CREATE STREAM s (id INT, first name STRING)": "`first name`",
    "CREATE STREAM s (first name FLOAT)": "`first name`",
    "INSERT s VALUES (1)": "Write INSERT INTO s",
}


@pytest.mark.parametrize(("statement", "hint"), HINTS.items())
def test_a_word_of_another_dialect_is_answered_with_what_is_written_here(statement: str, hint: str) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        parse(f"{statement};")
    assert hint in (refused.value.hint or "")


def test_each_hint_has_a_statement_that_gets_it() -> None:
    parts = HINTS.values()
    assert [entry.hint for entry in _FOREIGN if not any(part in entry.hint for part in parts)] == []
