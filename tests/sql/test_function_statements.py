"""CREATE FUNCTION as text: what stands between dollar signs is nobody's business but the function's."""

from __future__ import annotations

import pytest

from millstream.errors import SqlSyntaxError
from millstream.sql import ast
from millstream.sql.parser import is_complete, parse_one, split_statements, substitute_variables

CREATE = "CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS {};"


def body_of(written: str) -> str:
    statement = parse_one(CREATE.format(written))
    assert isinstance(statement, ast.CreateFunction)
    return statement.body


@pytest.mark.parametrize(
    ("written", "body"),
    [
        ("$$ a; 'b -- c /* $$", " a; 'b -- c /* "),
        ("$py$ a $$ b $other$ $py$", " a $$ b $other$ "),
        ("$$$$", ""),
        ("'it''s'", "it's"),
        ("$$ f'${a}' $$", " f'${a}' "),
    ],
)
def test_a_text_is_taken_as_it_is(written: str, body: str) -> None:
    assert body_of(written) == body


def test_statements_are_not_split_within_a_text() -> None:
    text = CREATE.format("$$\nx = 1;\nreturn x\n$$")
    assert split_statements(text + " SHOW FUNCTIONS;") == [text[:-1], "SHOW FUNCTIONS"]
    assert is_complete(text)
    assert not is_complete(text[: text.index("return")])


def test_variables_are_put_in_around_a_text_and_not_into_it() -> None:
    text = substitute_variables("CREATE FUNCTION ${n}(a INT) RETURNS INT AS $$ f'${n}' $$", {"n": "g"})
    assert text == "CREATE FUNCTION g(a INT) RETURNS INT AS $$ f'${n}' $$"
    assert substitute_variables("SELECT '$${n}', $${n} FROM s", {"n": "g"}) == "SELECT '${n}', ${n} FROM s"


def test_clauses_come_in_any_order_and_once() -> None:
    one = parse_one("CREATE FUNCTION f(`a b` INT, C STRING) RETURNS INT CALLED ON NULL INPUT LANGUAGE python AS '1'")
    two = parse_one("CREATE FUNCTION F(`a b` INT, C STRING) RETURNS INT AS '1' LANGUAGE PYTHON CALLED ON NULL INPUT")
    assert one == two
    assert isinstance(one, ast.CreateFunction)
    assert [parameter.name for parameter in one.parameters] == ["a b", "C"]
    with pytest.raises(SqlSyntaxError, match="said twice"):
        parse_one("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON LANGUAGE PYTHON AS '1'")


def test_the_words_of_functions_are_still_names() -> None:
    parse_one("SELECT function, aggregate, returns, language, state, input, called FROM function")
    parse_one("CREATE TABLE function (state INT PRIMARY KEY, language STRING) WITH (kafka_topic='t')")
