"""The formats of keys and values: the types that each one supports, and its options.

A format consists of a module here, with its types, and one in `executor/formats/`, which decodes and encodes. No other
module names a format, except as a default.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from millstream.errors import FormatError, InvalidProperty, did_you_mean

from ..schema import Column
from .format import Format, SchemaKind, contains_map

_MODULES = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
FORMATS: Mapping[str, Format] = MappingProxyType(
    {found.name: found for module in _MODULES for found in vars(module).values() if isinstance(found, Format)}
)
FORMAT_KINDS: Mapping[str, SchemaKind] = MappingProxyType(
    {name: each.schema_kind for name, each in FORMATS.items() if each.schema_kind and each.registered}
)
"""The kind of schema of each format whose schemas the registry keeps."""


def format_rules(name: str) -> Format:
    """Raises `FormatError` for an unknown format."""
    found = FORMATS.get(name.upper())
    if found is not None:
        return found
    raise FormatError(f"Unknown format: {name}", hint=did_you_mean(name, FORMATS))


def check_columns(name: str, columns: Sequence[Column], part: str) -> None:
    """Raises `FormatError` if format `name` cannot hold these columns. `part` is Key or Value."""
    if part == "Key":
        check_map_keys(columns)
    reason = format_rules(name).refusal(columns, part)
    if reason is not None:
        listed = ", ".join(str(column) for column in columns)
        raise FormatError(
            f"{part} format does not support schema.\nformat: {name}\n"
            f"schema: Persistence{{columns=[{listed}], features=[]}}\nreason: {reason}",
            hint=_other_formats(columns, part),
        )


def _other_formats(columns: Sequence[Column], part: str) -> str | None:
    """A hint that names the formats that can hold the columns; None if there are none."""
    able = [name for name, each in FORMATS.items() if not each.columnar and each.refusal(columns, part) is None]
    return f"WITH ({part.upper()}_FORMAT='…') sets another format: {', '.join(able)} can hold this." if able else None


def check_map_keys(columns: Sequence[Column]) -> None:
    """Raises `FormatError` if a key holds a MAP. Its entries have no order: equal keys may differ in bytes."""
    for column in columns:
        if contains_map(column.type):
            raise FormatError(
                "Map keys, including types that contain maps, are not supported as they may lead to unexpected "
                f"behavior due to inconsistent serialization. Key column name: `{column.name}`. "
                f"Column type: {column.type}. See https://github.com/confluentinc/ksql/issues/6621 for more."
            )


def check_storable(name: str, *, columnar_topics: bool) -> None:
    """Raises `FormatError` if the log cannot store topics with this value format."""
    if FORMATS[name].columnar and not columnar_topics:
        raise FormatError(
            f"topics of format {name} cannot be stored: the log has no columnar batches",
            hint="Use VALUE_FORMAT='AVRO' or 'PROTOBUF', which are compact, or 'JSON'. Millstream's own log stores "
            f"{name}.",
        )


def can_hold(name: str, columns: Sequence[Column], *, may_be_null: bool = False) -> bool:
    """Whether the format can hold a key of these columns. A key that `may_be_null` needs bytes that mean NULL."""
    found = FORMATS[name]
    if may_be_null and not (found.holds_null and (len(columns) != 1 or found.holds_bare_null)):
        return False
    return found.refusal(columns, "Key") is None


def wrapping(name: str, columns: Sequence[Column], wanted: bool | None, *, part: str) -> tuple[bool, tuple[str, ...]]:
    """Whether a single column is wrapped, and the features to show for it.

    Keys are bare if the format allows it. Values are wrapped if it allows that, unless WRAP_SINGLE_VALUE is false.
    Raises `InvalidProperty`.
    """
    rules = FORMATS[name]
    if part == "Key":
        return not rules.unwraps, (("UNWRAP_SINGLES",) if len(columns) == 1 and rules.wraps and rules.unwraps else ())
    if wanted is None:
        return rules.wraps or not rules.unwraps, ()
    if len(columns) != 1:
        raise InvalidProperty("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas")
    if not (rules.wraps if wanted else rules.unwraps) or not (rules.wraps or rules.unwraps):
        raise InvalidProperty(f"Format '{name}' does not support 'WRAP_SINGLE_VALUE' set to '{str(wanted).lower()}'.")
    return wanted, ("WRAP_SINGLES" if wanted else "UNWRAP_SINGLES",)
