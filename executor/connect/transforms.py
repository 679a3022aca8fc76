"""Single message transforms, with the names of Kafka Connect and Debezium. Each is a function from a record to a
record, or to None to drop it.

    'transforms'='unwrap,key', 'transforms.key.type'='ExtractField$Key', 'transforms.key.field'='id'

The type is the name of the class, with or without its package. `unwrap` without a type is ExtractNewRecordState. A
transform with a predicate (KIP-585) is for the records only that it holds for.

    'transforms'='drop', 'transforms.drop.type'='Filter', 'transforms.drop.predicate'='gone',
    'predicates'='gone', 'predicates.gone.type'='RecordIsTombstone'
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...sql.settings.property import says_true
from .connector import ConnectRecord
from .connector_errors import ConnectorFailed, InvalidConnector

Transform = Callable[[ConnectRecord], ConnectRecord | None]
Predicate = Callable[[ConnectRecord], bool]
_Make = Callable[["_Options"], Transform]
_WITH_PREDICATE: Final = " with a predicate"


class _Options:
    """The settings of one transform. `part`: the field of the record, "key" for `Type$Key`, "value" for
    `Type$Value`."""

    def __init__(self, prefix: str, config: Mapping[str, str], part: str) -> None:
        self._prefix = prefix
        self._config = config
        self.part = part

    def text(self, name: str, default: str | None = None) -> str:
        found = self._config.get(f"{self._prefix}.{name}", default)
        if found is None:
            raise self.wrong(name, "is missing")
        return found

    def has(self, *names: str) -> bool:
        return any(f"{self._prefix}.{name}" in self._config for name in names)

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(item.strip() for item in self.text(name).split(",") if item.strip())

    def choice(self, name: str, default: str, *others: str) -> str:
        found = self.text(name, default)
        if found not in (default, *others):
            raise self.wrong(name, f'is "{found}", but must be one of {", ".join((default, *others))}')
        return found

    def pattern(self, name: str) -> re.Pattern[str]:
        try:
            return re.compile(self.text(name))
        except re.error as error:
            raise self.wrong(name, f"is no regular expression: {error}") from None

    def wrong(self, name: str, what: str) -> InvalidConnector:
        return InvalidConnector(f"{self._prefix}.{name} {what}", setting=f"{self._prefix}.{name}")

    def get(self, record: ConnectRecord) -> Any:
        return getattr(record, self.part)

    def put(self, record: ConnectRecord, value: Any) -> ConnectRecord:
        return replace(record, **{self.part: value})


def transforms_of(config: Mapping[str, str]) -> tuple[Transform, ...]:
    """The transforms, in the order in which the settings name them. Raises `InvalidConnector`."""
    return tuple(_transform(name, config) for name in _names(config))


def _names(config: Mapping[str, str]) -> list[str]:
    """The names of the transforms in the settings."""
    return [name.strip() for name in config.get("transforms", "").split(",") if name.strip()]


def named_transforms(config: Mapping[str, str]) -> tuple[str, ...]:
    """The types of the transforms, without package: `ExtractField$Key`, `ExtractField$Key with a predicate`."""
    return tuple(_kind(name, config) + _WITH_PREDICATE * _is_conditional(name, config) for name in _names(config))


def _kind(name: str, config: Mapping[str, str]) -> str:
    return config.get(f"transforms.{name}.type", "ExtractNewRecordState").rpartition(".")[2]


def _is_conditional(name: str, config: Mapping[str, str]) -> bool:
    return f"transforms.{name}.predicate" in config


@dataclass(frozen=True, slots=True)
class Reshaped:
    """How transforms change the shape of records. `value`, `key`: whether the shape of the value or key changes;
    `unwraps`: whether Debezium's envelope becomes a row; `extracts_key`: the field that becomes the whole key;
    `replaced`: fields of the value whose type may change, in lower case."""

    value: bool = False
    key: bool = False
    unwraps: bool = False
    extracts_key: str | None = None
    replaced: frozenset[str] = frozenset()


def reshaped(config: Mapping[str, str]) -> Reshaped:
    """The effect of all transforms together."""
    found = Reshaped()
    for name in _names(config):
        after = _reshaped_by(name, found, config)
        some = after != found and _is_conditional(name, config)
        found = Reshaped(value=True, key=True, replaced=after.replaced) if some else after
    return found


def _reshaped_by(name: str, found: Reshaped, config: Mapping[str, str]) -> Reshaped:
    what, _, part = _kind(name, config).partition("$")
    is_key = part == "Key"
    match what:
        case "ExtractNewRecordState":
            return replace(found, unwraps=True)
        case "ExtractField" if is_key and not found.key:
            return replace(found, key=True, extracts_key=config.get(f"transforms.{name}.field"))
        case "ExtractField" | "HoistField":
            return replace(found, key=True, extracts_key=None) if is_key else replace(found, value=True)
        case "InsertField" | "MaskField" if is_key:
            return replace(found, key=True, extracts_key=None)
        case "InsertField" | "MaskField":
            options = ("fields", "static.field", "topic.field", "timestamp.field")
            changed = ",".join(config.get(f"transforms.{name}.{option}", "") for option in options)
            fields = {field.strip().lower() for field in changed.split(",")}
            return replace(found, replaced=found.replaced | fields)
        case _:
            return found


def routed(topic: str, config: Mapping[str, str]) -> str:
    """The topic to which the records of a topic go. Raises `ConnectorFailed` if it may be different for each record."""
    record = ConnectRecord(topic, None, None)
    for name in _names(config):
        is_router = _kind(name, config) == "RegexRouter"
        if _kind(name, config) == "TimestampRouter" or (is_router and _asks_more_than_topic(name, config)):
            raise ConnectorFailed(
                f"the rows of {topic} are in several topics, so they cannot be deleted",
                hint="ALTER CONNECTOR … WITH ('truncate.handling.mode'='skip') leaves them there.",
            )
        if is_router:
            record = _transform(name, config)(record) or record
    return record.topic


def transformed(record: ConnectRecord, transforms: tuple[Transform, ...]) -> ConnectRecord | None:
    """The record after all transforms; None if one of them drops it."""
    found: ConnectRecord | None = record
    for transform in transforms:
        if found is None:
            return None
        found = transform(found)
    return found


def _transform(name: str, config: Mapping[str, str]) -> Transform:
    prefix = f"transforms.{name}"
    given = config.get(f"{prefix}.type", "ExtractNewRecordState" if name == "unwrap" else None)
    if given is None:
        raise InvalidConnector(f"{prefix}.type is missing", setting=f"{prefix}.type")
    kind, dollar, part = given.rpartition(".")[2].partition("$")
    make = _TRANSFORMS.get(kind)
    if make is None or (dollar and part not in ("Key", "Value")):
        known = ", ".join(_TRANSFORMS)
        raise InvalidConnector(f'{prefix}.type is "{given}", but the transforms are {known}', setting=f"{prefix}.type")
    return _for_some(prefix, make(_Options(prefix, config, "key" if part == "Key" else "value")), config)


def _for_some(prefix: str, transform: Transform, config: Mapping[str, str]) -> Transform:
    """The transform for the records only that its predicate holds for, or does not hold for (`negate`)."""
    options, name = _Options(prefix, config, "value"), config.get(f"{prefix}.predicate")
    if name is None:
        if options.has("negate"):
            raise options.wrong("negate", f"needs {prefix}.predicate")
        return transform
    holds, unwanted = _predicate(name, prefix, config), says_true(options.choice("negate", "false", "true"))
    return lambda record: record if holds(record) is unwanted else transform(record)


def _predicate(name: str, prefix: str, config: Mapping[str, str]) -> Predicate:
    names = [each.strip() for each in config.get("predicates", "").split(",") if each.strip()]
    if name not in names:
        what = f"those in predicates are {', '.join(names)}" if names else "predicates names none"
        raise InvalidConnector(f'{prefix}.predicate is "{name}", but {what}', setting=f"{prefix}.predicate")
    options = _Options(f"predicates.{name}", config, "value")
    kind = options.text("type").rpartition(".")[2]
    match kind:
        case "TopicNameMatches":
            pattern = options.pattern("pattern")
            return lambda record: pattern.fullmatch(record.topic) is not None
        case "HasHeaderKey":
            header = options.text("name")
            return lambda record: any(each == header for each, _ in record.headers)
        case "RecordIsTombstone":
            return lambda record: record.value is None
        case _:
            raise options.wrong("type", f'is "{kind}", but the predicates are {", ".join(PREDICATE_NAMES)}')


def _asks_more_than_topic(name: str, config: Mapping[str, str]) -> bool:
    predicate = config.get(f"transforms.{name}.predicate")
    kind = config.get(f"predicates.{predicate}.type", "").rpartition(".")[2]
    return predicate is not None and kind != "TopicNameMatches"


def _extract_new_record_state(options: _Options) -> Transform:
    """Converts Debezium's envelope to a row, and a delete to one tombstone, or to a row that says so."""
    handling = _delete_handling(options)
    rewrites = handling.startswith("rewrite")

    def apply(record: ConnectRecord) -> ConnectRecord | None:
        value = record.value
        if value is None:  # the tombstone after a delete, which otherwise became a tombstone itself
            return record if handling == "rewrite-with-tombstone" else None
        if not (isinstance(value, dict) and "op" in value and "after" in value):
            return record
        if value["op"] != "d":
            after = value["after"]
            if after is None:
                return None
            return replace(record, value={**after, "__deleted": "false"} if rewrites else after)
        if handling == "drop":
            return None
        before = value.get("before") or {}
        return replace(record, value={**before, "__deleted": "true"} if rewrites else None)

    return apply


