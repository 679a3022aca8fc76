"""A property: its name, its default, and the conversion of its text to a value are defined only here.

Properties are passed as texts by canonical name: in sessions, requests and stored plans. Each component reads the
properties that it needs once, into its own frozen record (`PullLimits.of(properties)`); nothing reads the texts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from millstream.errors import InvalidProperty, Span, did_you_mean

PropertyType = Literal["STRING", "BOOLEAN", "INTEGER", "DOUBLE"]
Scope = Literal["SESSION", "SERVER"]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property(Generic[T_co]):
    """`default`: as text. `read`: converts a normalised text to the value. `scope`: SESSION properties can be SET;
    SERVER properties are read once at start. `choices`: the allowed values, in lower case. `minimum`: of a number.
    `parse`: raises `ValueError` for other values, with a text that says what is expected; if it returns a text, that is
    the normalised form, and `choices` are used for suggestions. `effective`: False for properties of Kafka and ksqlDB
    that are accepted, so that scripts run, but have no effect."""

    name: str
    type: PropertyType
    default: str
    doc: str
    read: Callable[[str], T_co]
    scope: Scope = "SESSION"
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    effective: bool = True
    parse: Callable[[str], object] | None = None

    def __str__(self) -> str:
        """Its name, because messages tell users which property to set."""
        return self.name

    def of(self, properties: Mapping[str, str]) -> T_co:
        """The value in these properties, or the default. Raises `InvalidProperty`."""
        written = self._written(properties)
        return self.usual if written is None else self.read(self.check(written))

    def given(self, properties: Mapping[str, str]) -> T_co | None:
        """The value, None if it is not set: for properties whose default depends on the caller. Raises
        `InvalidProperty`."""
        written = self._written(properties)
        return None if written is None else self.read(self.check(written))

    @property
    def usual(self) -> T_co:
        """The default value."""
        return self.read(self.default)

    def _written(self, properties: Mapping[str, str]) -> str | None:
        if self.name in properties:
            return properties[self.name]
        return next((properties[alias] for alias in self.aliases if alias in properties), None)

    def check(self, value: str, span: Span | None = None) -> str:
        """The normalised text of the value. Raises `InvalidProperty`."""
        text = value.strip()
        if self.parse is not None:
            return self._parsed(text, value, span)
        if self.choices:
            if text.lower() not in self.choices:
                raise self._refused(value, "one of " + ", ".join(self.choices), did_you_mean(text, self.choices), span)
            return text.lower()
        if self.type == "BOOLEAN":
            if text.lower() not in ("true", "false"):
                raise self._refused(value, "true or false", None, span)
            return text.lower()
        if self.type in ("INTEGER", "DOUBLE"):
            self._check_number(text, value, span)
        return text

    def _parsed(self, text: str, value: str, span: Span | None) -> str:
        assert self.parse is not None
        try:
            parsed = self.parse(text)
        except ValueError as wanted:
            raise self._refused(value, str(wanted), did_you_mean(text, self.choices), span) from None
        return parsed if isinstance(parsed, str) else text

    def _check_number(self, text: str, value: str, span: Span | None) -> None:
        kind: Callable[[str], float] = int if self.type == "INTEGER" else float
        try:
            number = kind(text)
        except ValueError:
            wanted = "a whole number" if self.type == "INTEGER" else "a number"
            raise self._refused(value, wanted, None, span) from None
        if self.minimum is not None and number < self.minimum:
            raise self._refused(value, f"at least {self.minimum}", None, span)

    def _refused(self, value: str, wanted: str, hint: str | None, span: Span | None) -> InvalidProperty:
        return InvalidProperty(f"Invalid value '{value}' for property '{self.name}': expected {wanted}.", span=span,
                               hint=hint or "SHOW PROPERTIES; says what it has now, and what it does.")  # fmt: skip


# ------------------------------------------------------------------ kinds of properties


def switch(
    name: str, default: bool, doc: str, *, scope: Scope = "SESSION", aliases: tuple[str, ...] = (),
    choices: tuple[str, ...] = (), effective: bool = True,
) -> Property[bool]:  # fmt: skip
    """True or false. In: `choices`: if only one of them is implemented."""
    return Property(name=name, type="BOOLEAN", default=text_of(default), doc=doc, read=says_true, scope=scope,
                    aliases=aliases, choices=choices, effective=effective)  # fmt: skip


def whole(
    name: str, default: int, doc: str, *, minimum: int | None = None, scope: Scope = "SESSION",
    aliases: tuple[str, ...] = (), effective: bool = True,
) -> Property[int]:  # fmt: skip
    """A whole number."""
    return Property(name=name, type="INTEGER", default=str(default), doc=doc, read=int, scope=scope, aliases=aliases,
                    minimum=minimum, effective=effective)  # fmt: skip


def whole_or_none(
    name: str, doc: str, *, minimum: int | None = None, scope: Scope = "SESSION"
) -> Property[int | None]:  # fmt: skip
    """A whole number; None if it is not set."""
    return Property(name=name, type="INTEGER", default="", doc=doc, read=_int_or_none, scope=scope, minimum=minimum)


def number(
    name: str, default: float, doc: str, *, minimum: int | None = None, scope: Scope = "SESSION"
) -> Property[float]:  # fmt: skip
    """A number that may have a fraction."""
    return Property(name=name, type="DOUBLE", default=f"{default:g}", doc=doc, read=float, scope=scope, minimum=minimum)


def text(
    name: str, default: str, doc: str, *, scope: Scope = "SESSION", effective: bool = True
) -> Property[str]:  # fmt: skip
    """Any text."""
    return Property(name=name, type="STRING", default=default, doc=doc, read=str, scope=scope, effective=effective)


def choice(name: str, default: Word, doc: str, *, choices: Mapping[str, Word]) -> Property[Word]:
    """One of several words. In: `choices`: by their texts in lower case."""
    return Property(name=name, type="STRING", default=default, doc=doc, read=choices.__getitem__,
                    choices=tuple(choices))  # fmt: skip


def form(
    name: str, default: str, doc: str, parse: Callable[[str], T], *, scope: Scope = "SESSION",
    aliases: tuple[str, ...] = (), choices: tuple[str, ...] = (),
) -> Property[T]:  # fmt: skip
    """A text in a special form. In: `parse`: raises `ValueError`, whose text says what is expected."""
    return Property(name=name, type="STRING", default=default, doc=doc, read=parse, parse=parse, scope=scope,
                    aliases=aliases, choices=choices)  # fmt: skip


def says_true(value: object) -> bool:
    """Whether a value from a user is true: TOML's and JSON's `true`, and the word in any case.

    >>> says_true(True), says_true("True"), says_true("false"), says_true("")
    (True, True, False, False)
    """
    return str(value).lower() == "true"


def text_of(value: object) -> str:
    """A property's value as text: JSON's true is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _int_or_none(written: str) -> int | None:
    return int(written) if written else None
