"""Classifies a statement by its first words, and parses the statements that only PostgreSQL has."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import Span, Unsupported

from ...planner.catalog import Catalog
from ...sql.identifiers import RESERVED
from .dialect.known_names import SCHEMA
from .pg_settings import seconds_of
from .pg_tokens import PgToken, parted, pg_tokens, words
from .sqlstates import INSUFFICIENT_PRIVILEGE, INVALID_VALUE, NOT_SUPPORTED, SYNTAX, PgRefused

CATALOG_SCHEMAS: Final = ("pg_catalog", "information_schema")
_OUR_SHOWS: Final = {
    "STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "CONNECTOR", "CONNECTORS", "TYPES", "PROPERTIES",
    "VARIABLES", "SECRETS", "MIRRORS", "LINEAGE", "GRAPH", "SOURCE", "SINK",
}  # fmt: skip
_NEVER: Final = {
    "LISTEN", "NOTIFY", "LOCK", "DO", "CALL", "GRANT", "REVOKE", "VACUUM", "ANALYZE", "CLUSTER", "REINDEX", "PREPARE",
    "EXECUTE", "TRUNCATE", "LOAD", "CHECKPOINT", "MERGE", "UPDATE", "COMMENT", "SECURITY", "IMPORT", "REASSIGN",
}  # fmt: skip
_ROWS: Final = ("SELECT", "WITH", "VALUES", "TABLE", "(")


class PgKind(enum.Enum):
    """`ROWS`: a query of any kind; `OURS`: a statement of ksqlDB's dialect."""

    EMPTY = enum.auto()
    ROWS = enum.auto()
    OURS = enum.auto()
    OUR_ROWS = enum.auto()  # SHOW, DESCRIBE and similar statements, which change nothing
    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    ROLLBACK_TO = enum.auto()
    SAVEPOINT = enum.auto()
    RELEASE = enum.auto()
    SET = enum.auto()
    RESET = enum.auto()
    SHOW = enum.auto()
    DISCARD = enum.auto()
    DEALLOCATE = enum.auto()
    IGNORED = enum.auto()
    DECLARE = enum.auto()
    FETCH = enum.auto()
    MOVE = enum.auto()
    CLOSE = enum.auto()
    COPY = enum.auto()


@dataclass(frozen=True, slots=True)
class PgStatement:
    """One statement; the positions of `tokens` refer to `text`, which may contain other statements."""

    text: str
    tokens: Sequence[PgToken]
    kind: PgKind

    @property
    def parameter_count(self) -> int:
        return max((int(token.text[1:]) for token in self.tokens if token.kind == "parameter"), default=0)

    def after(self, count: int) -> PgStatement:
        """The statement without its first tokens, as a separate statement."""
        rest = self.tokens[count:]
        return PgStatement(self.text, rest, kind_of(rest))


def pg_statements(text: str) -> list[PgStatement]:
    return [PgStatement(text, tokens, kind_of(tokens)) for tokens in parted(pg_tokens(text))]


def kind_of(tokens: Sequence[PgToken]) -> PgKind:
    """Raises `PgRefused` for statements of PostgreSQL that this server will never have."""
    if not tokens:
        return PgKind.EMPTY
    first, second, third = words(tokens, 3)
    if first in _ROWS or tokens[0].text == "(":
        return PgKind.ROWS
    if first in _NEVER:
        raise PgRefused(NOT_SUPPORTED, f"{first} is not a statement of this server")
    match first:
        case "BEGIN" | "START":
            return PgKind.BEGIN
        case "COMMIT" | "END":
            return PgKind.COMMIT
        case "ROLLBACK" | "ABORT":
            return PgKind.ROLLBACK_TO if "TO" in (second, third) else PgKind.ROLLBACK
        case "SAVEPOINT" | "RELEASE":
            return PgKind[first]
        case "SET":
            return PgKind.OURS if len(tokens) > 1 and tokens[1].kind == "string" else PgKind.SET
        case "RESET":
            return PgKind.RESET
        case "SHOW":
            all_topics = second == "ALL" and third == "TOPICS"
            return PgKind.OUR_ROWS if second in _OUR_SHOWS or all_topics else PgKind.SHOW
        case "LIST" | "DESCRIBE" | "EXPLAIN":
            return PgKind.OUR_ROWS
        case "DISCARD" | "DEALLOCATE" | "DECLARE" | "FETCH" | "MOVE" | "CLOSE" | "COPY":
            return PgKind[first]
        case "UNLISTEN":
            return PgKind.IGNORED
        case _:
            return PgKind.OURS