def _delete_handling(options: _Options) -> str:
    """`delete.tombstone.handling.mode`, or what the two options say that Debezium 1 had in its place."""
    if not options.has("delete.handling.mode", "drop.tombstones"):
        return options.choice(
            "delete.tombstone.handling.mode", "tombstone", "drop", "rewrite", "rewrite-with-tombstone"
        )
    if options.has("delete.tombstone.handling.mode"):
        raise options.wrong("delete.tombstone.handling.mode", "replaces delete.handling.mode and drop.tombstones")
    keeps_tombstones = not says_true(options.choice("drop.tombstones", "true", "false"))
    match options.choice("delete.handling.mode", "drop", "rewrite", "none"):
        case "rewrite":
            return "rewrite-with-tombstone" if keeps_tombstones else "rewrite"
        case "drop" if not keeps_tombstones:
            return "drop"
        case _:
            return "tombstone"


def _regex_router(options: _Options) -> Transform:
    pattern = options.pattern("regex")
    pieces = _replacement(options, pattern.groups)

    def apply(record: ConnectRecord) -> ConnectRecord:
        found = pattern.fullmatch(record.topic)
        if found is None:
            return record
        texts = (piece if isinstance(piece, str) else found.group(piece) or "" for piece in pieces)
        return replace(record, topic="".join(texts))

    return apply


