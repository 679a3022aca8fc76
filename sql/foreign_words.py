"""Words and signs of other SQL dialects, and their equivalents here: for users of other systems.

An entry is the unexpected word, optionally the previous word or the statement's first word, and the hint. These hints
take precedence over all others: a user who writes one of these words does not mean a keyword with a similar spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .build_types import TYPE_NAMES
from .failure import Failure
from .foreign_names import type_hint
from .identifiers import RESERVED


@dataclass(frozen=True, slots=True)
class _Foreign:
    """`words`: in capitals, or a kind of literal; any if there are none. `before`: the words before it end so, of which
    the parser may have taken the first for a name. `first`: the statement begins with one of these."""

    words: tuple[str, ...]
    hint: str
    before: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


_ROWS_STAY = "Rows are not removed by statement: a record with a NULL value deletes a table's row"
_NO_DATABASES = "There are no databases or schemas: all streams and tables of a server are in one place."
_CREATE_TABLE_AS = "CREATE TABLE … AS SELECT … is what others call a materialized view: it is kept up to date."

_MATCH = (
    "Write LCASE(column) LIKE 'pattern' to leave case aside, and REGEXP_EXTRACT('pattern', column) IS NOT NULL for "
    "regular expressions."
)
_ONE_UNION = "Only UNION ALL puts queries together."
_FIRST_ROWS = "The first rows are written LIMIT 10, at the end."
_FILES = (
    "Files become records by a connector: CREATE SOURCE CONNECTOR name WITH ('connector.class'='file', 'file'='/path', "
    "'format'='csv', 'topic'='name'); and CREATE STREAM over the topic."
)
_EVENT_TIME = (
    "The column with the time is named in WITH (timestamp='column'), and a window says how long it takes late rows: "
    "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 5 SECONDS)."
)
_COMPARISONS = ("=", "<", ">", "<=", ">=", "<>", "!=")

_FOREIGN = (
    _Foreign(("VIEW", "MATERIALIZED"), _CREATE_TABLE_AS + " CREATE STREAM … AS SELECT … is for rows that only come.",
             before=("CREATE", "REPLACE")),
    _Foreign(("DATABASE", "SCHEMA", "USER", "ROLE"), _NO_DATABASES, before=("CREATE", "DROP")),
    _Foreign(("DATABASES", "SCHEMAS", "CATALOGS"), _NO_DATABASES + " SHOW STREAMS; and SHOW TABLES; list them.",
             before=("SHOW", "LIST")),
    _Foreign(("USE",), _NO_DATABASES),
    _Foreign(("INDEX", "UNIQUE"), "There are no indexes: a table is looked up by its PRIMARY KEY.", before=("CREATE",)),
    _Foreign(("TEMPORARY", "TEMP"), "Nothing is temporary: DROP it once it is not needed.", before=("CREATE",)),
    _Foreign(("TOPIC",), "A topic goes with the stream or table on it: DROP STREAM name DELETE TOPIC;",
             before=("DROP", "DELETE")),
    _Foreign(("TOPIC",), "A topic is made with the stream or table on it: CREATE STREAM name (…) "
             "WITH (kafka_topic='name', value_format='JSON', partitions=1);", before=("CREATE",)),
    _Foreign(("TABLE", "STREAM", "TOPIC", "QUERY", "FUNCTION"), "These are listed in the plural, as in SHOW TABLES; "
             "DESCRIBE name; shows one.", before=("SHOW", "LIST")),
    _Foreign(("TRUNCATE",), f"{_ROWS_STAY}. DROP … DELETE TOPIC; and CREATE begin anew."),
    _Foreign(("BEGIN", "COMMIT", "ROLLBACK", "START"), "There are no transactions to begin or end: each statement is "
             "done as a whole or not at all, and each query processes every record exactly once."),
    _Foreign(("GRANT", "REVOKE"), "Rights are given in the configuration, under [access], and by Kafka's ACLs, which "
             "kafka-acls writes."),
    _Foreign(("MODIFY", "ALTER", "CHANGE"), "ALTER can ADD COLUMN name TYPE, DROP COLUMN name, RENAME COLUMN name TO "
             "name and RENAME TO name; for another type drop it and create it anew.", first=("ALTER",)),
    _Foreign(("AUTO_INCREMENT", "AUTOINCREMENT", "IDENTITY", "GENERATED"), "No column numbers itself: who writes the "
             "records gives the key; UUID() makes one up.", first=("CREATE",)),
    _Foreign(("NOT", "NULL", "UNIQUE", "CHECK", "REFERENCES", "CONSTRAINT", "COLLATE"), "Columns have no constraints: "
             "any may be NULL. Filter with WHERE in a CREATE STREAM … AS SELECT.", first=("CREATE",)),
    _Foreign(("DEFAULT",), "Columns have no defaults: write COALESCE(column, value) in the query that reads it.",
             first=("CREATE",)),
    _Foreign((), "Tables have no foreign keys: join them with JOIN … ON.", before=("FOREIGN KEY (",)),
    _Foreign(("ENGINE", "PARTITIONED", "COMMENT", "LOCATION", "STORED"), "What belongs to a stream or table as a whole "
             "stands in WITH (…), such as kafka_topic, value_format, partitions.", first=("CREATE",)),
    _Foreign(("ILIKE", "RLIKE", "REGEXP", "SIMILAR"), _MATCH),
    _Foreign(("STRING_LITERAL", "TO"), _MATCH, before=("ILIKE", "RLIKE", "REGEXP", "SIMILAR")),
    _Foreign(("CHANGE", "UPDATES", "ALL"), "EMIT takes CHANGES (every change) or FINAL (each window once, when it "
             "closes).", before=("EMIT",)),
    _Foreign(("EXCEPT", "EXCLUDE", "REPLACE"), "A star means all columns: for fewer of them write their names.",
             before=("*",)),
    _Foreign(("EXCEPT", "INTERSECT", "MINUS"), _ONE_UNION),
    _Foreign(("SELECT",), _ONE_UNION, before=("EXCEPT", "INTERSECT", "MINUS")),
    _Foreign(("FETCH",), _FIRST_ROWS),
    _Foreign(("FIRST", "NEXT"), _FIRST_ROWS, before=("FETCH",)),
    _Foreign(("ALL",), "GROUP BY wants each column or expression by name.", before=("BY",)),
    _Foreign(("SETS",), "GROUP BY makes one grouping: write a query for each.", before=("GROUPING",)),
    _Foreign(("ALL", "SOME"), "Compare with one value, as in > (SELECT MAX(b) FROM …), or ask whether it is among "
             "them: IN (SELECT b FROM …).", before=_COMPARISONS),
    _Foreign(("VALUES",), "FROM reads streams, tables and queries; INSERT INTO name VALUES (…) writes rows.",
             before=("(",)),
    _Foreign(("BERNOULLI", "SYSTEM", "("), "Some of the rows at random: WHERE RANDOM() < 0.1.",
             before=("TABLESAMPLE",)),
    _Foreign(("SYSTEM_TIME",), "A stream that is joined with a table gets the table's row of its own time by itself: "
             "FROM a_stream s JOIN a_table t ON s.x = t.id.", before=("FOR",)),
    _Foreign(("*",), "Powers are written POWER(base, exponent).", before=("*",)),
    _Foreign(("INTEGER_LITERAL",), "The number of an interval stands in quotes: INTERVAL '1' DAY.",
             before=("INTERVAL",)),
    _Foreign(("USING",), "A join names its condition: JOIN right ON left.a = right.b."),
    _Foreign(("CROSS", "NATURAL"), "A join names its condition: JOIN right ON left.a = right.b."),
    _Foreign(("COPY", "LOAD", "IMPORT"), _FILES),
    _Foreign(("STRING_LITERAL",), _FILES, before=("FROM", "READ_CSV (", "READ_JSON (", "READ_PARQUET ("),
             first=("SELECT", "CREATE", "INSERT", "WITH")),
    _Foreign((), _EVENT_TIME, before=("WATERMARK FOR",)),
    _Foreign(("LIKE", "FROM", "IN", "WHERE"), "All of them are listed. The shell's \\ds and \\dt take a pattern, as in "
             "\\dt per*.", first=("SHOW", "LIST")),
    _Foreign(("SELECT",), "EXPLAIN takes a query or the ID of a running one; EXPLAIN STALL query_id; says what "
             "holds it back.", before=("EXPLAIN ANALYZE", "EXPLAIN VERBOSE", "EXPLAIN EXTENDED")),
    _Foreign(("HELP",), "`help` alone lists the shell's commands; DESCRIBE FUNCTION name; explains a function."),
    _Foreign((), "Write EXPLODE(array) in SELECT: it gives a row for each element.", before=("UNNEST (",)),
)  # fmt: skip


def hint_for_foreign_word(failure: Failure) -> str | None:
    """The hint for the unexpected word, if it belongs to another dialect."""
    if failure.token is None:
        return None
    word = failure.token.upper()
    before = tuple(token.upper() for token in failure.tokens[: failure.position])
    found = {word, failure.kind} if failure.kind.endswith("_LITERAL") else {word}
    for entry in _FOREIGN:
        if entry.words and found.isdisjoint(entry.words):
            continue
        if entry.before and not any(before[-len(end) :] == end for end in map(_words, entry.before)):
            continue
        if entry.first and before[:1] not in map(_words, entry.first):
            continue
        if entry.before or entry.first or not before or word not in _PLAIN_WORDS:
            return entry.hint
    return _hint_for_word_before(failure, before[-1] if before else "", failure.tokens[0].upper())


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PLAIN_WORDS = frozenset(
    {"USE", "TRUNCATE", "COPY", "LOAD", "IMPORT", "HELP", "BEGIN", "COMMIT", "ROLLBACK", "START", "GRANT", "REVOKE"}
)
"""Words that have this meaning only at the start of a statement."""


_NAMES: Final = ["NAME", "NAME"]


def _is_type(failure: Failure) -> bool:
    word = failure.token or ""
    return word.upper() in TYPE_NAMES or type_hint(word) is not None


def _hint_for_word_before(failure: Failure, before: str, first: str) -> str | None:
    """Hints for words that the parser accepted as a name before it failed at the next token."""
    if before == "TOP" and failure.kind == "INTEGER_LITERAL" and failure.position == 2:
        return f"The first rows are written LIMIT {failure.token}, at the end."
    if failure.kind == "AS" and any(token.upper() in ("TRY_CAST", "SAFE_CAST") for token in failure.tokens):
        return "Write CAST(value AS TYPE): what cannot be converted is NULL."
    if before == "INSERT" and first == "INSERT" and failure.position == 1:
        return f"Write INSERT INTO {failure.token}."
    if first == "CREATE" and _is_type(failure) and failure.kinds[-3:] in (["LPAR", *_NAMES], ["COMMA", *_NAMES]):
        name = " ".join(failure.tokens[failure.position - 2 : failure.position])
        return f"A name with a space stands in backticks: `{name}`."
    if before == "AS" and failure.kind in RESERVED - {"SELECT"}:
        return f"{failure.kind} is a reserved word: as a name it stands in backticks, `{failure.kind}`."
    if first in ("SET", "UNSET") and failure.position == 1:
        return (
            "The names of properties, and their values, stand in single quotes: SET 'auto.offset.reset' = 'earliest';"
        )
    if "BETWEEN" in failure.kinds[-3:] and failure.kind != "AND":
        return "Write BETWEEN low AND high; a lower bound alone is written >=."
    if before in ("SIZE", "BY", "WITHIN", "PERIOD", "RETENTION") and failure.kind == "STRING_LITERAL":
        return "A duration is a whole number and a unit, without quotes: 1 MINUTE."
    return None
