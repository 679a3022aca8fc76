"""Statements that were right once: those of the golden files, of the documentation, of the laws, and made up ones, with
words left out, doubled, exchanged and put in."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

from laws.expressions import Expressions, Names
from laws.queries import random_case
from laws.values import Col
from planning import Planner
from repository import REPOSITORY

from millstream.errors import MillstreamError
from millstream.planner.catalog import Catalog
from millstream.planner.declarations.values import plan_asserted_values, plan_insert_values
from millstream.planner.expressions.user_functions import bound
from millstream.planner.physical import PhysicalPlan
from millstream.planner.planning import PlanningContext
from millstream.planner.pull.deletions import plan_deletion
from millstream.planner.pull.pull_queries import plan_pull
from millstream.sql import ast
from millstream.sql.functions.users.user_functions import UserFunction, UserParameter
from millstream.sql.identifiers import RESERVED
from millstream.sql.parser import parse
from millstream.sql.settings.property_table import PULL_FULL_SQL
from millstream.sql.splitting import split_statements

_TOKENS = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|\$\w*\$|\w+|\s+|--[^\n]*|.", re.DOTALL)
_WORDS = tuple(
    """
    SELECT FROM WHERE GROUP BY HAVING PARTITION EMIT CHANGES FINAL LIMIT WINDOW TUMBLING HOPPING SESSION SIZE
    GRACE PERIOD RETENTION SECONDS ADVANCE JOIN LEFT OUTER INNER FULL ON WITHIN AS CASE WHEN THEN ELSE END AND OR
    NOT NULL IS IN LIKE ESCAPE BETWEEN DISTINCT CAST CREATE STREAM TABLE SOURCE REPLACE IF EXISTS WITH INSERT INTO
    VALUES STRUCT ARRAY MAP DECIMAL INT BIGINT STRING KEY PRIMARY EXPLODE COUNT SUM LATEST_BY_OFFSET ROWTIME
    ROWKEY WINDOWSTART TRANSFORM REDUCE true false _null _seq v0 k0 ( ) , ; . * + - / % = <> < -> => := [ ] { } ||
    'a' '' ' `x` ` " 0 1 -1 1e400 0.1 ${x} é 🎈 99999999999999999999 \u0000 -- /* */ @ # \\ ?
    UNION ALL OVER ORDER ROWS RANGE PRECEDING FOLLOWING UNBOUNDED CURRENT ROW NULLS FIRST LAST ASC DESC QUALIFY FILTER
    EXTRACT YEAR FOR POSITION SUBSTRING INTERVAL '10' SECOND DAY AT TIME ZONE TIMEZONE 'Europe/Berlin' DESCRIPTOR TUMBLE
    HOP window_start window_end OFFSET DELETE FUNCTION AGGREGATE RETURNS LANGUAGE PYTHON CALLED INPUT STATE $$ $a$ TTL
    ROW_NUMBER RANK LAG RIGHT EXPLAIN SHOW DESCRIBE DROP ALTER ASSERT
    """.split()
)
_COLUMNS = (Col("K", "STRING"), Col("V0", "INT"), Col("V1", "STRING"))
_SETUP = """
CREATE STREAM S (K STRING KEY, V0 INT, V1 STRING, V2 ARRAY<INT>, V3 STRUCT<A INT, B STRING>, V4 DECIMAL(9, 2),
  V5 MAP<STRING, INT>, V6 BOOLEAN, V7 TIMESTAMP, V8 BYTES) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE T (K STRING PRIMARY KEY, V0 INT, V1 STRING) WITH (kafka_topic='t', value_format='JSON', partitions=2);
