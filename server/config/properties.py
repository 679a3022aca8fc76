"""Properties as SET, the configuration and requests bring them: names are looked up, values checked and spelled one
way. Everything behind this file sees canonical names and text values; the entries are in `property_table.py`."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.errors import InvalidProperty, Span, did_you_mean

from ...sql.settings.property import Property, text, text_of
from ...sql.settings.property_table import PROPERTIES

_BY_ANY_NAME = {
    **{f"ksql.streams.{entry.name}": entry for entry in PROPERTIES.values() if not entry.name.startswith("ksql.")},
    **{alias: entry for entry in PROPERTIES.values() for alias in entry.aliases},
    **PROPERTIES,
}

_OPEN_PREFIXES = (
    "ksql.functions.",
    "ksql.streams.consumer.",
    "ksql.streams.producer.",
    "ksql.streams.topic.",
    "spark.",
)
"""Below these anybody may invent names: settings of functions, of Kafka's clients, of Spark."""


def find_property(name: str, span: Span | None = None) -> Property[object]:
    """The entry of this name or alias. Raises `InvalidProperty`."""
    found = _BY_ANY_NAME.get(name)
    if found is not None:
        return found
    if name.startswith(_OPEN_PREFIXES):
        scope = "SERVER" if name.startswith("spark.") else "SESSION"  # some of Spark's let SQL read files
        return text(name, "", "A setting of a function, a client or Spark.", effective=False, scope=scope)
    raise InvalidProperty(
        f"Not recognizable as a property of Millstream, ksqlDB or Kafka: '{name}'.",
        span=span,
        hint=did_you_mean(name, _BY_ANY_NAME),
    )


def settable_property(name: str, span: Span | None = None) -> Property[object]:
    """The entry, if a session may set it. Raises `InvalidProperty`."""
    found = find_property(name, span)
    if found.scope == "SERVER":
        raise InvalidProperty(
            f"Cannot set property '{found.name}': it is a server property.",
            span=span,
            hint="Set it in the server's configuration and start the server again.",
        )
    return found


def checked_properties(given: Mapping[str, object]) -> dict[str, str]:
    """What a configuration or a request brings, under canonical names. Raises `InvalidProperty`."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = find_property(name)
        checked[entry.name] = entry.check(text_of(value))
    return checked


def lenient_properties(given: Mapping[str, object]) -> dict[str, str]:
    """As `checked_properties`, but unknown names are kept as they are: for conformance runs, which set many."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = _BY_ANY_NAME.get(name)
        checked[entry.name if entry else name] = entry.check(text_of(value)) if entry else text_of(value)
    return checked
