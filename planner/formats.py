"""Which schemas a format can hold, and which of its options a statement may set. How it encodes is the executor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import FormatError, InvalidProperty, did_you_mean

from ..sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, Array, Map, SqlType, Struct
from .schema import Column


@dataclass(frozen=True, slots=True)
class FormatRules:
    """`wraps`/`unwraps`: a single column can be written inside an object / bare."""

    name: str
    wraps: bool
    unwraps: bool
    doc: str


FORMATS: dict[str, FormatRules] = {
    rules.name: rules
    for rules in (
        FormatRules("JSON", True, True, "One JSON object per record; a single key column is written bare."),
        FormatRules("DELIMITED", False, True, "Comma-separated values; no nested types."),
        FormatRules("KAFKA", False, True, "One INT, BIGINT, DOUBLE, STRING or BYTES, as Kafka's serializers write it."),
        FormatRules("NONE", False, False, "No columns at all, for keys that nobody needs."),
        FormatRules("AVRO", True, True, "Avro records, whose schemas the schema registry keeps."),
        FormatRules("JSON_SR", True, True, "JSON, whose schemas the schema registry keeps."),
        FormatRules("PROTOBUF", True, False, "Protobuf messages, whose schemas the registry keeps."),
        FormatRules("PROTOBUF_NOSR", True, False, "Protobuf messages, whose fields are the columns in order."),
        FormatRules("ARROW", True, False, "Whole batches as Arrow columns, for topics that Millstream reads."),
    )
}  # fmt: skip
_WITHOUT_NULL = ("DELIMITED", "PROTOBUF", "PROTOBUF_NOSR")  # NULL is read back as an empty text or 0, or these as NULL
_WITHOUT_BARE_NULL = ("KAFKA", "AVRO")  # a single column that is NULL is written as no bytes at all
_TEXT_KEYS = {
    "JSON": "JSON only supports MAP types with STRING keys",
    "JSON_SR": "JSON only supports MAP types with STRING keys",
    "AVRO": "Avro only supports MAPs with STRING keys",
    "PROTOBUF": "PROTOBUF format only supports MAP types with STRING keys",
    "PROTOBUF_NOSR": "PROTOBUF format only supports MAP types with STRING keys",
}


def format_rules(name: str) -> FormatRules:
    """Raises `FormatError` for an unknown format."""
    rules = FORMATS.get(name.upper())
    if rules is not None:
        return rules
    raise FormatError(f"Unknown format: {name}", hint=did_you_mean(name, FORMATS))


def check_columns(name: str, columns: Sequence[Column], part: str) -> None:
    """Raises `FormatError` where format `name` cannot hold these columns; `part` is Key or Value."""
    if part == "Key":
        for column in columns:
            if _contains_map(column.type):
                raise FormatError(
                    "Map keys, including types that contain maps, are not supported as they may lead to unexpected "
                    f"behavior due to inconsistent serialization. Key column name: `{column.name}`. "
                    f"Column type: {column.type}. See https://github.com/confluentinc/ksql/issues/6621 for more."
                )
    reason = _refusal(name, columns, part)
    if reason is not None:
        listed = ", ".join(str(column) for column in columns)
        raise FormatError(
            f"{part} format does not support schema.\nformat: {name}\n"
            f"schema: Persistence{{columns=[{listed}], features=[]}}\nreason: {reason}"
        )


def can_hold(name: str, columns: Sequence[Column], *, may_be_null: bool = False) -> bool:
    """Whether the format can hold a key of these columns; one that `may_be_null` needs bytes for NULL."""
    if may_be_null and (name in _WITHOUT_NULL or (len(columns) == 1 and name in _WITHOUT_BARE_NULL)):
        return False
    return _refusal(name, columns, "Key") is None


def _refusal(name: str, columns: Sequence[Column], part: str) -> str | None:
    listed = ", ".join(str(column) for column in columns)
    match name:
        case "NONE":
            return (
                f"The 'NONE' format can only be used when no columns are defined. Got: [{listed}]" if columns else None
            )
        case "KAFKA":
            if len(columns) > 1:
                return f"The 'KAFKA' format only supports a single field. Got: [{listed}]"
            supported = (INTEGER, BIGINT, DOUBLE, STRING, BYTES)
            return next((_unsupported(name, c) for c in columns if c.type not in supported), None)
        case "DELIMITED":
            return next((_unsupported(name, c) for c in columns if isinstance(c.type, Array | Map | Struct)), None)
        case "JSON" | "JSON_SR" | "AVRO" | "PROTOBUF" | "PROTOBUF_NOSR":
            wrong = next((c for c in columns if _has_non_text_map_key(c.type)), None)
            return _TEXT_KEYS[name] if wrong else None
        case "ARROW":
            return "The 'ARROW' format holds values, not keys" if part == "Key" and columns else None
        case _:
            return None


def _unsupported(name: str, column: Column) -> str:
    kind = str(column.type).split("<")[0].split("(")[0]
    return f"The '{name}' format does not support type '{kind}', column: `{column.name}`"


def _nested(type_: SqlType) -> list[SqlType]:
    match type_:
        case Array(element=element):
            return [type_, *_nested(element)]
        case Map(key=key, value=value):
            return [type_, *_nested(key), *_nested(value)]
        case Struct(fields=fields):
            return [type_, *(inner for field in fields for inner in _nested(field.type))]
        case _:
            return [type_]


def _contains_map(type_: SqlType) -> bool:
    return any(isinstance(inner, Map) for inner in _nested(type_))


def _has_non_text_map_key(type_: SqlType) -> bool:
    return any(isinstance(inner, Map) and inner.key != STRING for inner in _nested(type_))


def wrapping(name: str, columns: Sequence[Column], wanted: bool | None, *, part: str) -> tuple[bool, tuple[str, ...]]:
    """Whether a single column is wrapped, and the features to show for it.

    Keys are bare where the format can; values are wrapped where it can, unless WRAP_SINGLE_VALUE says otherwise.
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
