"""The grammar's rules for DDL, DML and administration: records of `ast.py`. Each method has its rule's name."""

from __future__ import annotations

from typing import Any, Literal

from lark import Token

from millstream.errors import InvalidStatement, SqlSyntaxError, WrongKeyWord

from . import ast
from .build_functions import FunctionRules
from .nesting import check_number
from .parts import Part, has, items, span_of_all, span_of_piece, statement_text, string_value, token_types
from .tokens import token_span

COLUMNS_MAX = 2_000

_KEYWORDS_OF_SHOW = (
    "STREAMS", "TABLES", "TOPICS", "QUERIES", "FUNCTIONS", "CONNECTORS", "TYPES", "PROPERTIES", "VARIABLES",
    "SECRETS", "MIRRORS",
)  # fmt: skip


_GRAPH_FORMATS = ("TEXT", "DOT", "SVG")


class StatementRules(FunctionRules):
    # -------------------------------------------------------------- CREATE, ALTER, DROP

    def create_source(self, children: list[Any]) -> ast.CreateSource | ast.CreateAsSelect:
        *_, if_not_exists, name, elements, properties, query = children
        kind = _kind(children)
        common: dict[str, Any] = {
            "kind": kind,
            "name": name.name,
            "properties": _source_properties(properties),
            "or_replace": has(children, "REPLACE"),
            "if_not_exists": if_not_exists is not None,
            **_place(children),
        }
        if query is None:
            columns = () if elements is None else elements.value
            _check_key_words(columns, kind)
            return ast.CreateSource(columns=columns, read_only=has(children, "SOURCE"), **common)
        if elements is not None:
            hint = "The columns of CREATE … AS SELECT come from the query: name them there with AS."
            raise SqlSyntaxError("unexpected list of columns before AS SELECT", span=elements.span, hint=hint)
        if has(children, "SOURCE"):
            source = next(child for child in children if isinstance(child, Token) and child.type == "SOURCE")
            hint = (
                f"CREATE {kind} … AS SELECT writes its topic; only CREATE SOURCE {kind} without a query is read-only."
            )
            raise SqlSyntaxError("unexpected SOURCE in CREATE … AS SELECT", span=token_span(source), hint=hint)
        return ast.CreateAsSelect(query=query, **common)

    def create_from_connector(self, children: list[Any]) -> ast.CreateFromConnector:
        *_, if_not_exists, name, _, _, connector, _, table, properties = children
        return ast.CreateFromConnector(
            kind=_kind(children),
            name=name.name,
            connector=connector.name,
            table=string_value(table),
            properties=_source_properties(properties),
            or_replace=has(children, "REPLACE"),
            if_not_exists=if_not_exists is not None,
            **_place(children),
        )

    def create_connector(self, children: list[Any]) -> ast.CreateConnector:
        if_not_exists, name, properties = children[-3:]
        return ast.CreateConnector(
            kind="SOURCE" if has(children, "SOURCE") else "SINK",
            name=name.name,
            properties=_properties(properties),
            if_not_exists=if_not_exists is not None,
            **_place(children),
        )

    def create_mirror(self, children: list[Any]) -> ast.CreateMirror:
        _, _, if_not_exists, name, _, brokers, _, *topics, properties = children
        return ast.CreateMirror(
            name=name.name,
            brokers=string_value(brokers),
            topics=tuple(string_value(each) for each in topics if each.type == "STRING_LITERAL"),
            properties=_properties(properties),
            if_not_exists=if_not_exists is not None,
            **_place(children),
        )

    def create_secret(self, children: list[Any]) -> ast.CreateSecret:
        *_, if_not_exists, name, values = children
        return ast.CreateSecret(
            name=name.name,
            values=_properties(values),
            or_replace=has(children, "REPLACE"),
            if_not_exists=if_not_exists is not None,
            **_place(children),
        )

    def drop_secret(self, children: list[Any]) -> ast.DropSecret:
        return ast.DropSecret(name=children[3].name, if_exists=children[2] is not None, **_place(children))

    def create_type(self, children: list[Any]) -> ast.CreateType:
        _, _, if_not_exists, name, _, declared = children
        return ast.CreateType(
            name=name.name, type=declared.value, if_not_exists=if_not_exists is not None, **_place(children)
        )

    def drop_source(self, children: list[Any]) -> ast.DropSource:
        return ast.DropSource(
            kind=_kind(children),
            name=children[3].name,
            if_exists=children[2] is not None,
            delete_topic=has(children, "DELETE"),
            cascade=has(children, "CASCADE"),
            **_place(children),
        )

    def drop_connector(self, children: list[Any]) -> ast.DropConnector:
        _, _, if_exists, name, properties = children
        return ast.DropConnector(
            name=name.name,
            if_exists=if_exists is not None,
            properties=_properties(properties, upper=True),
            **_place(children),
        )

    def alter_connector(self, children: list[Any]) -> ast.AlterConnector:
        return ast.AlterConnector(name=children[2].name, properties=_properties(children[3]), **_place(children))

    def control_connector(self, children: list[Any]) -> ast.ControlConnector:
        return ast.ControlConnector(action=children[0].type, name=children[2].name, **_place(children))

    def resnapshot(self, children: list[Any]) -> ast.Resnapshot:
        table = string_value(children[4]) if len(children) > 3 else None
        return ast.Resnapshot(name=children[2].name, table=table, **_place(children))

    def drop_mirror(self, children: list[Any]) -> ast.ControlMirror:
        exists = children[2] is not None
        return ast.ControlMirror(action="DROP", name=children[3].name, if_exists=exists, **_place(children))

    def control_mirror(self, children: list[Any]) -> ast.ControlMirror:
        return ast.ControlMirror(action=children[0].type, name=children[2].name, **_place(children))

    def drop_type(self, children: list[Any]) -> ast.DropType:
        return ast.DropType(name=children[3].name, if_exists=children[2] is not None, **_place(children))

    def alter_source(self, children: list[Any]) -> ast.AlterSource:
        name, *changes = items(children)
        return ast.AlterSource(kind=_kind(children), name=name.name, changes=tuple(changes), **_place(children))

    def add_column(self, children: list[Any]) -> ast.ColumnDefinition:
        name, column_type = items(children)
        return ast.ColumnDefinition(name=name.name, type=column_type.value, span=span_of_all(children))

    def drop_column(self, children: list[Any]) -> ast.DropColumn:
        (name,) = items(children)
        return ast.DropColumn(name=name.name, span=span_of_all(children))

    def rename_column(self, children: list[Any]) -> ast.RenameColumn:
        name, to = items(children)
        return ast.RenameColumn(name=name.name, to=to.name, span=span_of_all(children))

    def rename_source(self, children: list[Any]) -> ast.RenameSource:
        (to,) = items(children)
        return ast.RenameSource(to=to.name, span=span_of_all(children))

    # -------------------------------------------------------------- pieces of these

    def if_not_exists(self, children: list[Any]) -> Part | None:
        return Part(True, span_of_all(children)) if children else None

    if_exists = if_not_exists

    def as_query(self, children: list[Any]) -> ast.Query | None:
        return children[1] if children else None

    def elements(self, children: list[Any]) -> Part | None:
        if not children:
            return None
        columns = items(children)
        if len(columns) > COLUMNS_MAX:
            raise SqlSyntaxError(f"more than {COLUMNS_MAX} columns", span=columns[COLUMNS_MAX].span)
        return Part(tuple(columns), span_of_all(children))

    def element(self, children: list[Any]) -> ast.ColumnDefinition:
        name, column_type, constraint = children
        role: dict[str, Any] = {} if constraint is None else constraint.value
        return ast.ColumnDefinition(name=name.name, type=column_type.value, span=span_of_all(children), **role)

    def constraint(self, children: list[Any]) -> Part | None:
        if not children:
            return None
        if has(children, "KEY"):
            role: dict[str, Any] = {"role": "KEY", "primary": has(children, "PRIMARY")}
        else:
            key = string_value(children[2]) if has(children, "HEADER") else None
            role = {"role": "HEADERS", "header_key": key}
        return Part(role, span_of_all(children))

    def with_clause(self, children: list[Any]) -> Part | None:
        return children[0] if children else None

    def secret_values(self, children: list[Any]) -> Part:
        return Part(items(children), span_of_all(children))

    def properties(self, children: list[Any]) -> Part:
        return Part(items(children), span_of_all(children))

    def property(self, children: list[Any]) -> Part:
        name, _, value = children
        written = string_value(name) if isinstance(name, Token) else name.name
        return Part((written, value.value), span_of_all(children))

    def constant(self, children: list[Any]) -> Part:
        """A value in WITH: a string, number, boolean or NULL as a Python value."""
        literal = self.literal([children[-1]])
        check_number(literal)
        token: Token = children[-1]
        value: ast.Value
        match token.type:
            case "STRING_LITERAL":
                value = literal.name
            case "TRUE" | "FALSE":
                value = token.type == "TRUE"
            case "NULL":
                value = None
            case "INTEGER_LITERAL":
                value = int(token)
            case _:
                value = float(token)
        if len(children) == 2:
            assert isinstance(value, int | float)
            value = -value
        return Part(value, span_of_all(children))

    # -------------------------------------------------------------- INSERT

    def insert_select(self, children: list[Any]) -> ast.InsertInto:
        _, _, target, *properties, query = children
        return ast.InsertInto(
            target=target.name,
            query=query,
            properties=_source_properties(properties[0] if properties else None),
            **_place(children),
        )

    def insert_values(self, children: list[Any]) -> ast.InsertValues:
        _, _, target, columns, _, *rest = children
        rows: list[Part] = items(rest)
        for row in rows:
            _check_counts(columns, row)
        values = tuple(row.value for row in rows)
        return ast.InsertValues(target=target.name, columns=_names(columns), rows=values, **_place(children))

    def delete_rows(self, children: list[Any]) -> ast.DeleteRows:
        return ast.DeleteRows(target=children[2].name, where=children[4], **_place(children))

    def columns(self, children: list[Any]) -> Part | None:
        return Part(tuple(name.name for name in items(children)), span_of_all(children)) if children else None

    def values(self, children: list[Any]) -> Part:
        return Part(tuple(items(children)), span_of_all(children))

    # -------------------------------------------------------------- SHOW, DESCRIBE, EXPLAIN, PRINT

    def show(self, children: list[Any]) -> ast.Show:
        if has(children, "PLUGINS"):
            return ast.Show(what="CONNECTOR PLUGINS", **_place(children))
        what: Any = next(word for word in token_types(children) if word in _KEYWORDS_OF_SHOW)
        connector_kind: Literal["SOURCE", "SINK"] | None = None
        if what == "CONNECTORS" and len(children) == 3:
            connector_kind = children[1].type
        return ast.Show(
            what=what,
            extended=has(children, "EXTENDED"),
            all_topics=has(children, "ALL"),
            connector_kind=connector_kind,
            **_place(children),
        )

    def show_lineage(self, children: list[Any]) -> ast.ShowLineage:
        source, *column = items(children)
        return ast.ShowLineage(source=source.name, column=column[0].name if column else None, **_place(children))

    def show_graph(self, children: list[Any]) -> ast.ShowGraph:
        *_, of, written = children
        form: Any = "TEXT" if written is None else written.name
        if written is not None and form not in _GRAPH_FORMATS:
            hint = f"There are {', '.join(_GRAPH_FORMATS)}."
            raise SqlSyntaxError(f"{form} is no format of a graph", span=span_of_piece(written), hint=hint)
        return ast.ShowGraph(of=None if of is None else of.value, format=form, **_place(children))

    def graph_of(self, children: list[Any]) -> Part | None:
        return children[1] if children else None

    def graph_format(self, children: list[Any]) -> Any:
        return children[1] if children else None

    def describe(self, children: list[Any]) -> ast.Describe:
        what: Any = next((word for word in list(token_types(children))[1:] if word != "EXTENDED"), "SOURCE")
        name = next((piece.name for piece in items(children)), None)
        return ast.Describe(what=what, name=name, extended=has(children, "EXTENDED"), **_place(children))

    def explain(self, children: list[Any]) -> ast.Explain:
        explained = children[-1]
        if has(children, "MIRROR"):
            return ast.Explain(mirror=explained.name, stall=True, **_place(children))
        if has(children, "CONNECTOR"):
            return ast.Explain(connector=explained.name, stall=True, **_place(children))
        if isinstance(explained, Part):
            return ast.Explain(query_id=explained.value, stall=has(children, "STALL"), **_place(children))
        return ast.Explain(statement=explained, **_place(children))

    def print_topic(self, children: list[Any]) -> ast.PrintTopic:
        _, topic, from_beginning, interval, limit = children
        if limit is not None and limit.value < 0:
            raise InvalidStatement("the LIMIT of PRINT is negative", span=limit.span, hint="Count the lines from 0.")
        return ast.PrintTopic(
            topic=topic.value,
            from_beginning=from_beginning is not None,
            interval=None if interval is None else interval.value,
            limit=None if limit is None else limit.value,
            **_place(children),
        )

    def from_beginning(self, children: list[Any]) -> Part | None:
        return Part(True, span_of_all(children)) if children else None

    # -------------------------------------------------------------- queries that run, properties, variables

    def control_query(self, children: list[Any]) -> ast.ControlQuery:
        query_id = None if has(children, "ALL") else children[1].value
        return ast.ControlQuery(action=children[0].type, query_id=query_id, **_place(children))

    def alter_query(self, children: list[Any]) -> ast.AlterQuery:
        query_id, executor = children[2].value, string_value(children[6])
        return ast.AlterQuery(query_id=query_id, executor=executor, **_place(children))

    def set_property(self, children: list[Any]) -> ast.SetProperty:
        return ast.SetProperty(name=string_value(children[1]), value=string_value(children[3]), **_place(children))

    def unset_property(self, children: list[Any]) -> ast.UnsetProperty:
        return ast.UnsetProperty(name=string_value(children[1]), **_place(children))

    def alter_system(self, children: list[Any]) -> ast.AlterSystem:
        return ast.AlterSystem(name=string_value(children[2]), value=string_value(children[4]), **_place(children))

    def define_variable(self, children: list[Any]) -> ast.DefineVariable:
        """The variable keeps its case; `substitute_variables` ignores case."""
        return ast.DefineVariable(name=str(children[1]), value=string_value(children[3]), **_place(children))

    def undefine_variable(self, children: list[Any]) -> ast.UndefineVariable:
        return ast.UndefineVariable(name=str(children[1]), **_place(children))

    def run_script(self, children: list[Any]) -> ast.RunScript:
        return ast.RunScript(path=string_value(children[2]), **_place(children))

    # -------------------------------------------------------------- ASSERT

    def existence(self, children: list[Any]) -> Part | None:
        return Part(False, span_of_all(children)) if children else None

    def timeout(self, children: list[Any]) -> Part | None:
        return Part(children[1].value, span_of_all(children)) if children else None

    def assert_topic(self, children: list[Any]) -> ast.AssertTopic:
        _, absent, _, topic, properties, timeout = children
        return ast.AssertTopic(
            topic=topic.value,
            properties=_source_properties(properties),
            exists=absent is None,
            timeout_ms=None if timeout is None else timeout.value,
            **_place(children),
        )

    def assert_schema(self, children: list[Any]) -> ast.AssertSchema:
        subject, schema_id = None, None
        for keyword, value in zip(children[3:-1:2], children[4:-1:2], strict=True):
            if keyword.type == "SUBJECT":
                subject = value.value
            else:
                schema_id = self.whole_number(value)
        if subject is None and schema_id is None:
            hint = "Write ASSERT SCHEMA SUBJECT name, or ASSERT SCHEMA ID number, or both."
            raise SqlSyntaxError("ASSERT SCHEMA needs a SUBJECT or an ID", span=span_of_all(children), hint=hint)
        return ast.AssertSchema(
            subject=subject,
            schema_id=schema_id,
            exists=children[1] is None,
            timeout_ms=None if children[-1] is None else children[-1].value,
            **_place(children),
        )

    def assert_values(self, children: list[Any]) -> ast.AssertValues:
        _, _, source, columns, _, values = children
        _check_counts(columns, values)
        return ast.AssertValues(source=source.name, columns=_names(columns), values=values.value, **_place(children))

    def assert_tombstone(self, children: list[Any]) -> ast.AssertValues:
        source, columns, values = children[3], children[4], children[6]
        _check_counts(columns, values)
        return ast.AssertValues(
            source=source.name, columns=_names(columns), values=values.value, tombstone=True, **_place(children)
        )

    def assert_source(self, children: list[Any]) -> ast.AssertSource:
        _, _, name, elements, properties = children
        columns = () if elements is None else elements.value
        kind = _kind(children)
        _check_key_words(columns, kind)
        return ast.AssertSource(
            kind=kind, name=name.name, columns=columns, properties=_source_properties(properties), **_place(children)
        )


