"""How often a statement reads its sources. Every place where a query of WITH is read computes it anew, so queries that
read the one before them twice double with each step: what would become too much is refused before it is planned."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millstream.errors import Unsupported

from ..sql import ast
from ..sql.ast import Query

READS_MAX = 200


def check_reads(query: Query) -> None:
    """Raises `Unsupported` where the query would read streams and tables more than READS_MAX times."""
    reads = _reads(query, {})
    if reads > READS_MAX:
        raise Unsupported(
            f"the statement reads streams and tables at more than {READS_MAX} places, each query of WITH counted "
            "wherever it is read",
            span=query.span,
            hint="Write the query that is read so often into a stream or table of its own with CREATE … AS SELECT.",
        )


def _reads(query: Query, known: Mapping[str, int]) -> int:
    """`known`: how often each query of WITH, of those that `query` sees, reads."""
    seen = dict(known)
    for cte in query.ctes:
        seen[cte.name] = _reads(cte.query, seen)
    conditions = [] if query.where is None else [node.meta["query"] for node in query.where.find_all(exp.Subquery)]
    return _reads_of(query.source, seen) + sum(_reads(condition, seen) for condition in conditions)


def _reads_of(relation: ast.Relation, known: Mapping[str, int]) -> int:
    match relation:
        case ast.SourceName():
            return known.get(relation.name, 1)
        case ast.Subquery():
            return sum(_reads(query, known) for query in relation.queries)
        case ast.WindowFunction():
            return _reads_of(relation.source, known)
        case ast.Join():
            return _reads_of(relation.left, known) + _reads_of(relation.right, known)
