"""Translates a statement in PostgreSQL's dialect to ours, token by token. So everything that only ksqlDB's dialect can
express stays as it is (windows, EMIT CHANGES), and positions of errors refer to the text that the client sent.

| theirs | ours |
| --- | --- |
| `x::bigint`, `CAST(x AS int8)` | `CAST(x AS BIGINT)` |
| `"user_id"`, `user_id`, for a column USER_ID | `USER_ID` |
| `"userId"`, `userid`, for a column `userId` | `` `userId` `` |
| `"time"`, for an alias of the query | `TIME`, as `time` is |
| `public.t`, `"public"."t"."c"`, `pg_catalog.upper(x)` | `t`, `t.c`, `upper(x)` |
| `E'it\\'s'`, `$$it's$$` | `'it''s'` |
| `$1` | the value's literal |
| `GROUP BY 1`, `GROUP BY alias` | `GROUP BY` what is selected there |
| `SELECT a FROM t GROUP BY a`, without aggregates in ORDER BY | `SELECT DISTINCT a FROM t` |
| `x = ANY($1)`, `x <> ALL($1)` | `x IN (…)`, `x NOT IN (…)`: see `pg_quantified` |
| `(a, b) > (1, 2)` | `(a > 1 OR (a = 1 AND b > 2))`: see `pg_row_values` |
| `x ILIKE 'a%'` | `LCASE(x) LIKE LCASE('a%')` |
| `FETCH FIRST 5 ROWS ONLY` | `LIMIT 5`: see `pg_limits` |
| `length(x)`, `char_length`, `strpos`, … | `LEN(x)`, … |

The alternative was to parse with sqlglot's PostgreSQL dialect: it knows neither windows nor EMIT, and loses positions.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ....planner.catalog import Catalog
from ....sql.functions.aggregation.aggregates import AGGREGATES
from ....sql.functions.catalog import FUNCTIONS
from ....sql.identifiers import RESERVED
from ....sql.nesting import DEPTH_MAX
from ....sql.printing import literal
from ..pg_parameters import WrongParameter
from ..pg_tokens import PgToken, partners
from ..texts.intervals import UNITS, interval_ms
from ..texts.time_texts import date_of, timestamp_of
from .known_names import SCHEMA, KnownNames
from .pg_grouping import GroupedQuery, grouped_query
from .pg_limits import RowRange, row_range
from .pg_quantified import ITEM, Quantified, listed_items, quantified
from .pg_row_values import RowComparison, row_comparison, written_out

_SCHEMAS: Final = (SCHEMA, "pg_catalog")

_TYPES: Final = {
    "bool": "BOOLEAN", "boolean": "BOOLEAN", "int2": "INTEGER", "smallint": "INTEGER", "int4": "INTEGER",
    "int": "INTEGER", "integer": "INTEGER", "int8": "BIGINT", "bigint": "BIGINT", "oid": "BIGINT", "float4": "DOUBLE",
    "float8": "DOUBLE", "real": "DOUBLE", "float": "DOUBLE", "double precision": "DOUBLE", "text": "STRING",
    "varchar": "STRING", "character varying": "STRING", "char": "STRING", "character": "STRING", "bpchar": "STRING",
    "name": "STRING", "uuid": "STRING", "json": "STRING", "jsonb": "STRING", "bytea": "BYTES", "date": "DATE",
    "time": "TIME", "time without time zone": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP",
    "timestamp without time zone": "TIMESTAMP", "timestamp with time zone": "TIMESTAMP",
}  # fmt: skip
_NUMERIC: Final = ("numeric", "decimal")
_LONG_TYPES: Final = (
    ("timestamp", "without", "time", "zone"), ("timestamp", "with", "time", "zone"),
    ("time", "without", "time", "zone"), ("double", "precision"), ("character", "varying"),
)  # fmt: skip
_FUNCTIONS: Final = {
    "LENGTH": "LEN", "CHAR_LENGTH": "LEN", "CHARACTER_LENGTH": "LEN", "STRPOS": "INSTR", "SUBSTR": "SUBSTRING",
    "UPPER": "UCASE", "LOWER": "LCASE", "ARRAY_AGG": "COLLECT_LIST", "POW": "POWER", "RAND": "RANDOM",
    "STDDEV": "STDDEV_SAMPLE", "CEILING": "CEIL",
}  # fmt: skip
_NOW: Final = {
    "CURRENT_TIMESTAMP": "NOW()", "LOCALTIMESTAMP": "NOW()", "CURRENT_DATE": "CAST(NOW() AS DATE)",
    "CURRENT_TIME": "CAST(NOW() AS TIME)", "LOCALTIME": "CAST(NOW() AS TIME)",
}  # fmt: skip
_TIME_FORMATS: Final = (
    "YYYY-MM-DD", "YYYY-MM-DD HH24:MI", "YYYY-MM-DD HH24:MI:SS", "YYYY-MM-DD HH24:MI:SS.US", "YYYY-MM-DD HH24:MI:SS.MS",
)  # fmt: skip
_TIMES: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "||")
_NOT_CALLED: Final = RESERVED | {"ANY", "SOME", "INTERVAL", "OVER", "FILTER", "USING", "OFFSET"}


@dataclass(slots=True)
class RewrittenText:
    """`text`: in our dialect; `place` maps its positions to the client's text."""

    text: str
    _ours: list[int] = field(default_factory=list)  # positions in `text` …
    _theirs: list[int] = field(default_factory=list)  # … and the corresponding positions in the client's text

    def note(self, ours: int, theirs: int) -> None:
        """From this position in `text` on, the client's text continues at this position."""
        self._ours.append(ours)
        self._theirs.append(theirs)

    def place(self, at: int) -> int:
        """In: a position in `text`. Out: the position in the client's text."""
        found = bisect.bisect_right(self._ours, at) - 1
        if found < 0:
            return at
        return self._theirs[found] + at - self._ours[found]


