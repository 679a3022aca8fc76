"""The grammar's table is computed once, not at each start; whatever becomes of its file, statements are parsed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import lark.lark
import pytest

from millstream.sql import parser
from millstream.sql.ast import Statement
from millstream.sql.parser import parse_one

GRAMMAR = parser.grammar
SQL = "SHOW TABLES EXTENDED;"
SMALL = """
%declare NAME SHOW TABLES EXTENDED STRING STRING_LITERAL
show: SHOW TABLES EXTENDED?
?statement: show
?expression: STRING_LITERAL
?type: STRING
"""
"""The whole grammar's table takes a second of CPU to compute, and each test here wants another one."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Python keeps what it has compiled; nothing is there yet, and nobody has parsed anything."""
    monkeypatch.setattr(parser, "grammar", lambda: SMALL)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    parser.lark.cache_clear()
    yield tmp_path
    parser.lark.cache_clear()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """What is kept, and where below the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "grammar", lambda: SMALL)
        made = tmp_path_factory.mktemp("made")
        patch.setattr(sys, "pycache_prefix", str(made))
        patch.setattr(sys, "dont_write_bytecode", False)
        parser.lark.cache_clear()
        parse_one(SQL)
        return _table(made).relative_to(made), _table(made).read_bytes()


def _table(folder: Path) -> Path:
    [file] = folder.rglob("*.lark")
    return file


def _parsed_by_the_next_process(sql: str = SQL) -> Statement:
    def compute(*_: object) -> None:
        raise AssertionError("the table is computed again")

    parser.lark.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lark.lark, "load_grammar", compute)
        return parse_one(sql)


def test_the_next_process_reads_the_table_and_computes_nothing() -> None:
    assert parse_one(SQL) == _parsed_by_the_next_process()


def test_so_it_is_with_the_whole_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "grammar", GRAMMAR)
    sql = "CREATE TABLE t AS SELECT a, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY a;"
    assert parse_one(sql) == _parsed_by_the_next_process(sql)


@pytest.mark.parametrize("kept", [0, 10, 1_000, -1])
def test_a_damaged_table_is_computed_anew(table: tuple[Path, bytes], folder: Path, kept: int) -> None:
    place, whole = folder / table[0], table[1]
    place.parent.mkdir(parents=True)
    place.write_bytes(whole[:kept])
    statement = parse_one(SQL)
    assert _table(folder) == place
    assert statement == _parsed_by_the_next_process()


def test_the_table_of_another_grammar_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "grammar", lambda: SMALL + "\n// another one\n")
    parse_one("SHOW TABLES;")
    other = _table(folder).read_bytes()
    monkeypatch.setattr(parser, "grammar", lambda: SMALL)
    parser.lark.cache_clear()
    parse_one(SQL)
    assert _table(folder).read_bytes() != other


def test_where_nothing_can_be_kept_statements_are_parsed_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    parse_one(SQL)
    assert not list(folder.iterdir())
    parser.lark.cache_clear()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (folder / "a file").touch()
    monkeypatch.setattr(sys, "pycache_prefix", str(folder / "a file"))
    parse_one(SQL)
