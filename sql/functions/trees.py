"""Trees of expressions that are put together from others."""

from __future__ import annotations

from collections.abc import Iterable

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
