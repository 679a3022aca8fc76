"""Python functions that DuckDB calls, whole Arrow columns at a time.

A function is written once, for all types it works on; what DuckDB knows is a function for concrete types, whose name
carries them (`ms$round_to$double$integer->double`). So a stored plan needs no more than the name to find it again.
Names are lower case, because DuckDB does not tell cases apart; a STRUCT's field names stand in hexadecimal.

Inside, times are plain integers: a TIMESTAMP is ms since 1970, a DATE days since 1970, a TIME ms of the day. A row
that raises gives NULL. Nothing is called for a row with a NULL argument, unless the function asks for it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import func as duckdb_func
from sqlglot import exp

from ..identifiers import quoted_for_duckdb
from ..types import DATE, NULL, STRING, TIME, TIMESTAMP, Array, Field, Map, SqlType, Struct
from .bounds import BoundExceeded, begin_call, current_bounds
from .failures import Failures, collecting, note, note_exceeded
from .java.calendar_days import python_values
from .signature import parse_type
from .trees import all_owned

PREFIX = "ms$"
Row = Callable[..., Any]
Columns = Callable[..., pa.Array]


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function by its name here. Exactly one of `row` and `columns` is set.

    row:     from the types of parameters and result, a function from one row's values to its result
    columns: from the types, a function from Arrow columns to an Arrow column
    """

    name: str
    nulls: bool  # whether it wants to see NULL arguments
    row: Callable[[tuple[SqlType, ...], SqlType], Row] | None = None
    columns: Callable[[tuple[SqlType, ...], SqlType], Columns] | None = None


_FUNCTIONS: dict[str, PythonFunction] = {}


def _add(function: PythonFunction) -> PythonFunction:
    assert re.fullmatch("[a-z0-9_]+", function.name), function.name
    assert function.name not in _FUNCTIONS, f"two Python functions are named {function.name}"
    _FUNCTIONS[function.name] = function
    return function


def remember(function: PythonFunction) -> None:
    """Makes a user's function findable by its name, which says all about it (`user_functions.py`)."""
    _FUNCTIONS.setdefault(function.name, function)


def by_row(function: Row, *, nulls: bool = False) -> PythonFunction:
    """A function of one row's values, whatever their types."""
    return _add(PythonFunction(function.__name__.strip("_"), nulls, row=lambda _parameters, _returns: function))


def by_typed_row(make: Callable[[tuple[SqlType, ...], SqlType], Row], *, nulls: bool = False) -> PythonFunction:
    """A function of one row's values that is made for the types of its parameters and result."""
    return _add(PythonFunction(make.__name__.strip("_"), nulls, row=make))


def by_column(function: Columns) -> PythonFunction:
    """A function of whole Arrow columns; it sees NULLs and must not raise for a row."""
    return _add(
        PythonFunction(function.__name__.strip("_"), nulls=True, columns=lambda _parameters, _returns: function)
    )


@dataclass(frozen=True, slots=True)
class Udf:
    """A Python function for concrete types, as DuckDB gets it."""

    function: PythonFunction
    parameters: tuple[SqlType, ...]
    returns: SqlType

    @property
    def name(self) -> str:
        types = "$".join(_type_text(type_) for type_ in self.parameters)
        return f"{PREFIX}{self.function.name}${types}->{_type_text(self.returns)}"

    def __call__(self, *columns: pa.ChunkedArray | pa.Array) -> pa.Array:
        begin_call()
        arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
        if self.function.columns is not None:
            return self.function.columns(self.parameters, self.returns)(*arrays)
        assert self.function.row is not None
        row = self.function.row(self.parameters, self.returns)
        values = [_values(array, type_) for array, type_ in zip(arrays, self.parameters, strict=True)]
        nulls = self.function.nulls or not any(array.null_count for array in arrays)
        results = _rows(row, values, self.function.name, nulls=nulls)
        return _column(results, self.returns, lambda at: self._note_unfitting(results[at], values, at))

    def _note_unfitting(self, result: Any, values: Sequence[Sequence[Any]], at: int) -> None:
        message = f"function {self.function.name} failed: {shown(result)} does not fit {self.returns}"
        note(message, _shown(column[at] for column in values))

    def call(self, arguments: Sequence[exp.Expression]) -> exp.Expression:
        """The call as a DuckDB expression."""
        return exp.Anonymous(this=exp.Identifier(this=self.name, quoted=True), expressions=all_owned(arguments))


