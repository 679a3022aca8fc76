"""DESCRIBE FUNCTION: the page of a function, from its entry in the catalog."""

from __future__ import annotations

from ...sql.functions.aggregation.aggregates import AggregateFunction
from ...sql.functions.function import Function
from ...sql.functions.over_functions import OverFunction
from ..engine.entities import ArgumentInfo, FunctionDescribed, SignatureInfo


def function_page(entry: Function | AggregateFunction, text: str) -> FunctionDescribed:
    """The page of a function. In: `text`: the statement that asked for it."""
    return FunctionDescribed(
        statement_text=text,
        name=entry.name,
        description=entry.doc,
        type="AGGREGATE" if isinstance(entry, AggregateFunction) else entry.kind.upper(),
        functions=_aggregate_signatures(entry) if isinstance(entry, AggregateFunction) else _signatures(entry),
        examples={} if isinstance(entry, AggregateFunction) else dict(entry.examples),
    )


def over_function_page(entry: OverFunction, text: str) -> FunctionDescribed:
    """The page of a function that is used only with OVER."""
    head, _, returns = entry.signature.partition(" -> ")
    names = _split(head.partition("(")[2].removesuffix(")"))
    arguments = [ArgumentInfo(name.strip("[] "), "ANY", "", False) for name in names]
    return FunctionDescribed(
        statement_text=text,
        name=entry.name,
        description=entry.doc,
        type="WINDOW",
        functions=[SignatureInfo(arguments, returns, entry.doc)],
        examples={},
    )


def _signatures(entry: Function) -> list[SignatureInfo]:
    return [
        SignatureInfo(
            [
                ArgumentInfo(parameter.name, str(parameter.type), "", parameter.variadic)
                for parameter in variant.signature.parameters
            ],
            str(variant.signature.returns),
            entry.doc,
        )
        for variant in entry.variants
    ]


def _aggregate_signatures(entry: AggregateFunction) -> list[SignatureInfo]:
    """The signatures of an aggregate. Its entry has arguments as text, `SUM(value INTEGER|BIGINT)`; the result's type
    depends on the argument's."""
    found: list[SignatureInfo] = []
    for signature in entry.signatures:
        inside = signature.partition("(")[2].removesuffix(")")
        arguments: list[ArgumentInfo] = []
        for part in _split(inside):
            name, _, type_ = part.partition(" ")
            arguments.append(ArgumentInfo(name, type_ or "ANY", "", part.endswith("...")))
        found.append(SignatureInfo(arguments, "", entry.doc))
    return found


def _split(text: str) -> list[str]:
    """Splits at commas outside angle brackets and parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
