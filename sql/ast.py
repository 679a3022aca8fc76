"""The statements of the language as records. Expressions inside them are sqlglot nodes (see below).

Names are already normalised: unquoted ones in upper case, quoted ones as written. A sqlglot node belongs to the
statement that contains it: copy it before changing it. Every node that the parser makes has its position in the text in
`node.meta["span"]` (read it with `span_of`).

How expressions are written as sqlglot nodes:

| SQL | node |
| --- | --- |
| column, `s.column` | `Column(this=Identifier(name, quoted=True), table=Identifier)` |
| 'text', 12, 1.5, 1e3 | `Literal.string`, `Literal.number` (number text as written) |
| TRUE, NULL | `Boolean`, `Null` |
| any function call, also COUNT(*) | `Anonymous(this="UPPER_NAME", expressions=[…])`; the star is `Star()` |
| the unit in EXTRACT(YEAR FROM d) | `Var`; that of DATEADD(DAYS, 1, d) is a `Column` until it is planned |
| f(x) FILTER (WHERE c), f(DISTINCT x) | the call's `Anonymous` with `filter=c`, `distinct=True` |
| f(x) OVER (…) | `Window(this=Anonymous, partition_by=[…], order=Order of Ordered, spec=WindowSpec)` |
| a->f, a->* | `Dot(this, expression=Identifier(quoted=True))`, `Dot(this, expression=Star())` |
| a[i], m['k'] | `Bracket(this, expressions=[i])` |
| ARRAY[a, b] | `Array(expressions)` |
| MAP(k := v) | `Map(keys=Array, values=Array)` |
| STRUCT(f := v) | `Struct(expressions=[PropertyEQ(this=Identifier, expression=v)])` |
| x => e, (x, y) => e | `Lambda(this=e, expressions=[Identifier, …])`; inside e the variables are `Column`s |
| CAST(e AS t) | `Cast(this=e, to=DataType(UNKNOWN))`, the `SqlType` under `meta["to"]` |
| CASE | `Case(this=operand or None, ifs=[If(this, true)], default)` |
| a + b, -, *, /, %, unary -, a || b | `Add`, `Sub`, `Mul`, `Div`, `Mod`, `Neg`, `DPipe`; parentheses are `Paren` |
| =, <>, <, <=, >, >=, AND, OR, NOT | `EQ`, `NEQ`, `LT`, `LTE`, `GT`, `GTE`, `And`, `Or`, `Not` |
| BETWEEN, IN (…) | `Between(this, low, high)`, `In(this, expressions)`; NOT … is `Not(…)` around |
| LIKE … ESCAPE | `Like`, `Escape(this=Like, expression=Literal)` |
| IS NULL, IS NOT NULL | `Is(this, Null())`, `Not(Is(…))` |
| IS [NOT] DISTINCT FROM | `NullSafeNEQ`, `NullSafeEQ` |
| INTERVAL '10' SECOND | `Interval(this=Literal)` in ms |
| AT TIME ZONE 'z' | `AtTimeZone(this, zone)` |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from millstream.errors import Span

from .types import SqlType

Expression = exp.Expression
Value = str | int | float | bool | None


def span_of(node: exp.Expression) -> Span | None:
    """The position of the expression in the statement's text."""
    return node.meta.get("span")


def unwrapped(node: exp.Expression) -> exp.Expression:
    """The expression without parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def conjuncts(node: exp.Expression) -> Iterator[exp.Expression]:
    """The conditions that AND combines."""
    inner = unwrapped(node)
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.this)
        yield from conjuncts(inner.expression)
    else:
        yield node


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of every record here; `span` is its position in the text of the whole request."""

    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    """Base of all statements; `text` is the statement as written, without the `;`."""

    text: str = field(default="", compare=False)


# ------------------------------------------------------------------ queries


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectColumn(Node):
    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStar(Node):
    """`*` or `source.*`."""

    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStructStar(Node):
    """`expression->*`: every field of a struct."""

    expression: Expression


