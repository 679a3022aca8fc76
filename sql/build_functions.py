"""The grammar's rules for CREATE FUNCTION and DROP FUNCTION. Each method has its rule's name."""

from __future__ import annotations

from typing import Any, Literal

from lark import Token

from millstream.errors import Span, SqlSyntaxError

from . import ast
from .build_queries import QueryRules
from .parts import SOURCE, Part, has, items, span_of_all, statement_text, string_value
from .tokens import token_span

PARAMETERS_MAX = 100


class FunctionRules(QueryRules):
    def create_function(self, children: list[Any]) -> ast.CreateFunction:
        span = span_of_all(children)
        start = next(i for i, child in enumerate(children) if isinstance(child, Token) and child.type == "FUNCTION")
        if_not_exists, name, parameters, _, returns, *options = children[start + 1 :]
        given = _options(options)
        if "AS" not in given:
            hint = "Add the text of the function: LANGUAGE PYTHON AS $$ return … $$"
            raise SqlSyntaxError("the function has no text", span=Span(span.end - 1, span.end), hint=hint)
        kind = _kind(children[:start])
        state: Part | None = given.get("STATE")
        if state is not None and kind != "aggregate":
            raise SqlSyntaxError("only an aggregate has a STATE", span=state.span)
        body: Token = given["AS"].value
        return ast.CreateFunction(
            kind=kind,
            name=name.name,
            parameters=parameters.value,
            returns=returns.value,
            language=_language(given.get("LANGUAGE")),
            state=None if state is None else state.value,
            called_on_null=given["NULL"].value if "NULL" in given else False,
            properties=_named(given.get("WITH")),
            or_replace=has(children, "REPLACE"),
            if_not_exists=if_not_exists is not None,
            span=span,
            text=statement_text(span),
            **_body(body),
        )

    def drop_function(self, children: list[Any]) -> ast.DropFunction:
        span = span_of_all(children)
        return ast.DropFunction(
            name=children[3].name, if_exists=children[2] is not None, span=span, text=statement_text(span)
        )

    def parameters(self, children: list[Any]) -> Part:
        found: list[ast.FunctionParameter] = items(children)
        span = span_of_all(children)
        if len(found) > PARAMETERS_MAX:
            raise SqlSyntaxError(f"more than {PARAMETERS_MAX} arguments", span=found[PARAMETERS_MAX].span)
        for i, parameter in enumerate(found):
            if any(parameter.name == other.name for other in found[:i]):
                raise SqlSyntaxError(f'the argument "{parameter.name}" is named twice', span=parameter.span)
        return Part(tuple(found), span)

    def parameter(self, children: list[Any]) -> ast.FunctionParameter:
        name, type_ = children
        span = name.meta["span"]
        written = SOURCE.get().text[span.start : span.end]
        plain = name.name if written[0] in '`"' else written
        return ast.FunctionParameter(name=plain, type=type_.value, span=span_of_all(children))

    def function_option(self, children: list[Any]) -> Part:
        """A clause after the signature, in any order: its name and its value."""
        span = span_of_all(children)
        first = children[0]
        if isinstance(first, Part):
            return Part(("WITH", first), span)
        match first.type:
            case "CALLED" | "RETURNS":
                return Part(("NULL", Part(first.type == "CALLED", span)), span)
            case "AS":
                return Part(("AS", Part(children[1], span)), span)
            case "LANGUAGE":
                return Part(("LANGUAGE", Part(children[1].name, span)), span)
            case _:
                return Part((first.type, children[1]), span)


def _options(parts: list[Part]) -> dict[str, Part]:
    given: dict[str, Part] = {}
    for part in parts:
        clause, value = part.value
        if clause in given:
            raise SqlSyntaxError("this is said twice", span=part.span)
        given[clause] = value
    return given


def _kind(children: list[Any]) -> Literal["scalar", "aggregate", "table"]:
    if has(children, "AGGREGATE"):
        return "aggregate"
    return "table" if has(children, "TABLE") else "scalar"


def _language(part: Part | None) -> str:
    if part is not None and part.value != "PYTHON":
        raise SqlSyntaxError(
            f"functions are not written in {part.value}", span=part.span, hint="Write LANGUAGE PYTHON."
        )
    return "PYTHON"


def _named(part: Part | None) -> ast.Properties:
    properties: ast.Properties = {}
    for each in () if part is None else part.value:
        name, value = each.value
        if name.upper() in properties:
            raise SqlSyntaxError(f'property "{name}" is given twice', span=each.span)
        properties[name.upper()] = value
    return properties


def _body(token: Token) -> dict[str, Any]:
    """The text between $$ and $$, $tag$ and $tag$, or quotes; and its start position."""
    start = token_span(token).start
    if token.type == "STRING_LITERAL":
        return {"body": string_value(token), "body_start": None if "''" in token[1:-1] else start + 1}
    width = token.index("$", 1) + 1
    return {"body": str(token)[width:-width], "body_start": start + width}
