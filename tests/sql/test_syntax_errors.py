"""What people read after a mistake. The golden texts are whole, because the words are the product."""

from __future__ import annotations

import pytest

from millstream.errors import StatementError
from millstream.sql.parser import parse
from millstream.sql.syntax_hints import EXAMPLES, _hints

SNIPPETS = [(snippet, hint) for hint, snippets in EXAMPLES.items() for snippet in snippets]


def failure(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(("snippet", "hint"), SNIPPETS, ids=[snippet for snippet, _ in SNIPPETS])
def test_each_example_gets_its_own_hint(snippet: str, hint: str) -> None:
    assert failure(snippet).hint == hint


GOLDEN = {
    "SELECT *\nFORM s;": """\
error: unexpected "FORM"; expected FROM
  2 | FORM s;
    | ^^^^
hint: Did you mean "FROM"?""",
    "SELECT a FORM s WHERE a = 1;": """\
error: unexpected "FORM"; expected FROM
  1 | SELECT a FORM s WHERE a = 1;
    |          ^^^^
hint: Did you mean "FROM"?""",
    "CREATE STREAM s (id INT KEY, group STRING);": """\
error: unexpected "group"; expected a name
  1 | CREATE STREAM s (id INT KEY, group STRING);
    |                              ^^^^^
hint: "GROUP" is a reserved word: as a name it stands in backticks, `GROUP`.""",
    "CREATE STREAM s (a INT b STRING);": """\
error: unexpected "b"; expected "(", ")", ",", ARRAY, HEADER, HEADERS, KEY or PRIMARY
  1 | CREATE STREAM s (a INT b STRING);
    |                        ^
hint: Is a comma missing before it?""",
    "CREATE STREAM s WITH (value_format = JSON);": """\
error: unexpected "JSON"; expected a number, a string, a whole number, "-", FALSE, NULL or TRUE
  1 | CREATE STREAM s WITH (value_format = JSON);
    |                                      ^^^^
hint: A string stands in single quotes: 'JSON'.""",
    "SHOW STREAMS SHOW TABLES;": """\
error: unexpected "SHOW"; expected EXTENDED or the end of the statement
  1 | SHOW STREAMS SHOW TABLES;
    |              ^^^^
hint: End the statement before it with ";".""",
    "SELECT (a + 1 FROM s;": """\
error: unexpected "FROM"; expected an operator or ")"
  1 | SELECT (a + 1 FROM s;
    |               ^^^^
hint: A "(" is not closed before it.""",
    "SELECT a FROM s WHERE f(a;": """\
error: unexpected end of the statement; expected an operator, ")" or ","
  1 | SELECT a FROM s WHERE f(a;
    |                          ^
hint: A "(" is not closed.""",
    "SELECT CASE a WHEN 1 THEN 2 FROM s;": """\
error: unexpected "FROM"; expected an operator, ELSE, END or WHEN
  1 | SELECT CASE a WHEN 1 THEN 2 FROM s;
    |                             ^^^^
hint: CASE ends with END.""",
    "SELECT 'abc FROM s;": """\
error: the string that begins here has no end
  1 | SELECT 'abc FROM s;
    |        ^
hint: It ends with ', and a quote inside it is written twice: ''.""",
    'SELECT a,\n  "abc FROM s;': """\
error: the quoted name that begins here has no end
  2 |   "abc FROM s;
    |   ^
hint: It ends with ", and a quote inside it is written twice: "".""",
    "SELECT a /* all FROM s;": """\
error: the comment that begins here has no end
  1 | SELECT a /* all FROM s;
    |          ^^
hint: It ends with */.""",
    "SELECT \u201ca\u201d FROM s;": """\
error: unexpected character U+201C (left double quotation mark)
  1 | SELECT \u201ca\u201d FROM s;
    |        ^
hint: It only looks like \"""",
    "SELECT a FROM s WINDOW TUMBLING (SIZE 1 WEEK) GROUP BY a;": """\
error: unknown unit of time "WEEK"
  1 | SELECT a FROM s WINDOW TUMBLING (SIZE 1 WEEK) GROUP BY a;
    |                                         ^^^^
hint: The units are DAYS, HOURS, MINUTES, SECONDS and MILLISECONDS.""",
    "SELECT a FROM s WINDOW HOPPING (SIZE 1 DAY) GROUP BY a;": """\
error: a HOPPING window needs its ADVANCE BY
  1 | SELECT a FROM s WINDOW HOPPING (SIZE 1 DAY) GROUP BY a;
    |                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: Write HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS).""",
    "CREATE STREAM s (a INT PRIMARY KEY);": """\
error: Column `A` is a 'PRIMARY KEY' column: please use 'KEY' for streams.
  1 | CREATE STREAM s (a INT PRIMARY KEY);
    |                  ^^^^^^^^^^^^^^^^^
hint: A table has one row for each key, a stream any number.""",
    "INSERT INTO s (a, b) VALUES (1);": """\
error: Failed to prepare statement: Expected number columns and values to match: 2, 1
  1 | INSERT INTO s (a, b) VALUES (1);
    |                             ^^^
hint: Give each named column one value.""",
    "SELECT ${x} FROM s;": """\
error: variable "x" is not replaced
  1 | SELECT ${x} FROM s;
    |        ^^^^
hint: Variables are replaced where the property ksql.variable.substitution.enable is true.""",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_the_error_says_what_is_wrong_and_what_to_do(text: str) -> None:
    assert failure(text).render() == GOLDEN[text]


KSQLDB_WORDS = {
    "CREATE STREAM s (a INT (KEY));": "line 1:25: Syntax Error\nExpecting {'STRING', INTEGER_VALUE}\nStatement: CREATE",
    "SELECT COUNT(*) FROM s GROUP BY a, (b, c);": "line 1:38: Syntax Error\nmissing ')' at ','",
    "SELECT 9300000000000000000 FROM s;": "statement: line 1:8: Invalid numeric literal: 9300000000000000000",
    "SELECT -9300000000000000000 FROM s;": "Invalid numeric literal: -9300000000000000000",
    "SELECT 2E308 FROM s;": "Failed to prepare statement: line 1:8: Number overflows DOUBLE: 2E308",
    "SELECT 1 - -2E308 FROM s;": "Number overflows DOUBLE: -2E308",
    "CREATE STREAM s (a INT) WITH (partitions=9300000000000000000);": "Invalid numeric literal: 9300000000000000000",
    "SELECT a FROM s PARTITION BY ();": "PARTITION BY requires at least one expression",
    "SELECT a FROM s GROUP BY ();": "GROUP BY requires at least one expression",
    "SELECT a FROM s LIMIT 1.5;": "Failed to prepare statement: Value must be integer for command: LIMIT",
    "PRINT t LIMIT -1;": "the LIMIT of PRINT is negative",
    "SELECT a FROM s LIMIT -1;": "Pull queries don't support negative integers in the LIMIT clause.",
    "CREATE TABLE t (a INT KEY, b INT);": "Line: 1, Col: 17: Column `A` is a 'KEY' column: please use 'PRIMARY KEY'",
}


@pytest.mark.parametrize("text", KSQLDB_WORDS)
def test_the_text_of_an_error_has_the_words_that_ksqldbs_users_search_for(text: str) -> None:
    assert KSQLDB_WORDS[text] in str(failure(text))


def test_the_smallest_bigint_is_a_number() -> None:
    assert parse("SELECT -9223372036854775808 FROM s;")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s GROUP BY ()",
        "CREATE STREAM s (a INT) AS SELECT a FROM t",
        "CREATE SOURCE STREAM s AS SELECT a FROM t",
        "CREATE STREAM s WITH (a = 1, A = 2)",
        "CREATE TABLE t (a INT KEY)",
        "CREATE STREAM s (a DECIMAL(39, 1))",
        "CREATE STREAM s (a DECIMAL(2, 3))",
        "SELECT a FROM s WINDOW TUMBLING (SIZE 1 DAY, SIZE 1 DAY) GROUP BY a",
        "SELECT a FROM s WINDOW TUMBLING (SIZE 0 DAYS) GROUP BY a",
        "SELECT a FROM s WINDOW SESSION (SIZE 1 DAY) GROUP BY a",
        "SELECT a FROM s WHERE a LIKE 'x' ESCAPE 'xy'",
        "SELECT a = b = c FROM s",
        "SELECT x '1' FROM s",
        "SELECT `` FROM s",
        "ASSERT SCHEMA",
    ],
)
def test_mistakes_that_parse_are_refused_all_the_same(text: str) -> None:
    error = failure(text)
    assert error.span is not None
    assert error.text == text


def test_an_example_that_is_correct_by_now_hides_no_mistake_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXAMPLES, "A hint that is out of date.", ("SELECT a FROM s",))
    _hints.cache_clear()
    try:
        assert failure("SELECT a FROM s LIMIT a").hint != "A hint that is out of date."
    finally:
        _hints.cache_clear()
