"""Random persistent queries, each with the batch query that says what it must come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .case import GROUPED, Case, latest, sink
from .expressions import Expr, Expressions, Names
from .relational import MAKERS as RELATIONAL
from .sources import SourceSpec, random_source
from .values import NESTED, NUMBERS, CaseRandom, Col


@dataclass(slots=True)
class _Select:
    """Columns of a projection as they are collected."""

    sql: list[str] = field(default_factory=list)
    reference: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, expression: Expr, name: str) -> None:
        self.sql.append(f"{expression.sql} AS {name}")
        self.reference.append(f"{expression.reference} AS {name}")
        self.names.append(name)

    def leave_out(self, key: Expr) -> None:
        """A key column is selected once, as such."""
        bare = key.sql.strip("()")
        for i in reversed(range(len(self.sql))):
            if self.sql[i].rpartition(" AS ")[0].strip("()") == bare:
                for columns in (self.sql, self.reference, self.names):
                    del columns[i]


def random_case(seed: int, size: int = 24, *, reckless: bool = False) -> Case:
    """`reckless`: expressions may overflow, so there is no answer to compare with."""
    rng = CaseRandom(seed)
    rng.reckless = reckless
    makers: tuple[tuple[Callable[[Random, int], Case], int], ...] = (
        (_projection, 4),
        (_aggregation, 8),
        (_table_projection, 2),
        (_table_aggregation, 3),
        (_join, 4),
        (_chain_of_streams, 3),
        (_chain_of_tables, 2),
        *RELATIONAL,
    )
    maker = rng.choices([maker for maker, _ in makers], [weight for _, weight in makers])[0]
    return maker(rng, rng.randint(0, size))


# ------------------------------------------------------------------ streams


def _values(rng: Random, expressions: Expressions, count: int, first: int = 0) -> _Select:
    select = _Select()
    for i in range(first, first + count):
        select.add(expressions.wide_decimal() if rng.random() < 0.1 else expressions.any(), f"X{i}")
    return select


def _projection(rng: Random, size: int) -> Case:
    partition_by = rng.random() < 0.35
    source = random_source(rng, "S", "STREAM", size=size, null_values=not partition_by)
    value_format, key_format, with_ = sink(rng)
    names = Names((*source.keys, *source.cols))
    expressions = Expressions(rng, names)
    select = _values(rng, Expressions(rng, Names(source.cols)), rng.randint(1, 3))
    where = expressions.predicate() if rng.random() < 0.6 else None
    keys = [names.column(col) for col in source.keys]
    key_names = [col.name for col in source.keys]
    suffix = ""
    if partition_by:
        key = Expressions(rng, Names(source.cols)).of(rng.choice(("INT", "BIGINT", "STRING")), 1)
        keys, key_names = [key], ["NK"]
        select.leave_out(key)
        if not select.names:
            select.add(names.column(source.keys[0]), "Y")
        suffix = f" PARTITION BY {key.sql}"
    listed = [f"{key.sql} AS {name}" for key, name in zip(keys, key_names, strict=True)]
    sql = f"CREATE STREAM O{with_} AS SELECT {', '.join(listed + select.sql)} FROM S"
    sql += f" WHERE {where.sql}" if where else ""
    reference_keys = [f"{key.reference} AS {name}" for key, name in zip(keys, key_names, strict=True)]
    values = [f"CASE WHEN nothing THEN NULL ELSE {text.rpartition(' AS ')[0]} END" for text in select.reference]
    reference = f"SELECT ts, nothing, {', '.join(reference_keys + values)} FROM S"
    reference += f" WHERE {where.reference} AND NOT nothing" if where else ""
    return Case(
        (source,),
        (f"{sql}{suffix} EMIT CHANGES;",),
        reference,
        "STREAM",
        tuple(key_names),
        tuple(select.names),
        sink_format=value_format,
        key_format=key_format,
    )


@dataclass(frozen=True, slots=True)
class _Window:
    clause: str
    kind: str
    size_ms: int
    advance_ms: int
    grace_ms: int
    needs_order: bool


def _random_window(rng: Random) -> _Window:
    size = rng.choice((1_000, 5_000, 20_000, 3_600_000))
    grace = rng.choice((None, None, 0, 1_000, 30_000))
    text = "" if grace is None else f", GRACE PERIOD {grace // 1000} SECONDS"
    match rng.choice(("TUMBLING", "HOPPING", "SESSION")):
        case "TUMBLING":
            return _Window(
                f"WINDOW TUMBLING (SIZE {size} MILLISECONDS{text})",
                "TUMBLING",
                size,
                size,
                grace or 0,
                grace is not None,
            )
        case "HOPPING":
            advance = size // (parts := rng.choice((2, 4, 5)))
            if parts == 4:
                clause = f"WINDOW CUMULATE (SIZE {size} MILLISECONDS, STEP {advance} MILLISECONDS{text})"
                return _Window(clause, "CUMULATE", size, advance, grace or 0, grace is not None)
            clause = f"WINDOW HOPPING (SIZE {size} MILLISECONDS, ADVANCE BY {advance} MILLISECONDS{text})"
            return _Window(clause, "HOPPING", size, advance, grace or 0, grace is not None)
        case _:
            return _Window(
                f"WINDOW SESSION ({size} MILLISECONDS{text})", "SESSION", size, size, grace or 0, grace is not None
            )


def _aggregation(rng: Random, size: int) -> Case:
    window = _random_window(rng) if rng.random() < 0.6 else None
    final = window is not None and rng.random() < 0.3
    source = random_source(
        rng,
        "S",
        "STREAM",
        size=size,
        partitions=1 if final else None,
        sorted_times=final or (window is not None and window.needs_order),
        formats=GROUPED,
    )
    return _aggregate_of(rng, (source,), (), "S", "SELECT * FROM S", source, window, final)


def _aggregate_of(
    rng: Random,
    sources: tuple[SourceSpec, ...],
    before: tuple[str, ...],
    name: str,
    rows: str,
    source: SourceSpec,
    window: _Window | None,
    final: bool,
) -> Case:
    """An aggregation of the stream `name`, whose rows are `rows` in the reference, with the columns of `source`."""
    value_format, key_format, with_ = sink(rng)
    names = Names((*source.keys, *source.cols))
    expressions = Expressions(rng, names)
    by_key = rng.random() < 0.45
    groups = [names.column(col) for col in source.keys] if by_key else _groups(rng, expressions)
    in_order = source.partitions == 1 or by_key
    where = expressions.predicate() if rng.random() < 0.4 else None
    calls = [
        _call(rng, expressions, in_order=in_order, flat=source.value_format == "DELIMITED")
        for _ in range(rng.randint(1, 3))
    ]
    group_names = [f"G{i}" for i in range(len(groups))]
    select = _Select()
    for i, (call, _) in enumerate(calls):
        select.add(call, f"X{i}")
    having = _having(rng, calls) if rng.random() < 0.3 and not final else None
    listed = [f"{group.sql} AS {g}" for group, g in zip(groups, group_names, strict=True)]
    sql = f"CREATE TABLE O{with_} AS SELECT {', '.join(listed + select.sql)} FROM {name}"
    sql += f" {window.clause}" if window else ""
    sql += f" WHERE {where.sql}" if where else ""
    sql += f" GROUP BY {', '.join(group.sql for group in groups)}"
    sql += f" HAVING {having.sql}" if having else ""
    sql += f" EMIT {'FINAL' if final else 'CHANGES'};"
    conditions = ["NOT nothing", *(f"{group.reference} IS NOT NULL" for group in groups)]
    conditions += [where.reference] if where else []
    inner = ", ".join(f"{group.reference} AS {g}" for group, g in zip(groups, group_names, strict=True))
    kept = f"SELECT *, {inner} FROM ({rows}) WHERE {' AND '.join(conditions)}"
    by = list(group_names)
    if window is not None:
        kept = _windowed(kept, window, group_names)
        by += ["ws", "we"]
    outer = ["FALSE AS nothing", *group_names, *select.reference]
    outer = ["ws", "we", *outer] if window else outer
    reference = f"SELECT {', '.join(outer)} FROM ({kept}) GROUP BY {', '.join(by)}"
    reference += f" HAVING {having.reference}" if having else ""
    if final and window is not None:
        reference = _closed(reference, window, rows if by_key else kept)
    unordered = frozenset(name for name, (_, is_set) in zip(select.names, calls, strict=True) if is_set)
    return Case(
        sources,
        (*before, sql),
        reference,
        "TABLE",
        tuple(group_names),
        tuple(select.names),
        window=window.kind if window else None,
        sink_format=value_format,
        key_format=key_format,
        unordered=unordered,
    )


def _groups(rng: Random, expressions: Expressions) -> list[Expr]:
    groups: list[Expr] = []
    for _ in range(rng.randint(1, 3)):
        group = expressions.of(rng.choice(("INT", "BIGINT", "STRING", "BOOLEAN", "DOUBLE")), 1)
        nested = expressions.column(NESTED)
        if nested is not None and rng.random() < 0.15:
            group = nested
        if group.type == "DOUBLE":  # -0.0 is 0.0 in a key
            group = Expr(group.sql, f"({group.reference} + 0.0::DOUBLE)", "DOUBLE")
        if all(group.sql != other.sql for other in groups):
            groups.append(group)
    return groups


def _windowed(rows: str, window: _Window, keys: Sequence[str]) -> str:
    """The rows with their windows, `ws` and `we`."""
    size, advance = window.size_ms, window.advance_ms
    if window.kind == "SESSION":
        over = f"PARTITION BY {', '.join(keys)} ORDER BY ts, o"
        starts = f"SELECT *, coalesce(ts - lag(ts) OVER ({over}) > {size}, true)::INT AS begins FROM ({rows})"
        numbered = f"SELECT *, sum(begins) OVER ({over}) AS session FROM ({starts})"
        over = f"PARTITION BY {', '.join(keys)}, session"
        return f"SELECT *, min(ts) OVER ({over}) AS ws, max(ts) OVER ({over}) AS we FROM ({numbered})"
    if window.kind == "CUMULATE":
        ends = f"range((ts % {size}) // {advance} + 1, {size // advance}::BIGINT + 1)"
        begun = f"SELECT *, ts // {size} * {size} AS ws FROM ({rows})"
        return f"SELECT *, ws + unnest({ends}) * {advance} AS we FROM ({begun})"
    starts = f"range(0::BIGINT, {size // advance}::BIGINT)"
    exploded = f"SELECT *, (ts // {advance}) * {advance} - unnest({starts}) * {advance} AS ws FROM ({rows})"
    return f"SELECT *, ws + {size} AS we FROM ({exploded}) WHERE ws >= 0"


def _closed(reference: str, window: _Window, moving: str) -> str:
    """Only windows whose end plus grace the time of the rows `moving` has reached; there is one partition."""
    closing = window.grace_ms + (window.size_ms + 1 if window.kind == "SESSION" else 0)
    return f"SELECT * FROM ({reference}) WHERE we + {closing} <= (SELECT max(ts) FROM ({moving}))"


def _call(rng: Random, expressions: Expressions, *, in_order: bool, flat: bool) -> tuple[Expr, bool]:
    """An aggregate, and whether its result is a set. `flat`: what it keeps must fit into the format DELIMITED."""
    number = expressions.of(rng.choice(NUMBERS), 1)
    anything = expressions.any(1)
    choices: list[tuple[str, str, Expr | None, bool]] = [
        ("COUNT(*)", "count(*)", None, False),
        ("COUNT({})", "count({})", anything, False),
        ("SUM({})", "coalesce(sum({}), 0)", number, False),
        ("AVG({})", "coalesce(avg({}), 0)", number, False),
        ("MIN({})", "min({})", number, False),
        ("MAX({})", "max({})", number, False),
    ]
    wild = expressions.column(("INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)", "STRING"))
    if wild is not None:
        choices += [("MIN({})", "min({})", wild, False), ("MAX({})", "max({})", wild, False)]
    if anything.type not in ("DECIMAL",):
        scalar = anything if "<" not in anything.type else number
        choices.append(("COLLECT_SET({})", "list(DISTINCT {})", expressions.of("INT", 1), True))
        choices.append(("COLLECT_LIST({})", "list({} ORDER BY o)", scalar, not in_order))
    if in_order:
        choices += [
            ("LATEST_BY_OFFSET({})", "arg_max({0}, o) FILTER ({0} IS NOT NULL)", anything, False),
            ("EARLIEST_BY_OFFSET({})", "arg_min({0}, o) FILTER ({0} IS NOT NULL)", anything, False),
            ("LATEST_BY_OFFSET({}, false)", "last({} ORDER BY o)", anything, False),
            ("EARLIEST_BY_OFFSET({}, false)", "first({} ORDER BY o)", anything, False),
            ("LATEST_BY_OFFSET({}, 2)", "list({0} ORDER BY o) FILTER ({0} IS NOT NULL)[-2:]", number, False),
        ]
    if flat:
        choices = [choice for choice in choices if choice[0].startswith(("COUNT", "SUM", "MIN", "MAX"))]
    sql, reference, argument, is_set = rng.choice(choices)
    if argument is None:
        return Expr(sql, reference, "BIGINT"), is_set
    if "[-2:]" in reference:
        reference = "coalesce((list({0} ORDER BY o) FILTER ({0} IS NOT NULL))[-2:], [])"
    return Expr(sql.format(argument.sql), reference.format(argument.reference), "ANY"), is_set


def _having(rng: Random, calls: Sequence[tuple[Expr, bool]]) -> Expr:
    del calls
    bound = rng.randint(0, 3)
    sign = rng.choice((">", "<=", "="))
    return Expr(f"COUNT(*) {sign} {bound}", f"count(*) {sign} {bound}", "BOOLEAN")


# ------------------------------------------------------------------ tables


def _table_projection(rng: Random, size: int) -> Case:
    source = random_source(rng, "T", "TABLE", size=size)
    value_format, key_format, with_ = sink(rng)
    expressions = Expressions(rng, Names((*source.keys, *source.cols)))
    select = _values(rng, Expressions(rng, Names(source.cols)), rng.randint(1, 3))
    where = expressions.predicate() if rng.random() < 0.7 else None
    keys = [col.name for col in source.keys]
    sql = f"CREATE TABLE O{with_} AS SELECT {', '.join(keys + select.sql)} FROM T"
    sql += f" WHERE {where.sql}" if where else ""
    reference = f"SELECT nothing, {', '.join(keys + select.reference)} FROM ({latest('T', keys)})"
    reference += f" WHERE {where.reference}" if where else ""
    return Case(
        (source,),
        (f"{sql} EMIT CHANGES;",),
        reference,
        "TABLE",
        tuple(keys),
        tuple(select.names),
        sink_format=value_format,
        key_format=key_format,
    )


def _undoable(rng: Random, expressions: Expressions, *, flat: bool) -> tuple[Expr, bool]:
    number = expressions.of(rng.choice(NUMBERS), 1)
    sql, reference, is_set = rng.choice(
        (
            ("COUNT({})", "count({})", False),
            ("SUM({})", "coalesce(sum({}), 0)", False),
            *(() if flat else (("AVG({})", "coalesce(avg({}), 0)", False), ("COLLECT_LIST({})", "list({0})", True))),
        )
    )
    return Expr(sql.format(number.sql), reference.format(number.reference), "ANY"), is_set


def _table_aggregation(rng: Random, size: int) -> Case:
    """A group that has lost all its rows stays, and counts nothing."""
    source = random_source(rng, "T", "TABLE", size=size, formats=GROUPED)
    value_format, key_format, with_ = sink(rng)
    expressions = Expressions(rng, Names((*source.keys, *source.cols)))
    groups = _groups(rng, expressions)
    group_names = [f"G{i}" for i in range(len(groups))]
    where = expressions.predicate() if rng.random() < 0.4 else None
    calls = [_undoable(rng, expressions, flat=source.value_format == "DELIMITED") for _ in range(rng.randint(1, 3))]
    select = _Select()
    for i, (call, _) in enumerate(calls):
        select.add(call, f"X{i}")
    select.add(Expr("COUNT(*)", "count(*)", "BIGINT"), "N")
    having = "HAVING COUNT(*) > 1" if rng.random() < 0.3 else ""
    listed = [f"{group.sql} AS {g}" for group, g in zip(groups, group_names, strict=True)]
    sql = f"CREATE TABLE O{with_} AS SELECT {', '.join(listed + select.sql)} FROM T"
    sql += f" WHERE {where.sql}" if where else ""
    sql += f" GROUP BY {', '.join(group.sql for group in groups)} {having} EMIT CHANGES;"
    keys = [col.name for col in source.keys]
    conditions = [f"{group.reference} IS NOT NULL" for group in groups] + ([where.reference] if where else [])
    inner = ", ".join(f"{group.reference} AS {g}" for group, g in zip(groups, group_names, strict=True))
    alive = f"SELECT *, {inner} FROM ({latest('T', keys)}) WHERE {' AND '.join(conditions)}"
    outer = ", ".join(["FALSE AS nothing", *group_names, *select.reference])
    reference = f"SELECT {outer} FROM ({alive}) GROUP BY {', '.join(group_names)} {having}"
    return Case(
        (source,),
        (sql,),
        reference,
        "TABLE",
        tuple(group_names),
        tuple(select.names),
        sink_format=value_format,
        key_format=key_format,
        unordered=frozenset(name for name, (_, is_set) in zip(select.names, calls, strict=False) if is_set),
        live="N",
    )


# ------------------------------------------------------------------ joins and chains


def _join(rng: Random, size: int) -> Case:
    """A stream with a table, by the stream's key or by a value column of the key's type."""
    key_format = rng.choice(("KAFKA", "JSON"))
    partitions = rng.choice((1, 2, 3))
    by_value = rng.random() < 0.4
    key = Col("K", "INT" if by_value else rng.choice(("STRING", "INT", "BIGINT")))
    alike: dict[str, Any] = {"size": size, "partitions": partitions, "key": key, "key_format": key_format}
    stream = random_source(rng, "S", "STREAM", **alike, formats=GROUPED)
    table = random_source(rng, "T", "TABLE", **alike, formats=GROUPED)
    value_format, _, with_ = sink(rng, key_format)
    kind = rng.choice(("JOIN", "LEFT JOIN"))
    column = stream.cols[0] if by_value else stream.keys[0]
    left, right = Names(stream.cols, "s.", "s."), Names(table.cols, "t.", "t.")
    expressions = Expressions(rng, left, right)
    select = _values(rng, expressions, rng.randint(1, 2))
    select.leave_out(left.column(column))
    select.add(right.column(rng.choice(table.cols)), "Y")
    where = expressions.predicate() if rng.random() < 0.3 else None
    sql = (
        f"CREATE STREAM O{with_} AS SELECT s.{column.name} AS K, {', '.join(select.sql)} "
        f"FROM S s {kind} T t ON s.{column.name} = t.K"
    )
    sql += f" WHERE {where.sql}" if where else ""
    version = f"(SELECT max(b.o) FROM T b WHERE b.K = a.{column.name} AND b.o < a.o)"
    stream_rows = f"SELECT *, {version} AS met FROM S a WHERE NOT nothing AND {column.name} IS NOT NULL"
    reference = (
        f"SELECT s.ts, FALSE, s.{column.name} AS K, {', '.join(select.reference)} FROM ({stream_rows}) s "
        f"{kind} (SELECT * FROM T WHERE NOT nothing) t ON t.o = s.met"
    )
    reference += f" WHERE {where.reference}" if where else ""
    return Case(
        (stream, table),
        (f"{sql} EMIT CHANGES;",),
        reference,
        "STREAM",
        ("K",),
        tuple(select.names),
        sink_format=value_format,
        key_format=key_format,
    )


def _chain_of_streams(rng: Random, size: int) -> Case:
    """A stream of a stream, which is aggregated or projected then."""
    source = random_source(
        rng, "S", "STREAM", size=size, null_values=False, partitions=rng.choice((1, 1, 2)), formats=GROUPED
    )
    names = Names((*source.keys, *source.cols))
    expressions = Expressions(rng, names)
    middle_format = rng.choice(("JSON", "ARROW"))
    select, cols = _Select(), []
    for i in range(rng.randint(1, 3)):
        expression = Expressions(rng, Names(source.cols)).any()
        select.add(expression, f"V{i}")
        cols.append(Col(f"V{i}", expression.type, expression.wild))
    where = expressions.predicate() if rng.random() < 0.5 else None
    keys = [col.name for col in source.keys]
    with_ = f"WITH (key_format='JSON', value_format='{middle_format}')"
    sql = f"CREATE STREAM M {with_} AS SELECT {', '.join(keys + select.sql)} FROM S"
    sql += f" WHERE {where.sql}" if where else ""
    rows = f"SELECT o, part, ts, nothing, {', '.join(keys + select.reference)} FROM S"
    rows += f" WHERE {where.reference} AND NOT nothing" if where else ""
    middle = SourceSpec("M", "STREAM", source.keys, tuple(cols), "JSON", middle_format, source.partitions)
    window = _random_window(rng) if rng.random() < 0.4 else None
    if window is not None and window.needs_order:
        window = None
    return _aggregate_of(rng, (source,), (f"{sql} EMIT CHANGES;",), "M", rows, middle, window, False)


def _chain_of_tables(rng: Random, size: int) -> Case:
    """A table that counts, and one that counts its rows by their counts."""
    source = random_source(rng, "S", "STREAM", size=size, formats=GROUPED)
    expressions = Expressions(rng, Names((*source.keys, *source.cols)))
    group = expressions.of(rng.choice(("INT", "STRING", "BOOLEAN")), 1)
    middle_format = rng.choice(("JSON", "ARROW"))
    having = rng.random() < 0.4
    first = (
        f"CREATE TABLE M WITH (key_format='JSON', value_format='{middle_format}') AS SELECT {group.sql} AS G, "
        f"COUNT(*) AS C FROM S GROUP BY {group.sql} {'HAVING COUNT(*) < 3' if having else ''} EMIT CHANGES;"
    )
    rows = f"SELECT {group.reference} AS G, count(*) AS C FROM (SELECT * FROM S WHERE NOT nothing) GROUP BY 1"
    rows = f"SELECT * FROM ({rows}) WHERE G IS NOT NULL {'AND C < 3' if having else ''}"
    value_format, key_format, with_ = sink(rng)
    second = f"CREATE TABLE O{with_} AS SELECT C, COUNT(*) AS N FROM M GROUP BY C EMIT CHANGES;"
    return Case(
        (source,),
        (first, second),
        f"SELECT FALSE AS nothing, C, count(*) AS N FROM ({rows}) GROUP BY C",
        "TABLE",
        ("C",),
        ("N",),
        sink_format=value_format,
        key_format=key_format,
        live="N",
    )
