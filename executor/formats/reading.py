"""Reads one value as a SQL type, exactly. This is the reference: the compiled path must agree with it, and all error
messages come from here. A value is a result of `parse_json`, or text from a delimited record.

Converters return what `pyarrow.array` takes for the type: microseconds for times, pairs for maps, dicts for structs.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from decimal import Context, DecimalException, Inexact, InvalidOperation, Overflow
from decimal import Decimal as Number
from typing import Any

from ...planner.schemas.json_schemas import is_choice
from ...sql.types import BOOLEAN, BYTES, DOUBLE, STRING, Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import Real, number_text, write_json
from .limits import UNITS, in_range

Convert = Callable[[Any], Any]

_MISSING = object()
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EXACT = Context(prec=80, Emax=10_000, Emin=-10_000, traps=[Inexact, InvalidOperation, Overflow])
_SHOWN_CHARACTERS = 40


class Mismatch(Exception):
    """A value does not fit its type. `path`: the path to the value from the row's root."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = ""

    def at(self, step: str) -> Mismatch:
        self.path = step + self.path
        return self

    def __str__(self) -> str:
        return f"${self.path}: {self.message}"


def describe(value: Any) -> str:
    """The found value, for a message: its kind and its beginning."""
    match value:
        case None:
            return "null"
        case Real():
            return f"the number {shorten(value)}"
        case str():
            return f'the text "{shorten(value)}"'
        case bool():
            return "true" if value else "false"
        case int() | float() | Number():
            return f"the number {shorten(str(value))}"
        case bytes():
            return "bytes"
        case dict():  # may be deep, or huge
            return "an object"
        case list():
            return "an array"
        case _:
            return f"the value {shorten(repr(value))}"


def shorten(text: str) -> str:
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _wrong(type_: SqlType, value: Any) -> Mismatch:
    return Mismatch(f"{type_} wanted, {describe(value)} came")


def fold(name: str) -> str:
    """The name in upper case, for comparisons. A name that becomes ASCII only in upper case (ſ, ı) stays as it is, so
    it equals no ASCII name."""
    upper = name.upper()
    return upper if upper.isascii() == name.isascii() else name


class FieldReader:
    """Finds an object's fields: the exact spelling first, then any case; the last one of several."""

    def __init__(self, names: list[str]) -> None:
        self._names = [(name, fold(name)) for name in names]

    def read(self, object_: dict[str, Any]) -> list[Any]:
        """One value per name; None if it is missing."""
        values: list[Any] = []
        folded: dict[str, Any] | None = None
        for name, folded_name in self._names:
            value = object_.get(name, _MISSING)
            if value is _MISSING:
                if folded is None:
                    folded = {fold(key): member for key, member in object_.items()}
                value = folded.get(folded_name)
            values.append(value)
        return values


def converter(type_: SqlType, *, words: bool = False) -> Convert:
    """A function from a value to `type_`; None stays None. It raises Mismatch.

    `words`: the texts true and false are booleans (delimited records).
    """
    match type_:
        case Primitive(name="BOOLEAN"):
            return _boolean_words if words else _boolean
        case Primitive(name="DOUBLE"):
            return _double
        case Primitive(name="STRING"):
            return _string
        case Primitive(name="BYTES"):
            return _bytes
        case Primitive():
            return _integer(type_)
        case Decimal():
            return _decimal(type_)
        case Array():
            return array_reader(type_, converter(type_.element))
        case Map():
            return _map(type_)
        case Struct():
            return _struct(type_)
        case _:
            raise AssertionError(f"no format holds {type_}")


def _boolean(value: Any) -> bool | None:
    if value is None or value is True or value is False:
        return value
    raise Mismatch(f"BOOLEAN wanted, {describe(value)} came")


def _boolean_words(value: Any) -> bool | None:
    lower = value.lower() if isinstance(value, str) else value
    return _boolean({"true": True, "false": False}.get(lower, value) if isinstance(lower, str) else lower)


def _integer(type_: Primitive) -> Convert:
    unit = UNITS.get(type_.name, 1)

    def convert(value: Any) -> int | None:
        if value is None:
            return None
        if type(value) is int:
            number = value
        elif isinstance(value, Real):
            number = _truncate(value)
        elif isinstance(value, str) and _WHOLE.fullmatch(value):
            number = int(value)
        else:
            raise _wrong(type_, value)
        number = None if number is None else in_range(type_.name, number)
        if number is None:
            raise Mismatch(f"{describe(value)} is out of range for {type_}")
        return number * unit

    return convert


def _truncate(real: Real) -> int | None:
    """The number without its fraction; None if it is far too large."""
    number = _number(real)
    if number is None or number.adjusted() > 30:
        return None
    return 0 if number.adjusted() < 0 else int(number)


def _number(text: str) -> Number | None:
    try:
        return Number(text)
    except DecimalException:
        return None


