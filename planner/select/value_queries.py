"""Rewrites queries inside expressions of WHERE and SELECT as joins, before anything is planned.

    x IN (SELECT y FROM …)                          joins the distinct y on x = y
    x > (SELECT MAX(y) FROM b WHERE b.k = a.k)      joins the MAX(y) of every k on k and x > MAX(y)
    EXISTS (SELECT … FROM b WHERE b.k = a.k)        joins the distinct k

These conditions of WHERE become inner joins. In all other places (under NOT and OR, in SELECT, as a COUNT) the query's
result becomes a column of the source, see `answers.py`. A query without outer columns is joined on a constant that is
equal in all rows. For the greatest x among the same rows of a table, x >= MAX(x) is joined on x = MAX(x), too: then the
result is the rows of rank 1 (`steps/own_extremes.py`). The source and its joins become a subquery with the source's
name, so the rest of the statement sees the same columns as before.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from ...sql import ast
from ...sql.ast import Query, conjuncts, span_of, unwrapped
from ...sql.types import DOUBLE
from ..expressions.aggregate_calls import has_clauses
from ..planning import PlanningContext
from .answers import (
    VALUE,
    Answers,
    all_of,
    column_of,
    correlated,
    keyed_items,
    named,
    only_value,
    over_nothing,
)
from .naming import bare_name
from .origin import Plan
from .relation import Target
from .relations import origin_of
from .subqueries import is_hidden

_MIRRORED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


_EXTREMES: dict[type[exp.Expression], str] = {exp.GTE: "MAX", exp.LTE: "MIN"}
"""No row can exceed the extreme of the rows to which it belongs, so >= MAX and <= MIN mean equality."""


def without_value_queries(query: Query, context: PlanningContext, target: Target, plan: Plan) -> Query:
    """The query with these queries replaced by joins. In: `plan`: plans a query in FROM. Raises `Unsupported` for a
    query that cannot become a join."""
    asking = [item.expression for item in query.items if isinstance(item, ast.SelectColumn)]
    asking = [node for node in (*asking, *([] if query.where is None else [query.where])) if node.find(exp.Subquery)]
    if not asking:
        return query
    assert not isinstance(query.source, ast.Join), "joined_answers.py has put it into a subquery"
    answers = Answers(query.source)
    stays = target in ("STREAM", "INSERT") or query.window is not None
    others: list[exp.Expression] = []
    for node in [] if query.where is None else conjuncts(query.where):
        if node.find(exp.Subquery) is None:
            others.append(node)
            continue
        plain = _with_own_extreme(node, answers.source, context, plan)
        if not ((stays and _looked_up(answers, plain, context, plan)) or _narrowed(answers, plain)):
            others.append(answers.inside(plain))
    items = tuple(_answered(item, answers) for item in query.items)
    return replace(query, items=items, source=answers.source, where=all_of(others) if others else None)


def _answered(item: ast.SelectItem, answers: Answers) -> ast.SelectItem:
    if not isinstance(item, ast.SelectColumn) or item.expression.find(exp.Subquery) is None:
        return item
    return replace(item, expression=answers.inside(item.expression))


def _narrowed(answers: Answers, node: exp.Expression) -> bool:
    """Joins the query if an inner join is equivalent to the whole condition. True if it did."""
    inner = unwrapped(node)
    if isinstance(inner, exp.Exists):
        pairs, values = answers.different(inner.this.meta["query"], None, span_of(node))
        answers.keep(values, pairs, ())
        return True
    if isinstance(inner, exp.In) and inner.args.get("query") and _is_plain(inner.this):
        pairs, values = answers.different(inner.args["query"].meta["query"], inner.this, span_of(node))
        answers.keep(values, pairs, ())
        return True
    if type(inner) not in _MIRRORED:
        return False
    left, right = unwrapped(inner.this), unwrapped(inner.expression)
    if isinstance(right, exp.Subquery) and _is_plain(left):
        return _compared(answers, node, right.meta["query"], type(inner), left)
    if isinstance(left, exp.Subquery) and _is_plain(right):
        return _compared(answers, node, left.meta["query"], _MIRRORED[type(inner)], right)
    return False


def _compared(
    answers: Answers, node: exp.Expression, query: Query, comparison: type[exp.Expression], value: exp.Expression
) -> bool:
    """Joins the query's value, and compares. Rows without a group would be compared with NULL, so the inner join may
    drop them. If the value over no rows is not NULL (a COUNT), they must not be dropped: then it returns False."""
    if over_nothing(query) is not None:
        return False
    keys, values = answers.one_value(query, span_of(node))
    answers.keep(values, keys, [comparison(this=value.copy(), expression=column_of(values.alias, VALUE))])
    return True


def _with_own_extreme(
    node: exp.Expression, source: ast.FromItem, context: PlanningContext, plan: Plan
) -> exp.Expression:
    """x >= (SELECT MAX(x) …) as x = (…) if both read the same rows of the same table; other conditions unchanged."""
    inner = unwrapped(node)
    if type(inner) not in (exp.GTE, exp.LTE) or not isinstance(source, ast.SourceName):
        return node
    value, asked, comparison = unwrapped(inner.this), unwrapped(inner.expression), type(inner)
    if isinstance(value, exp.Subquery):
        value, asked, comparison = asked, value, _MIRRORED[comparison]
    if not isinstance(value, exp.Column) or not isinstance(asked, exp.Subquery):
        return node
    query: Query = asked.meta["query"]
    if not _is_extreme_of(query, _EXTREMES[comparison], value.name, source):
        return node
    rows = origin_of(source, context, plan)
    found = rows.source.schema.find(value.name)
    if rows.plan.kind != "TABLE" or found is None or found.type == DOUBLE:  # MAX skips NaN, which is greater
        return node
    return exp.EQ(this=value.copy(), expression=asked.copy())


def _is_extreme_of(query: Query, function: str, column: str, source: ast.SourceName) -> bool:
    """Whether the query is SELECT function(column) over all rows of `source` that are equal in some columns."""
    if not isinstance(query.source, ast.SourceName) or query.source.name != source.name:
        return False
    if replace(query, items=(), where=None, span=None, text="") != Query(items=(), source=query.source, text=""):
        return False
    call = unwrapped(only_value(query))
    if not isinstance(call, exp.Anonymous) or call.name != function or has_clauses(call) or len(call.expressions) != 1:
        return False
    (argument,) = call.expressions
    keys, rest = correlated(query, source)
    pairs = [(argument, exp.column(column)), *keys]
    named_alike = all(bare_name(own) is not None and bare_name(own) == bare_name(outer) for own, outer in pairs)
    return named_alike and not rest


def _is_plain(node: exp.Expression) -> bool:
    return node.find(exp.Subquery) is None


# ------------------------------------------------------------------ streams that look into a table


def _looked_up(answers: Answers, node: exp.Expression, context: PlanningContext, plan: Plan) -> bool:
    """Joins the query as a look-up if it selects the keys of a table of the catalog. True if it did. Then the table's
    current row decides whether a row is kept, as in a join of a stream with a table, and a stream remains a stream."""
    inner = unwrapped(node)
    negated = isinstance(inner, exp.Not)
    inner = unwrapped(inner.this) if isinstance(inner, exp.Not) else inner
    if not _asks_whether(inner):
        return False
    value = inner.this if isinstance(inner, exp.In) else None
    query: Query = (inner.this if value is None else inner.args["query"]).meta["query"]
    if value is not None and not _is_plain(value):
        return False
    keys, rest = correlated(query, answers.source)
    if value is not None:
        keys.append((only_value(query), value))
    if not _are_whole_key([own for own, _ in keys], query, context):
        return False
    alias = answers.next_alias()
    values = replace(query, items=keyed_items(own for own, _ in keys), where=all_of(rest) if rest else None)
    pairs = [(outer, f"{VALUE}_{i}") for i, (_, outer) in enumerate(keys)]
    subquery = ast.Subquery(queries=(values,), alias=alias, span=span_of(node))
    key = _key_of(answers.source, context, plan)
    if not negated:
        answers.keep(subquery, pairs, (), lies_by=key)
        return True
    missing: list[exp.Expression] = [exp.Is(this=column_of(alias, f"{VALUE}_0"), expression=exp.Null())]
    if value is not None:  # NULL NOT IN (…) is NULL, not true
        missing.append(exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())))
    answers.keep(subquery, pairs, (), kind="LEFT", where=all_of(missing), lies_by=key)
    return True


def _asks_whether(node: exp.Expression) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def _are_whole_key(columns: list[exp.Expression], query: Query, context: PlanningContext) -> bool:
    source = named(query.source, context)
    if source is None or source.kind != "TABLE" or source.key_window is not None or not columns:
        return False
    if query.group_by or query.distinct or query.qualify is not None or query.having is not None or query.window:
        return False
    names = [inner.name for node in columns if isinstance(inner := unwrapped(node), exp.Column)]
    return len(names) == len(columns) and sorted(names) == sorted(c.name for c in source.schema.key)


def _key_of(source: ast.FromItem, context: PlanningContext, plan: Plan) -> tuple[exp.Expression, ...] | None:
    """The key of the source's rows; None if a query in FROM does not select it."""
    key = origin_of(source, context, plan).plan.schema.key
    return None if any(is_hidden(c.name) for c in key) else tuple(column_of(source.alias, c.name) for c in key)