@lru_cache(maxsize=4096)
def udf_by_name(name: str) -> Udf:
    """The function that a plan names. The name comes from a plan of ours: another one fails an assertion."""
    head, _, returns = name.lower().rpartition("->")
    assert head.startswith(PREFIX), f"{name} is no Python function of Millstream's"
    function, *types = head.removeprefix(PREFIX).split("$")
    assert function in _FUNCTIONS, f"there is no Python function {function}"
    parameters = tuple(_type_of(text) for text in types if text)
    return Udf(_FUNCTIONS[function], parameters, _type_of(returns))


def udfs_in(tree: exp.Expr) -> tuple[str, ...]:
    """The names of all Python functions that a DuckDB expression calls, each once."""
    names = (node.name.lower() for node in tree.find_all(exp.Anonymous))
    return tuple(dict.fromkeys(name for name in names if name.startswith(PREFIX)))


_failures: WeakKeyDictionary[duckdb.DuckDBPyConnection, Failures] = WeakKeyDictionary()


def failures_of(connection: duckdb.DuckDBPyConnection) -> Failures:
    """Where users' functions note the rows that they fail for, if they were registered with this connection."""
    return _failures.setdefault(connection, Failures())


@dataclass(slots=True)
class _Scope:
    """`suffix`: of the names in the instance; `names`: the functions that are registered, without it."""

    suffix: str
    names: set[str] = field(default_factory=set[str])


_scopes: WeakKeyDictionary[duckdb.DuckDBPyConnection, _Scope] = WeakKeyDictionary()


def name_apart(connection: duckdb.DuckDBPyConnection, suffix: str) -> None:
    """What is registered with this connection is not known to the other databases of its DuckDB instance: there it gets
    the suffix, which no other connection has, and the connection's database gets a macro that has its name.

    Call `forget_udfs` before the connection is closed. DuckDB keeps the functions of a closed connection, and crashes
    if one of them is called."""
    _scopes[connection] = _Scope(suffix)


