"""All functions by name: one entry each, from the category files in this folder."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from millstream.errors import Span, UnknownFunction, did_you_mean

from ..foreign_names import function_hint
from . import array, bytes, datetime, json, lambda_, map, math, null, other, regex, standard, string, table, url
from .function import BoundCall, Function, Variant, scalar, table_function, variant
from .signature import LambdaArgument, Parameter, Signature, parse_signature, parse_type
from .udf import Udf, forget_udfs, name_apart, register_udfs, udf_by_name, udfs_in
from .xpath import xml_functions

__all__ = [
    "FUNCTIONS", "BoundCall", "Function", "LambdaArgument", "Parameter", "Signature", "Udf", "Variant", "find_function",
    "forget_udfs", "name_apart", "parse_signature", "parse_type", "register_udfs", "scalar", "table_function",
    "udf_by_name", "udfs_in", "variant",
]  # fmt: skip

_CATEGORIES = (
    math, string, regex, datetime, array, map, lambda_, json, xml_functions, bytes, null, url, other, standard, table,
)  # fmt: skip


class _Catalog(Mapping[str, Any]):
    """Functions by name in upper case. The aggregates, which lean on the entries here, join at the first look.

    Functions that users wrote are found by their ids, but not listed: which ones there are, a server's catalog knows.
    """

    @cached_property
    def _entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for category in _CATEGORIES:
            for function in category.FUNCTIONS:
                assert function.name not in entries, f"two functions are named {function.name}"
                entries[function.name] = function
        return {**entries, **self._aggregates.AGGREGATES}

    @cached_property
    def _aggregates(self) -> Any:
        return importlib.import_module(".aggregation.aggregates", __package__)

    def __getitem__(self, name: str) -> Any:
        return self._entries[name] if name in self._entries else self._aggregates.USER_ENTRIES[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


FUNCTIONS: Mapping[str, Any] = _Catalog()


def find_function(name: str, span: Span | None = None) -> Any:
    """The entry of a function: a `Function`, or an aggregate. Raises `UnknownFunction`."""
    function = FUNCTIONS.get(name.upper())
    if function is None:
        raise UnknownFunction(
            f"Can't find any functions with the name '{name}'",
            span=span,
            hint=function_hint(name) or did_you_mean(name, FUNCTIONS),
        )
    return function