def _place(children: list[Any]) -> dict[str, Any]:
    span = span_of_all(children)
    return {"span": span, "text": statement_text(span)}


def _kind(children: list[Any]) -> Literal["STREAM", "TABLE"]:
    return "STREAM" if has(children, "STREAM") else "TABLE"


def _names(columns: Part | None) -> tuple[str, ...]:
    return () if columns is None else columns.value


def _properties(clause: Part | None, *, upper: bool = False) -> ast.Properties:
    properties = ast.PlacedProperties()
    for part in () if clause is None else clause.value:
        name, value = part.value
        name = name.upper() if upper else name
        if name in properties:
            raise SqlSyntaxError(f'property "{name}" is given twice', span=part.span)
        properties[name] = value
        properties.spans[name] = part.span
    return properties


def _source_properties(clause: Part | None) -> ast.Properties:
    """Names in upper case, even if they are quoted; a connector's properties keep their case."""
    return _properties(clause, upper=True)


def _check_counts(columns: Part | None, values: Part) -> None:
    """Refuses VALUES whose count differs from the named columns."""
    if columns is not None and len(columns.value) != len(values.value):
        message = f"Expected number columns and values to match: {len(columns.value)}, {len(values.value)}"
        raise InvalidStatement(
            f"Failed to prepare statement: {message}", span=values.span, hint="Give each named column one value."
        )


def _check_key_words(columns: tuple[ast.ColumnDefinition, ...], kind: Literal["STREAM", "TABLE"]) -> None:
    """A stream's key is KEY, a table's is PRIMARY KEY: a table has one row per key, a stream any number."""
    for column in columns:
        if column.role == "KEY" and column.primary != (kind == "TABLE"):
            wrong, right = ("KEY", "PRIMARY KEY") if kind == "TABLE" else ("PRIMARY KEY", "KEY")
            raise WrongKeyWord(
                f"Column `{column.name}` is a '{wrong}' column: please use '{right}' for {kind.lower()}s.",
                span=column.span,
                hint="A table has one row for each key, a stream any number.",
            )
