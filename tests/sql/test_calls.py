"""Calls with more than arguments in them: FILTER, DISTINCT, OVER, and the forms of standard SQL."""

from __future__ import annotations

import pytest

from millstream.errors import SqlSyntaxError
from millstream.sql.ast import Query, SelectColumn, SourceName
from millstream.sql.parser import parse_expression, parse_one
from millstream.sql.printing import print_expression

FORMS = {
    "count(*) filter (where a > 1)": "COUNT(*) FILTER (WHERE (A > 1))",
    "count(distinct a)": "COUNT(DISTINCT A)",
    "sum(distinct a) filter (where b) over ()": "SUM(DISTINCT A) FILTER (WHERE B) OVER ()",
    "row_number() over (partition by a, b + 1 order by c desc nulls last, d asc nulls first)": (
        "ROW_NUMBER() OVER (PARTITION BY A, (B + 1) ORDER BY C DESC, D NULLS FIRST)"
    ),
    "avg(a) over (order by b rows 10 preceding)": (
        "AVG(A) OVER (ORDER BY B ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)"
    ),
    "max(a) over (rows between unbounded preceding and 1 following)": (
        "MAX(A) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)"
    ),
    "sum(a) over (order by b range between 1.5 preceding and 2 following)": (
        "SUM(A) OVER (ORDER BY B RANGE BETWEEN 1.5 PRECEDING AND 2 FOLLOWING)"
    ),
    "sum(a) over (order by b range 10 minutes preceding)": (
        "SUM(A) OVER (ORDER BY B RANGE BETWEEN 10 minutes PRECEDING AND CURRENT ROW)"
    ),
    "sum(a) over (range between interval 10 minutes preceding and interval '1' day following grace period 1 hour)": (
        "SUM(A) OVER (RANGE BETWEEN interval 10 minutes PRECEDING AND interval '1' day FOLLOWING "
        "GRACE PERIOD 3600000 MILLISECONDS)"
    ),
    "sum(a) over (range unbounded preceding)": "SUM(A) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "extract(hour from ts)": "EXTRACT(HOUR, TS)",
    "extract(hour, ts)": "EXTRACT(HOUR, TS)",
    "substring(a from 2 for 3)": "SUBSTRING(A, 2, 3)",
    "substring(a from position('x' in b) + 1)": "SUBSTRING(A, (POSITION('x', B) + 1))",
    "position('x' in lcase(a))": "POSITION('x', LCASE(A))",
    "position('x' in (a || b))": "POSITION('x', (A || B))",
    "f(a in (1, 2))": "F((A IN (1, 2)))",
}

MISTAKES = {
    "sum(a) over (groups unbounded preceding)": "frames of GROUPS are not supported",
    "sum(a) over (rows 10 minutes preceding)": "a frame of ROWS counts rows, in whole numbers",
    "sum(a) over (rows 1.5 preceding)": "a frame of ROWS counts rows, in whole numbers",
    "sum(a) over (rows 1 preceding grace period 1 hour)": "a frame of ROWS takes no GRACE PERIOD",
    "sum(a) over (rows between unbounded following and unbounded following)": "the frame ends before it begins",
    "sum(a) over (range between unbounded preceding and unbounded preceding)": "the frame ends before it begins",
    "sum(a) over (range between 1 hour preceding and 2 hours preceding)": "the frame ends before it begins",
    "sum(a) over (range 10 fortnights preceding)": 'unknown unit of time "FORTNIGHTS"',
    f"sum(a) over (range {'9' * 81} preceding)": "the number is too large",
    "sum(a) over (rows between 1 following and current row)": "the frame ends before it begins",
    "sum(a) over (rows 99999999 preceding)": "a frame reaches at most 1000000 rows",
    "sum(a) over partition by b": "unexpected",
    "f(a from 2)": "unexpected",
}


@pytest.mark.parametrize("text", FORMS)
def test_each_form_is_read(text: str) -> None:
    assert print_expression(parse_expression(text)) == FORMS[text]


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_has_a_place(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match=MISTAKES[text]) as caught:
        parse_expression(text)
    assert caught.value.span is not None


@pytest.mark.parametrize(
    "word", ["filter", "over", "rows", "range", "first", "extract", "position", "substring", "for", "desc"]
)
def test_the_new_words_are_still_names(word: str) -> None:
    query = parse_one(f"SELECT {word}, f({word}) {word}, count(*) {word} FROM s {word} WHERE {word}.{word} = 1")
    assert isinstance(query, Query) and isinstance(query.source, SourceName)
    assert [item.alias for item in query.items if isinstance(item, SelectColumn)] == [None, word.upper(), word.upper()]
    assert query.source.alias == word.upper()


@pytest.mark.parametrize("rest", ["", " EMIT CHANGES", " WHERE a = 1", " PARTITION BY a"])
def test_qualify_can_be_an_alias(rest: str) -> None:
    query = parse_one(f"SELECT a FROM s qualify{rest}")
    assert isinstance(query, Query) and isinstance(query.source, SourceName)
    assert (query.source.alias, query.qualify) == ("QUALIFY", None)


def test_qualify_is_a_clause_before_a_condition() -> None:
    query = parse_one("SELECT DISTINCT a FROM s GROUP BY a HAVING b QUALIFY rank() OVER (ORDER BY a) = 1 EMIT CHANGES")
    assert isinstance(query, Query)
    assert query.distinct
    assert query.qualify is not None
    assert print_expression(query.qualify) == "(RANK() OVER (ORDER BY A) = 1)"
