"""SQL values as the Python values that users' functions see, and back.

| SQL | Python |
| --- | --- |
| BOOLEAN, INTEGER and BIGINT, DOUBLE, STRING, BYTES | `bool`, `int`, `float`, `str`, `bytes` |
| DECIMAL | `decimal.Decimal` |
| TIMESTAMP | `datetime.datetime` in UTC |
| DATE, TIME | `datetime.date`, `datetime.time` |
| ARRAY, MAP | `list`, `dict` |
| STRUCT | `dict` by the fields' names |

Between the two stands the form of `aggregate_values.py`: times as integers, a MAP as a list of pairs.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from ...types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

Convert = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_DECIMALS = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
_BITS: Final[Mapping[SqlType, int]] = {INTEGER: 31, BIGINT: 63}


@lru_cache(maxsize=1024)
def reader(type_: SqlType) -> Convert | None:
    """From a stored value to the user's; None where they are the same. It is not called for NULL.

    It raises OverflowError for a time that Python has no value for.
    """
    match type_:
        case Array(element=element):
            inner = reader(element)
            return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
        case Map(key=key, value=value):
            return _map_reader(reader(key) or _same, reader(value) or _same)
        case Struct():
            named = zip(type_.engine_names, type_.fields, strict=True)
            fields = [(stored, field.name, reader(field.type) or _same) for stored, field in named]
            return lambda row: {name: _some(read, row[stored]) for stored, name, read in fields}
        case _:
            return _READERS.get(type_)


@lru_cache(maxsize=1024)
def writer(type_: SqlType) -> Convert:
    """From what a user's function gave to a stored value; None is NULL. It raises TypeError and ValueError, with
    texts for the user."""
    match type_:
        case Array(element=element):
            inner = writer(element)
            return _nullable(lambda value: [inner(v) for v in _items(value, type_)])
        case Map(key=key, value=value):
            write_key, write_value = writer(key), writer(value)
            return _nullable(lambda m: [(write_key(k), write_value(v)) for k, v in _entries(m, type_)])
        case Struct():
            return _nullable(_struct_writer(type_))
        case Decimal():
            return _nullable(lambda value: _decimal(value, type_))
        case _:
            return _nullable(_WRITERS[type_])


def _same(value: Any) -> Any:
    return value


def _some(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# ------------------------------------------------------------------ reading


def _map_reader(read_key: Convert, read_value: Convert) -> Convert:
    return lambda entries: {read_key(key): _some(read_value, value) for key, value in entries}


def _timestamp(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def _date(days: int) -> dt.date:
    return dt.date.fromordinal(_FIRST_DAY + days)


def _time(microseconds: int) -> dt.time:
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).time()


_READERS: dict[SqlType, Convert] = {TIMESTAMP: _timestamp, DATE: _date, TIME: _time}


# ------------------------------------------------------------------ writing


def _wrong(value: Any, type_: SqlType) -> TypeError:
    return TypeError(f"it returned {_shown(value)}, which is no {type_}")


def _too_large(value: int | decimal.Decimal, type_: SqlType) -> ValueError:
    return ValueError(f"it returned {value}, which is too large for {type_}")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '…'} ({type(value).__name__})"


def _boolean(value: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # numpy's has no bool among its bases
        return bool(value)
    raise _wrong(value, BOOLEAN)


def _integer(type_: SqlType) -> Convert:
    bits = _BITS[type_]

    def write(value: Any) -> int:
        try:
            whole = operator.index(value)
        except TypeError:
            whole = _whole(value, type_)
        if not -(1 << bits) <= whole < 1 << bits:
            raise _too_large(whole, type_)
        return whole

    return write


def _whole(value: Any, type_: SqlType) -> int:
    """A number without a fraction, whatever its Python type."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__") or value != value // 1:
        raise _wrong(value, type_)
    return int(value)


def _double(value: Any) -> float:
    if isinstance(value, str | bytes) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise _wrong(value, DOUBLE)
    return float(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, STRING)
    try:
        value.encode()
    except UnicodeEncodeError:  # rows are stored as UTF-8, which has no such character
        raise ValueError(f"it returned {_shown(value)}, which has half of a surrogate pair") from None
    return str(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, BYTES)
    return bytes(value)


def _decimal(value: Any, type_: Decimal) -> decimal.Decimal:
    if isinstance(value, str | bytes) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise _wrong(value, type_)
    exact = _exact(value, type_)
    if exact.adjusted() >= type_.precision:  # quantize says of such a number only that it is invalid
        raise _too_large(exact, type_)
    rounded = exact.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_DECIMALS)
    if rounded.copy_abs() >= decimal.Decimal(10) ** (type_.precision - type_.scale):
        raise _too_large(rounded, type_)
    return rounded


def _exact(value: Any, type_: Decimal) -> decimal.Decimal:
    try:
        exact = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    except decimal.InvalidOperation:  # a fraction, or a bool
        raise _wrong(value, type_) from None
    if not exact.is_finite():
        raise _wrong(value, type_)
    return exact


def _write_timestamp(value: Any) -> int:
    """Without a zone it is taken as UTC."""
    if not isinstance(value, dt.datetime) or value != value:  # pandas' NaT is one that equals nothing
        raise _wrong(value, TIMESTAMP)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    milliseconds = (aware - _EPOCH) // (_MICROSECOND * 1000)
    return milliseconds * 1000


def _write_date(value: Any) -> int:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise _wrong(value, DATE)
    return value.toordinal() - _FIRST_DAY


def _write_time(value: Any) -> int:
    if not isinstance(value, dt.time):
        raise _wrong(value, TIME)
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1000 + value.microsecond // 1000) * 1000


def _items(value: Any, type_: SqlType) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise _wrong(value, type_)
    return value


def _mapping(value: Any, type_: SqlType) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, type_)
    return value


def _entries(value: Any, type_: Map) -> Iterable[tuple[Any, Any]]:
    entries = _mapping(value, type_).items()
    if any(key is None for key, _ in entries):
        raise ValueError(f"it returned {_shown(value)}, a MAP with a key of None")
    return entries


def _struct_writer(type_: Struct) -> Convert:
    """Fields by name, in whatever case where that is no question; one that is missing is NULL."""
    named = list(zip(type_.engine_names, type_.fields, strict=True))
    writers = {field.name: (stored, writer(field.type)) for stored, field in named}
    by_upper = {field.name.upper(): field.name for _, field in named}

    def write(value: Any) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(type_.engine_names)
        for name, item in _mapping(value, type_).items():
            known = name if name in writers else by_upper.get(str(name).upper())
            if known is None:
                raise ValueError(f'it returned a STRUCT with the field "{name}", which {type_} has not')
            stored, write_item = writers[known]
            row[stored] = write_item(item)
        return row

    return write


_WRITERS: dict[SqlType, Convert] = {
    BOOLEAN: _boolean, INTEGER: _integer(INTEGER), BIGINT: _integer(BIGINT), DOUBLE: _double, STRING: _string,
    BYTES: _bytes, TIMESTAMP: _write_timestamp, DATE: _write_date, TIME: _write_time,
}  # fmt: skip
