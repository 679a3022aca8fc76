"""XPath 1.0 as text: its words, and the tree that they make. `xpath_evaluation.py` says what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PATH_CHARACTERS_MAX = 10_000
_WORD = re.compile(
    r"""\s*(?: (?P<number>\d+(?:\.\d*)?|\.\d+) | (?P<text>"[^"]*"|'[^']*')
    | (?P<sign>::|//|\.\.|!=|<=|>=|[()\[\]@,/|+\-=<>.*])
    | (?P<name>[^\W\d][\w.\-]*(?::(?!:)(?:[^\W\d][\w.\-]*|\*))?) )""",
    re.VERBOSE,
)
_OPERATORS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))
_OPERATOR_NAMES = frozenset({"and", "or", "div", "mod"})
_OPENING = frozenset(("sign", sign) for sign in "@ :: ( [ , / // | + - = != < <= > >=".split())
_KINDS = frozenset({"text", "comment", "node", "processing-instruction"})
AXES = frozenset(
    {"child", "descendant", "parent", "ancestor", "following-sibling", "preceding-sibling", "attribute", "self"}
    | {"descendant-or-self", "ancestor-or-self", "following", "preceding"}
)


@dataclass(frozen=True, slots=True)
class LocationStep:
    """`test`: a name, `*`, or a kind of node such as `text()`."""

    axis: str
    test: str
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class LocationPath:
    """Steps from `start`: the root of the document, the current node (None), or the nodes of an expression."""

    start: Expr | str | None
    steps: tuple[LocationStep, ...]


@dataclass(frozen=True, slots=True)
class FilteredNodes:
    nodes: Expr
    predicates: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class XPathOperation:
    """`operator`: as written; `negate` for a minus before one operand."""

    operator: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class XPathCall:
    name: str
    arguments: tuple[Expr, ...]


Expr = LocationPath | FilteredNodes | XPathOperation | XPathCall | float | str

ANYTHING = LocationStep("descendant-or-self", "node()")
ROOT = "/"


@lru_cache(maxsize=1024)
def parsed_path(text: str) -> Expr:
    """Raises `ValueError`, and `RecursionError` for brackets within brackets."""
    if len(text) > _PATH_CHARACTERS_MAX:
        raise ValueError("the path is too long")
    parser = _Parser(_words(text))
    expression = parser.expression()
    parser.expect("end")
    return expression


def _words(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each word; operators that look like names or like `*` are signs."""
    words: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        found = _WORD.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"unexpected {text[at:][:20]!r} in the path")
        kind, word = found.lastgroup, found[found.lastgroup]
        before = words[-1] if words else ("operator", "")
        follows = before[0] != "operator" and before not in _OPENING
        if follows and (word == "*" or (kind == "name" and word in _OPERATOR_NAMES)):
            kind = "operator"
        words.append((kind, word))
        at = found.end()
    return [*words, ("end", "")]


class _Parser:
    def __init__(self, words: list[tuple[str, str]]) -> None:
        self._words = words
        self._at = 0

    def expect(self, *texts: str) -> str:
        kind, word = self._words[self._at]
        if kind == "text" or (word or kind) not in texts:
            raise ValueError(f"the path has {word or 'its end'!r} where {texts[0]} was expected")
        self._at += 1
        return word

    def expression(self, level: int = 0) -> Expr:
        if level == len(_OPERATORS):
            return self._negated()
        left = self.expression(level + 1)
        while self._is_operator(_OPERATORS[level]):
            operator = self._take()
            left = XPathOperation(operator, (left, self.expression(level + 1)))
        return left

    def _is_operator(self, operators: tuple[str, ...]) -> bool:
        kind, word = self._words[self._at]
        return word in operators and (kind == "operator" or (kind == "sign" and word != "*"))

    def _negated(self) -> Expr:
        if self._is("-"):
            self._take()
            return XPathOperation("negate", (self._negated(),))
        parts = [self._path()]
        while self._is("|"):
            self._take()
            parts.append(self._path())
        return parts[0] if len(parts) == 1 else XPathOperation("|", tuple(parts))

    # -------------------------------------------------------------- paths

    def _path(self) -> Expr:
        if self._is("/", "//"):
            steps = [ANYTHING] if self._take() == "//" else []
            if not steps and not self._begins_step():
                return LocationPath(ROOT, ())
            return LocationPath(ROOT, tuple(self._steps(steps)))
        if not self._begins_primary():
            return LocationPath(None, tuple(self._steps([])))
        primary: Expr = self._primary()
        predicates = self._predicates()
        primary = FilteredNodes(primary, predicates) if predicates else primary
        if not self._is("/", "//"):
            return primary
        return LocationPath(primary, tuple(self._steps([ANYTHING] if self._take() == "//" else [])))

    def _steps(self, steps: list[LocationStep]) -> list[LocationStep]:
        steps.append(self._step())
        while self._is("/", "//"):
            if self._take() == "//":
                steps.append(ANYTHING)
            steps.append(self._step())
        return steps

    def _step(self) -> LocationStep:
        if self._is(".", ".."):
            return LocationStep("self" if self._take() == "." else "parent", "node()")
        axis = "child"
        if self._is("@"):
            self._take()
            axis = "attribute"
        elif self._words[self._at + 1 : self._at + 2] == [("sign", "::")]:
            axis = self._take()
            self._take()
            if axis not in AXES:
                raise ValueError(f"there is no axis {axis}")
        kind, word = self._words[self._at]
        if kind != "name" and (kind, word) != ("sign", "*"):
            raise ValueError(f"the path has {word or 'its end'!r} where a name was expected")
        self._take()
        if word in _KINDS and self._is("("):
            self._take()
            if word == "processing-instruction" and self._words[self._at][0] == "text":
                self._take()
            self.expect(")")
            word += "()"
        return LocationStep(axis, word, self._predicates())

    def _predicates(self) -> tuple[Expr, ...]:
        found: list[Expr] = []
        while self._is("["):
            self._take()
            found.append(self.expression())
            self.expect("]")
        return tuple(found)

    def _begins_step(self) -> bool:
        kind, word = self._words[self._at]
        return kind == "name" or (kind == "sign" and word in (".", "..", "@", "*"))

    def _begins_primary(self) -> bool:
        kind, word = self._words[self._at]
        called = self._words[self._at + 1 : self._at + 2] == [("sign", "(")]
        return (
            kind in ("number", "text")
            or (kind, word) == ("sign", "(")
            or (kind == "name" and called and word not in _KINDS)
        )

    def _primary(self) -> Expr:
        kind, word = self._words[self._at]
        self._at += 1
        if kind == "number":
            return float(word)
        if kind == "text":
            return word[1:-1]
        if word == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        self.expect("(")
        arguments: list[Expr] = []
        while not self._is(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.expression())
        self.expect(")")
        return XPathCall(word, tuple(arguments))

    def _is(self, *signs: str) -> bool:
        kind, word = self._words[self._at]
        return kind == "sign" and word in signs

    def _take(self) -> str:
        self._at += 1
        return self._words[self._at - 1][1]
