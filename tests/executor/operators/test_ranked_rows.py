"""Ranks kept while rows come one by one: those of a sort, after every row."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from random import Random

import duckdb
import numpy as np
import pytest

from millstream.executor.operators.ranked_rows import RANKS, rank_rows
from millstream.executor.operators.sort_words import is_plain, sort_words
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.over_calls import SortKey
from millstream.sql.types import BIGINT

WORDS = {
    "BIGINT": [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, -(2**63), None],
    "INTEGER": [5, -5, 0, None],
    "BOOLEAN": [True, False, None],
    "DOUBLE": [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 5e-324, None],
    "VARCHAR": ["", "a", "B", "ä", "a\x00", "aa", "\U0001f600", "\uffff", None],
    "BLOB": [b"", b"\x00", b"\xff", b"a", None],
    "DECIMAL(30, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("9" * 28), None],
    "DATE": [date(1969, 12, 31), date(2024, 1, 1), None],
    "TIMESTAMP": [datetime(1960, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1000), None],
    "TIME": [time(0, 0), time(23, 59, 59), None],
}


@pytest.mark.parametrize("type_", WORDS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("with_null", [False, True])
def test_words_are_in_duckdbs_order(type_: str, descending: bool, nulls_first: bool, with_null: bool) -> None:
    values = [value for value in WORDS[type_] if with_null or value is not None]
    order = f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (n INTEGER, v {type_})")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [*enumerate(values), *enumerate(values, len(values))])
        column = connection.sql("SELECT v FROM t ORDER BY n").to_arrow_table().column("v").combine_chunks()
        wanted = connection.sql(f"SELECT dense_rank() OVER (ORDER BY v {order}) FROM t ORDER BY n").fetchall()
    key = SortKey(SqlExpression("v0", BIGINT), descending, nulls_first)
    words = [tuple(row) for row in sort_words([column], [key], len(column)).T.tolist()]
    ranks = {words_: rank for rank, words_ in enumerate(sorted(set(words)), start=1)}
    assert [ranks[words_] for words_ in words] == [rank for (rank,) in wanted]


@pytest.mark.parametrize("type_", WORDS)
def test_values_are_plain_if_their_words_are_the_same_in_every_batch(type_: str) -> None:
    values = [value for value in WORDS[type_] if value is not None]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (v {type_})")
        connection.executemany("INSERT INTO t VALUES (?)", [[value] for value in values])
        column = connection.sql("SELECT v FROM t").to_arrow_table().column("v").combine_chunks()
    key = SortKey(SqlExpression("v0", BIGINT), False, False)
    together = sort_words([column], [key], len(column))[0].tolist()
    alone = [sort_words([column.slice(i, 1)], [key], 1)[0, 0] for i in range(len(column))]
    plain = not type_.startswith(("VARCHAR", "BLOB", "DECIMAL"))
    assert (together == alone) == is_plain(column.type) == plain


def test_without_sort_keys_all_rows_are_equal() -> None:
    assert sort_words([], [], 3).shape == (0, 3)


def sorted_ranks(keys: list[int], groups: list[int], function: str, largest: int) -> dict[int, int]:
    """By row; those up to the largest."""
    found: dict[int, int] = {}
    for group in set(groups):
        rows = sorted((row for row in range(len(keys)) if groups[row] == group), key=lambda row: (keys[row], row))
        own = [keys[row] for row in rows]
        for place, row in enumerate(rows):
            if function == "ROW_NUMBER":
                rank = place + 1
            elif function == "RANK":
                rank = own.index(keys[row]) + 1
            else:
                rank = len(set(own[: place + 1]))
            if rank <= largest:
                found[row] = rank
    return found


@pytest.mark.parametrize("function", RANKS)
@pytest.mark.parametrize("largest", [1, 2, 3, 5])
def test_after_every_row_the_ranks_are_those_of_a_sort(function: str, largest: int) -> None:
    rng = Random(function + str(largest))
    for _ in range(150):
        count, group_count = rng.randrange(1, 30), rng.randrange(1, 4)
        keys = [rng.randrange(rng.choice((2, 4, 30))) for _ in range(count)]
        groups = [rng.randrange(group_count) for _ in range(count)]
        known = rng.randrange(count)
        kept = sorted(sorted_ranks(keys[:known], groups[:known], function, largest))
        rows = [*kept, *range(known, count)]  # what came before and is not kept any more makes no difference
        words = np.array([[keys[row] for row in rows]], np.uint64)
        of_row = np.array([groups[row] for row in rows], np.int64)
        ranked = rank_rows(words, of_row, group_count, len(kept), function, largest, exact=True, every=True, old=True)
        assert ranked is not None
        left = {rows[i]: rank for i, rank in enumerate(ranked.before.tolist()) if rank}
        assert left == sorted_ranks(keys[:known], groups[:known], function, largest)
        changes = list(
            zip(*(each.tolist() for each in (ranked.cause, ranked.row, ranked.weight, ranked.rank)), strict=True)
        )
        for number in range(len(kept), len(rows)):
            for _, row, weight, rank in (change for change in changes if change[0] == number):
                if weight > 0:
                    assert left.setdefault(rows[row], rank) == rank
                else:
                    assert left.pop(rows[row]) == rank
            end = rows[number] + 1
            assert left == sorted_ranks(keys[:end], groups[:end], function, largest)
        assert left == {rows[i]: rank for i, rank in enumerate(ranked.after.tolist()) if rank}
        last = [
            max((cause for cause, *_ in changes if of_row[cause] == group), default=-1) for group in range(group_count)
        ]
        assert ranked.last.tolist() == last


def test_words_that_do_not_decide_give_no_result() -> None:
    groups = np.zeros(3, np.int64)
    for words, decided in (([3, 1, 2], True), ([3, 1, 3], False), ([1, 3, 1], False)):
        table = np.array([words], np.uint64)
        ranked = rank_rows(table, groups, 1, 1, "ROW_NUMBER", 1, exact=False, every=False, old=False)
        assert (ranked is not None) == (decided or words[0] != words[2] or words[2] > min(words[:2])), words


def test_rows_of_other_groups_are_never_equal() -> None:
    words, groups = np.array([[1, 1]], np.uint64), np.array([0, 1], np.int64)
    ranked = rank_rows(words, groups, 2, 0, "RANK", 1, exact=False, every=False, old=False)
    assert ranked is not None
    assert ranked.after.tolist() == [1, 1]