SelectItem = SelectColumn | SelectStar | SelectStructStar


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceName(Node):
    """A stream or table in FROM; without an alias, `alias` is its name."""

    name: str
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Within(Node):
    """How far the right side may be `before` and `after` the left side, in ms; `unbounded`: without a limit."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None
    unbounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    left: Relation
    right: FromItem
    kind: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    on: Expression
    within: Within | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery(Node):
    """(SELECT …) in FROM; several queries if it is a UNION ALL."""

    queries: tuple[Query, ...]
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFunctionCall(Node):
    """A function of SQL:2016 over the rows of `source`, in FROM: name(TABLE source PARTITION BY …, DESCRIPTOR(…), …).

    `shape`: the order of its arguments, one letter each: k a column of PARTITION BY, d one of DESCRIPTOR, i a duration.
    The planner knows which functions exist and what they mean. `as_clause`: it only replaces WINDOW.
    """

    name: str
    name_span: Span = field(compare=False)
    source: SourceName
    partition_by: tuple[Expression, ...]
    descriptors: tuple[Expression, ...]
    intervals_ms: tuple[int, ...]
    shape: str
    alias: str
    as_clause: bool = False


FromItem = SourceName | Subquery | TableFunctionCall
Relation = FromItem | Join


@dataclass(frozen=True, slots=True, kw_only=True)
class Cte(Node):
    """A named query of WITH."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowExpression(Node):
    """WINDOW …, times in ms. `kind` names a type of `sql/windows/`, which defines the meaning of the sizes."""

    kind: str
    size_ms: int
    advance_ms: int | None = None
    grace_ms: int | None = None
    retention_ms: int | None = None
    timezone: str | None = None  # the zone whose days the windows are


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """SELECT …; a pull query if `emit` is None (inside CREATE … AS, None means CHANGES)."""

    items: tuple[SelectItem, ...]
    source: Relation
    window: WindowExpression | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    qualify: Expression | None = None
    distinct: bool = False  # SELECT DISTINCT
    emit: Literal["CHANGES", "FINAL"] | None = None
    limit: int | None = None
    ctes: tuple[Cte, ...] = ()  # from the WITH before it
    order_by: tuple[exp.Ordered, ...] = ()
    offset: int | None = None


# ------------------------------------------------------------------ DDL and DML


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition(Node):
    """`role` is KEY for KEY and PRIMARY KEY (then `primary` is true), HEADERS for HEADERS and HEADER('k')."""

    name: str
    type: SqlType
    role: Literal["VALUE", "KEY", "HEADERS"] = "VALUE"
    primary: bool = False
    header_key: str | None = None


Properties = dict[str, Value]  # WITH (…): names in upper case; strings, numbers and booleans as Python values


