"""While a long statement is parsed the garbage collector rests, and afterwards it is as it was."""

from __future__ import annotations

import gc

import pytest

from millstream.errors import SqlSyntaxError
from millstream.sql.collector import collector_paused, importing
from millstream.sql.parser import parse

LONG = f"SELECT {', '.join(f'column_{i}' for i in range(5_000))} FROM s"


def test_it_rests_for_long_statements_only() -> None:
    with collector_paused(100):
        assert gc.isenabled()
    with collector_paused(1_000_000):
        assert not gc.isenabled()
        with collector_paused(1_000_000):
            pass
        assert not gc.isenabled(), "the first one is not over"
    assert gc.isenabled()


def test_it_works_again_after_a_statement_and_after_a_refused_one() -> None:
    parse(f"{LONG};")
    assert gc.isenabled()
    with pytest.raises(SqlSyntaxError):
        parse(f"{LONG} FROM;")
    assert gc.isenabled()


def test_who_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        parse(f"{LONG};")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_rests_while_modules_are_imported_and_may_leave_them_alone_for_ever() -> None:
    before = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, before)
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()
    with importing(forever=True):
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(made)
