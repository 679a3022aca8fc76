"""Random queries of the kinds that stand on relations: joins of streams and of tables, subqueries, UNION ALL, DISTINCT,
FILTER, and functions OVER partitions."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import GROUPED, Case, latest, sink
from .expressions import Expressions, Names
from .sources import SourceSpec, random_source
from .values import Col


def join_of_streams(rng: Random, size: int) -> Case:
    """Inner, with a window in time or none, by the key or by key and another column, perhaps with a condition."""
    a, b = _pair(rng, size, "STREAM")
    value_format, key_format, with_ = sink(rng, a.key_format)
    width = rng.choice((0, 1_000, 20_000, None))
    within = "UNBOUNDED" if width is None else f"{width} MILLISECONDS"
    conditions = ["a.K = b.K"]
    if rng.random() < 0.4:
        conditions.append(rng.choice(("a.V0 < b.V0", "a.V0 <> b.V0", "a.V0 BETWEEN b.V0 AND b.V0 + 1")))
    on = " AND ".join(conditions)
    where = rng.choice(("", "", " WHERE a.V0 IS NOT NULL"))
    select = f"SELECT a.K AS K, a.V0 AS X0, b.V0 AS X1 FROM A a JOIN B b WITHIN {within} ON {on}{where}"
    near = "" if width is None else f" AND abs(a.ts - b.ts) <= {width}"
    reference = (
        f"SELECT greatest(a.ts, b.ts), FALSE, a.K, a.V0, b.V0 FROM ({_valued('A')}) a JOIN ({_valued('B')}) b "
        f"ON {on}{near}{where}"
    )
    sql = f"CREATE STREAM O{with_} AS {select} EMIT CHANGES;"
    return Case((a, b), (sql,), reference, "STREAM", ("K",), ("X0", "X1"),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def join_of_tables(rng: Random, size: int) -> Case:
    a, b = _pair(rng, size, "TABLE")
    value_format, key_format, with_ = sink(rng, a.key_format)
    kind = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    key = {"JOIN": "a.K", "LEFT JOIN": "a.K", "RIGHT JOIN": "b.K", "FULL JOIN": "ROWKEY"}[kind]
    sql = f"CREATE TABLE O{with_} AS SELECT {key} AS K, a.V0 AS X0, b.V0 AS X1 FROM A a {kind} B b ON a.K = b.K"
    reference = (
        f"SELECT FALSE, coalesce(a.K, b.K), a.V0, b.V0 FROM ({latest('A', ['K'])}) a {kind} ({latest('B', ['K'])}) b "
        "ON a.K = b.K"
    )
    return Case((a, b), (f"{sql} EMIT CHANGES;",), reference, "TABLE", ("K",), ("X0", "X1"),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def join_by_foreign_key(rng: Random, size: int) -> Case:
    alike: dict[str, Any] = {"formats": GROUPED, "size": size, "key_format": rng.choice(("KAFKA", "JSON"))}
    a = random_source(rng, "A", "TABLE", **alike)
    b = random_source(rng, "B", "TABLE", key=Col("K", "INT"), **alike)
    value_format, key_format, with_ = sink(rng, a.key_format)
    kind = rng.choice(("JOIN", "LEFT JOIN"))
    sql = f"CREATE TABLE O{with_} AS SELECT a.K AS K, a.V0 AS X0, b.V0 AS X1 FROM A a {kind} B b ON a.V0 = b.K"
    reference = (
        f"SELECT FALSE, a.K, a.V0, b.V0 FROM ({latest('A', ['K'])}) a {kind} ({latest('B', ['K'])}) b ON a.V0 = b.K"
    )
    return Case((a, b), (f"{sql} EMIT CHANGES;",), reference, "TABLE", ("K",), ("X0", "X1"),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def join_on_any_columns(rng: Random, size: int) -> Case:
    """A count per value, joined with the largest count: what q5 of Nexmark asks."""
    a = random_source(rng, "A", "STREAM", size=size, formats=GROUPED)
    value_format, key_format, with_ = sink(rng)
    condition = rng.choice(("n.C = m.TOP", "n.C >= m.TOP", "n.C < m.TOP"))
    counts = "SELECT V0 AS G, MOD(V0, 2) AS P, COUNT(*) AS C FROM A WHERE V0 IS NOT NULL GROUP BY V0, MOD(V0, 2)"
    sql = (
        f"CREATE TABLE O{with_} AS WITH n AS ({counts}) SELECT n.G AS G, n.P AS P, n.C AS X0, m.TOP AS X1 "
        f"FROM n JOIN (SELECT P, MAX(C) AS TOP FROM n GROUP BY P) m ON n.P = m.P AND {condition}"
    )
    batch = counts.replace("FROM A WHERE", f"FROM ({_valued('A', keyed=False)}) WHERE").replace(
        "MOD(V0, 2)", "(V0 % 2)"
    )
    reference = (
        f"WITH n AS ({batch}), m AS (SELECT P, max(C) AS TOP FROM n GROUP BY P) "
        f"SELECT FALSE, G, n.P, C, TOP FROM n JOIN m ON n.P = m.P AND {condition}"
    )
    return Case((a,), (f"{sql} EMIT CHANGES;",), reference, "TABLE", ("G", "P"), ("X0", "X1"),
                sink_format=value_format, key_format=key_format, net=True)  # fmt: skip


def union(rng: Random, size: int) -> Case:
    """Of two streams, aggregated, so that their keys do not matter."""
    a, b = (random_source(rng, name, "STREAM", size=size, formats=GROUPED) for name in "AB")
    value_format, key_format, with_ = sink(rng)
    united = "SELECT V0 AS G, V0 + 1 AS W FROM A UNION ALL SELECT V0 * 2, CAST(NULL AS INT) FROM B"
    sql = f"CREATE TABLE O{with_} AS SELECT G, COUNT(*) AS X0, COUNT(W) AS X1, SUM(W) AS X2 FROM ({united}) GROUP BY G"
    batch = (
        f"SELECT V0 AS G, V0 + 1 AS W FROM ({_valued('A', keyed=False)}) UNION ALL "
        f"SELECT V0 * 2, NULL FROM ({_valued('B', keyed=False)})"
    )
    reference = f"SELECT FALSE, G, count(*), count(W), sum(W) FROM ({batch}) WHERE G IS NOT NULL GROUP BY G"
    return Case((a, b), (f"{sql} EMIT CHANGES;",), reference, "TABLE", ("G",), ("X0", "X1", "X2"),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def aggregate_of_aggregate(rng: Random, size: int) -> Case:
    """In one statement; groups that lose all their rows are gone."""
    a = random_source(rng, "A", "STREAM", size=size, formats=("JSON",))
    expressions = Expressions(rng, Names((*a.keys, *a.cols)))
    group = expressions.of(rng.choice(("INT", "STRING", "BOOLEAN")), 1)
    value_format, key_format, with_ = sink(rng)
    outer = rng.sample(["COUNT(*)", "SUM(C)", "MIN(S)", "MAX(C)", "MAX(S)", "AVG(C)"], rng.randint(1, 3))
    calls = ", ".join(f"{call} AS X{i}" for i, call in enumerate(outer))
    inner = f"SELECT {{}} AS G, COUNT(*) AS C, SUM(V0) AS S FROM {{}} GROUP BY {group.sql}"
    sql = f"CREATE TABLE O{with_} AS SELECT C, {calls} FROM ({inner.format(group.sql, 'A')}) GROUP BY C"
    rows = f"SELECT * FROM ({_valued('A', keyed=False)}) WHERE {group.reference} IS NOT NULL"
    batch = f"SELECT {group.reference} AS G, count(*) AS C, coalesce(sum(V0), 0) AS S FROM ({rows}) GROUP BY 1"
    reference = f"SELECT FALSE, C, {', '.join(outer)} FROM ({batch}) GROUP BY C"
    return Case((a,), (f"{sql} EMIT CHANGES;",), reference, "TABLE", ("C",), tuple(f"X{i}" for i in range(len(outer))),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def filtered_and_distinct(rng: Random, size: int) -> Case:
    """COUNT(DISTINCT …) and FILTER, over a stream or a table."""
    kind = rng.choice(("STREAM", "STREAM", "TABLE"))
    a = random_source(rng, "A", kind, size=size, formats=("JSON",))
    expressions = Expressions(rng, Names((*a.keys, *a.cols)))
    value_format, key_format, with_ = sink(rng)
    calls = ["COUNT(*) AS N"]
    reference = ["count(*) AS N"]
    for i in range(rng.randint(1, 3)):
        counted = expressions.of(rng.choice(("INT", "STRING", "BIGINT", "BOOLEAN")), 1)
        condition = expressions.predicate()
        sql, batch = rng.choice((("COUNT(DISTINCT {})", "count(DISTINCT {})"), ("COUNT({})", "count({})")))
        keep = rng.random() < 0.6
        calls.append(f"{sql.format(counted.sql)}{f' FILTER (WHERE {condition.sql})' if keep else ''} AS X{i}")
        reference.append(
            f"{batch.format(counted.reference)}{f' FILTER (WHERE {condition.reference})' if keep else ''} AS X{i}"
        )
    rows = _valued("A", keyed=False) if kind == "STREAM" else latest("A", [col.name for col in a.keys])
    sql = f"CREATE TABLE O{with_} AS SELECT V0 AS G, {', '.join(calls)} FROM A GROUP BY V0"
    batch = f"SELECT FALSE, V0, {', '.join(reference)} FROM ({rows}) WHERE V0 IS NOT NULL GROUP BY V0"
    values = ("N", *(f"X{i}" for i in range(len(calls) - 1)))
    return Case((a,), (f"{sql} EMIT CHANGES;",), batch, "TABLE", ("G",), values,
                sink_format=value_format, key_format=key_format, live="N")  # fmt: skip


def distinct(rng: Random, size: int) -> Case:
    a = random_source(rng, "A", "STREAM", size=size, formats=GROUPED)
    value_format, key_format, with_ = sink(rng)
    where = rng.choice(("", " WHERE V0 > 0"))
    sql = f"CREATE TABLE O{with_} AS SELECT DISTINCT V0 AS G, MOD(V0, 2) AS P FROM A{where}"
    batch = f"SELECT DISTINCT FALSE, V0, V0 % 2 FROM ({_valued('A', keyed=False)}){where}"
    return Case((a,), (f"{sql} EMIT CHANGES;",), batch, "TABLE", ("G", "P"), (),
                sink_format=value_format, key_format=key_format)  # fmt: skip


def numbered(rng: Random, size: int) -> Case:
    """The first rows of each partition, or all of them with their numbers."""
    a = random_source(rng, "A", "STREAM", size=size, formats=("JSON",), partitions=rng.choice((1, 1, 3)))
    value_format, key_format, with_ = sink(rng)
    order = f"V0 {rng.choice(('ASC', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}"
    divisor = rng.choice((1, 2, 3))
    group, grouped = f"MOD(V0, {divisor})", f"(V0 % {divisor})"
    bound = rng.choice(("", " WHERE rn <= 1", " WHERE rn <= 2", " WHERE rn < 6", " WHERE rn = 1", " WHERE rn = 2"))
    over = f"PARTITION BY {{}} ORDER BY {order}"
    number = f"ROW_NUMBER() OVER ({over.format(group)}) AS rn"
    ranked = f"SELECT {group} AS G, V0 AS X0, {number} FROM A WHERE V0 IS NOT NULL"
    fixed = " = " in bound  # then the number need not be selected, and is no part of the key
    listed = "G, X0" if fixed else "G, rn, X0"
    sql = f"CREATE TABLE O{with_} AS SELECT {listed} FROM ({ranked}){bound}"
    batch = (
        f"SELECT {grouped} AS G, V0 AS X0, row_number() OVER ({over.format(grouped)}, o) AS rn "
        f"FROM ({_valued('A', keyed=False)}) WHERE V0 IS NOT NULL"
    )
    keys = ("G",) if fixed else ("G", "RN")
    reference = f"SELECT FALSE, {listed} FROM ({batch}){bound}"
    return Case((a,), (f"{sql} EMIT CHANGES;",), reference, "TABLE", keys, ("X0",),
                sink_format=value_format, key_format=key_format, net=not bound)  # fmt: skip


MAKERS = (
    (join_of_streams, 3),
    (join_of_tables, 3),
    (join_by_foreign_key, 2),
    (join_on_any_columns, 2),
    (union, 2),
    (aggregate_of_aggregate, 3),
    (filtered_and_distinct, 3),
    (distinct, 1),
    (numbered, 3),
)


def _pair(rng: Random, size: int, kind: str) -> tuple[SourceSpec, SourceSpec]:
    """Two sources with keys of one type, alike in their partitions."""
    alike: dict[str, Any] = {
        "size": size,
        "partitions": rng.choice((1, 2, 3)),
        "key": Col("K", rng.choice(("STRING", "INT", "BIGINT"))),
        "key_format": rng.choice(("KAFKA", "JSON")),
        "formats": GROUPED,
    }
    return random_source(rng, "A", kind, **alike), random_source(rng, "B", kind, **alike)


def _valued(name: str, *, keyed: bool = True) -> str:
    """The rows of a stream that have a value, and a key."""
    return f"SELECT * FROM {name} WHERE NOT nothing" + (" AND K IS NOT NULL" if keyed else "")
