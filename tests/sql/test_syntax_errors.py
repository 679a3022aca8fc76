"""What people read after a mistake. The golden texts are whole, because the words are the product."""

from __future__ import annotations

import pytest

from millstream.errors import SqlSyntaxError
from millstream.sql.parser import parse
from millstream.sql.syntax_hints import EXAMPLES, _hints

SNIPPETS = [(snippet, hint) for hint, snippets in EXAMPLES.items() for snippet in snippets]


def failure(text: str) -> SqlSyntaxError:
    with pytest.raises(SqlSyntaxError) as caught:
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
error: column "A" of a stream cannot be PRIMARY KEY
  1 | CREATE STREAM s (a INT PRIMARY KEY);
    |                  ^^^^^^^^^^^^^^^^^
hint: The key columns of a stream are marked KEY.""",
    "INSERT INTO s (a, b) VALUES (1);": """\
error: 2 columns, but 1 values
  1 | INSERT INTO s (a, b) VALUES (1);
    |                             ^^^
hint: Give each named column one value.""",
    "SELECT ${x} FROM s;": """\
error: variable "x" has no value
  1 | SELECT ${x} FROM s;
    |        ^^^^
hint: Give it a value with DEFINE x = '…';""",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_the_error_says_what_is_wrong_and_what_to_do(text: str) -> None:
    assert failure(text).render() == GOLDEN[text]


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