def register_udfs(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Make these functions known to the connection's database; those it knows already are left alone."""
    scope = _scopes.get(connection)
    for name in dict.fromkeys(names):
        if scope is None:
            _create(connection, name, name)
        elif name not in scope.names:
            _create(connection, name, name + scope.suffix)
            scope.names.add(name)
            arguments = ", ".join(f"a{position}" for position in range(len(udf_by_name(name).parameters)))
            macro, function = quoted_for_duckdb(name), quoted_for_duckdb(name + scope.suffix)
            connection.execute(f"CREATE OR REPLACE MACRO {macro}({arguments}) AS {function}({arguments})")


def forget_udfs(connection: duckdb.DuckDBPyConnection) -> None:
    """Removes the functions of a connection that were named apart."""
    scope = _scopes.pop(connection, None)
    if scope is not None:
        for name in sorted(scope.names):
            connection.remove_function(name + scope.suffix)


def _create(connection: duckdb.DuckDBPyConnection, name: str, name_there: str) -> None:
    udf = udf_by_name(name)
    parameters: list[Any] = [duckdb.sqltype(_duckdb_type(type_)) for type_ in udf.parameters]
    try:
        connection.create_function(
            name_there,
            _plain_function(udf, failures_of(connection)),
            parameters,
            duckdb.sqltype(_duckdb_type(udf.returns)),
            type=duckdb_func.PythonUDFType.ARROW,
            null_handling=duckdb_func.FunctionNullHandling.SPECIAL,
        )
    except duckdb.Error as error:
        if "already" not in str(error):
            raise


def _plain_function(udf: Udf, failures: Failures) -> Columns:
    """The function as DuckDB wants it: with a signature that has as many parameters as there are."""

    def function(*columns: pa.ChunkedArray) -> pa.Array:
        with collecting(failures):
            return udf(*columns)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = (f"column{position}" for position in range(len(udf.parameters)))
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # pyrefly: ignore[missing-attribute]
    return function


# ------------------------------------------------------------------ names

_HEX_FIELD = re.compile(r"`([0-9a-f]*)`")


def _type_text(type_: SqlType) -> str:
    return str(_rename_fields(type_, lambda name: name.encode().hex())).lower()


def _type_of(text: str) -> SqlType:
    spelled = _HEX_FIELD.sub(lambda match: f"`x{match[1]}`", text).upper()
    return _rename_fields(parse_type(spelled), lambda name: bytes.fromhex(name[1:]).decode())


def _rename_fields(type_: SqlType, rename: Callable[[str], str]) -> SqlType:
    match type_:
        case Array(element=element):
            return Array(_rename_fields(element, rename))
        case Map(key=key, value=value):
            return Map(_rename_fields(key, rename), _rename_fields(value, rename))
        case Struct(fields=fields):
            return Struct(tuple(Field(rename(f.name), _rename_fields(f.type, rename)) for f in fields))
        case _:
            return type_


def _duckdb_type(type_: SqlType) -> str:
    return without_null(type_).duckdb


def without_null(type_: SqlType) -> SqlType:
    """A type that columns can have: where only NULLs are known, a text will do."""
    match type_:
        case Array(element=element):
            return Array(without_null(element))
        case Map(key=key, value=value):
            return Map(without_null(key), without_null(value))
        case Struct(fields=fields):
            return Struct(tuple(Field(f.name, without_null(f.type)) for f in fields))
        case _:
            return STRING if type_ == NULL else type_


# ------------------------------------------------------------------ values


def _values(array: pa.Array, type_: SqlType) -> list[Any]:
    if type_ == TIMESTAMP:
        array = pc.divide(array.cast(pa.int64()), 1000)
    elif type_ == TIME:
        array = pc.divide(array.cast(pa.int64()), 1000)
    elif type_ == DATE:
        array = array.cast(pa.int32())
    try:
        return array.to_pylist()
    except (OverflowError, ValueError):  # one row has a collection with a date that Python has not
        return [value for at in range(len(array)) for value in python_values(array.slice(at, 1))]


def _rows(function: Row, columns: list[list[Any]], name: str, *, nulls: bool) -> list[Any]:
    """The results of all rows; `nulls` where no row needs to be looked at for NULLs. A row that raises gives NULL, and
    the processing log has why.

    `list.extend` keeps what it has when the function raises, and the iterators stand behind the row that failed.
    """
    called = _unless_over(function if nulls else _only_whole(function))
    rows = [iter(column) for column in columns]
    results: list[Any] = []
    count = len(columns[0])
    while len(results) < count:
        try:
            results.extend(map(called, *rows))
        except BoundExceeded as error:
            note_exceeded(error, name, _shown(column[len(results)] for column in columns))
        except Exception as error:
            arguments = _shown(column[len(results)] for column in columns)
            note(f"function {name} failed: {str(error) or type(error).__name__}", arguments)
        if len(results) < count:
            results.append(None)
    return results


def _only_whole(function: Row) -> Row:
    return lambda *values: None if None in values else function(*values)


def _unless_over(function: Row) -> Row:
    """Nothing is computed any more for a query whose time is over; who runs it finds out and says so."""
    bounds = current_bounds()
    if bounds.ends_at is None:
        return function
    return lambda *values: None if bounds.over else function(*values)


_SHOWN_MAX = 200


def _shown(values: Iterable[Any]) -> str:
    """The arguments of a row as text."""
    return f"({', '.join(map(shown, values))[: 5 * _SHOWN_MAX]})"


def shown(value: Any) -> str:
    """A value as text, of a long one the beginning: what makes a row fail is often long itself."""
    if isinstance(value, str | bytes) and len(value) > _SHOWN_MAX:
        return repr(value[:_SHOWN_MAX]) + "…"
    text = repr(value)
    return text if len(text) <= 5 * _SHOWN_MAX else text[: 5 * _SHOWN_MAX] + "…"


def _column(values: list[Any], type_: SqlType, unfitting: Callable[[int], None]) -> pa.Array:
    """The results as a column; one that does not fit its type is NULL. In: `unfitting`: is told the rows of those."""
    type_ = without_null(type_)
    if type_ in (TIMESTAMP, TIME):
        return pa.array([None if v is None else v * 1000 for v in values], pa.int64()).cast(type_.arrow)
    if type_ == DATE:
        return pa.array(values, pa.int32()).cast(pa.date32())
    try:
        return pa.array(values, type_.arrow)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        fitting = [_fits(value, type_) for value in values]
        for at, fits in enumerate(fitting):
            if not fits:
                unfitting(at)
        return pa.array([value if fits else None for value, fits in zip(values, fitting, strict=True)], type_.arrow)


def _fits(value: Any, type_: SqlType) -> bool:
    try:
        pa.array([value], type_.arrow)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return False
    return True
