"""Trees of expressions that are put together from others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sqlglot import exp


def owned(tree: exp.Expression) -> exp.Expression:
    """The tree itself where it is a part of no other one, else a copy: a node has one parent.

    Without this each level of a long chain would copy all levels below it.

    >>> text = exp.Literal.string("a")
    >>> owned(text) is text, owned(exp.Paren(this=text).this) is text
    (True, False)
    """
    return tree if tree.parent is None else tree.copy()


def all_owned(trees: Iterable[exp.Expression]) -> list[exp.Expression]:
    """The same of several, among which one may be there twice."""
    found: list[exp.Expression] = []
    known: set[int] = set()
    for tree in trees:
        found.append(tree.copy() if id(tree) in known else owned(tree))
        known.add(id(tree))
    return found


def duckdb_type(text: str) -> exp.DataType:
    """A type for a CAST; a plain one is a single node, as a list of thousands of values is thousands of casts.

    >>> duckdb_type("DECIMAL(9, 2)").sql("duckdb")
    'DECIMAL(9, 2)'
    """
    parsed, spelled = _parsed_type(text)
    return parsed.copy() if parsed.args.get("nested") else exp.DataType(this=exp.DType.USERDEFINED, kind=spelled)


@lru_cache(maxsize=1024)
def _parsed_type(text: str) -> tuple[exp.DataType, str]:
    parsed = exp.DataType.build(text, dialect="duckdb")
    return parsed, parsed.sql(dialect="duckdb")