def asks_catalogs(tokens: Sequence[PgToken], catalog: Catalog) -> bool:
    """Whether a query reads only PostgreSQL's catalogs, or nothing at all, but no stream or table of ours."""
    known = {name.upper() for name in catalog.sources}
    named = _tables_named(tokens)
    if any(schema in (None, SCHEMA) and table.upper() in known for schema, table, _ in named):
        return False
    return all(
        called or schema in CATALOG_SCHEMAS or (schema is None and table.startswith("pg_")) or _is_cte(table, tokens)
        for schema, table, called in named
    )


def _is_cte(name: str, tokens: Sequence[PgToken]) -> bool:
    """Whether the tokens contain `name AS [[NOT] MATERIALIZED] (` or `name (…) AS`."""
    for at, token in enumerate(tokens[:-2]):
        if token.named == name and tokens[at + 1].upper == "AS":
            if tokens[at + 2].text == "(" or tokens[at + 2].upper in ("MATERIALIZED", "NOT"):
                return True
        if token.named == name and tokens[at + 1].text == "(" and at and tokens[at - 1].upper in ("WITH", "RECURSIVE"):
            return True
    return False


def _tables_named(tokens: Sequence[PgToken]) -> list[tuple[str | None, str, bool]]:
    """The sources after FROM and JOIN: schema, name, and whether it is called like a function."""
    found: list[tuple[str | None, str, bool]] = []
    for at, token in enumerate(tokens[:-1]):
        is_distinct_from = at > 0 and tokens[at - 1].upper == "DISTINCT"
        if token.upper not in ("FROM", "JOIN", "TABLE") or is_distinct_from or _is_within_call(tokens, at):
            continue
        at += 2 if tokens[at + 1].upper in ("LATERAL", "ONLY") else 1
        while True:
            chain, at = _chain(tokens, at)
            if chain:
                called = at < len(tokens) and tokens[at].text == "("
                found.append((chain[-2] if len(chain) > 1 else None, chain[-1], called))
            at = _after_alias(tokens, at)
            if at >= len(tokens) or tokens[at].text != ",":
                break
            at += 1
    return found


def _after_alias(tokens: Sequence[PgToken], at: int) -> int:
    if at < len(tokens) and tokens[at].upper == "AS":
        at += 1
    if at < len(tokens) and tokens[at].named is not None and tokens[at].upper not in RESERVED:
        at += 1
    return at


def _chain(tokens: Sequence[PgToken], at: int) -> tuple[list[str], int]:
    names: list[str] = []
    while at < len(tokens) and (name := tokens[at].named) is not None and tokens[at].upper not in ("SELECT", "VALUES"):
        names.append(name)
        at += 1
        if at >= len(tokens) or tokens[at].text != ".":
            break
        at += 1
    return names, at


def _is_within_call(tokens: Sequence[PgToken], at: int) -> bool:
    """Whether FROM belongs to a call: EXTRACT(YEAR FROM x), SUBSTRING(x FROM 2), TRIM(BOTH FROM x)."""
    depth = 0
    for place in range(at - 1, 0, -1):
        sign = tokens[place].text if tokens[place].kind == "sign" else ""
        depth += (sign == ")") - (sign == "(")
        if depth < 0:
            return tokens[place - 1].upper in ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY")
    return False


# SET and SHOW