def _double(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) is int:
        return float(value)
    if isinstance(value, str):
        text = str(value) if isinstance(value, Real) else value.strip(" \t\r\n")
        if text.lstrip("+-") in ("NaN", "Infinity") and not isinstance(value, Real):
            return float(text)
        if _NUMBER.fullmatch(text):
            number = float(text)
            if number - number == 0:
                return number
            raise Mismatch(f"{describe(value)} is out of range for DOUBLE")
    raise Mismatch(f"DOUBLE wanted, {describe(value)} came")


def _decimal(type_: Decimal) -> Convert:
    unit = Number((0, (1,), -type_.scale))
    zero = Number((0, (0,), -type_.scale))
    whole_digits = type_.precision - type_.scale

    def convert(value: Any) -> Number | None:
        if value is None:
            return None
        if type(value) is int:
            number = Number(value)
        elif isinstance(value, Real) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
            number = _number(value)
        else:
            raise _wrong(type_, value)
        if number is not None and not number:
            return zero
        if number is None or number.adjusted() >= whole_digits:
            raise Mismatch(f"{describe(value)} is out of range for {type_}")
        try:
            return _EXACT.quantize(number, unit)
        except DecimalException:
            raise Mismatch(f"{describe(value)} does not fit into {type_} without rounding") from None

    return convert


def _string(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Real):
        return number_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else write_json(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Mismatch("STRING wanted, text with half a surrogate pair came") from None
    return text


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str) or isinstance(value, Real):
        raise Mismatch(f"BYTES (as base64) wanted, {describe(value)} came")
    try:
        data = binascii.a2b_base64(value.encode(), strict_mode=True)
        if binascii.b2a_base64(data, newline=False).decode() == value:
            return data
    except (binascii.Error, UnicodeEncodeError):
        pass
    raise Mismatch(f"{describe(value)} is not base64")


def array_reader(type_: Array, element: Convert) -> Convert:
    """A converter for lists whose members `element` converts. A mismatch names the position."""

    def convert(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _wrong(type_, value)
        result: list[Any] = []
        try:
            for member in value:
                result.append(element(member))
        except Mismatch as error:
            raise error.at(f"[{len(result)}]") from None
        return result

    return convert


def _map(type_: Map) -> Convert:
    key_converter, value_converter = converter(type_.key), converter(type_.value)

    def convert(value: Any) -> list[tuple[Any, Any]] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(type_, value)
        result: list[tuple[Any, Any]] = []
        for key, member in value.items():
            try:
                result.append((key_converter(key), value_converter(member)))
            except Mismatch as error:
                raise error.at(f".{shorten(str(key))}") from None
        return result

    return convert


def _struct(type_: Struct) -> Convert:
    names, engine_names = [field.name for field in type_.fields], type_.engine_names
    reader = FieldReader(names)
    converters = [converter(field.type) for field in type_.fields]
    chosen = _chosen(type_) if is_choice(type_) else None

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if chosen is not None and (number := chosen(value)) is not None:
            return {**dict.fromkeys(engine_names), engine_names[number]: converters[number](value)}
        if not isinstance(value, dict):
            raise _wrong(type_, value)
        return dict(zip(engine_names, convert_fields(names, converters, reader.read(value)), strict=True))

    return convert


def _chosen(type_: Struct) -> Callable[[Any], int | None]:
    """Which field of the choice a bare value sets; None if it is an object that names a field, or no field takes it."""
    own = {fold(field.name) for field in type_.fields}

    def chosen(value: Any) -> int | None:
        if isinstance(value, dict) and not own.isdisjoint(fold(name) for name in value):
            return None
        takers = [number for number, field in enumerate(type_.fields) if _takes(field.type, value)]
        best = [number for number in takers if _names_all(type_.fields[number].type, value)]
        return next(iter(best or takers), None)

    return chosen


def _takes(type_: SqlType, value: Any) -> bool:
    """Whether the value is of the type without being converted."""
    match value:
        case bool():
            return type_ == BOOLEAN
        case int() | Real():
            if type_ == DOUBLE or isinstance(type_, Decimal):
                return True
            return isinstance(value, int) and isinstance(type_, Primitive) and type_ not in (BOOLEAN, STRING, BYTES)
        case str():
            return type_ in (STRING, BYTES)
        case list():
            return isinstance(type_, Array)
        case _:
            return isinstance(type_, Struct | Map)


def _names_all(type_: SqlType, value: Any) -> bool:
    """Whether the type has a field for each member of an object. True for other values."""
    if not isinstance(value, dict) or not isinstance(type_, Struct):
        return True
    return {fold(field.name) for field in type_.fields} >= {fold(name) for name in value}


def convert_fields(names: list[str], converters: list[Convert], values: list[Any]) -> list[Any]:
    """Converts each value to its field's type. A Mismatch names the field."""
    result: list[Any] = []
    try:
        for convert, value in zip(converters, values, strict=True):
            result.append(convert(value))
    except Mismatch as error:
        raise error.at(f".{names[len(result)]}") from None
    return result