class PlacedProperties(dict[str, Value]):
    """Properties from the parser: `spans` contains the position of each."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: dict[str, Span] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource(Statement):
    """CREATE [OR REPLACE] [SOURCE] STREAM|TABLE name (…) WITH (…)."""

    kind: Literal["STREAM", "TABLE"]
    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False  # CREATE SOURCE …


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAsSelect(Statement):
    """CREATE STREAM|TABLE name WITH (…) AS SELECT …."""

    kind: Literal["STREAM", "TABLE"]
    name: str
    query: Query
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertInto(Statement):
    """INSERT INTO name [WITH (QUERY_ID=…)] SELECT …."""

    target: str
    query: Query
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertValues(Statement):
    """INSERT INTO name [(columns)] VALUES (…), (…); `columns` is empty if none are named."""

    target: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Expression, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows(Statement):
    """DELETE FROM name WHERE …."""

    target: str
    where: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSource(Statement):
    kind: Literal["STREAM", "TABLE"]
    name: str
    if_exists: bool = False
    delete_topic: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn(Node):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn(Node):
    name: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameSource(Node):
    to: str


Alteration = ColumnDefinition | DropColumn | RenameColumn | RenameSource
"""A part of ALTER; a column definition adds a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSource(Statement):
    kind: Literal["STREAM", "TABLE"]
    name: str
    changes: tuple[Alteration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateType(Statement):
    name: str
    type: SqlType
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropType(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParameter(Node):
    """`name` as it was written, because Python distinguishes cases."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """CREATE FUNCTION. `body_start`: where the body begins in the request's text, for positions of errors; None if it
    is not there unchanged (a string with doubled quotes). `state`: of an aggregate."""

    kind: Literal["scalar", "aggregate", "table"]
    name: str
    parameters: tuple[FunctionParameter, ...]
    returns: SqlType
    body: str
    language: str = "PYTHON"
    state: SqlType | None = None
    called_on_null: bool = False
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False
    body_start: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFunction(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFromConnector(Statement):
    """CREATE STREAM|TABLE name FROM CONNECTOR connector TABLE 'table'. `table`: its name in the other system."""

    kind: Literal["STREAM", "TABLE"]
    name: str
    connector: str
    table: str
    properties: Properties = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateConnector(Statement):
    kind: Literal["SOURCE", "SINK"]
    name: str
    properties: Properties = field(default_factory=dict)
    if_not_exists: bool = False
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] = "RUNNING"  # only the REST API says another one


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConnector(Statement):
    name: str
    if_exists: bool = False
    properties: Properties = field(default_factory=dict)  # leftovers='keep', of a connector that was dropped before


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConnector(Statement):
    """ALTER CONNECTOR name WITH (…): sets these settings; other settings stay, or, with `replaces`, are removed. Only
    the REST API can name settings to be `removed`."""

    name: str
    properties: Properties = field(default_factory=dict)
    replaces: bool = False
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConnector(Statement):
    """`task`: RESTART of one task. Only the REST API can ask for STOP or name a task."""

    action: Literal["PAUSE", "RESUME", "RESTART", "STOP"]
    name: str
    task: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resnapshot(Statement):
    """RESNAPSHOT CONNECTOR name [TABLE 'table']; `table`: its name in the other system, None: all."""

    name: str
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMirror(Statement):
    """CREATE MIRROR name FROM 'brokers' TOPICS 'names' WITH (…). `topics`: names, in which * matches any text."""

    name: str
    brokers: str
    topics: tuple[str, ...]
    properties: Properties = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMirror(Statement):
    action: Literal["PAUSE", "RESUME", "PROMOTE", "DROP"]
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSecret(Statement):
    """CREATE SECRET. `values` are in clear text, so neither they nor `text` may be stored, shown or logged."""

    name: str
    values: Properties = field(default_factory=dict, repr=False)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSecret(Statement):
    name: str
    if_exists: bool = False


# ------------------------------------------------------------------ administration


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """LIST|SHOW what [EXTENDED]; `all_topics` for SHOW ALL TOPICS; `connector_kind` for SHOW SOURCE CONNECTORS."""

    what: Literal[
        "STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "CONNECTORS", "CONNECTOR PLUGINS", "TYPES",
        "PROPERTIES", "VARIABLES", "SECRETS", "MIRRORS",
    ]  # fmt: skip
    extended: bool = False
    all_topics: bool = False
    connector_kind: Literal["SOURCE", "SINK"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLineage(Statement):
    """SHOW LINEAGE OF source[.column]."""

    source: str
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowGraph(Statement):
    """SHOW GRAPH [OF stream, table, topic or query] [AS format]."""

    of: str | None = None
    format: Literal["TEXT", "DOT", "SVG"] = "TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE what [name] [EXTENDED]; with `what` STREAMS or TABLES it describes all of them, without a name."""

    what: Literal["SOURCE", "FUNCTION", "CONNECTOR", "MIRROR", "STREAMS", "TABLES"]
    name: str | None = None
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """Exactly one is set, besides `stall`: EXPLAIN STALL, why the query, connector or mirror produces no output."""

    statement: Statement | None = None
    query_id: str | None = None
    stall: bool = False
    connector: str | None = None
    mirror: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintTopic(Statement):
    topic: str
    from_beginning: bool = False
    interval: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlQuery(Statement):
    """TERMINATE, PAUSE, RESUME or RESET; `query_id` None means ALL."""

    action: Literal["TERMINATE", "PAUSE", "RESUME", "RESET"]
    query_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuery(Statement):
    """ALTER QUERY id SET EXECUTOR = '…'."""

    query_id: str
    executor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperty(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperty(Statement):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSystem(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineVariable(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndefineVariable(Statement):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript(Statement):
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTopic(Statement):
    topic: str
    properties: Properties = field(default_factory=dict)
    exists: bool = True
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertSchema(Statement):
    subject: str | None = None
    schema_id: int | None = None
    exists: bool = True
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertValues(Statement):
    """ASSERT VALUES source (…) VALUES (…); with `tombstone`: ASSERT NULL VALUES … KEY (…)."""

    source: str
    columns: tuple[str, ...] = ()
    values: tuple[Expression, ...] = ()
    tombstone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertSource(Statement):
    """ASSERT STREAM|TABLE name (…) WITH (…)."""

    kind: Literal["STREAM", "TABLE"]
    name: str
    columns: tuple[ColumnDefinition, ...] = ()
    properties: Properties = field(default_factory=dict)