def setting_of(tokens: Sequence[PgToken]) -> tuple[str, str | None] | None:
    """Name and value of SET; its value is None for DEFAULT. None if the setting has no meaning here. Raises
    `PgRefused`."""
    rest = list(tokens[1:])
    if _scope(tokens):
        rest.pop(0)
    head = words(rest, 2)
    if head[0] in ("CHARACTERISTICS", "TRANSACTION", "CONSTRAINTS"):
        return None
    if head[0] in ("ROLE", "AUTHORIZATION"):
        if rest[1:2] and rest[1].text.lower() in ("none", "default"):
            return None
        raise PgRefused(INSUFFICIENT_PRIVILEGE, "changing the user is not supported", hint="Connect as that user.")
    if head == ["TIME", "ZONE"]:
        return "TimeZone", None if words(rest[2:], 1) == ["LOCAL"] else _value(rest[2:])
    if head[0] == "NAMES":
        return "client_encoding", _value(rest[1:])
    name, at = _setting_name(rest)
    if not name or at >= len(rest) or not (rest[at].text == "=" or rest[at].upper == "TO"):
        raise PgRefused(SYNTAX, "SET names a setting and its value", hint="Write SET name = 'value'.")
    return name, _value(rest[at + 1 :])


def is_local(tokens: Sequence[PgToken]) -> bool:
    """Whether SET is for the transaction only."""
    return _scope(tokens) == "LOCAL"


def _scope(tokens: Sequence[PgToken]) -> str:
    """SESSION or LOCAL after SET; empty if neither is there, or if it is the name of a setting."""
    _, scope, _ = words(tokens, 3)
    return scope if scope in ("SESSION", "LOCAL") and len(tokens) > 2 and tokens[2].text not in ("=", ".") else ""


def shown_setting(tokens: Sequence[PgToken]) -> str:
    """The name in SHOW or RESET; several words form one name."""
    name, at = _setting_name(tokens[1:])
    rest = [token.text.lower() for token in tokens[1 + at :]]
    return " ".join([name, *rest])


def _setting_name(tokens: Sequence[PgToken]) -> tuple[str, int]:
    parts: list[str] = []
    at = 0
    while at < len(tokens) and (name := tokens[at].named) is not None:
        parts.append(name)
        at += 1
        if at >= len(tokens) or tokens[at].text != ".":
            break
        at += 1
    return ".".join(parts), at


def _value(tokens: Sequence[PgToken]) -> str | None:
    if len(tokens) == 1 and tokens[0].upper == "DEFAULT":
        return None
    parts = [token.value if token.kind == "string" else token.text for token in tokens]
    return "".join(", " if part == "," else part for part in parts)


def deallocated(tokens: Sequence[PgToken]) -> str | None:
    """The prepared statement of DEALLOCATE [PREPARE] name; None for ALL. Raises `PgRefused`."""
    rest = tokens[2:] if words(tokens, 2)[1] == "PREPARE" and len(tokens) > 2 else tokens[1:]
    name = rest[0].named if len(rest) == 1 else None
    if name is None:
        raise PgRefused(SYNTAX, "DEALLOCATE names a prepared statement", hint="Write DEALLOCATE a, or DEALLOCATE ALL.")
    return None if rest[0].upper == "ALL" else name


# Transactions

_LEVELS: Final = ("SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED")
_CHANGES_NOTHING: Final = ("SET", "UNSET", "DEFINE", "UNDEFINE", "ASSERT", "PRINT")


def transaction_modes(tokens: Sequence[PgToken]) -> dict[str, str]:
    """The settings of BEGIN, START TRANSACTION, SET TRANSACTION and SET SESSION CHARACTERISTICS."""
    said = [token.upper for token in tokens]
    if said[:1] == ["SET"] and said[1:2] != ["TRANSACTION"] and said[1:3] != ["SESSION", "CHARACTERISTICS"]:
        return {}
    default = "default_" if "CHARACTERISTICS" in said else ""
    text = " ".join(said)
    found: dict[str, str] = {}
    if "READ ONLY" in text or "READ WRITE" in text:
        found[f"{default}transaction_read_only"] = "on" if "READ ONLY" in text else "off"
    level = next((level for level in _LEVELS if f"ISOLATION LEVEL {level}" in text), None)
    return found if level is None else {**found, f"{default}transaction_isolation": level.lower()}


def changes_something(statement: PgStatement) -> bool:
    """Whether a read-only transaction refuses it."""
    first = statement.tokens[0].upper if statement.tokens else ""
    if statement.kind is PgKind.COPY:
        return "FROM" in [token.upper for token in _outside(statement.tokens)]
    return statement.kind is PgKind.OURS and first not in _CHANGES_NOTHING


