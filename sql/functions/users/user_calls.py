"""How a user's scalar or table function is called for whole columns: per row, or once for all rows.

A row that fails returns NULL and is recorded (`failures.py`); the other rows have their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...types import Array, SqlType
from ..aggregation.aggregate_values import as_physical, column_of
from ..bounds import BoundExceeded
from ..failures import note, note_exceeded
from . import python_body
from .python_body import Body, BodyError
from .python_values import Convert, reader, writer
from .time_limit import within_time

Columns = Callable[..., pa.Array]


class DeclaredParameter(Protocol):
    @property
    def type(self) -> SqlType: ...


class Definition(Protocol):
    """What `user_functions.UserFunction` says about such a function."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parameters(self) -> Sequence[DeclaredParameter]: ...
    @property
    def returns(self) -> SqlType: ...
    @property
    def called_on_null(self) -> bool: ...
    @property
    def vectorized(self) -> bool: ...
    @property
    def python(self) -> Body: ...


def table_or_scalar_columns(definition: Definition) -> Columns:
    """The function from Arrow columns to an Arrow column. A table function gives an ARRAY per row."""
    returns = Array(definition.returns) if definition.kind == "table" else definition.returns
    call = _ByColumn(definition, returns) if definition.vectorized else _ByRow(definition, returns)

    def columns(*arrays: pa.Array) -> pa.Array:
        try:
            return called(arrays)
        except (BodyError, BoundExceeded) as error:  # a module that the text imports is missing in this process
            note_failure(definition, error, ["…"])
            return pa.nulls(len(arrays[0]), returns.arrow)

    def called(arrays: Sequence[pa.Array]) -> pa.Array:
        if definition.called_on_null or not any(array.null_count for array in arrays):
            return call(arrays)
        whole = arrays[0].is_valid()
        for array in arrays[1:]:
            whole = pc.and_(whole, array.is_valid())
        results = call([array.filter(whole) for array in arrays])
        where = np.where(whole.to_numpy(zero_copy_only=False), np.cumsum(whole.to_numpy(zero_copy_only=False)) - 1, -1)
        return results.take(pa.array(where, mask=where < 0))

    return columns


def note_failure(definition: Definition, error: BaseException, arguments: Sequence[Any]) -> None:
    if isinstance(error, BoundExceeded):
        note_exceeded(error, definition.name, f"({', '.join(map(repr, arguments))})")
        return
    line = python_body.line_of(error)
    place = "" if line is None else f", in line {line} of its text"
    shown = ", ".join(map(repr, arguments))
    note(f"function {definition.name} failed: {python_body.described(error)}{place}", f"({shown})")


def read_row(row: Sequence[Any], readers: Sequence[Convert | None]) -> list[Any]:
    """The values of a row as the user's function gets them. A function without arguments has a row all the same."""
    return [v if read is None or v is None else read(v) for v, read in zip(row, readers, strict=False)]


def load_in_time(definition: Definition) -> None:
    """Runs the text's own module, where that is still to be done. Raises `BodyError`, `BoundExceeded`."""
    if definition.python not in _loaded:
        ((_, error),) = within_time(lambda: python_body.load(definition.python), [()])
        if error is not None:
            raise error
        _loaded.add(definition.python)


_loaded: set[Body] = set()


class _ByRow:
    def __init__(self, definition: Definition, returns: SqlType) -> None:
        self._definition = definition
        self._returns = returns
        self._readers = [reader(parameter.type) for parameter in definition.parameters]
        self._write = writer(returns)

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.Array:
        load_in_time(self._definition)
        rows = list(zip(*map(_values, arrays), strict=True))
        results: list[Any] = []
        for row, (result, error) in zip(rows, within_time(self._call, rows), strict=True):
            results.append(result)
            if error is not None:
                note_failure(self._definition, error, self._read(row))
        return column_of(results, self._returns)

    def _call(self, *row: Any) -> Any:
        function: Any = python_body.load(self._definition.python)
        return self._write(function(*read_row(row, self._readers)))

    def _read(self, row: Sequence[Any]) -> Sequence[Any]:
        try:
            return read_row(row, self._readers)
        except Exception:  # that was the failure
            return row


class _ByColumn:
    """The function sees Arrow arrays. Where it fails, halves are tried, until the row is found that it fails for."""

    def __init__(self, definition: Definition, returns: SqlType) -> None:
        self._definition = definition
        self._type = returns.arrow

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.Array:
        load_in_time(self._definition)
        function: Any = python_body.load(self._definition.python)
        return self._part(function, arrays)

    def _part(self, function: Any, arrays: Sequence[pa.Array]) -> pa.Array:
        count = len(arrays[0])
        if not count:
            return pa.array([], self._type)
        try:
            ((result, failed),) = within_time(lambda: _as_array(function(*arrays), self._type), [()])
            if failed is not None:
                raise failed
        except Exception as error:
            if isinstance(error, BoundExceeded):  # each half might take as long again
                note_failure(self._definition, error, ["…"])
                return pa.nulls(count, self._type)
            if count == 1:
                note_failure(self._definition, error, [array[0].as_py() for array in arrays])
                return pa.nulls(1, self._type)
            half = count // 2
            first = self._part(function, [array.slice(0, half) for array in arrays])
            return pa.concat_arrays([first, self._part(function, [array.slice(half) for array in arrays])])
        if len(result) == count:
            return result
        wrong = ValueError(f"it returned {len(result)} values for {count} rows")
        note_failure(self._definition, wrong, ["…"])
        return pa.nulls(count, self._type)


def _as_array(result: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        result = pa.array(result)
    return result if result.type == type_ else result.cast(type_)


def _values(array: pa.Array) -> list[Any]:
    return as_physical(array).to_pylist()
