"""Statements of every shape: FROM, joins, UNION ALL, WHERE, PARTITION BY, GROUP BY, HAVING, DISTINCT and OVER, put into
one another at random, over streams and tables whose rows are deleted, move between groups, and hold NULLs.

A shape is made twice at once, as Millstream's SQL and as DuckDB's over the rows in the end. What ksqlDB can say counts
a SUM of nothing as 0, everything else as NULL (`Shape.beyond`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from .case import latest
from .sources import SourceSpec, with_records
from .values import Col

PARTITIONS = (1, 2, 6)
_DEPTH = 2
_RANGES = (
    "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "1 PRECEDING",
    "BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "BETWEEN 2 PRECEDING AND 1 PRECEDING",
    "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)
_COLUMNS = (Col("E", "STRING"), Col("A", "INT"), Col("B", "INT"))


@dataclass(frozen=True, slots=True)
class Shape:
    """A query, or a source by its name (`is_source`). `key`: columns that a reader has to select."""

    sql: str
    reference: str
    kind: str
    cols: tuple[Col, ...]
    beyond: bool = False
    key: tuple[str, ...] = ()
    is_source: bool = False

    @property
    def relation(self) -> str:
        return self.sql if self.is_source else f"({self.sql})"

    def of_type(self, type_: str) -> list[str]:
        return [col.name for col in self.cols if col.type == type_]


@dataclass(frozen=True, slots=True)
class ShapeCase:
    """`shape`: what the statements write to O together. `selects`: their queries. `count_column`: a row that has 0
    there is none: ksqlDB keeps the groups of a table."""

    sources: tuple[SourceSpec, ...]
    statements: tuple[str, ...]
    selects: tuple[str, ...]
    shape: Shape
    count_column: str | None

    @property
    def text(self) -> str:
        return "\n".join([*(source.statement for source in self.sources), *self.statements])

    @property
    def malformed(self) -> bool:
        """Whether some record cannot be read."""
        return any(record.malformed for source in self.sources for record in source.records)


def random_shape_case(seed: int, size: int = 20) -> ShapeCase:
    rng = Random(seed)
    makes = _Shapes(rng, size)
    shape = makes.query(rng.randint(0, _DEPTH), top=True)
    formats = f"value_format='JSON', partitions={rng.choice(PARTITIONS)}"
    statements, selects = [f"CREATE {shape.kind} O WITH ({formats}) AS {shape.sql} EMIT CHANGES;"], [shape.sql]
    if shape.kind == "STREAM" and rng.random() < 0.2:
        statements.append(f"INSERT INTO O {shape.sql} EMIT CHANGES;")
        selects.append(shape.sql)
        shape = replace(shape, reference=f"{shape.reference} UNION ALL {shape.reference}")
    return ShapeCase(tuple(makes.sources.values()), tuple(statements), tuple(selects), shape, makes.count_column)


class _Shapes:
    """Makes the shapes of one statement, and the sources that they read."""

    def __init__(self, rng: Random, size: int) -> None:
        self._rng = rng
        self._size = size
        self._partitions = rng.choice(PARTITIONS)
        self._names = 0
        self.sources: dict[str, SourceSpec] = {}
        self.count_column: str | None = None

    def query(self, depth: int, *, top: bool = False) -> Shape:
        makers: tuple[tuple[Callable[[int, bool], Shape], int], ...] = (
            (self._projected, 2),
            (self._grouped, 4),
            (self._distinct, 2),
            (self._numbered, 1),
            (self._ranged, 2),
            (self._joined, 3),
            (self._joined_by_key, 1),
            (self._united, 1),
            (self._partitioned, 2 if top else 0),
        )
        maker = self._rng.choices([maker for maker, _ in makers], [weight for _, weight in makers])[0]
        return maker(depth, top)

    # -------------------------------------------------------------- sources

    def _source(self, kind: str | None = None) -> Shape:
        rng = self._rng
        kind = kind or rng.choice(("STREAM", "TABLE", "TABLE"))
        name = f"{'S' if kind == 'STREAM' else 'T'}{rng.randint(0, 1)}"
        if name not in self.sources:
            spec = SourceSpec(name, kind, (Col("K", "STRING"),), _COLUMNS, "JSON", "JSON", self._partitions)
            self.sources[name] = with_records(rng, spec, rng.randint(0, self._size))
        rows = latest(name, ["K"]) if kind == "TABLE" else f"SELECT * FROM {name} WHERE NOT nothing"
        return Shape(name, rows, kind, (Col("K", "STRING"), *_COLUMNS), key=("K",), is_source=True)

    def _from(self, depth: int, kind: str | None = None) -> Shape:
        """What a query reads: a source, or another query."""
        for _ in range(5 if depth else 0):
            made = self.query(depth - 1)
            if kind in (None, made.kind):
                return replace(made, beyond=True, key=())
        return self._source(kind)

    def _name(self) -> str:
        self._names += 1
        return f"C{self._names}"

    def _alias(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def _selected(self, shape: Shape, names: Sequence[str], alias: str) -> tuple[str, tuple[Col, ...]]:
        """A SELECT list, the same in both languages; and the columns that it gives."""
        types = {col.name: col.type for col in shape.cols}
        cols = tuple(Col(self._name(), types[name]) for name in names)
        return ", ".join(f"{alias}.{name} AS {col.name}" for name, col in zip(names, cols, strict=True)), cols

    def _some(self, shape: Shape, count: int) -> list[str]:
        names = [col.name for col in shape.cols]
        return self._rng.sample(names, min(count, len(names)))

    def _where(self, shape: Shape, share: float = 0.4) -> str:
        if self._rng.random() > share:
            return ""
        col = self._rng.choice(shape.cols)
        if self._rng.random() < 0.3:
            return f" WHERE {col.name} IS {self._rng.choice(('', 'NOT '))}NULL"
        value = "'a'" if col.type == "STRING" else "1"
        return f" WHERE {col.name} {self._rng.choice(('=', '<>', '>', '<='))} {value}"

    # -------------------------------------------------------------- queries over one relation

    def _projected(self, depth: int, top: bool) -> Shape:
        read, alias = self._from(depth), self._alias()
        values = [name for name in self._some(read, 3) if name not in read.key] or [read.cols[-1].name]
        listed, cols = self._selected(read, [*read.key, *values], alias)
        where = self._where(read)
        return Shape(
            f"SELECT {listed} FROM {read.relation} {alias}{where}",
            f"SELECT {listed} FROM ({read.reference}) {alias}{where}",
            read.kind,
            cols,
            read.beyond,
            tuple(col.name for col in cols[: len(read.key)]),
        )

    def _partitioned(self, depth: int, top: bool) -> Shape:
        read, alias = self._from(depth, "STREAM"), self._alias()
        names = self._some(read, 3)
        listed, cols = self._selected(read, names, alias)
        by = self._rng.choice((["NULL"], names[:1], names[:2]))
        if len(by) == len(names):  # a projection needs a value
            by = ["NULL"]
        keyed = ", ".join(name if name == "NULL" else f"{alias}.{name}" for name in by)
        where = self._where(read)
        return Shape(
            f"SELECT {listed} FROM {read.relation} {alias}{where} PARTITION BY {keyed}",
            f"SELECT {listed} FROM ({read.reference}) {alias}{where}",
            "STREAM",
            cols,
            read.beyond,
        )

    def _grouped(self, depth: int, top: bool) -> Shape:
        rng = self._rng
        read, alias = self._from(depth), self._alias()
        groups = self._some(read, rng.randint(1, 2))
        listed, cols = self._selected(read, groups, alias)
        numbers = read.of_type("INT") + read.of_type("BIGINT")
        calls, references, made = ["COUNT(*)"], ["count(*)"], [Col(self._name(), "BIGINT")]
        for _ in range(rng.randint(0, 2)):
            any_ = f"{alias}.{rng.choice(read.cols).name}"
            choices = [("COUNT({})", "count({})", any_), ("COUNT(DISTINCT {})", "count(DISTINCT {})", any_)]
            chosen = rng.choice(numbers) if numbers else ""
            if numbers:
                number = f"{alias}.{chosen}"
                nothing = "sum({})" if read.beyond else "coalesce(sum({}), 0)"
                choices += [
                    ("SUM({})", nothing, number),
                    ("MIN({})", "min({})", number),
                    ("MAX({})", "max({})", number),
                ]
            sql, reference, argument = rng.choice(choices)
            calls.append(sql.format(argument))
            references.append(reference.format(argument))
            type_ = "BIGINT" if sql.startswith("COUNT") or chosen in read.of_type("BIGINT") else "INT"
            made.append(Col(self._name(), type_))
        where = self._where(read)
        having = rng.choice(("", "", " HAVING COUNT(*) > 1"))
        by = ", ".join(f"{alias}.{name}" for name in groups)
        known = " AND ".join(f"{alias}.{name} IS NOT NULL" for name in groups)
        sql = ", ".join([listed, *(f"{call} AS {col.name}" for call, col in zip(calls, made, strict=True))])
        batch = ", ".join([listed, *(f"{call} AS {col.name}" for call, col in zip(references, made, strict=True))])
        if top and read.kind == "TABLE" and not read.beyond:
            self.count_column = made[0].name
        return Shape(
            f"SELECT {sql} FROM {read.relation} {alias}{where} GROUP BY {by}{having}",
            f"SELECT {batch} FROM ({read.reference}) {alias}{where or ' WHERE true'} AND {known} GROUP BY {by}{having}",
            "TABLE",
            (*cols, *made),
            read.beyond,
            tuple(col.name for col in cols),
        )

    def _distinct(self, depth: int, top: bool) -> Shape:
        read, alias = self._from(depth), self._alias()
        listed, cols = self._selected(read, self._some(read, self._rng.randint(1, 2)), alias)
        where = self._where(read, 0.2)
        return Shape(
            f"SELECT DISTINCT {listed} FROM {read.relation} {alias}{where}",
            f"SELECT DISTINCT {listed} FROM ({read.reference}) {alias}{where}",
            "TABLE",
            cols,
            True,
        )

    def _numbered(self, depth: int, top: bool) -> Shape:
        """Of each partition the first rows; those that are equal in the order are equal altogether."""
        read, alias = self._from(depth), self._alias()
        by, order = self._some(read, 1)[0], self._some(read, 1)[0]
        names = list(dict.fromkeys((by, order)))
        listed, cols = self._selected(read, names, alias)
        number, inner = self._name(), self._alias()
        over = f"ROW_NUMBER() OVER (PARTITION BY {alias}.{by} ORDER BY {alias}.{order} NULLS LAST) AS {number}"
        shown = ", ".join(f"{inner}.{name}" for name in (*(col.name for col in cols), number))
        bound = f" WHERE {inner}.{number} <= {self._rng.randint(1, 3)}"
        return Shape(
            f"SELECT {shown} FROM (SELECT {listed}, {over} FROM {read.relation} {alias}) {inner}{bound}",
            f"SELECT {shown} FROM (SELECT {listed}, {over} FROM ({read.reference}) {alias}) {inner}{bound}",
            "TABLE",
            (*cols, Col(number, "BIGINT")),
            True,
        )

    def _ranged(self, depth: int, top: bool) -> Shape:
        """What a RANGE frame holds; rows that are equal in the order have equal results."""
        rng = self._rng
        read, alias = self._from(depth), self._alias()
        numbers = read.of_type("INT") + read.of_type("BIGINT")
        if not numbers:
            return self._numbered(depth, top)
        order, summed = rng.choice(numbers), rng.choice(numbers)
        names = list(dict.fromkeys((self._some(read, 1)[0], order, summed)))
        listed, cols = self._selected(read, names, alias)
        made, inner = Col(self._name(), "BIGINT"), self._alias()
        call = rng.choice(("COUNT(*)", f"SUM({alias}.{summed})", f"COUNT(DISTINCT {alias}.{summed})"))
        by = rng.choice(("", f"PARTITION BY {alias}.{names[0]} "))
        ends = rng.choice(_RANGES)
        way = rng.choice(("", " DESC"))
        over = f"OVER ({by}ORDER BY {alias}.{order}{way} NULLS LAST RANGE {ends})"
        shown = ", ".join(f"{inner}.{name}" for name in (*(col.name for col in cols), made.name))
        known = f" WHERE {inner}.{made.name} > 0"
        return Shape(
            f"SELECT {shown} FROM (SELECT {listed}, {call} {over} AS {made.name} FROM {read.relation} {alias}) "
            f"{inner}{known}",
            f"SELECT {shown} FROM (SELECT {listed}, ({call} {over})::BIGINT AS {made.name} FROM ({read.reference}) "
            f"{alias}) {inner}{known}",
            "TABLE",
            (*cols, made),
            True,
        )

    # -------------------------------------------------------------- queries over two relations

    def _joined(self, depth: int, top: bool) -> Shape:
        """On any columns of one type. The right side is a subquery, so that tables can be joined so."""
        left = self._from(depth)
        right = self._from(max(depth - 1, 0), left.kind)
        if right.is_source:
            right = Shape(f"SELECT * FROM {right.sql}", right.reference, right.kind, right.cols, True)
        type_ = self._rng.choice(
            [t for t in ("STRING", "INT", "BIGINT") if left.of_type(t) and right.of_type(t)] or [""]
        )
        if not type_:
            return self._projected(depth, top)
        on = self._rng.choice(left.of_type(type_)), self._rng.choice(right.of_type(type_))
        return self._join(left, right, on, "JOIN", beyond=True)

    def _joined_by_key(self, depth: int, top: bool) -> Shape:
        """As ksqlDB can say it."""
        kind = self._rng.choice(("STREAM", "TABLE"))
        left, right = self._source(kind), self._source(kind)
        if left.sql == right.sql:
            return self._projected(depth, top)
        word = "JOIN" if kind == "STREAM" else self._rng.choice(("JOIN", "LEFT JOIN"))
        return self._join(left, right, ("K", "K"), word, beyond=False)

    def _join(self, left: Shape, right: Shape, on: tuple[str, str], word: str, *, beyond: bool) -> Shape:
        a, b = self._alias(), self._alias()
        mine = [on[0], *(name for name in self._some(left, 1) if name != on[0])]
        theirs = [name for name in self._some(right, 2) if name != on[1]] or [right.cols[-1].name]
        one, cols = self._selected(left, mine, a)
        other, more = self._selected(right, theirs, b)
        within = " WITHIN UNBOUNDED" if left.kind == "STREAM" else ""
        condition = f"ON {a}.{on[0]} = {b}.{on[1]}"
        return Shape(
            f"SELECT {one}, {other} FROM {left.relation} {a} {word} {right.relation} {b}{within} {condition}",
            f"SELECT {one}, {other} FROM ({left.reference}) {a} {word} ({right.reference}) {b} {condition}",
            left.kind,
            (*cols, *more),
            beyond,
            (cols[0].name,),
        )

    def _united(self, depth: int, top: bool) -> Shape:
        read = [self._source("STREAM") for _ in range(2)]
        names = self._some(read[0], 2)
        cols = tuple(Col(self._name(), col.type) for name in names for col in read[0].cols if col.name == name)
        branches = ", ".join(f"{name} AS {col.name}" for name, col in zip(names, cols, strict=True))
        alias = self._alias()
        listed = ", ".join(f"{alias}.{col.name}" for col in cols)
        sql = " UNION ALL ".join(f"SELECT {branches} FROM {source.sql}" for source in read)
        batch = " UNION ALL ".join(f"SELECT {branches} FROM ({source.reference})" for source in read)
        return Shape(
            f"SELECT {listed} FROM ({sql}) {alias}", f"SELECT {listed} FROM ({batch}) {alias}", "STREAM", cols, True
        )