def _replacement(options: _Options, group_count: int) -> list[str | int]:
    """The texts and the numbers of groups of a Java replacement such as `$1_new`, in their order. As in Java, `$12` is
    group 1 and a 2 if there are fewer than 12 groups."""
    pieces: list[str | int] = []
    for escaped, digits, plain in re.findall(r"\\(.)|\$([0-9]+)|(.)", options.text("replacement"), re.DOTALL):
        if not digits:
            pieces.append(escaped or plain)
            continue
        size = next((size for size in range(len(digits), 0, -1) if int(digits[:size]) <= group_count), None)
        if size is None:
            raise options.wrong("replacement", f"refers to ${digits}, but regex has only {group_count} groups")
        pieces += [int(digits[:size]), digits[size:]]
    return pieces


def _timestamp_router(options: _Options) -> Transform:
    topic_format = options.text("topic.format", "${topic}-${timestamp}")
    form = _python_date_format(options, options.text("timestamp.format", "yyyyMMdd"))

    def apply(record: ConnectRecord) -> ConnectRecord:
        if record.timestamp_ms is None:
            return record
        moment = datetime.datetime.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC).strftime(form)
        return replace(record, topic=topic_format.replace("${topic}", record.topic).replace("${timestamp}", moment))

    return apply


_DATE_PARTS: Final = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def _python_date_format(options: _Options, java: str) -> str:
    """Converts a Java date format: `yyyy-MM-dd` becomes `%Y-%m-%d`."""
    pieces: list[str] = []
    for piece in re.findall(r"([A-Za-z])(\1*)|([^A-Za-z]+)", java):
        word = piece[0] + piece[1]
        if word and word not in _DATE_PARTS:
            raise options.wrong("timestamp.format", f'has "{word}", but its parts are {", ".join(_DATE_PARTS)}')
        pieces.append(_DATE_PARTS[word] if word else piece[2].replace("%", "%%"))
    return "".join(pieces)