CREATE FUNCTION NET(a INT) RETURNS INT LANGUAGE PYTHON AS $$ a + 1 $$;
CREATE AGGREGATE FUNCTION MEAN(a INT) RETURNS DOUBLE LANGUAGE PYTHON STATE STRUCT<N INT> AS $$ … $$;
"""
_CASES = 300  # of the laws: planning their sources takes time


@dataclass(frozen=True, slots=True)
class Statement:
    """A text, and the sources, functions and topics that it finds."""

    text: str
    catalog: Catalog
    topics: Mapping[str, int]


@dataclass
class AnyPlanner(Planner):
    """Plans whatever has a plan. `plans`: the physical ones so far."""

    made: list[PhysicalPlan] = field(default_factory=list[PhysicalPlan])

    def take(self, statement: ast.Statement) -> None:
        match statement:
            case ast.CreateFunction():
                function = _declared(statement)
                self.catalog = replace(self.catalog, functions={**self.catalog.functions, function.name: function})
                return
            case ast.Explain(statement=ast.Statement() as explained):
                return self.take(explained)
            case _:
                pass
        self._take_bound(bound(statement, self.catalog.functions))

    def _take_bound(self, statement: ast.Statement) -> None:
        context = PlanningContext(self.catalog, self.properties, self.topics, "QUERY")
        match statement:
            case ast.Query(emit=None):
                plan_pull(statement, replace(context, properties={**self.properties, PULL_FULL_SQL.name: "true"}))
                plan_pull(statement, context)
            case ast.CreateSource() | ast.CreateAsSelect() | ast.InsertInto() | ast.Query():
                plan = self.plan(statement)
                self.made += [] if plan is None else [plan]
            case ast.InsertValues():
                plan_insert_values(statement, context)
            case ast.AssertValues():
                plan_asserted_values(statement, context)
            case ast.DeleteRows():
                plan_deletion(statement, context)
            case _:
                pass  # nothing to plan


def _declared(statement: ast.CreateFunction) -> UserFunction:
    return UserFunction(
        statement.name,
        statement.kind,
        tuple(UserParameter(parameter.name, parameter.type) for parameter in statement.parameters),
        statement.returns,
        statement.body,
        statement.state,
    )


def planned(statement: Statement) -> AnyPlanner:
    """Plans the statements of the text. Raises `MillstreamError`."""
    planner = AnyPlanner(statement.catalog, dict(statement.topics))
    for parsed in parse(statement.text, statement.catalog.types):
        planner.take(parsed)
    return planner


def damaged(rng: Random) -> Statement:
    """A statement that was right once."""
    statement = right(rng)
    tokens = _TOKENS.findall(statement.text)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(7):
            case 0:
                del tokens[at : at + rng.randint(1, 3)]
            case 1:
                tokens.insert(at, f" {rng.choice(_WORDS)} ")
            case 2 if tokens:
                tokens[min(at, len(tokens) - 1)] = rng.choice(_WORDS)
            case 3:
                other = _TOKENS.findall(right(rng).text)
                begin = rng.randrange(len(other) + 1)
                tokens[at:at] = [" ", *other[begin : begin + rng.randint(1, 12)], " "]
            case 4 if len(tokens) > 1:
                other_at = rng.randrange(len(tokens))
                at = min(at, len(tokens) - 1)
                tokens[at], tokens[other_at] = tokens[other_at], tokens[at]
            case 5:
                piece = tokens[at : at + rng.randint(1, 6)]
                tokens[at:at] = piece * rng.choice((1, 1, 2, 40))
            case _:
                tokens.insert(at, chr(rng.choice((0, 9, 34, 39, 40, 59, 96, 127, 160, 0x2028, 0x1F388))))
    return replace(statement, text="".join(tokens))


def varied(rng: Random) -> Statement:
    """A statement that was right once, with other names, values and expressions in it, so that it mostly parses."""
    statement = right(rng)
    tokens = _TOKENS.findall(statement.text)
    places = [i for i, token in enumerate(tokens) if not token.isspace()]
    names = [token for token in tokens if token.isidentifier() and token.upper() not in RESERVED]
    for _ in range(rng.randint(1, 4)):
        at = rng.choice(places)
        tokens[at] = _another(tokens[at], names, rng)
    return replace(statement, text="".join(tokens))


def _another(token: str, names: Sequence[str], rng: Random) -> str:
    for alike in _ALIKE:
        if token.upper() in alike:
            return rng.choice(alike)
    if token.isidentifier() and token.upper() not in RESERVED and names:
        return rng.choice((rng.choice(names), rng.choice(names), rng.choice(_SNIPPETS)))
    if token.isdigit() or token.startswith("'"):
        return rng.choice(("0", "1", "7", "3.50", "2e3", "'x'", "''", "'2020-01-01'", "NULL", rng.choice(_SNIPPETS)))
    return token


def right(rng: Random) -> Statement:
    choice = rng.random()
    if choice < 0.55:
        return rng.choice(_written())
    if choice < 0.8:
        return Statement(_query(rng), *_setup())
    if choice < 0.9:
        return Statement(rng.choice(_OTHERS), *_setup())
    return rng.choice(_laws())


_ALIKE = tuple(
    tuple(line.split())
    for line in """
        ASC DESC
        = <> < <= > >=
        + - * / % ||
        AND OR
        LEFT RIGHT INNER FULL
        STREAM TABLE
        CHANGES FINAL
        TUMBLING HOPPING SESSION
        SECOND SECONDS MINUTE MILLISECOND HOURS DAY DAYS
        COUNT SUM AVG MIN MAX COLLECT_LIST COLLECT_SET LATEST_BY_OFFSET TOPK HISTOGRAM NET MEAN EXPLODE
        ROW_NUMBER RANK DENSE_RANK NTILE LAG LEAD FIRST_VALUE LAST_VALUE
        TUMBLE HOP SESSION
        WHERE HAVING QUALIFY
        INT BIGINT DOUBLE STRING BYTES TIMESTAMP DATE BOOLEAN
        JSON AVRO KAFKA DELIMITED PROTOBUF JSON_SR ARROW
        PRECEDING FOLLOWING
        FIRST LAST
        ROWTIME ROWKEY ROWPARTITION ROWOFFSET WINDOWSTART WINDOWEND WINDOW_START
        TRUE FALSE NULL
    """.strip().split("\n")
)


# ------------------------------------------------------------------ where they come from


@cache
def _written() -> tuple[Statement, ...]:
    """The statements of the golden files and of the documentation, those that are refused there too."""
    texts = [file.read_text() for file in sorted((REPOSITORY / "tests" / "planner" / "golden").glob("*.sql"))]
    for page in sorted((REPOSITORY / "docs").glob("*.md")):
        texts.append("\n".join(re.findall(r"^```sql\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)))
    found = [statement for text in texts for statement in _one_after_the_other(text)]
    assert len(found) > 200
    return tuple(found)


def _one_after_the_other(text: str) -> Iterator[Statement]:
    planner = AnyPlanner()
    for one in split_statements(text):
        yield Statement(f"{one};", planner.catalog, dict(planner.topics))
        with contextlib.suppress(MillstreamError):
            for parsed in parse(one):
                planner.take(parsed)


@cache
def _laws() -> tuple[Statement, ...]:
    found: list[Statement] = []
    for seed in range(_CASES):
        case = random_case(seed, 0)
        planner = Planner()
        for source in case.sources:
            list(planner.plans(source.statement))
        found.append(Statement(case.statements[0], planner.catalog, planner.topics))
    return tuple(found)


@cache
def _setup() -> tuple[Catalog, Mapping[str, int]]:
    planner = AnyPlanner()
    for parsed in parse(_SETUP):
        planner.take(parsed)
    return planner.catalog, planner.topics


_SNIPPETS = (
    "STRUCT(A := V0, B := V1)",
    "MAP('a' := V0, V1 := 2)",
    "ARRAY[V0, 1, NULL]",
    "V3->A",
    "V3->*",
    "V2[1]",
    "V5['a']",
    "TRANSFORM(V2, x => x + V0)",
    "REDUCE(V2, 0, (s, x) => CASE WHEN x > 1 THEN s + x ELSE s END)",
    "FILTER(V5, (k, v) => v > 1 AND k <> V1)",
    "CASE V0 WHEN 1 THEN 'a' WHEN 2 THEN V1 END",
    "V1 LIKE 'a!_%' ESCAPE '!'",
    "V1 NOT LIKE '%'",
    "V0 NOT BETWEEN 1 AND V0",
    "V0 NOT IN (1, 2, V0)",
    "V0 IS DISTINCT FROM 3",
    "-V0",
    "V4 * V4 / 3.00",
    "CAST(V1 AS DECIMAL(38, 37))",
    "CAST(V1 AS ARRAY<STRUCT<X INT>>)",
    "V7 > '2020-01-01'",
    "ROWTIME > '2020-01-01T00:00:00'",
    "TIMESTAMPTOSTRING(ROWTIME, 'yyyy')",
    "EXPLODE(V2)",
    "COUNT(*)",
    "SUM(V0 + 1)",
    "TOPK(V0, 3)",
    "COLLECT_LIST(V3)",
    "LATEST_BY_OFFSET(V1, 2, false)",
    "HISTOGRAM(V1)",
    "AS_VALUE(K)",
    "NULL",
    "*",
    "S.*",
    "WINDOWSTART",
    "ROW_NUMBER() OVER (PARTITION BY V0 ORDER BY V1 DESC NULLS FIRST)",
    "SUM(V0) FILTER (WHERE V0 > 1) OVER (PARTITION BY K, V1 ORDER BY ROWTIME ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "LAG(V1, 2, 'none') OVER (ORDER BY V0)",
    "COUNT(*) OVER (ORDER BY ROWTIME RANGE BETWEEN 2 DAYS PRECEDING AND 1 FOLLOWING GRACE PERIOD 1 DAY)",
    "AVG(V0) OVER (ORDER BY V0 DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1.5 FOLLOWING)",
    "RANK() OVER (ORDER BY COUNT(*) DESC)",
    "COUNT(DISTINCT V1) FILTER (WHERE V0 > 1)",
    "EXTRACT(YEAR FROM V7)",
    "SUBSTRING(V1 FROM 2 FOR 3)",
    "POSITION('a' IN V1)",
    "V7 + INTERVAL '2' DAYS",
    "ROWTIME - INTERVAL '90' SECOND",
    "V7 AT TIME ZONE 'Europe/Berlin'",
    "DATE_TRUNC('day', V7)",
    "V0 IN (SELECT V0 FROM S WHERE V1 IS NOT NULL)",
    "EXISTS (SELECT * FROM S o WHERE o.V0 = S.V0)",
    "V0 = (SELECT MAX(o.V0) FROM S o WHERE o.K = S.K)",
    "NET(V0)",
    "MEAN(V0)",
    "V1 || K",
)
_SOURCES = (
    "S",
    "T",
    "S",
    "S JOIN T ON S.K = T.K",
    "S s LEFT JOIN T t ON s.V1 = t.K",
    "S a JOIN S b WITHIN 1 MINUTE GRACE PERIOD 1 SECOND ON a.K = b.K AND a.V0 < b.V0",
    "S a JOIN S b WITHIN UNBOUNDED ON a.K = b.V1 AND a.V0 = b.V0",
    "(SELECT K, V0, V1, V7 FROM S WHERE V6) S",
    "(SELECT V1, COUNT(*) AS V0 FROM S GROUP BY V1) S",
    "(SELECT K, V0, V1 FROM S UNION ALL SELECT V1, V0, K FROM S) S",
    "TABLE(TUMBLE(TABLE S, DESCRIPTOR(V7), INTERVAL '10' SECOND)) S",
    "TABLE(HOP(TABLE S, DESCRIPTOR(V7), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) S",
    "T JOIN (SELECT V0, MAX(V1) AS TOP FROM T GROUP BY V0) m ON T.V0 = m.V0 AND T.V1 = m.TOP",
    "N",
)
_WITH = "WITH N AS (SELECT K, V0, V1 FROM S), M AS (SELECT V1, SUM(V0) AS V0 FROM N GROUP BY V1) "
_WINDOWS = (
    " WINDOW TUMBLING (SIZE 1 SECOND)",
    " WINDOW SESSION (1 MINUTE, GRACE PERIOD 2 MINUTES)",
    " WINDOW TUMBLING (SIZE 1 DAY, TIMEZONE 'Europe/Berlin')",
    " WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES, RETENTION 2 DAYS)",
)
_OTHERS = (
    "INSERT INTO T (K, V0) VALUES ('a', 1), ('b', -2 * 3), (UCASE('c'), NULL);",
    "INSERT INTO S (ROWTIME, K, V2, V3, V5) VALUES (1, 'k', ARRAY[1, 2], STRUCT(A := 1, B := 'b'), MAP('x' := 1));",
    "DELETE FROM T WHERE K IN ('a', 'b') OR V0 > 3 AND V1 LIKE 'x%';",
    (
        "CREATE OR REPLACE FUNCTION F(a INT, b ARRAY<STRUCT<X INT>>) RETURNS MAP<STRING, DOUBLE> LANGUAGE PYTHON "
        "CALLED ON NULL INPUT WITH (VECTORIZED = TRUE) AS $py$\ndef f(a, b):\n    return {'$$': a}\n$py$;"
    ),
    "CREATE AGGREGATE FUNCTION G(x DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON STATE ARRAY<DOUBLE> AS $$ class G: … $$;",
    "CREATE TABLE FUNCTION IF NOT EXISTS H(x STRING) RETURNS STRING LANGUAGE PYTHON AS 'yield ''x''';",
    "DROP FUNCTION IF EXISTS F;",
    "CREATE TABLE D (K STRING PRIMARY KEY, V INT) WITH (kafka_topic='d', format='JSON', partitions=1, TTL='7 DAYS');",
    "CREATE TABLE E WITH (TTL='10 SECONDS', value_format='JSON') AS SELECT V1, COUNT(*) AS N FROM S GROUP BY V1;",
    (
        "CREATE STREAM P (K INT KEY, H BYTES HEADER('h'), A ARRAY<MAP<STRING, DECIMAL(4, 2)>>) WITH (kafka_topic='p', "
        "value_format='AVRO', timestamp='K', partitions=1, retention_ms=10);"
    ),
    "EXPLAIN SELECT V0, COUNT(*) FROM S GROUP BY V0 EMIT CHANGES;",
    "SELECT K, V0 FROM T WHERE K = 'a' OR V0 BETWEEN 1 AND 3 ORDER BY V0 DESC NULLS FIRST, K LIMIT 3 OFFSET 1;",
    "SELECT V1, COUNT(*) AS N FROM T GROUP BY V1 HAVING COUNT(*) > 1 ORDER BY N;",
    "ASSERT VALUES S (K, V0, ROWTIME) VALUES ('a', 1, 2);",
    "ASSERT NULL VALUES T (K) KEY ('a');",
    "ALTER STREAM S ADD COLUMN X INT, ADD Y STRUCT<A INT>;",
    "DESCRIBE S EXTENDED; SHOW ALL TOPICS EXTENDED; PRINT 's' FROM BEGINNING INTERVAL 2 LIMIT 3;",
)


def _query(rng: Random) -> str:
    """Words after words, some of which make sense."""
    expressions = Expressions(rng, Names(_COLUMNS))
    columns = ", ".join(
        expressions.any(3).sql if rng.random() < 0.5 else rng.choice(_SNIPPETS) for _ in range(rng.randint(1, 4))
    )
    emit = rng.choice((" EMIT CHANGES", " EMIT CHANGES LIMIT 3", "", " LIMIT 2", " ORDER BY V0 DESC LIMIT 2 OFFSET 1"))
    condition = expressions.predicate(3).sql if rng.random() < 0.7 else rng.choice(_SNIPPETS)
    where = f" WHERE {condition}" if rng.random() < 0.5 else ""
    by = rng.choice((expressions.any(1).sql, rng.choice(_SNIPPETS), "K", "V0"))
    snippet = rng.choice(_SNIPPETS)
    more = rng.choice((f" PARTITION BY {by}", f" HAVING {snippet} > 1", f" QUALIFY {snippet} = 1"))
    tail = rng.choice(("", "", more))
    group = f" GROUP BY {by}" if rng.random() < 0.4 else ""
    window = rng.choice((*_WINDOWS, "", "", "")) if group else ""
    source = rng.choice(_SOURCES)
    made = rng.choice(("", "", "CREATE STREAM O AS ", "CREATE TABLE O AS ", "INSERT INTO S "))
    named = _WITH if source == "N" or rng.random() < 0.05 else ""
    distinct = "DISTINCT " if rng.random() < 0.1 else ""
    united = f" UNION ALL SELECT {rng.choice(_SNIPPETS)} FROM S" if rng.random() < 0.05 else ""
    return f"{made}{named}SELECT {distinct}{columns} FROM {source}{window}{where}{group}{tail}{united}{emit};"
