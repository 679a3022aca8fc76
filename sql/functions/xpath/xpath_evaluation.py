"""What an XPath means: nodes, a text, a number or a condition, by the rules of XPath 1.0.

A path such as `//*[//*[//*]]` looks at each node for each node, so the time is looked at on the way.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from ..bounds import Timer, check_bytes
from .xml_document import XmlNode
from .xpath_text import ROOT, Expr, FilteredNodes, LocationPath, LocationStep, XPathCall, XPathOperation

XPathValue = list[XmlNode] | str | float | bool

_LOOK_EVERY = 512  # nodes
_NUMBER = re.compile(r"[ \t\r\n]*(-?(?:\d+(?:\.\d*)?|\.\d+))[ \t\r\n]*", re.ASCII)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


class XPathEvaluation:
    """Of one path over one document. `focus` is (node, position, size) all along."""

    def __init__(self, root: XmlNode) -> None:
        self._root = root
        self._timer = Timer()
        self._seen = 0

    def value(self, expression: Expr) -> XPathValue:
        """Raises `ValueError`, `BoundExceeded`."""
        return self._value(expression, (self._root, 1, 1))

    # -------------------------------------------------------------- values as others

    def string(self, value: XPathValue) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case float() | int():
                return _number_text(float(value))
            case str():
                return value
            case _:
                return self.text(value[0]) if value else ""

    def text(self, node: XmlNode) -> str:
        """The string value of a node: of an element, all texts in it."""
        if node.kind not in ("root", "element"):
            return node.value
        return "".join([each.value for each in self._timed(node.descendants()) if each.kind == "text"])

    def number(self, value: XPathValue) -> float:
        if isinstance(value, float | int):
            return float(value)
        found = _NUMBER.fullmatch(self.string(value))
        return math.nan if found is None else float(found[1])

    def boolean(self, value: XPathValue) -> bool:
        return not (math.isnan(value) or value == 0.0) if isinstance(value, float) else bool(value)

    # -------------------------------------------------------------- expressions

    def _value(self, expression: Expr, focus: tuple[XmlNode, int, int]) -> XPathValue:
        match expression:
            case float() | int() | str():
                return expression
            case LocationPath():
                return self._path(expression, focus)
            case FilteredNodes():
                return self._chosen(self._nodes(expression.nodes, focus), expression.predicates)
            case XPathCall():
                return self._call(expression, focus)
            case XPathOperation():
                return self._operation(expression, focus)

    def _nodes(self, expression: Expr, focus: tuple[XmlNode, int, int]) -> list[XmlNode]:
        value = self._value(expression, focus)
        if not isinstance(value, list):
            raise ValueError("the path needs nodes where it has a text, a number or a condition")
        return value

    def _operation(self, operation: XPathOperation, focus: tuple[XmlNode, int, int]) -> XPathValue:
        operator, operands = operation.operator, operation.operands
        if operator in ("and", "or"):
            left = self.boolean(self._value(operands[0], focus))
            return left if left is (operator == "or") else self.boolean(self._value(operands[1], focus))
        if operator == "|":
            return _in_order(node for each in operands for node in self._nodes(each, focus))
        if operator == "negate":
            return -self.number(self._value(operands[0], focus))
        left, right = (self._value(each, focus) for each in operands)
        if operator in _MIRRORED:
            return self._compare(operator, left, right)
        return _ARITHMETIC[operator](self.number(left), self.number(right))

    def _compare(self, operator: str, left: XPathValue, right: XPathValue) -> bool:
        """Nodes compare if any one of them does."""
        if isinstance(right, list) and not isinstance(left, list):
            return self._compare(_MIRRORED[operator], right, left)
        if not isinstance(left, list):
            return self._compare_one(operator, left, right)
        if isinstance(right, bool):
            return self._compare_one(operator, bool(left), right)
        if not isinstance(right, list):
            return any(self._compare_one(operator, self._like(node, right), right) for node in self._timed(left))
        texts = [self.text(node) for node in right]
        if operator == "=":
            wanted = frozenset(texts)
            return any(self.text(node) in wanted for node in self._timed(left))
        return any(self._compare_one(operator, self.text(a), b) for a in left for b in self._timed(texts))

    def _like(self, node: XmlNode, value: XPathValue) -> str | float:
        text = self.text(node)
        return self.number(text) if isinstance(value, float) else text

    def _compare_one(self, operator: str, left: XPathValue, right: XPathValue) -> bool:
        if operator in ("=", "!="):
            if isinstance(left, bool) or isinstance(right, bool):
                equal = self.boolean(left) == self.boolean(right)
            elif isinstance(left, float) or isinstance(right, float):
                equal = self.number(left) == self.number(right)
            else:
                equal = self.string(left) == self.string(right)
            return equal is (operator == "=")
        a, b = self.number(left), self.number(right)
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]

    # -------------------------------------------------------------- paths

    def _path(self, path: LocationPath, focus: tuple[XmlNode, int, int]) -> list[XmlNode]:
        if path.start is None:
            nodes = [focus[0]]
        elif path.start == ROOT:
            nodes = [self._root]
        else:
            nodes = self._nodes(path.start, focus)
        for step in path.steps:
            nodes = _in_order(found for node in nodes for found in self._step(step, node))
        return nodes

    def _step(self, step: LocationStep, node: XmlNode) -> list[XmlNode]:
        found = [each for each in self._timed(_along(step.axis, node)) if _passes(step, each)]
        return self._chosen(found, step.predicates)

    def _chosen(self, nodes: list[XmlNode], predicates: tuple[Expr, ...]) -> list[XmlNode]:
        """In: `nodes` in the order of their axis. A number as a predicate is a position."""
        for predicate in predicates:
            size = len(nodes)
            kept: list[XmlNode] = []
            for position, node in enumerate(self._timed(nodes), 1):
                value = self._value(predicate, (node, position, size))
                if position == value if type(value) is float else self.boolean(value):
                    kept.append(node)
            nodes = kept
        return nodes

    def _timed(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._seen += 1
            if self._seen % _LOOK_EVERY == 0:
                _ = self._timer.left_s
            yield item

    # -------------------------------------------------------------- functions

    def _call(self, call: XPathCall, focus: tuple[XmlNode, int, int]) -> XPathValue:
        node, position, size = focus
        match call.name, len(call.arguments):
            case "position", 0:
                return float(position)
            case "last", 0:
                return float(size)
            case "true", 0:
                return True
            case "false", 0:
                return False
            case (("string" | "number" | "string-length" | "normalize-space" | "name" | "local-name"), 0):
                arguments: list[XPathValue] = [[node]]
            case _:
                arguments = [self._value(each, focus) for each in call.arguments]
        if call.name == "concat" and len(arguments) >= 2:
            texts = [self.string(each) for each in arguments]
            check_bytes(sum(map(len, texts)))
            return "".join(texts)
        entry = _FUNCTIONS.get(call.name)
        if entry is None or len(arguments) not in entry[0]:
            raise ValueError(f"there is no XPath function {call.name} of {len(arguments)} arguments")
        return entry[1](self, *arguments)

    def nodes_of(self, value: XPathValue) -> list[XmlNode]:
        if not isinstance(value, list):
            raise ValueError("the function takes nodes")
        return value

    def sum(self, value: XPathValue) -> float:
        return sum((self.number(self.text(node)) for node in self.nodes_of(value)), 0.0)

    def substring(self, text: XPathValue, start: XPathValue, length: XPathValue = math.inf) -> str:
        """Positions from 1; as the standard says it, with numbers that are rounded and may be infinite."""
        first = _rounded(self.number(start))
        end = first + _rounded(self.number(length))
        if math.isnan(first) or math.isnan(end):
            return ""
        whole = self.string(text)
        low, high = (int(min(max(each, 1), len(whole) + 1)) for each in (first, end))
        return whole[low - 1 : max(high, low) - 1]


def _in_order(nodes: Iterable[XmlNode]) -> list[XmlNode]:
    return sorted({node.place: node for node in nodes}.values(), key=lambda node: node.place)


def _passes(step: LocationStep, node: XmlNode) -> bool:
    match step.test:
        case "node()":
            return True
        case "text()" | "comment()":
            return node.kind == step.test[:-2]
        case "processing-instruction()":
            return node.kind == "instruction"
        case test:
            if node.kind != ("attribute" if step.axis == "attribute" else "element"):
                return False
            if test.endswith("*"):
                return test == "*" or node.name.startswith(test[:-1])
            return node.name == test or (":" not in test and node.local_name == test)


def _along(axis: str, node: XmlNode) -> Iterable[XmlNode]:
    """The nodes of an axis, those of a backward one from the nearest on."""
    match axis:
        case "child":
            return node.children
        case "attribute":
            return node.attributes
        case "self":
            return (node,)
        case "parent":
            return () if node.parent is None else (node.parent,)
        case "descendant":
            return node.descendants()
        case "descendant-or-self":
            return (node, *node.descendants())
        case "ancestor":
            return _ancestors(node)
        case "ancestor-or-self":
            return (node, *_ancestors(node))
        case "following-sibling" | "preceding-sibling":
            return _siblings(node, forward=axis == "following-sibling")
        case _:
            return _beyond(node, forward=axis == "following")


def _ancestors(node: XmlNode) -> list[XmlNode]:
    found: list[XmlNode] = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def _siblings(node: XmlNode, *, forward: bool) -> list[XmlNode]:
    if node.parent is None or node.kind == "attribute":
        return []
    beside = node.parent.children
    at = bisect_left(beside, node.place, key=lambda each: each.place)
    return beside[at + 1 :] if forward else beside[:at][::-1]


def _beyond(node: XmlNode, *, forward: bool) -> list[XmlNode]:
    """All that begins behind the node, or ends before it."""
    found: list[XmlNode] = []
    for each in [node, *_ancestors(node)]:
        for sibling in _siblings(each, forward=forward):
            found += [sibling, *sibling.descendants()]
    return sorted(found, key=lambda other: other.place, reverse=not forward)


def _number_text(number: float) -> str:
    """Without an exponent."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == int(number):
        return str(int(number))
    return f"{Decimal(repr(number)):f}"