def refused_clause(statement: PgStatement) -> Unsupported | None:
    """The error about a clause that only PostgreSQL has."""
    if words(statement.tokens, 1)[0] not in ("INSERT", "DELETE"):
        return None
    outside = _outside(statement.tokens)
    for token, after in zip(outside, [*outside[1:], None], strict=True):
        clause = {"RETURNING": "RETURNING", "ON": "ON CONFLICT"}.get(token.upper)
        if clause == "RETURNING" or (clause and after is not None and after.upper == "CONFLICT"):
            hint = "Leave it out: the keys are those that the statement gives, and a later row replaces an earlier one."
            span = Span(token.start, token.end)
            return Unsupported(f"{clause} is not supported", span=span, hint=hint, text=statement.text)
    return None


def _outside(tokens: Sequence[PgToken]) -> list[PgToken]:
    """Those that are not in parentheses."""
    depth, found = 0, list[PgToken]()
    for token in tokens:
        sign = token.text if token.kind == "sign" else ""
        depth -= sign == ")"
        if depth == 0:
            found.append(token)
        depth += sign == "("
    return found


# Cursors


@dataclass(frozen=True, slots=True)
class DeclaredCursor:
    name: str
    hold: bool
    query: PgStatement


@dataclass(frozen=True, slots=True)
class FetchAsked:
    """`count`: None: all. `timeout_s`: how long to wait for rows."""

    cursor: str
    count: int | None
    timeout_s: float | None


def declared_cursor(statement: PgStatement) -> DeclaredCursor:
    """Raises `PgRefused`."""
    tokens = statement.tokens
    name = tokens[1].named if len(tokens) > 1 else None
    at = next((at for at, token in enumerate(tokens) if token.upper == "CURSOR"), None)
    begin = next((at for at, token in enumerate(tokens) if token.upper == "FOR"), None)
    if name is None or at is None or begin is None or begin < at:
        raise PgRefused(SYNTAX, "DECLARE names a cursor and its query", hint="Write DECLARE c CURSOR FOR SELECT ….")
    options = [token.upper for token in tokens[2:begin]]
    if "SCROLL" in options and "NO" not in options:
        raise PgRefused(NOT_SUPPORTED, "a cursor moves forward only", hint="Leave SCROLL out.")
    query = statement.after(begin + 1)
    if query.kind is not PgKind.ROWS:
        raise PgRefused(SYNTAX, "a cursor is for a query")
    return DeclaredCursor(name, "HOLD" in options and "WITHOUT" not in options, query)


def fetch_asked(tokens: Sequence[PgToken]) -> FetchAsked:
    """Raises `PgRefused`."""
    end = next((at for at, token in enumerate(tokens) if token.upper == "WITH"), len(tokens))
    timeout_s = _timeout(tokens[end:]) if end < len(tokens) else None
    rest = [token for token in tokens[1:end] if token.upper not in ("FROM", "IN")]
    if not rest or rest[-1].named is None:
        raise PgRefused(SYNTAX, "FETCH names a cursor", hint="Write FETCH 10 FROM c.")
    name = rest[-1].named
    how = [token.text.upper() for token in rest[:-1]]
    if how[:1] == ["FORWARD"]:
        how = how[1:]
    if how in ([], ["NEXT"]):
        return FetchAsked(name, 1, timeout_s)
    if how == ["ALL"]:
        return FetchAsked(name, None, timeout_s)
    if len(how) == 1 and how[0].isdecimal():
        return FetchAsked(name, int(how[0][:18]), timeout_s)
    raise PgRefused(NOT_SUPPORTED, "a cursor moves forward only", hint="Write FETCH 10 FROM c, or FETCH ALL FROM c.")


def _timeout(tokens: Sequence[PgToken]) -> float:
    """Parses WITH (timeout = '1s')."""
    if len(tokens) == 6 and tokens[2].upper == "TIMEOUT" and tokens[3].text == "=":
        found = seconds_of(tokens[4].value if tokens[4].kind == "string" else tokens[4].text)
        if found is not None:
            return found
    raise PgRefused(INVALID_VALUE, "the options of FETCH are not understood", hint="Write WITH (timeout = '1s').")
