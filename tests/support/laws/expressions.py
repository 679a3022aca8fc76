"""Random expressions, each in ksqlDB's SQL and in DuckDB's.

What differs between the two: a comparison with NULL is false, integers are divided without a rest, and a division by
zero is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .values import DUCKDB_TYPES, NUMBERS, Col

_HOLE = re.compile(r"{(\w+)}")
_LITERALS = {
    "INT": ("0", "1", "2", "-3"),
    "BIGINT": ("CAST(1 AS BIGINT)", "CAST(-2 AS BIGINT)"),
    "DOUBLE": ("0.5e0", "-2.0e0"),
    "DECIMAL(9, 2)": ("CAST(0.25 AS DECIMAL(9, 2))", "CAST(-1.50 AS DECIMAL(9, 2))"),
    "STRING": ("'a'", "'A'", "''", "'x''y'", "'7'"),
    "BOOLEAN": ("true", "false"),
}


@dataclass(frozen=True, slots=True)
class Expr:
    """`sql` for Millstream, `reference` for DuckDB. `wild`: it can have extreme values."""

    sql: str
    reference: str
    type: str
    wild: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """The columns that an expression can use, and the prefixes that name their source on either side."""

    cols: Sequence[Col]
    prefix: str = ""
    reference_prefix: str = ""

    def column(self, col: Col) -> Expr:
        return Expr(f"{self.prefix}{col.name}", f'{self.reference_prefix}"{col.name}"', col.type, col.wild)


class Expressions:
    """Makes expressions over some columns (of several sources, in a join)."""

    def __init__(self, rng: Random, *sources: Names) -> None:
        self._rng = rng
        self._columns = [names.column(col) for names in sources for col in names.cols]

    def any(self, depth: int = 2) -> Expr:
        """Of any type; now and then just a column, extreme values and nested types included."""
        if self._rng.random() < 0.35:
            return self._rng.choice(self._columns)
        return self.of(self._rng.choice(("INT", "BIGINT", "DOUBLE", "DECIMAL(9, 2)", "STRING", "BOOLEAN")), depth)

    def column(self, types: Sequence[str]) -> Expr | None:
        found = [column for column in self._columns if column.type in types]
        return self._rng.choice(found) if found else None

    def of(self, type_: str, depth: int = 2) -> Expr:
        if depth <= 0 or self._rng.random() < 0.2:
            return self._leaf(type_)
        if type_ == "BOOLEAN":
            return self.predicate(depth)
        if self._rng.random() < 0.3:
            return self._generic(type_, depth - 1)
        match type_:
            case "INT":
                return self._integer(depth - 1)
            case "BIGINT":
                return self._bigint(depth - 1)
            case "DOUBLE":
                return self._double(depth - 1)
            case "STRING":
                return self._text(depth - 1)
            case _:
                return self._decimal(depth - 1)

    def predicate(self, depth: int = 2) -> Expr:
        """A BOOLEAN that is never NULL, except a bare column or CASE."""
        rng, inner = self._rng, depth - 1
        choice = rng.randrange(9)
        if choice < 3:
            type_ = rng.choice((*NUMBERS, "STRING"))
            a, b = self._maybe_wild(type_, inner), self._maybe_wild(type_, inner)
            sign = rng.choice(("=", "<>", "<", "<=", ">", ">="))
            return _both("({0} {op} {1})", "coalesce({0} {op} {1}, false)", "BOOLEAN", a, b, op=sign)
        if choice == 3 and depth > 0:
            word = rng.choice(("AND", "OR"))
            a, b = self.predicate(inner), self.predicate(inner)
            return _both("({0} {op} {1})", None, "BOOLEAN", a, b, op=word)
        if choice == 4 and depth > 0:
            return _both("(NOT {0})", "(NOT {0})", "BOOLEAN", self.predicate(inner))
        if choice == 5:
            words = rng.choice(("IS NULL", "IS NOT NULL"))
            return _both("({0} {op})", None, "BOOLEAN", rng.choice(self._columns), op=words)
        if choice == 6:
            text = self.of("STRING", inner)
            pattern = rng.choice(("a%", "%b", "_", "%", "a", "%''%"))
            return _both("({0} LIKE '{op}')", "coalesce({0} LIKE '{op}', false)", "BOOLEAN", text, op=pattern)
        if choice == 7:
            x = self.of(rng.choice(("INT", "BIGINT")), inner)
            low, high = sorted((rng.randint(-4, 4), rng.randint(-4, 4)))
            between = f"BETWEEN {low} AND {high}"
            return _both("({0} {op})", "coalesce({0} {op}, false)", "BOOLEAN", x, op=between)
        x = self.of("STRING", inner)
        return _both("({0} IN ('a', 'b', ''))", "coalesce({0} IN ('a', 'b', ''), false)", "BOOLEAN", x)

    def _maybe_wild(self, type_: str, depth: int) -> Expr:
        column = self.column((type_,))
        return column if column is not None and self._rng.random() < 0.5 else self.of(type_, depth)

    def _leaf(self, type_: str) -> Expr:
        reckless = getattr(self._rng, "reckless", False) and not type_.startswith("DECIMAL")
        tame = [column for column in self._columns if column.type == type_ and (reckless or not column.wild)]
        if tame and self._rng.random() < 0.8:
            return self._rng.choice(tame)
        literal = self._rng.choice(_LITERALS[type_])
        return Expr(literal, literal, type_)

    def _generic(self, type_: str, depth: int) -> Expr:
        a, b = self.of(type_, depth), self.of(type_, depth)
        duckdb = DUCKDB_TYPES[type_]
        match self._rng.randrange(5):
            case 0:
                p = self.predicate(depth)
                return _both("CASE WHEN {0} THEN {1} ELSE {2} END", None, type_, p, a, b)
            case 1:
                p, q = self.predicate(depth), self.predicate(depth)
                return _both("CASE WHEN {0} THEN {2} WHEN {1} THEN {3} END", None, type_, p, q, a, b)
            case 2:
                return _both("COALESCE({0}, {1})", None, type_, a, b)
            case 3:
                return _both("IFNULL({0}, {1})", "coalesce({0}, {1})", type_, a, b)
            case _:
                return _both("NULLIF({0}, {1})", f"nullif(({{0}})::{duckdb}, {{1}})", type_, a, b)

    def _integer(self, depth: int) -> Expr:
        rng = self._rng
        choice = rng.randrange(7)
        array = self.column(("ARRAY<INT>", "ARRAY<STRING>"))
        if choice == 0 and array is not None:
            return _both("ARRAY_LENGTH({0})", "len({0})", "INT", array)
        numbers = self.column(("ARRAY<INT>",))
        if choice == 1 and numbers is not None:
            index = rng.choice(("1", "2", "-1"))
            return _both("{0}[{op}]", "list_extract({0}, {op})", "INT", numbers, op=index)
        struct = self.column(("STRUCT<A INT, B STRING>",))
        if choice == 2 and struct is not None:
            return _both("{0}->A", "struct_extract({0}, 'A')", "INT", struct)
        if choice == 3:
            return _both("LEN({0})", "length({0})", "INT", self.of("STRING", depth))
        return self._whole(("INT",), depth)

    def _bigint(self, depth: int) -> Expr:
        if self._rng.random() < 0.3:
            return _both("CAST({0} AS BIGINT)", None, "BIGINT", self.of("INT", depth))
        whole = self._whole(("BIGINT", "INT"), depth)
        return whole if whole.type == "BIGINT" else _both("CAST({0} AS BIGINT)", None, "BIGINT", whole)

    def _whole(self, types: Sequence[str], depth: int) -> Expr:
        a, b = (self.of(self._rng.choice(types), min(depth, 1)) for _ in range(2))
        operation = self._rng.randrange(6)
        if operation < 2 and not getattr(self._rng, "reckless", False):
            # What fails makes the whole expression NULL, whatever stands around it; the reference knows its parts only.
            literal = self._rng.choice(("2", "-3", "7"))
            b = Expr(literal, literal, "INT")
        type_ = "BIGINT" if "BIGINT" in (a.type, b.type) else "INT"
        match operation:
            case 0:
                quotient = "CASE WHEN {1} = 0 THEN NULL ELSE trunc({0}::DOUBLE / {1})::{op} END"
                return _both("({0} / {1})", quotient, type_, a, b, op=DUCKDB_TYPES[type_])
            case 1:
                return _both("({0} % {1})", "({0} % nullif({1}, 0))", type_, a, b)
            case 2:
                return _both("ABS({0})", "abs({0})", a.type, a)
            case _:
                sign = self._rng.choice("+-*")
                return _both("({0} {op} {1})", None, type_, a, b, op=sign)

    def _double(self, depth: int) -> Expr:
        a, b = self.of("DOUBLE", min(depth, 1)), self.of(self._rng.choice(("DOUBLE", "INT", "DECIMAL(9, 2)")), 0)
        if self._rng.random() < 0.25:
            return _both("CAST({0} AS DOUBLE)", None, "DOUBLE", self.of("BIGINT", depth))
        sign = self._rng.choice("+-*")
        return _both("({0} {op} {1})", "({0} {op} ({1})::DOUBLE)", "DOUBLE", a, b, op=sign)

    def _decimal(self, depth: int) -> Expr:
        """Results of arithmetic are wider than DECIMAL(9, 2), so they are leaves of nothing."""
        a = self._leaf("DECIMAL(9, 2)")
        return _both("ABS({0})", "abs({0})", "DECIMAL(9, 2)", a)

    def wide_decimal(self) -> Expr:
        """Arithmetic on decimals; the type is wider than DECIMAL(9, 2)."""
        a, b = self._leaf("DECIMAL(9, 2)"), self._leaf(self._rng.choice(("DECIMAL(9, 2)", "INT")))
        sign = self._rng.choice("+-*")
        return _both("({0} {op} {1})", None, "DECIMAL", a, b, op=sign)

    def _text(self, depth: int) -> Expr:
        rng = self._rng
        choice = rng.randrange(9)
        texts = self.column(("ARRAY<STRING>",))
        if choice == 0 and texts is not None:
            return _both("{0}[1]", "list_extract({0}, 1)", "STRING", texts)
        struct = self.column(("STRUCT<A INT, B STRING>",))
        if choice == 1 and struct is not None:
            return _both("{0}->B", "struct_extract({0}, 'B')", "STRING", struct)
        a = self.of("STRING", depth)
        match choice:
            case 2:
                return _both("UCASE({0})", "upper({0})", "STRING", a)
            case 3:
                return _both("LCASE({0})", "lower({0})", "STRING", a)
            case 4:
                return _both("SUBSTRING({0}, 1, 1)", "substring({0}, 1, 1)", "STRING", a)
            case 5:
                return _both("CAST({0} AS STRING)", "({0})::VARCHAR", "STRING", self.of("BIGINT", depth))
            case 6:
                return _both("REPLACE({0}, 'a', 'bc')", "replace({0}, 'a', 'bc')", "STRING", a)
            case _:
                return _both("({0} + {1})", "({0} || {1})", "STRING", a, self.of("STRING", 0))


def _both(sql: str, reference: str | None, type_: str, *parts: Expr, op: str = "") -> Expr:
    """Fills in the parts at {0}, {1} … and `op` at {op}; without `reference` both languages say it alike."""

    def filled(template: str, texts: list[str]) -> str:
        return _HOLE.sub(lambda hole: op if hole[1] == "op" else texts[int(hole[1])], template)

    used = filled(sql, [part.sql for part in parts])
    return Expr(used, filled(reference or sql, [part.reference for part in parts]), type_)