def our_text(
    text: str,
    tokens: Sequence[PgToken],
    catalog: Catalog,
    literals: Mapping[int, str] | None = None,
    databases: Iterable[str] = (),
) -> RewrittenText:
    """In: `tokens` of one statement of `text`; `literals`: the values of `$1`, `$2`, …; `databases`: names that may
    precede the schema's name."""
    return _Rewriting(text, tokens, KnownNames(catalog, tokens), literals or {}, set(databases)).result()


class _Rewriting:
    """State: the replacement of each token, and the text before it."""

    def __init__(
        self, text: str, tokens: Sequence[PgToken], names: KnownNames, literals: Mapping[int, str], databases: set[str]
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._names = names
        self._literals = literals
        self._databases = databases
        self._written: list[str | None] = [None] * len(tokens)
        self._before = [""] * len(tokens)  # the calls that begin before the token, as `CAST(`
        self._behind = [""] * len(tokens)
        self._begins: dict[int, int] = {}  # for a cast's type, by its last token: the first token of its operand
        self._partner = partners(tokens)
        self._closing = {opened: closed for closed, opened in self._partner.items()}
        self._depth = 0  # the depth of nested ANY
        self._in_rows = False  # inside a comparison of rows
        self._last_search = -1  # where the last `x = ANY(column)` begins

    def result(self) -> RewrittenText:
        self._look_at(0, len(self._tokens))
        self._group()
        return self._assembled()

    def _look(self, at: int) -> int:
        token = self._tokens[at]
        if token.text == "::":
            return self._cast(at)
        if token.kind == "parameter":
            number = int(token.text[1:])
            self._written[at] = self._literals.get(number)
        elif token.kind == "string" and token.text[0] != "'":
            self._written[at] = "'" + token.value.replace("'", "''") + "'"
        elif token.upper == "AS" and self._in_cast(at):
            return self._type(at + 1, at)
        elif (found := quantified(self._tokens, at, self._closing)) is not None:
            return self._quantified(found)
        elif token.text == "(" and (compared := self._rows_compared(at)) is not None:
            return self._row_comparison(at, compared)
        elif token.upper == "ILIKE":
            return self._ilike(at)
        elif at and (part := row_range(self._tokens, at)) is not None:
            return self._row_range(at, part)
        elif (value := self._typed_text(at)) is not None:
            return self._time(at, value)
        elif (found := self._interval(at)) is not None:
            return found
        elif token.kind in ("word", "name"):
            return self._name(at)
        return at + 1

    def _name(self, at: int) -> int:
        if self._is_schema(at):
            self._written[at] = self._written[at + 1] = ""
            return at + 2
        token = self._tokens[at]
        if token.upper in _NOW and self._sign(at + 1) not in ("(", ".") and not self._names.is_column(token):
            self._written[at] = _NOW[token.upper]
            return at + 1
        if token.upper in _NOW and token.upper != "CURRENT_DATE" and self._is_precision(at + 1):
            return self._now(at)
        if token.kind == "word" and self._sign(at + 1) == "(" and self._sign(at - 1) != ".":
            if token.upper in ("DATE_PART", "TO_TIMESTAMP", "TO_DATE") and token.upper not in FUNCTIONS:
                return self._call(at)
            found = _FUNCTIONS.get(token.upper)
            if found is not None and token.upper not in FUNCTIONS:
                self._written[at] = found
            return at + 1
        if not (token.kind == "name" and token.text[0] == "`"):
            not_field = self._sign(at - 1) != "->" and self._sign(at + 1) != ":="
            self._written[at] = self._names.meant(token, not_field=not_field)
        return at + 1

    def _is_schema(self, at: int) -> bool:
        """Whether this token precedes the dot of a name: a schema, or a database before a schema."""
        if self._sign(at + 1) != "." or (self._sign(at - 1) == "." and self._written[at - 1] != ""):
            return False
        name = self._tokens[at].named
        if name in _SCHEMAS:
            return True
        after = self._tokens[at + 2].named if at + 2 < len(self._tokens) else None
        return name in self._databases and after in _SCHEMAS and self._sign(at + 3) == "."

    def _named(self, at: int) -> str | None:
        return self._tokens[at].named if 0 <= at < len(self._tokens) else None

    def _sign(self, at: int) -> str:
        inside = 0 <= at < len(self._tokens) and self._tokens[at].kind == "sign"
        return self._tokens[at].text if inside else ""

    # ANY and ALL

    def _quantified(self, found: Quantified) -> int:
        """Translates the inner tokens, and returns the position after the closing parenthesis."""
        if self._depth == DEPTH_MAX:
            return found.word + 1  # our parser refuses it
        kept = range(found.core_first, found.core_end)
        first = self._tokens[found.core_first]
        self._depth += 1
        self._look_at(found.core_first, found.core_end)
        self._depth -= 1
        if found.core_end == found.core_first + 1 and (first.kind in ("parameter", "string") or first.upper == "NULL"):
            written = self._written[found.core_first]
            self._written[found.core_first] = _items(first.text if written is None else written)
        elif first.upper == "ARRAY" and self._sign(found.core_first + 1) == "[":
            self._written[found.core_first] = self._written[found.core_first + 1] = ""
            self._written[found.core_end - 1] = "NULL" if len(kept) == 3 else ""
        elif first.upper != "SELECT":
            return self._searched(found)
        self._written[found.word - 1], self._written[found.word] = "NOT IN" if found.is_all else "IN", ""
        self._leave_out(place for place in range(found.first, found.closing) if place not in kept)
        return found.closing + 1

    def _searched(self, found: Quantified) -> int:
        """`'a' = ANY(tags)`. A nested one stays unchanged, and our parser refuses it: each level writes its operands
        twice, so thirty levels used more than the memory."""
        begin = self._computed_operand(found.word - 2)
        if begin is None or self._last_search >= begin:
            return found.closing + 1
        self._last_search = begin
        value, array = self._text_of(begin, found.word - 1), self._text_of(found.core_first, found.core_end)
        known = f"{array} IS NOT NULL AND" if found.is_all else ""
        self._leave_out(range(begin, found.closing + 1))
        # Not ARRAY_CONTAINS, which wants the type of the elements: a comparison converts, as PostgreSQL does.
        equal = f"FILTER({array}, {ITEM} => {ITEM} IS NOT NULL AND {ITEM} = {value})"
        self._written[begin] = (
            f"({value} IS NOT NULL AND {known} ARRAY_LENGTH({equal}) {'=' if found.is_all else '>'} 0)"
        )
        return found.closing + 1

    def _leave_out(self, places: Iterable[int]) -> None:
        for at in places:
            self._written[at] = self._before[at] = self._behind[at] = ""

    # Comparisons

    def _rows_compared(self, at: int) -> RowComparison | None:
        """None within another one: what is written would double with each level."""
        if self._in_rows or (at and self._is_called(at - 1, ")")):
            return None
        return row_comparison(self._tokens, at, self._closing)

    def _row_comparison(self, at: int, compared: RowComparison) -> int:
        self._in_rows = True
        self._look_at(at + 1, compared.end)
        self._in_rows = False
        left, *rows = [[self._text_of(*value) for value in row] for row in (compared.left, *compared.rows)]
        self._leave_out(range(at, compared.end))
        self._written[at] = written_out(compared.sign, left, rows)
        return compared.end

    def _ilike(self, at: int) -> int:
        """Our parser refuses one whose operands are not found here."""
        is_not = self._tokens[at - 1].upper == "NOT"
        begin = self._computed_operand(at - 2 if is_not else at - 1)
        if begin is None or at + 1 >= len(self._tokens):
            return at + 1
        end = self._look(at + 1)
        while end + 1 < len(self._tokens) and self._sign(end) in ("::", "||"):
            end = self._look(end if self._sign(end) == "::" else end + 1)
        self._written[at] = "LIKE"
        for first, last in ((begin, at - 2 if is_not else at - 1), (at + 1, end - 1)):
            self._before[first] = f"LCASE({self._before[first]}"
            self._behind[last] += ")"
        return end

    def _look_at(self, first: int, end: int) -> None:
        at = first
        while at < end:
            at = self._look(at)

    # A part of the rows

    def _row_range(self, at: int, part: RowRange) -> int:
        for place in (part.limit, part.offset):
            if place is not None:
                self._look(place)
        clauses = [
            f"{name} {self._text_of(place, place + 1)}"
            for name, place in (("LIMIT", part.limit), ("OFFSET", part.offset))
            if place is not None
        ]
        self._leave_out(range(at, part.end))
        self._written[at] = " ".join(["LIMIT 1"] * part.is_one + clauses)
        return part.end

    # Grouping

    def _group(self) -> None:
        query = grouped_query(self._tokens)
        if query is None:
            return
        keys = [self._key(query, *each) for each in query.keys]
        aggregates = any(map(self._is_aggregate, range(query.keys[-1][1], len(self._tokens))))  # in ORDER BY
        selected = {self._text_of(item.first, item.end) for item in query.items}
        if query.is_plain and not aggregates and set(keys) == selected:
            self._written[0] = "SELECT DISTINCT"
            self._leave_out(range(query.group, query.keys[-1][1]))
            return
        for (first, end), text in zip(query.keys, keys, strict=True):
            if end == first + 1:
                self._written[first] = text

    def _is_aggregate(self, at: int) -> bool:
        name = self._written[at] or self._tokens[at].text
        return self._tokens[at].kind == "word" and self._sign(at + 1) == "(" and name.upper() in AGGREGATES

    def _key(self, query: GroupedQuery, first: int, end: int) -> str:
        token = self._tokens[first]
        if end > first + 1:
            return self._text_of(first, end)
        if token.kind == "number" and token.text.isdecimal() and 0 < int(token.text) <= len(query.items):
            item = query.items[int(token.text) - 1]
            return self._text_of(item.first, item.end)
        found = next((item for item in query.items if item.alias is not None and item.alias == token.named), None)
        if found is None or self._names.is_column(token):
            return self._text_of(first, end)
        return self._text_of(found.first, found.end)

    def _text_of(self, first: int, end: int) -> str:
        pieces: list[str] = []
        for at in range(first, end):
            token, written = self._tokens[at], self._written[at]
            pieces.append(" " * (at > first and token.start > self._tokens[at - 1].end) + self._before[at])
            pieces += (token.text if written is None else written, self._behind[at])
        return "".join(pieces)

    def _is_precision(self, at: int) -> bool:
        """Whether `(3)` begins here."""
        inside = self._tokens[at + 1 : at + 2]
        return self._sign(at) == "(" and bool(inside) and inside[0].text.isdecimal() and self._sign(at + 2) == ")"

    def _now(self, at: int) -> int:
        """`CURRENT_TIMESTAMP(0)`: to so many digits of a second, of which we have three."""
        unit = 10 ** max(0, 3 - int(self._tokens[at + 2].text[:2]))
        now = "NOW()" if unit == 1 else f"FROM_UNIXTIME((UNIX_TIMESTAMP() + {unit // 2}) / {unit} * {unit})"
        self._leave_out(range(at, at + 4))
        self._written[at] = _NOW[self._tokens[at].upper].replace("NOW()", now)
        return at + 4

    # Casts

    def _cast(self, at: int) -> int:
        begin = self._operand(at - 1)
        if begin is None:
            return at + 1
        if self._is_json_text(at):
            self._leave_out((at, at + 1))
            return at + 2
        end = self._type(at + 1, at)
        self._before[begin] = f"CAST({self._before[begin]}"
        self._written[at] = f" AS {self._written[at + 1] or ''})" if end > at + 1 else ")"
        if end > at + 1:
            self._written[at + 1] = ""
        self._begins[end - 1] = begin
        return end

    def _typed_text(self, at: int) -> int | None:
        """The text of `timestamp '2020-01-01 10:00:00'`, whose type begins here."""
        if self._tokens[at].upper not in _TIMES or self._sign(at - 1) == "::":
            return None
        _, end = self._type_name(at)
        inside = end < len(self._tokens) and self._tokens[end].kind in ("string", "parameter")
        return end if inside else None

    def _time(self, at: int, value: int) -> int:
        """Makes `CAST('…' AS TIMESTAMP)` of it."""
        self._look(value)
        self._type(at, at - 1)
        type_, self._written[at] = self._written[at], ""
        token, written = self._tokens[value], self._written[value]
        self._written[value] = f"CAST({token.text if written is None else written} AS {type_})"
        return value + 1

    def _interval(self, at: int) -> int | None:
        """Writes `interval '90 min'`, `'90 min'::interval` or `CAST('90 min' AS interval)` with our unit, if one begins
        here."""
        said = [token.upper or token.text for token in self._tokens[at : at + 6]]
        text = self._tokens[at + 1 : at + 2]
        if said[:1] == ["INTERVAL"] and text and text[0].kind == "string":
            if said[2:3] and said[2].removesuffix("S") in UNITS:
                return None
            return self._length(at, at + 1, at + 2)
        if self._tokens[at].kind == "string" and said[1:3] == ["::", "INTERVAL"]:
            return self._length(at, at, at + 3)
        if said[:2] == ["CAST", "("] and said[3:6] == ["AS", "INTERVAL", ")"] and self._tokens[at + 2].kind == "string":
            return self._length(at, at + 2, at + 6)
        return None

    def _length(self, first: int, text: int, end: int) -> int:
        """The sign goes to the operator before it, because ours is above 0."""
        length = interval_ms(self._tokens[text].value)
        self._leave_out(range(first, end))
        if length:
            self._written[first] = f"INTERVAL '{abs(length)}' MILLISECOND"
        if length <= 0 and self._sign(first - 1) in ("+", "-"):
            flipped = "-" if self._sign(first - 1) == "+" else "+"
            self._written[first - 1] = flipped if length else ""
        return end

    def _call(self, at: int) -> int:
        """`date_part('year', x)`, `to_timestamp(seconds)`, and `to_timestamp` and `to_date` of a text in quotes."""
        closing = self._closing.get(at + 1, at + 1)
        commas = [place for place in range(at + 2, closing) if self._sign(place) == ","]
        if [token.kind for token in self._tokens[at + 2 : closing]] == ["string", "sign", "string"]:
            return self._written_time(at, closing)
        if self._tokens[at].upper == "TO_TIMESTAMP" and not commas:
            self._written[at], self._written[closing] = "FROM_UNIXTIME(CAST(", ") * 1000.0 AS BIGINT))"
        elif self._tokens[at].upper == "DATE_PART" and self._tokens[at + 2].kind == "string" and commas == [at + 3]:
            self._written[at : at + 4] = ["EXTRACT", "(", self._tokens[at + 2].value.upper(), " FROM"]
            return at + 4
        return at + 1

    def _written_time(self, at: int, closing: int) -> int:
        """`to_timestamp('2020-01-01 00:00:00', 'YYYY-MM-DD HH24:MI:SS')`. Other formats stay, and there is no such
        function."""
        text, format = self._tokens[at + 2].value, self._tokens[closing - 1].value.upper()
        if self._tokens[at].upper != "DATE_PART" and format.replace("T", " ").replace('"', "") in _TIME_FORMATS:
            try:
                read = date_of if self._tokens[at].upper == "TO_DATE" else timestamp_of
                written = literal(read(text))
            except ValueError as error:
                raise WrongParameter(f"'{text[:100]}' is no time: {error}") from None
            self._leave_out(range(at, closing + 1))
            self._written[at] = written
            return closing + 1
        return at + 1

    def _is_json_text(self, at: int) -> bool:
        """Whether this `::` makes JSON of a text: it is one, and what it becomes depends on its column."""
        return self._tokens[at - 1].kind in ("string", "parameter") and self._named(at + 1) in ("json", "jsonb")

    def _operand(self, at: int) -> int | None:
        """The first token of the operand that ends at this token."""
        if at in self._begins:
            return self._begins[at]
        if at < 0:
            return None
        token = self._tokens[at]
        if token.text in (")", "]") and token.kind == "sign":
            opened = self._partner.get(at)
            if opened is None:
                return None
            before = opened - 1
            if before >= 0 and self._is_called(before, token.text):
                return self._operand(before)
            return opened
        if token.upper == "END":
            return self._case(at)
        while self._sign(at - 1) in (".", "->") and at >= 2:
            found = self._operand(at - 2) if self._tokens[at - 2].kind == "sign" else at - 2
            if found is None:
                return None
            at = found
        return at

    def _computed_operand(self, at: int) -> int | None:
        """The first token of the operand of a comparison, as `-a + b * 2`, that ends at this token."""
        begin = self._operand(at)
        while begin is not None and self._sign(begin - 1) in _ARITHMETIC and begin >= 1:
            begin = self._operand(begin - 2) if self._ends_operand(begin - 2) else begin - 1
        return begin

    def _ends_operand(self, at: int) -> bool:
        """Whether the sign that follows this token has an operand on its left."""
        if at < 0:
            return False
        token = self._tokens[at]
        return token.text in (")", "]") if token.kind == "sign" else token.upper == "END" or token.upper not in RESERVED

    def _is_called(self, at: int, closing: str) -> bool:
        """Whether the token before a bracket belongs to it: the name of a function, or the operand of an index."""
        token = self._tokens[at]
        if token.kind in ("word", "name"):
            return token.upper not in _NOT_CALLED or token.upper == "CAST"
        return closing == "]" and token.text in (")", "]")

    def _case(self, at: int) -> int | None:
        depth = 0
        for place in range(at, -1, -1):
            upper = self._tokens[place].upper
            depth += (upper == "END") - (upper == "CASE")
            if depth == 0:
                return place
        return None

    def _in_cast(self, at: int) -> bool:
        """Whether an AS belongs to CAST( … AS … )."""
        depth = 0
        for place in range(at - 1, 0, -1):
            sign = self._sign(place)
            depth += (sign == ")") - (sign == "(")
            if depth < 0:
                return self._tokens[place - 1].upper in ("CAST", "TRY_CAST")
        return False

    def _type(self, at: int, before: int) -> int:
        """Reads a type, writes our type at its first token, and returns the position after it."""
        first = at
        if self._is_schema(at) and self._tokens[at].named == "pg_catalog":
            self._written[at] = self._written[at + 1] = ""
            at += 2
        if at >= len(self._tokens) or self._tokens[at].named is None:
            return before + 1
        name, end = self._type_name(at)
        digits = ""
        if self._sign(end) == "(":
            closed = self._closing.get(end, end)
            inside = self._text[self._tokens[end].start : self._tokens[closed].end]
            digits, end = inside if "," in inside else inside.replace(")", ", 0)"), closed + 1
        ours = _TYPES.get(name)
        if name in _NUMERIC:
            ours = f"DECIMAL{digits}" if digits else "DECIMAL(38, 10)"
        if ours is None:
            return at  # a type of ours, or an unknown one: our parser decides
        while self._sign(end) == "[" and self._partner.get(end + 1) == end:
            ours, end = f"ARRAY<{ours}>", end + 2
        for place in range(first, end):
            self._written[place] = ""
        self._written[first] = ours
        return end

    def _type_name(self, at: int) -> tuple[str, int]:
        for long in _LONG_TYPES:
            if tuple(token.named for token in self._tokens[at : at + len(long)]) == long:
                return " ".join(long), at + len(long)
        return self._tokens[at].named or "", at + 1

    def _assembled(self) -> RewrittenText:
        pieces: list[str] = []
        size = 0
        result = RewrittenText("")
        at = self._tokens[0].start if self._tokens else 0
        for place, token in enumerate(self._tokens):
            written = self._written[place]
            piece = " " * (token.start > at) + self._before[place]
            size += len(piece)
            result.note(size, token.start)
            own = (token.text if written is None else written) + self._behind[place]
            pieces += (piece, own)
            size += len(own)
            at = token.end
        result.text = "".join(pieces)
        return result


def _items(written: str) -> str:
    found = listed_items(written)
    if found is None:
        raise WrongParameter(f"{written[:100]} is no array", hint="Write one as '{1,2}' or ARRAY[1, 2].")
    return found