def _rounded(number: float) -> float:
    return number if math.isnan(number) or math.isinf(number) else float(math.floor(number + 0.5))


def _whole(round_: Callable[[float], int]) -> Callable[[float], float]:
    return lambda number: number if math.isnan(number) or math.isinf(number) else float(round_(number))


def _divided(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = MappingProxyType(
    {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "div": _divided,
        "mod": lambda a, b: math.nan if b == 0 or math.isinf(a) or math.isnan(a + b) else math.fmod(a, b),
    }
)


def _translated(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, character in enumerate(old):
        table.setdefault(ord(character), new[i] if i < len(new) else None)
    return text.translate(table)


_FUNCTIONS: Mapping[str, tuple[range, Callable[..., XPathValue]]] = MappingProxyType(
    {
        "string": (range(1, 2), lambda e, a: e.string(a)),
        "number": (range(1, 2), lambda e, a: e.number(a)),
        "boolean": (range(1, 2), lambda e, a: e.boolean(a)),
        "not": (range(1, 2), lambda e, a: not e.boolean(a)),
        "count": (range(1, 2), lambda e, a: float(len(e.nodes_of(a)))),
        "sum": (range(1, 2), lambda e, a: e.sum(a)),
        "name": (range(1, 2), lambda e, a: next((node.name for node in e.nodes_of(a)), "")),
        "local-name": (range(1, 2), lambda e, a: next((node.local_name for node in e.nodes_of(a)), "")),
        "starts-with": (range(2, 3), lambda e, a, b: e.string(a).startswith(e.string(b))),
        "contains": (range(2, 3), lambda e, a, b: e.string(b) in e.string(a)),
        "substring-before": (range(2, 3), lambda e, a, b: _part(e.string(a), e.string(b), 0)),
        "substring-after": (range(2, 3), lambda e, a, b: _part(e.string(a), e.string(b), 2)),
        "substring": (range(2, 4), lambda e, *a: e.substring(*a)),
        "string-length": (range(1, 2), lambda e, a: float(len(e.string(a)))),
        "normalize-space": (range(1, 2), lambda e, a: " ".join(re.split(r"[ \t\r\n]+", e.string(a).strip(" \t\r\n")))),
        "translate": (range(3, 4), lambda e, a, b, c: _translated(e.string(a), e.string(b), e.string(c))),
        "floor": (range(1, 2), lambda e, a: _whole(math.floor)(e.number(a))),
        "ceiling": (range(1, 2), lambda e, a: _whole(math.ceil)(e.number(a))),
        "round": (range(1, 2), lambda e, a: _rounded(e.number(a))),
    }
)


def _part(text: str, sign: str, position: int) -> str:
    if not sign:
        return "" if position == 0 else text
    before, found, after = text.partition(sign)
    return "" if not found else before if position == 0 else after
