from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SqlSyntaxError
from millstream.sql.parser import parse_expression, substitute_variables
from millstream.sql.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "variables", "result"),
    [
        ("SELECT * FROM ${s};", {"s": "users"}, "SELECT * FROM users;"),
        ("PRINT '${t}-x';", {"T": "it's"}, "PRINT 'it''s-x';"),
        ('SELECT "${c}";', {"c": 'a"b'}, 'SELECT "a""b";'),
        ("SELECT ${v}, ${w};", {"v": "'quoted'", "w": "-1.5"}, "SELECT 'quoted', -1.5;"),
        ("SELECT ${path};", {"path": "s.`a b`"}, "SELECT s.`a b`;"),
        ("SELECT '$${v}', $${v};", {"v": "x"}, "SELECT '${v}', ${v};"),
        ("SELECT 1 -- ${v}\n/* ${v} */;", {}, "SELECT 1 -- ${v}\n/* ${v} */;"),
        ("SELECT '${a}';", {"a": "${b}", "b": "x"}, "SELECT '${b}';"),
        ("SELECT ${b};", {"b": "TRUE"}, "SELECT TRUE;"),
    ],
)
def test_values_take_the_place_of_variables(text: str, variables: dict[str, str], result: str) -> None:
    assert substitute_variables(text, variables) == result


@pytest.mark.parametrize(
    "value",
    [
        "s; DROP STREAM s",
        "a, b",
        "1 OR 1 = 1",
        "a -- ",
        "a/**/",
        "",
        " ",
        "'a' 'b'",
        "SELECT",
        "(a)",
        "'a",
        "a.",
        "${v}",
        "--1",
    ],
)
def test_a_value_outside_quotes_is_a_single_one(value: str) -> None:
    with pytest.raises(SqlSyntaxError, match="not a single value"):
        substitute_variables("SELECT * FROM ${v};", {"v": value})


def test_an_undefined_variable_is_named_with_its_place() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        substitute_variables("SELECT * FROM ${usres};", {"users": "u"})
    assert caught.value.render() == (
        'error: variable "usres" has no value\n'
        "  1 | SELECT * FROM ${usres};\n"
        "    |               ^^^^^^^^\n"
        'hint: Did you mean "USERS"?'
    )


def test_who_means_the_text_itself_is_told_how_to_write_it() -> None:
    text = "SELECT REGEXP_REPLACE(a, '(?<x>b)', '<${x}>') FROM s;"
    with pytest.raises(SqlSyntaxError) as caught:
        substitute_variables(text, {})
    told = "DEFINE x = '…'; gives it one. In a text that is to hold it as it is, write $${x}."
    assert caught.value.hint == told
    assert substitute_variables(text.replace("${x}", "$${x}"), {}) == text


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0")))
def test_no_value_leaves_its_string(value: str) -> None:
    text = substitute_variables("'${v}'", {"v": value})
    assert [token.type for token in tokenize(text)] == ["STRING_LITERAL"]
    assert parse_expression(text).name == value
