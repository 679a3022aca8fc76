"""Hints for common mistakes, each defined by examples: malformed snippets and their hint.

A snippet is matched by how it fails, not by its text: the unexpected token, the token before it, and its clause. To add
a hint, add an entry; a test checks that each snippet fails and gets its own hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from lark.parsers.lalr_analysis import ParseTableBase
from lark.parsers.lalr_parser_state import ParseConf

from .failure import Failure, find_failure
from .tokens import tokenize

_CLAUSES = frozenset(
    "SELECT FROM JOIN ON WITHIN WINDOW WHERE GROUP PARTITION HAVING EMIT LIMIT CREATE INSERT WITH VALUES DROP ALTER "
    "DESCRIBE PRINT SHOW LIST".split()
)
_OPERANDS = frozenset(
    "NAME QUOTED_NAME STRING_LITERAL INTEGER_LITERAL DECIMAL_LITERAL FLOAT_LITERAL RPAR RBRACKET STAR END NULL TRUE "
    "FALSE".split()
)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "WINDOW stands directly after FROM and its joins, before WHERE and GROUP BY.": (
        "SELECT a FROM s WHERE a = 1 WINDOW TUMBLING (SIZE 1 DAY)",
        "SELECT a FROM s GROUP BY a WINDOW TUMBLING (SIZE 1 DAY)",
        "SELECT a FROM s PARTITION BY a WINDOW TUMBLING (SIZE 1 DAY)",
        "SELECT a FROM s GROUP BY a HAVING a = 1 WINDOW TUMBLING (SIZE 1 DAY)",
    ),
    "WHERE stands before GROUP BY, PARTITION BY and HAVING.": (
        "SELECT a FROM s GROUP BY a WHERE a = 1",
        "SELECT a FROM s PARTITION BY a WHERE a = 1",
        "SELECT a FROM s GROUP BY a HAVING a = 1 WHERE a = 1",
    ),
    "EMIT CHANGES stands before LIMIT.": ("SELECT a FROM s LIMIT 1 EMIT CHANGES",),
    "EMIT CHANGES stands after every other clause but LIMIT.": (
        "SELECT a FROM s EMIT CHANGES WHERE a = 1",
        "SELECT a FROM s EMIT CHANGES GROUP BY a",
        "SELECT a FROM s EMIT CHANGES HAVING a = 1",
        "SELECT a FROM s EMIT CHANGES WINDOW TUMBLING (SIZE 1 DAY)",
    ),
    "A query names what it reads: SELECT … FROM a_stream.": (
        "SELECT *",
        "SELECT a",
        "SELECT a WHERE a = 1",
        "SELECT a GROUP BY a",
    ),
    'Equality is written with one "=".': (
        "SELECT a FROM s WHERE a == 1",
        "SELECT a FROM s JOIN t ON a == b",
        "SELECT a == b FROM s",
        "SELECT a FROM s GROUP BY a HAVING a == 1",
    ),
    "Remove the comma before it.": (
        "SELECT a, FROM s",
        "CREATE STREAM s (a INT, )",
        "CREATE STREAM s (a INT) WITH (b = 1, )",
        "INSERT INTO s VALUES (1, )",
    ),
    "ORDER BY a goes inside OVER, in parentheses: ROW_NUMBER() OVER (PARTITION BY b ORDER BY a).": (
        "SELECT RANK() OVER ORDER BY a FROM s",
    ),
    "ORDER BY stands before LIMIT, and only in queries without EMIT: what has no end cannot be sorted.": (
        "SELECT a FROM s EMIT CHANGES ORDER BY a",
        "SELECT a FROM s LIMIT 1 ORDER BY a",
    ),
    "LIMIT stands before OFFSET.": ("SELECT a FROM s OFFSET 1 LIMIT 1",),
    "INSERT … SELECT takes no list of columns: name them in the query with AS.": ("INSERT INTO s (a) SELECT a FROM t",),
    "Write AS before the SELECT.": (
        "CREATE STREAM s WITH (b = 1) SELECT a FROM t",
        "CREATE STREAM s SELECT a FROM t",
    ),
    "Write the SELECT without parentheses around it.": (
        "CREATE STREAM s AS (SELECT a FROM t)",
        "CREATE STREAM s WITH (b = 1) AS (SELECT a FROM t)",
        "INSERT INTO s (SELECT a FROM t)",
    ),
    "Rows are not changed in place: a new row with the same key replaces a table's row. Use INSERT INTO … VALUES.": (
        "UPDATE s SET a = 1",
        "MERGE INTO s USING t",
    ),
    "Say which rows of the table: DELETE FROM t WHERE id = 1; all of them are WHERE TRUE.": (
        "DELETE FROM s",
        "DELETE s WHERE a = 1",
    ),
    "Write UNION ALL: a stream keeps every row. SELECT DISTINCT over it counts each row once.": (
        "SELECT a FROM s UNION SELECT a FROM t",
        "SELECT a FROM s UNION DISTINCT SELECT a FROM t",
        "SELECT a FROM s WHERE a = 1 UNION SELECT a FROM t",
        "SELECT a FROM s GROUP BY a UNION SELECT a FROM t",
    ),
    "A query of WITH stands in parentheses: WITH n AS (SELECT …) SELECT … FROM n.": (
        "WITH n AS SELECT a FROM s SELECT a FROM n",
        "WITH n (SELECT a FROM s) SELECT a FROM n",
    ),
    "A function of a whole table stands in SELECT, as EXPLODE does; FROM names streams and tables.": (
        "SELECT a FROM EXPLODE(a)",
    ),
    "A list of expressions is separated by commas; a condition in it stands in parentheses.": (
        "SELECT a FROM s GROUP BY a AND b",
        "SELECT a FROM s PARTITION BY a AND b",
        "SELECT a FROM s GROUP BY a = b",
        "SELECT a FROM s PARTITION BY a = b",
    ),
    "WITH (…) stands before AS SELECT.": (
        "CREATE STREAM s AS SELECT a FROM t WITH (b = 1)",
        "CREATE STREAM s AS SELECT a FROM t WHERE a = 1 WITH (b = 1)",
        "CREATE STREAM s AS SELECT a FROM t GROUP BY a WITH (b = 1)",
        "CREATE STREAM s AS SELECT a FROM t EMIT CHANGES WITH (b = 1)",
    ),
    "Sources are joined with JOIN … ON.": ("SELECT a FROM s, t",),
    "A join names its condition: JOIN right ON left.a = right.b.": (
        "SELECT a FROM s JOIN t",
        "SELECT a FROM s JOIN t WHERE a = 1",
        "SELECT a FROM s JOIN t USING (a)",
        "SELECT a FROM s JOIN t EMIT CHANGES",
        "SELECT a FROM s JOIN t WITHIN 1 DAY WHERE a = 1",
    ),
    "WITHIN stands before ON.": ("SELECT a FROM s JOIN t ON a = b WITHIN 1 DAY",),
    "A duration has a unit: 30 SECONDS, 1 HOUR.": (
        "SELECT a FROM s WINDOW TUMBLING (SIZE 1)",
        "SELECT a FROM s WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 1)",
        "SELECT a FROM s WINDOW SESSION (30)",
    ),
    "There are no sliding windows: HOPPING ones with a short ADVANCE BY are near to them.": (
        "SELECT a FROM s WINDOW SLIDING (SIZE 1 DAY)",
    ),
    "Write WINDOW before it.": ("SELECT a FROM s TUMBLING (SIZE 1 DAY)", "SELECT a FROM s HOPPING (SIZE 1 DAY)"),
    "A DECIMAL names its digits: DECIMAL(10, 2).": (
        "CREATE STREAM s (a DECIMAL)",
        "CREATE STREAM s (a DECIMAL, b INT)",
        "CREATE STREAM s (a DECIMAL KEY)",
        "CREATE STREAM s (a DECIMAL PRIMARY KEY)",
        "CREATE STREAM s (a ARRAY<DECIMAL>)",
        "SELECT CAST(a AS DECIMAL) FROM s",
    ),
    "PRIMARY KEY stands after the type of its column.": ("CREATE TABLE s (a INT, PRIMARY KEY (a))",),
    "A column names its type: name STRING.": ("CREATE STREAM s (a, b INT)", "CREATE STREAM s (a)"),
    "WITH names properties in parentheses: WITH (kafka_topic = 'topic', value_format = 'JSON').": (
        "CREATE STREAM s WITH kafka_topic = 'a'",
        "CREATE STREAM s (a INT) WITH ()",
    ),
    "A mirror names the topics that it copies: TOPICS 'orders*', 'customers'.": (
        "CREATE MIRROR m FROM 'a'",
        "CREATE MIRROR m FROM 'a' WITH (b = 1)",
    ),
    "Name the source it describes, reads or drops.": ("DROP STREAM", "DROP TABLE", "DESCRIBE", "PRINT"),
    "A topic whose name is more than letters and digits stands in quotes: PRINT 'my-topic'.": (
        "PRINT my-topic",
        "PRINT my.topic",
    ),
    "NULL is tested with IS NULL or IS NOT NULL, other values with =.": (
        "SELECT a FROM s WHERE a IS 1",
        "SELECT a FROM s WHERE a IS 'b'",
        "SELECT a FROM s WHERE a IS b",
        "SELECT a FROM s WHERE a IS NOT 1",
    ),
    "IN takes a list of values in parentheses.": (
        "SELECT a FROM s WHERE a IN 1",
        "SELECT a FROM s WHERE a IN b",
        "SELECT a FROM s WHERE a IN ()",
    ),
    "LIMIT takes a whole number.": (
        "SELECT a FROM s LIMIT a",
        "SELECT a FROM s LIMIT 'a'",
    ),
    "EMIT takes CHANGES (every change) or FINAL (each window once, when it closes).": (
        "SELECT a FROM s WHERE a = 1 EMIT",
        "SELECT a FROM s WHERE a = 1 EMIT LATEST",
    ),
    "Struct types are written STRUCT<name TYPE, …>, arrays ARRAY<TYPE>, maps MAP<STRING, TYPE>.": (
        "CREATE STREAM s (a ARRAY(INT))",
        "CREATE STREAM s (a STRUCT(b INT))",
        "CREATE STREAM s (a MAP(INT, INT))",
    ),
}

Signature = tuple[str, str, str]


def hint_by_example(failure: Failure) -> str | None:
    """The hint of an example that fails in the same way."""
    return _hints(failure.before.table.parse_table).get(signature(failure))


def signature(failure: Failure) -> Signature:
    """How a statement fails: the clause, the kind of the previous token, the unexpected token (the word if it is a
    name)."""
    last = failure.kinds[-1] if failure.kinds else ""
    if last == "LPAR" and failure.position > 1 and failure.tokens[failure.position - 2].upper() in _FOREIGN_WORDS:
        last = f"{failure.tokens[failure.position - 2].upper()} LPAR"
    token = failure.token
    found = failure.kind
    if token is not None and found == "NAME":
        found = token.upper() if token.upper() in _FOREIGN_WORDS else "NAME"
    return (_clause(failure.kinds), "operand" if last in _OPERANDS else last, found)


def _clause(kinds: Sequence[str]) -> str:
    """The clause in which the statement fails; with a "(" before it if it fails inside parentheses of that clause. A
    statement about mirrors is one clause: its FROM and WITH are not those of queries."""
    if "MIRROR" in kinds[:2]:
        return "MIRROR"
    depth, inside = 0, ""
    for kind in reversed(kinds):
        if kind == "RPAR":
            depth += 1
        elif kind == "LPAR":
            depth -= 1
            inside = "(" if depth < 0 else inside
        elif kind in _CLAUSES and depth <= 0:
            return inside + kind
    return inside


_FOREIGN_WORDS = frozenset({"ORDER", "UPDATE", "MERGE", "USING", "EMIT", "KEY", "ARRAY", "MAP", "STRUCT"})
"""Words that are ordinary names here, but that examples distinguish from other names."""


@cache
def _hints(parse_table: ParseTableBase[int]) -> dict[Signature, str]:
    table = ParseConf(parse_table, {}, "statement")
    hints: dict[Signature, str] = {}
    for hint, snippets in EXAMPLES.items():
        for snippet in snippets:
            failure = find_failure(table, tokenize(snippet))
            if failure is not None:  # a snippet that has become valid is found by a test, not by a user
                hints.setdefault(signature(failure), hint)
    return hints