def _filter(options: _Options) -> Transform:
    """Keeps records whose field has one of the values; with mode=exclude it drops them. Tombstones are kept. Without a
    field it is that of Kafka, which drops the records that its predicate holds for."""
    if options.has("predicate") and not options.has("field"):
        return lambda record: None
    field, values = options.text("field"), set(options.names("value"))
    keeps = options.choice("mode", "include", "exclude") == "include"

    def apply(record: ConnectRecord) -> ConnectRecord | None:
        part = options.get(record)
        if part is None:
            return record
        found = _at(part, field)
        text = str(found).lower() if isinstance(found, bool) else str(found)
        return record if (found is not None and text in values) == keeps else None

    return apply


def _at(value: Any, path: str) -> Any:
    """The field at a path such as `after.status`."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _mask_field(options: _Options) -> Transform:
    fields, replacement = options.names("fields"), options.text("replacement", "")

    def apply(record: ConnectRecord) -> ConnectRecord:
        value = options.get(record)
        if not isinstance(value, dict):
            return record
        return options.put(
            record, {name: _mask(item, replacement) if name in fields else item for name, item in value.items()}
        )

    return apply


def _mask(value: Any, replacement: str) -> Any:
    """Masks a value as Kafka does: numbers become 0, texts the replacement, objects and arrays NULL."""
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, str):
        return replacement
    return type(value)()


def _insert_field(options: _Options) -> Transform:
    static = options.text("static.field", ""), options.text("static.value", "")
    topic, timestamp = options.text("topic.field", ""), options.text("timestamp.field", "")
    if not (static[0] or topic or timestamp):
        raise options.wrong("static.field", "is missing, and so are topic.field and timestamp.field")

    def apply(record: ConnectRecord) -> ConnectRecord:
        value = options.get(record)
        if not isinstance(value, dict):
            return record
        added = {static[0]: static[1], topic: record.topic, timestamp: record.timestamp_ms}
        return options.put(record, {**value, **{name: item for name, item in added.items() if name}})

    return apply


def _hoist_field(options: _Options) -> Transform:
    field = options.text("field")
    return lambda record: record if options.get(record) is None else options.put(record, {field: options.get(record)})


def _extract_field(options: _Options) -> Transform:
    field = options.text("field")

    def apply(record: ConnectRecord) -> ConnectRecord:
        value = options.get(record)
        return options.put(record, value.get(field)) if isinstance(value, dict) else record

    return apply


_TRANSFORMS: Final[Mapping[str, _Make]] = {
    "ExtractNewRecordState": _extract_new_record_state,
    "RegexRouter": _regex_router,
    "TimestampRouter": _timestamp_router,
    "Filter": _filter,
    "MaskField": _mask_field,
    "InsertField": _insert_field,
    "HoistField": _hoist_field,
    "ExtractField": _extract_field,
}
TRANSFORM_NAMES: Final = tuple(_TRANSFORMS)
PREDICATE_NAMES: Final = ("TopicNameMatches", "HasHeaderKey", "RecordIsTombstone")
