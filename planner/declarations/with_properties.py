"""The WITH clause: the properties that exist, and what they mean together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import InvalidProperty, did_you_mean

from ...sql.ast import Properties
from ...sql.settings.property import says_true
from ...sql.windows import WINDOW_TYPES
from ...sql.windows.durations import DURATION_MS_MAX, TOO_LONG, unit_ms
from ..formats import FORMATS, check_columns, format_rules, wrapping
from ..schema import Column
from ..select.naming import joined
from ..specs import FormatSpec, KeyWindow

_COMMON = {
    "KAFKA_TOPIC", "PARTITIONS", "REPLICAS", "RETENTION_MS", "CLEANUP_POLICY", "FORMAT", "KEY_FORMAT", "VALUE_FORMAT",
    "KEY_DELIMITER", "VALUE_DELIMITER", "WRAP_SINGLE_VALUE", "TIMESTAMP", "TIMESTAMP_FORMAT", "KEY_SCHEMA_ID",
    "VALUE_SCHEMA_ID", "KEY_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME", "VALUE_AVRO_SCHEMA_FULL_NAME",
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION", "VALUE_PROTOBUF_NULLABLE_REPRESENTATION", "EXECUTOR", "TTL",
}  # fmt: skip
_CREATE_ONLY = {"WINDOW_TYPE", "WINDOW_SIZE", "SOURCE_CONNECTOR", "SOURCED_BY_CONNECTOR"}
_AS_ONLY = {"BACKFILL"}
PROPERTY_NAMES = tuple(sorted(_COMMON | _CREATE_ONLY | _AS_ONLY))
"""The properties that WITH takes, including those of formats."""
_NULLABLE = ("OPTIONAL", "WRAPPER")
_DIGITS_MAX = 20  # of a duration
_DELIMITERS = {"TAB": "\t", "SPACE": " "}


@dataclass(frozen=True, slots=True)
class SchemaProperties:
    """WITH's properties of the schema of keys or values: its id in the registry, the full name of the record or
    message, and how PROTOBUF marks fields that may be NULL."""

    id: int | None = None
    full_name: str = ""
    nullable: str = ""


@dataclass(frozen=True, slots=True)
class SourceProperties:
    """The WITH clause, read and checked. None means that a property was not given."""

    topic: str | None
    partition_count: int | None
    key_format: str | None
    value_format: str | None
    key_delimiter: str | None
    value_delimiter: str | None
    wrap_single_value: bool | None
    timestamp_column: str | None
    timestamp_format: str | None
    key_window: KeyWindow | None
    executor: str | None
    backfill: bool
    key_schema: SchemaProperties
    value_schema: SchemaProperties
    ttl_ms: int | None = None
    retention_ms: int | None = None
    cleanup_policy: str | None = None
    replicas: int | None = None


_ELSEWHERE = {
    "CONNECTOR": "Leave it out: every stream and table is on a topic, kafka_topic='name'.",
    "TOPIC": "Write kafka_topic='name'.",
    "PROPERTIES.BOOTSTRAP.SERVERS": "Leave it out: the topics are those of this server.",
    "SCAN.STARTUP.MODE": "Where queries begin says SET 'auto.offset.reset' = 'earliest';",
    "PRIMARY_KEY": "Write PRIMARY KEY, or KEY in a stream, after the type of the column.",
    "KEY": "Write PRIMARY KEY, or KEY in a stream, after the type of the column.",
}
"""Properties of other systems, and the hint that tells what to do here."""


def read_properties(properties: Properties, *, create: bool) -> SourceProperties:
    """Reads the WITH clause of CREATE STREAM|TABLE (…) (`create`) or of CREATE … AS.

    Raises `InvalidProperty`, `FormatError` and `Unsupported`.
    """
    check_known(properties, _COMMON | (_CREATE_ONLY if create else _AS_ONLY))
    both = properties.get("FORMAT") is not None
    for name in ("KEY_FORMAT", "VALUE_FORMAT"):
        if both and name in properties:
            raise InvalidProperty(
                f"Cannot supply both '{name}' and 'FORMAT' properties, as 'FORMAT' sets both key and value formats. "
                "Either use just 'FORMAT', or use 'KEY_FORMAT' and 'VALUE_FORMAT'."
            )
    formats = {part: _format(properties, part) for part in ("KEY_FORMAT", "VALUE_FORMAT")}
    timestamp = properties.get("TIMESTAMP")
    return SourceProperties(
        topic=_topic(properties),
        partition_count=_count(properties, "PARTITIONS"),
        key_format=formats["KEY_FORMAT"],
        value_format=formats["VALUE_FORMAT"],
        key_delimiter=_delimiter(properties, "KEY_DELIMITER", formats["KEY_FORMAT"]),
        value_delimiter=_delimiter(properties, "VALUE_DELIMITER", formats["VALUE_FORMAT"]),
        wrap_single_value=_boolean(properties, "WRAP_SINGLE_VALUE"),
        timestamp_column=_identifier(timestamp) if isinstance(timestamp, str) else None,
        timestamp_format=_text(properties, "TIMESTAMP_FORMAT"),
        key_window=_key_window(properties),
        executor=_text(properties, "EXECUTOR"),
        backfill=_backfill(properties),
        key_schema=_schema_properties(properties, "KEY", formats["KEY_FORMAT"]),
        value_schema=_schema_properties(properties, "VALUE", formats["VALUE_FORMAT"]),
        ttl_ms=None if properties.get("TTL") is None else _duration_ms(str(properties["TTL"])),
        retention_ms=_count(properties, "RETENTION_MS"),
        cleanup_policy=_cleanup_policy(properties),
        replicas=_count(properties, "REPLICAS"),
    )


def check_known(properties: Properties, known: Collection[str]) -> None:
    """Raises `InvalidProperty` for a name that is not `known`."""
    unknown = [name for name in properties if name not in known]
    if unknown:
        raise InvalidProperty(
            f"Invalid config variable(s) in the WITH clause: {','.join(unknown)}",
            hint=_ELSEWHERE.get(unknown[0]) or did_you_mean(unknown[0], known),
        )


def check_ttl(kind: str, ttl_ms: int | None) -> None:
    """Raises `InvalidProperty` for a stream with a TTL."""
    if ttl_ms is not None and kind != "TABLE":
        raise InvalidProperty(
            "TTL is a property of tables: a stream's rows are not updated.",
            hint="How long a topic keeps a stream's records is its RETENTION_MS.",
        )


def _backfill(properties: Properties) -> bool:
    """Whether Spark should read the history."""
    given = _text(properties, "BACKFILL")
    if given is not None and given.lower() != "spark":
        raise InvalidProperty(
            f"BACKFILL cannot be '{given}'",
            hint="BACKFILL='spark' reads on Spark what the sources hold now. Without it the query reads all of that "
            "itself, on its EXECUTOR.",
        )
    return given is not None


def _cleanup_policy(properties: Properties) -> str | None:
    given = _text(properties, "CLEANUP_POLICY")
    if given is None:
        return None
    parts = [part.strip().lower() for part in given.replace("_", ",").split(",")]
    if not set(parts) <= {"delete", "compact"} or len(set(parts)) != len(parts):
        raise InvalidProperty(
            f"CLEANUP_POLICY cannot be '{given}'", hint="It is 'delete', 'compact' or 'compact,delete'."
        )
    return ",".join(parts)


def format_specs(
    given: SourceProperties, defaults: Mapping[str, FormatSpec], key: Sequence[Column], value: Sequence[Column],
    wraps: bool,
) -> tuple[FormatSpec, FormatSpec, tuple[str, ...], tuple[str, ...]]:  # fmt: skip
    """The key and value formats of a source with these columns, and the wrapping features to show.

    `defaults`: the formats for a WITH clause that names none, under "key" and "value". `wraps`: whether a single value
    column is wrapped if WITH does not say so.
    Raises `FormatError` and `InvalidProperty`.
    """
    specs: list[FormatSpec] = []
    features: list[tuple[str, ...]] = []
    for part, columns, name, delimiter, wanted, schema in (
        ("key", key, given.key_format, given.key_delimiter, None, given.key_schema),
        ("value", value, given.value_format, given.value_delimiter, given.wrap_single_value, given.value_schema),
    ):
        inherited = defaults.get(part)
        if name is None and inherited is None:
            raise InvalidProperty(
                f"Statement is missing the '{part.upper()}_FORMAT' property from the WITH clause.",
                hint=f"Add it, or set the default with SET 'ksql.persistence.default.format.{part}'='JSON'.",
            )
        chosen = name or (inherited.name if inherited else "")
        format_rules(chosen)
        if delimiter is not None:
            _check_delimited(chosen)
        stored = tuple(column for column in columns if column.role != "HEADERS")
        check_columns(chosen, stored, part.capitalize())
        if wanted is None and part == "value" and not wraps and len(stored) == 1 and _may_unwrap(chosen):
            wanted = False
        wrap, shown = wrapping(chosen, stored, wanted, part=part.capitalize())
        same = inherited is not None and inherited.name == chosen
        specs.append(
            FormatSpec(
                chosen,
                delimiter or (inherited.delimiter if same and inherited else ","),
                wrap,
                nullable=schema.nullable or (inherited.nullable if same and inherited else ""),
            )
        )
        features.append(shown)
    return specs[0], specs[1], features[0], features[1]


def _format(properties: Properties, part: str) -> str | None:
    value = properties.get(part, properties.get("FORMAT"))
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidProperty(f"Invalid value {value} for configuration {part}: it takes a text, such as 'JSON'")
    format_rules(value)
    return value.upper()


def _schema_properties(properties: Properties, part: str, format_name: str | None) -> SchemaProperties:
    full_name = _text(properties, f"{part}_SCHEMA_FULL_NAME")
    if full_name is None and part == "VALUE":
        full_name = _text(properties, "VALUE_AVRO_SCHEMA_FULL_NAME")
    nullable = _text(properties, f"{part}_PROTOBUF_NULLABLE_REPRESENTATION")
    for name, value in (("fullSchemaName", full_name), ("nullableRepresentation", nullable)):
        if value is not None and format_name is not None and name not in FORMATS[format_name].options:
            raise InvalidProperty(f"{format_name} does not support the following configs: [{name}]")
    if full_name is not None and not full_name.strip():
        raise InvalidProperty("fullSchemaName cannot be empty.", hint=f"Leave out {part}_SCHEMA_FULL_NAME.")
    if nullable is not None and nullable.upper() not in _NULLABLE:
        raise InvalidProperty(
            f"Invalid value {nullable} for configuration {part}_PROTOBUF_NULLABLE_REPRESENTATION: "
            f"it takes {' or '.join(_NULLABLE)}"
        )
    return SchemaProperties(
        _count(properties, f"{part}_SCHEMA_ID"), (full_name or "").strip(), (nullable or "").upper()
    )


def _topic(properties: Properties) -> str | None:
    topic = _text(properties, "KAFKA_TOPIC")
    if topic == "":
        raise InvalidProperty(
            "Invalid value '' for configuration KAFKA_TOPIC: a topic has a name",
            hint="Leave it out to use the topic that has the name of the stream or table.",
        )
    return topic


def _text(properties: Properties, name: str) -> str | None:
    value = properties.get(name)
    return None if value is None else str(value)


def _count(properties: Properties, name: str) -> int | None:
    value = properties.get(name)
    if value is None:
        return None
    try:
        count = int(str(value))
    except ValueError:
        raise InvalidProperty(
            f"Invalid value {value} for configuration {name}: Not a number of type INT.",
            hint=f"Give a whole number, as in {name}=4.",
        ) from None
    if count < 1:
        raise InvalidProperty(
            f"Invalid value {value} for configuration {name}: Value must be at least 1",
            hint=f"Give a whole number above 0, as in {name}=4.",
        )
    return count


def _boolean(properties: Properties, name: str) -> bool | None:
    value = properties.get(name)
    if value is None or isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise InvalidProperty(
            f"Invalid value {value} for configuration {name}: Expected value to be either true or false"
        )
    return says_true(value)


def _may_unwrap(format_name: str) -> bool:
    """Whether a single value may be bare or in an object: the default for both means nothing to other formats."""
    rules = format_rules(format_name)
    return rules.wraps and rules.unwraps


def _check_delimited(format_name: str) -> None:
    if "delimiter" not in FORMATS[format_name].options:
        raise InvalidProperty(f"{format_name} does not support the following configs: [delimiter]")


def _delimiter(properties: Properties, name: str, format_name: str | None) -> str | None:
    value = _text(properties, name)
    if value is None:
        return None
    if format_name is not None:
        _check_delimited(format_name)
    delimiter = _DELIMITERS.get(value.upper(), value)
    if not value.strip():
        reason = (
            "Delimiter cannot be empty, if you meant to have a tab or space for delimiter, please use the special "
            "values 'TAB' or 'SPACE'"
        )
    elif delimiter == '"':
        reason = f"Invalid delimiter value: '{value}'. It is what texts are quoted with"
    else:
        reason = f"Invalid delimiter value: '{value}'. Delimiter must be a single character or TAB,SPACE"
    if len(delimiter) != 1 or not value.strip() or delimiter == '"':
        raise InvalidProperty(
            f"Failed to prepare statement: Configuration {name} is invalid: {reason}\nExample valid value: ';'"
        )
    return delimiter


def _identifier(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in '`"' else text.upper()


def _key_window(properties: Properties) -> KeyWindow | None:
    kind, size = _text(properties, "WINDOW_TYPE"), _text(properties, "WINDOW_SIZE")
    if kind is None:
        if size is not None:
            raise InvalidProperty("'WINDOW_SIZE' should not be set without 'WINDOW_TYPE'.")
        return None
    found = WINDOW_TYPES.get(kind.upper())
    if found is None:
        known = joined(list(WINDOW_TYPES))
        raise InvalidProperty(f"Unknown window type: '{kind}'", hint=f"There are {known} windows.")
    if found.holds_end and size is not None:
        raise InvalidProperty(f"'WINDOW_SIZE' should not be set for {found.name} windows.")
    if found.holds_end:
        return KeyWindow(found.name)
    if size is None:
        raise InvalidProperty(
            f"{found.name} windows require 'WINDOW_SIZE' to be provided in the WITH clause. "
            "For example: 'WINDOW_SIZE'='10 SECONDS'"
        )
    try:
        return KeyWindow(found.name, _duration_ms(size))
    except InvalidProperty as refused:
        raise InvalidProperty(
            f"Error in WITH clause property 'WINDOW_SIZE': {refused.message}\nExample valid value: '10 SECONDS'"
        ) from refused


def _duration_ms(text: str) -> int:
    words = text.split()
    unit = unit_ms(words[1].upper()) if len(words) == 2 else None
    if len(words) != 2:
        why = f"Expected 2 tokens, got: {len(words)}"
    elif unit is None:
        why = f"Unknown time unit: '{words[1].upper()}'"
    elif not words[0].isdecimal():
        why = f"Not numeric: '{words[0]}'"
    elif len(words[0]) > _DIGITS_MAX or (duration_ms := int(words[0]) * unit) > DURATION_MS_MAX:
        why = TOO_LONG
    elif duration_ms == 0:
        why = "It must be positive."
    else:
        return duration_ms
    raise InvalidProperty(f"Invalid duration: '{text}'. {why}", hint="Write it as '10 SECONDS'.")
