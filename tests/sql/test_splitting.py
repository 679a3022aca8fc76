from __future__ import annotations

import pytest

from millstream.sql.identifiers import quote_identifier
from millstream.sql.parser import parse_expression
from millstream.sql.splitting import is_complete, split_statements


def test_semicolons_in_quotes_and_comments_split_nothing() -> None:
    text = """SELECT ';', "a;b", `c;d` -- no; end
      FROM s /* ; */ ; ; SHOW 'it''s;'"""
    first, second = split_statements(text)
    assert first.startswith("SELECT ';'")
    assert first.endswith("FROM s")
    assert second == "SHOW 'it''s;'"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- comment;", True),
        ("SELECT 1; /* more", False),
        ("SELECT 1", False),
        ("SELECT 'a;", False),
        ('SELECT "a;', False),
        ("SELECT `a;", False),
        ("SELECT 1 -- ;", False),
        ("SELECT 1; SHOW", False),
        ("", False),
    ],
)
def test_input_is_complete_when_its_last_sign_is_a_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_unfinished_statements_are_pieces_too() -> None:
    assert split_statements("SHOW STREAMS; SELECT 'a; b") == ["SHOW STREAMS", "SELECT 'a; b"]


@pytest.mark.parametrize("name", ["A", "A_1", "a", "A b", "1A", "GROUP", "TOPIC", "a`b", 'a"b', "ä", "KEY"])
def test_quoted_names_read_back_as_themselves(name: str) -> None:
    assert parse_expression(quote_identifier(name)).name == name


@pytest.mark.parametrize("name", ["A", "A_1", "KEY", "_X"])
def test_plain_names_stay_plain(name: str) -> None:
    assert quote_identifier(name) == name
